"""Requests to DynamoDB: many at a time, no call longer than its limit, and every trouble told in words.

Requests are sent by some threads of their own, so that a call can stop waiting at its deadline whatever
its client does. Each may be repeated: all writes are conditional or have one effect only. A request whose
connection fails is sent once more on a new one, as an idle one may have died unnoticed; one that
DynamoDB puts off (throttling, an error of its own) again and again until the deadline.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ReadTimeoutError,
)
from botocore.exceptions import (
    ConnectionError as CannotConnect,
)

from rota.stores.base import StoreUnavailable
from rota.stores.dynamodb.clock import ServerClock, boot
from rota.stores.dynamodb.table import Item, definition

T = TypeVar("T")

AT_A_TIME: Final = 26
"""So many requests at once: 25 writes, and the read beside them."""
READ_AT_ONCE: Final = 100

_PATIENCE: Final = 0.4
"""The part of the limit that one request may take, so that a second one has a chance."""

_NOTHING: Final[Item] = MappingProxyType({})
_NOT_MET: Final = {"ConditionalCheckFailedException", "ResourceInUseException"}
_LATER: Final = {
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "ThrottlingException",
}
_SIGNATURE: Final = {
    "InvalidSignatureException",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
}
_WORDS: Final = {
    "AccessDeniedException": "these credentials do not allow {operation}",
    "ExpiredTokenException": "the credentials have expired",
    "IncompleteSignatureException": "the credentials cannot be right",
    "InvalidClientTokenId": "AWS does not know these credentials",
    "MissingAuthenticationToken": "the request had no credentials",
    "MissingAuthenticationTokenException": "the request had no credentials",
    "UnrecognizedClientException": "AWS does not know these credentials",
}
_OTHER_KEYS: Final = re.compile("specified index|key element|key schema|the key ")
_OFF: Final = timedelta(minutes=1)


class TableMissing(Exception):
    """The table is not there, or not yet."""


class Reply:
    """What a request was answered, and when (microseconds); `met` is false where its condition was not."""

    __slots__ = ("body", "date", "met")

    def __init__(self, body: Item, date: int, *, met: bool = True) -> None:
        self.body, self.date, self.met = body, date, met


class Wire:
    """The way to one table. `make` makes a client whose requests take so many seconds at most; it is called
    when first needed. `ours` says whether that client is to be closed. A `plain` client (a Table resource's)
    takes Python's values, others take DynamoDB's notation."""

    def __init__(
        self,
        make: Callable[[float], Any],
        table: str,
        where: str,
        *,
        limit: timedelta,
        create: bool = True,
        ours: bool = True,
        plain: bool = False,
        clock: ServerClock | None = None,
    ) -> None:
        self.table, self.where, self.limit = table, where, limit.total_seconds()
        self.create = create
        self.clock = clock or ServerClock()
        self._make, self._ours, self._plain = make, ours, plain
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._client: Any = None
        self._threads: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    def call(self) -> Call:
        return Call(self, time.monotonic() + self.limit)

    def close(self) -> None:
        """End the threads, and close the connections if they are ours."""
        with self._lock:
            self._leave_to_the_parent()
            threads, client = self._threads, self._client
            self._threads = self._client = None
        if threads is not None:
            # Somebody else's client may wait for a minute; its thread ends by itself then.
            threads.shutdown(wait=self._ours, cancel_futures=True)
        if self._ours and client is not None:
            client.close()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        with self._lock:
            self._leave_to_the_parent()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="rota-dynamodb")
            with suppress(RuntimeError):
                return self._threads.submit(job)
        # The interpreter is on its way out and starts no threads any more.
        done: Future[T] = Future()
        try:
            done.set_result(job())
        except Exception as error:
            done.set_exception(error)
        return done

    def send(self, operation: str, arguments: Mapping[str, Any], deadline: float) -> Reply:
        """One request, repeated where that may help. Called in one of the threads."""
        failed, put_off = False, 0
        while True:
            sent = boot()
            try:
                client = self.client()
                sent = boot()
                body = getattr(client, operation)(**self._encoded(arguments))
                return Reply(self._decoded(body), self._heard(body, sent))
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code", "")
                if code in _NOT_MET:
                    return Reply({}, self._heard(error.response, sent), met=False)
                if code == "ResourceNotFoundException":
                    raise TableMissing from error
                put_off += 1
                pause = random.uniform(0.5, 1) * min(1.0, 0.025 * 2**put_off)
                if code not in _LATER or time.monotonic() + pause >= deadline:
                    raise StoreUnavailable(
                        f"{self.where}: {self._refused(error, code, operation)}"
                    ) from error
                time.sleep(pause)
            except (HTTPClientError, CannotConnect) as error:
                if failed or time.monotonic() >= deadline:
                    raise StoreUnavailable(f"{self.where}: {self._cut_off(error)}") from error
                failed = True
                self._drop_idle()
            except StoreUnavailable:
                raise
            except Exception as error:
                raise StoreUnavailable(f"{self.where}: {_in_words(error)}") from error

    def client(self) -> Any:
        client = self._client
        if client is None:
            # Not under the lock of `submit`: whoever gives out credentials may take its time.
            with self._making:
                client = self._client
                if client is None:
                    client = self._client = self._make(self.limit * _PATIENCE)
        return client

    def describe(self, deadline: float) -> Mapping[str, Any]:
        table: Mapping[str, Any] = self.send("describe_table", {"TableName": self.table}, deadline).body[
            "Table"
        ]
        return table

    def prepare(self, deadline: float) -> None:
        """Create the table if it is missing, whoever else does the same, and wait until it may be used."""
        asked = False
        while True:
            try:
                if self.describe(deadline)["TableStatus"] in ("ACTIVE", "UPDATING"):
                    return
            except TableMissing as missing:
                if not self.create:
                    raise StoreUnavailable(
                        f"{self.where}: there is no such table, and create=false: see `rota schema dynamodb`"
                    ) from missing
                if not asked:
                    self.send("create_table", definition(self.table), deadline)
                    asked = True
            if time.monotonic() + 0.1 >= deadline:
                raise StoreUnavailable(f"{self.where}: the table is still being created: ask again soon")
            time.sleep(0.05)

    def _drop_idle(self) -> None:
        """Close what is idle, as it may be dead too; the client opens new connections."""
        client = self._client
        if self._ours and client is not None:
            client.close()

    def _leave_to_the_parent(self) -> None:
        """After a fork the threads are not there and the connections not ours. To close them would say
        goodbye in the parent's name, so they are kept as they are."""
        if self._process != os.getpid():
            _abandoned.append((self._threads, self._client))
            self._threads = self._client = None
            self._making = threading.Lock()
            self._process = os.getpid()

    def _heard(self, response: Mapping[str, Any], sent: int) -> int:
        date = _date(response)
        if date is None:
            raise StoreUnavailable(f"{self.where}: it answers without a Date: is something in between?")
        return self.clock.hear(date, sent, boot())

    def _encoded(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        encoded: dict[str, Any] = dict(arguments)
        if self._plain:
            return encoded
        for part in ("Key", "Item", "ExpressionAttributeValues", "ExclusiveStartKey"):
            if part in encoded:
                encoded[part] = _notation(encoded[part])
        if "RequestItems" in encoded:
            (wanted,) = encoded["RequestItems"].values()
            keys = [_notation(key) for key in wanted["Keys"]]
            encoded["RequestItems"] = {self.table: {**wanted, "Keys": keys}}
        return encoded

    def _decoded(self, body: Mapping[str, Any]) -> Item:
        decoded: dict[str, Any] = dict(body)
        for part in ("Attributes", "LastEvaluatedKey"):
            if part in body:
                decoded[part] = _values(body[part])
        found = body.get("Items", body.get("Responses", _NOTHING).get(self.table, ()))
        decoded["Items"] = [_values(item) for item in found]
        unread = body.get("UnprocessedKeys", _NOTHING).get(self.table)
        decoded["Unread"] = [_values(key) for key in unread["Keys"]] if unread else []
        return decoded

    def _refused(self, error: ClientError, code: str, operation: str) -> str:
        message = str(error.response.get("Error", {}).get("Message", ""))
        if code in _SIGNATURE:
            offset = _offset(error.response)
            if offset is not None and abs(offset) > _OFF:
                return (
                    f"the clock of this host is off by {_shown(offset)}, and AWS refuses what is signed"
                    " more than five minutes apart: set the clock right"
                )
            return "the secret key does not belong to this access key, or is not for this region"
        if code in _LATER:
            return f"it has put us off for {self.limit:g} s ({code}): more is asked than the table may do"
        if code == "ValidationException" and _OTHER_KEYS.search(message):
            return f"this is not a table of rota ({message}): see `rota schema dynamodb`"
        if code in _WORDS:
            return _WORDS[code].format(operation="".join(word.title() for word in operation.split("_")))
        return f"{code}: {message}"

    def _cut_off(self, error: Exception) -> str:
        if isinstance(error, (ReadTimeoutError, ConnectTimeoutError)):
            return f"no answer within {self.limit * _PATIENCE:g} s, twice"
        if isinstance(error, EndpointConnectionError):
            return "nothing answers there: is it the right region or endpoint, and is the network up?"
        if isinstance(error, ConnectionClosedError):
            return "the connection was cut off, twice"
        return _in_words(error)


class Call:
    """One call of a store: its requests, its deadline, and its instant."""

    def __init__(self, wire: Wire, deadline: float) -> None:
        self.deadline = deadline
        self._wire = wire
        self._now: datetime | None = None
        self._told = 0

    @property
    def now(self) -> datetime:
        """The instant of the call, the same whenever it is asked for."""
        if self._now is None:
            self._now = self.tell()
        return self._now

    @property
    def spent(self) -> float:
        """Which part of the time limit is over."""
        return 1 - (self.deadline - time.monotonic()) / self._wire.limit

    def begin_again(self) -> None:
        """Take a new instant; the deadline stays."""
        self._now = None

    @property
    def was_behind(self) -> bool:
        """Whether the answers have shown that `now` was more than a second behind."""
        return self._wire.clock.was_behind(self.now, self._told)

    def tell(self) -> datetime:
        """The instant on the server's clock. Where too little is known of it, a small request is made; and
        another, as the first may have had to connect, and to find credentials."""
        for ask in (False, True, True):
            if ask:
                self.hear()
            self._told = boot()
            now = self._wire.clock.now(self._told)
            if now is not None:
                return now
        raise StoreUnavailable(
            f"{self._wire.where}: it takes longer than a second to answer, too long to tell the time by it"
        )

    def hear(self) -> None:
        """Make a request that reads nothing, for its answer."""
        self.run([partial(self.send, "get_item", Key={"pk": "rota", "sk": "rota"})])

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Do these jobs in the threads; where the table is missing, again when it is there."""
        try:
            return self._run(jobs)
        except TableMissing:
            self._run([partial(self._wire.prepare, self.deadline)])
        try:
            return self._run(jobs)
        except TableMissing as missing:
            raise StoreUnavailable(f"{self._wire.where}: the table is not there") from missing

    def _run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        futures = [self._wire.submit(job) for job in jobs]
        done, waiting = wait(futures, max(0.0, self.deadline - time.monotonic()), FIRST_EXCEPTION)
        for future in waiting:
            future.cancel()
        for future in done:
            future.result()
        if waiting:
            raise StoreUnavailable(f"{self._wire.where}: no answer within {self._wire.limit:g} s")
        return [future.result() for future in futures]

    # What follows are jobs, to be done by `run`.

    def send(self, operation: str, **arguments: Any) -> Reply:
        return self._wire.send(operation, {"TableName": self._wire.table, **arguments}, self.deadline)

    def write(
        self,
        operation: str,
        key: Item,
        only_if: str,
        *,
        change: str = "",
        item: Item = _NOTHING,
        answer: str = "NONE",
        **values: str | int,
    ) -> Reply:
        """Put, update or delete the item with this key; `met` is false where `only_if` does not hold."""
        arguments: dict[str, Any] = {"ConditionExpression": only_if, **_named(only_if, change)}
        if values:
            arguments["ExpressionAttributeValues"] = _colons(values)
        if operation == "put_item":
            return self.send(operation, Item={**key, **item}, **arguments)
        if change:
            arguments |= {"UpdateExpression": change, "ReturnValues": answer}
        return self.send(operation, Key=key, **arguments)

    def read(self, keys: Sequence[Item], what: str = "") -> list[Item]:
        """The items with these keys, 100 at most, in no particular order."""
        items: list[Item] = []
        shown = {"ProjectionExpression": what, **_named(what)} if what else {}
        while True:
            wanted = {"Keys": keys, "ConsistentRead": True, **shown}
            asked = {"RequestItems": {self._wire.table: wanted}}
            body = self._wire.send("batch_get_item", asked, self.deadline).body
            items += body["Items"]
            keys = body["Unread"]
            if not keys:
                return items
            self.must_go_on()

    def query(
        self,
        condition: str,
        *,
        index: str = "",
        what: str = "",
        backwards: bool = False,
        enough: Callable[[Sequence[Item]], bool] = lambda _: False,
        **values: str | int,
    ) -> list[Item]:
        """All items that meet a condition on their keys, in their order; or until a page is `enough`."""
        arguments: dict[str, Any] = {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": _colons(values),
            "ConsistentRead": True,
            "ScanIndexForward": not backwards,
            **_named(condition, what),
        }
        if index:
            arguments["IndexName"] = index
        if what:
            arguments["ProjectionExpression"] = what
        items: list[Item] = []
        while True:
            body = self.send("query", **arguments).body
            items += body["Items"]
            if enough(body["Items"]) or "LastEvaluatedKey" not in body:
                return items
            arguments["ExclusiveStartKey"] = body["LastEvaluatedKey"]
            self.must_go_on()

    def must_go_on(self) -> None:
        """Raise StoreUnavailable where the time is up."""
        if time.monotonic() >= self.deadline:
            raise StoreUnavailable(f"{self._wire.where}: not all was done within {self._wire.limit:g} s")


_abandoned: list[Any] = []
"""The threads and connections of a parent process."""


def host_ahead(reply: Reply) -> timedelta:
    """How far this host's clock, which signs the requests, is ahead of the one that dated the reply."""
    return _offset(reply.body) or timedelta(0)


def _offset(response: Mapping[str, Any]) -> timedelta | None:
    date = _date(response)
    if date is None:
        return None
    return datetime.now(UTC) - datetime.strptime(date, "%a, %d %b %Y %H:%M:%S %Z").replace(tzinfo=UTC)


def _date(response: Mapping[str, Any]) -> str | None:
    date: str | None = response.get("ResponseMetadata", _NOTHING).get("HTTPHeaders", _NOTHING).get("date")
    return date


def _shown(offset: timedelta) -> str:
    ahead = "ahead" if offset > timedelta(0) else "behind"
    return f"{timedelta(seconds=round(abs(offset.total_seconds())))} ({ahead})"


def _named(*expressions: str) -> dict[str, dict[str, str]]:
    """Every #name of the expressions, as many names are words of DynamoDB's language."""
    names = re.findall(r"#(\w+)", " ".join(expressions))
    return {"ExpressionAttributeNames": {f"#{name}": name for name in names}}


def _colons(values: Mapping[str, str | int]) -> dict[str, str | int]:
    return {f":{name}": value for name, value in values.items()}


def _in_words(error: Exception) -> str:
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return "no complete credentials were found, neither in the environment nor in files nor in a role"
    if isinstance(error, NoRegionError):
        return "no region is named"
    return f"{type(error).__name__}: {error}"


def _notation(item: Item) -> dict[str, dict[str, str]]:
    """Text and whole numbers as DynamoDB writes them."""
    return {
        name: {"N": f"{value}"} if isinstance(value, int) else {"S": value} for name, value in item.items()
    }


def _values(item: Item) -> Item:
    """The other way round. A Table resource has done it already, with decimal numbers."""
    return {name: _value(value) for name, value in item.items()}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return value["S"] if "S" in value else int(value["N"]) if "N" in value else value
    return value if isinstance(value, str) else int(value)
