"""How the Redis store reaches its server: one script, one answer, within the time limit.

A connection is taken from the client's own pool and a script is sent over it by its digest; a server that
does not know the script yet (it was restarted, told to forget it, or promoted) is sent the whole. Clusters
are asked by way of their client, which knows where a key lies.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel

from rota.stores.base import DefinitionError, StoreUnavailable

_EVICTING: Final = "noeviction"
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_PROMPTLY: Final = 0.2
"""The part of the time limit within which a dead connection is found out and another one is tried."""


class Wire(Protocol):
    """A way to the server. `where` is its address as it may be shown."""

    where: str

    def call(self, script: str, key: bytes, argument: bytes, replicas: int) -> Any: ...
    def concerns(self, *, durable: bool) -> Sequence[str]: ...
    def close(self) -> None: ...


class PoolWire:
    """By the pool of a client for one server, or for the primary that sentinels name.

    `make` makes the client when it is first needed; `limit` is None for a client of the application's, whose
    own time limits hold.
    """

    def __init__(
        self, make: Callable[[], Any], where: str, *, limit: float | None, ours: bool = True
    ) -> None:
        self.where = where
        self._make, self._limit, self._ours = make, limit, ours
        self._client: Any = None

    def call(self, script: str, key: bytes, argument: bytes, replicas: int) -> Any:
        began = time.monotonic()
        deadline = None if self._limit is None else began + self._limit
        try:
            return self._send(script, key, argument, replicas, deadline)
        except Exception as error:
            if not _is_broken(error) or (deadline and time.monotonic() - began > _PROMPTLY * self._limit):  # type: ignore[operator]  # with a deadline there is a limit
                raise _unavailable(self.where, error, self._limit) from error
        try:  # a connection that was idle may have died unnoticed; asked again, it is the same question
            return self._send(script, key, argument, replicas, deadline)
        except Exception as error:
            raise _unavailable(self.where, error, self._limit) from error

    def _send(self, script: str, key: bytes, argument: bytes, replicas: int, deadline: float | None) -> Any:
        pool = self._pool()
        connection = _taken(pool)
        sound = False
        try:
            by_digest = ("EVALSHA", digest(script), 1, key, argument)
            answer = self._asked(connection, by_digest, replicas, deadline)
            if _unknown_script(answer):
                answer = self._asked(connection, ("EVAL", script, 1, key, argument), replicas, deadline)
            sound = True
        finally:
            if not sound:
                connection.disconnect()
            pool.release(connection)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _asked(
        self, connection: Any, command: Sequence[object], replicas: int, deadline: float | None
    ) -> Any:
        """The answer, or the error that the server answered."""
        commands = [command]
        if replicas:
            left = 1000 if deadline is None else max(1, int((deadline - time.monotonic()) * 800))
            commands.append(("WAIT", replicas, left))
        connection.send_packed_command(connection.pack_commands(commands))
        answers = []
        for _ in commands:
            if deadline is not None and not connection.can_read(max(0.0, deadline - time.monotonic())):
                raise redis.TimeoutError("no answer in time")
            answers.append(_answer(connection))
        if replicas and not isinstance(answers[0], Exception) and int(answers[1]) < replicas:
            raise StoreUnavailable(
                f"{self.where}: written on the primary, but only {int(answers[1])} of {replicas} replicas"
                " have it in time; nothing is known to be safe"
            )
        return answers[0]

    def concerns(self, *, durable: bool) -> Sequence[str]:
        try:
            return concerns(self._get(), durable=durable)
        except Exception as error:
            raise _unavailable(self.where, error, self._limit) from error

    def close(self) -> None:
        if self._ours and self._client is not None:
            client, self._client = self._client, None
            client.close()
            client.connection_pool.disconnect()

    def _get(self) -> Any:
        if self._client is None:
            self._client = self._make()
        return self._client

    def _pool(self) -> Any:
        return self._get().connection_pool


class ClusterWire:
    """By a cluster's client, which finds the node that has our keys. It repeats nothing by itself."""

    def __init__(
        self, make: Callable[[], Any], where: str, *, limit: float | None, ours: bool = True
    ) -> None:
        self.where = where
        self._make, self._limit, self._ours = make, limit, ours
        self._client: Any = None

    def call(self, script: str, key: bytes, argument: bytes, replicas: int) -> Any:
        if replicas:
            raise DefinitionError(
                "a cluster cannot be waited for",
                argument="store",
                found="wait_replicas=",
                allowed="a primary",
            )
        began = time.monotonic()
        while True:
            try:
                client = self._get()
                try:
                    answer = client.execute_command("EVALSHA", digest(script), 1, key, argument)
                except RedisError as error:
                    if not _unknown_script(error):
                        raise
                    answer = client.execute_command("EVAL", script, 1, key, argument)
                return _as_bytes(answer)
            except Exception as error:
                tired = self._limit is None or time.monotonic() - began > _PROMPTLY * self._limit
                if tired or not _is_broken(error):
                    raise _unavailable(self.where, error, self._limit) from error
                self.close()
                time.sleep(0.02)

    def concerns(self, *, durable: bool) -> Sequence[str]:
        try:
            client = self._get()
            nodes = client.get_primaries()
            found = [concerns(client.get_redis_connection(node), durable=durable) for node in nodes]
        except Exception as error:
            raise _unavailable(self.where, error, self._limit) from error
        return tuple(dict.fromkeys(words for node in found for words in node))

    def close(self) -> None:
        if self._ours and self._client is not None:
            client, self._client = self._client, None
            client.close()

    def _get(self) -> Any:
        if self._client is None:
            self._client = self._make()
        return self._client


def concerns(client: Any, *, durable: bool) -> Sequence[str]:
    """What an operator should see to on this server, in words."""
    said: list[str] = []
    role = _texts(client.info("replication")).get("role")
    if role in ("slave", "replica"):
        said.append("it is a replica: give rota the address of the primary, or redis+sentinel://")
    try:
        settings = {
            key: value
            for name in ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save")
            for key, value in _texts(client.config_get(name)).items()
        }
    except RedisError:
        return [*said, "CONFIG GET is not allowed: make sure that maxmemory-policy is noeviction"]
    policy = settings.get("maxmemory-policy", _EVICTING)
    if policy != _EVICTING:
        limit = "" if settings.get("maxmemory") != "0" else ", once maxmemory is set"
        said.append(
            f"maxmemory-policy is {policy}: under pressure{limit} it forgets locks and decisions without"
            " notice; set noeviction"
        )
    on_disk = settings.get("appendonly") == "yes"
    if durable and not (on_disk and settings.get("appendfsync") == "always"):
        said.append(
            "durable=true is said, but appendonly is not yes or appendfsync not always: a restart may forget,"
            " and would not be noticed"
        )
    if not on_disk and not settings.get("save"):
        said.append("it writes nothing to disk: a restart forgets everything (noticed, and starts wait)")
    return said


def opened(address: str, *, limit: float, **options: str) -> Wire:
    """The wire to an address; the client is made, and nothing touched, at the first call."""
    parts = urlsplit(address)
    scheme, _, kind = parts.scheme.partition("+")
    tls = scheme in ("rediss", "valkeys")
    user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
    common: dict[str, Any] = {
        "username": user or None,
        "password": password,
        "socket_timeout": limit,
        "socket_connect_timeout": 0.9 * limit,
        "protocol": 2,
    }
    if tls:
        common |= {"ssl": True, **options}
    elif options:
        raise DefinitionError(
            "these options are for TLS", argument="store", found=", ".join(options), allowed="rediss://"
        )
    hosts = _hosts(parts.netloc.rpartition("@")[2], _SENTINEL_PORT if kind == "sentinel" else _PORT)
    path = unquote(parts.path).strip("/")
    where = f"{parts.scheme}://{','.join(f'{host}:{port}' for host, port in hosts)}"
    common["retry"] = Retry(NoBackoff(), 0)
    if kind == "cluster":
        if path not in ("", "0"):
            raise ValueError(address)
        nodes = [ClusterNode(host, port) for host, port in hosts]  # type: ignore[no-untyped-call]  # theirs
        common |= {"socket_timeout": limit / 3, "socket_connect_timeout": limit / 3}
        return ClusterWire(lambda: redis.RedisCluster(startup_nodes=nodes, **common), where, limit=limit)
    if kind == "sentinel":
        service, _, database = path.partition("/")
        if not service:
            raise ValueError(address)
        return PoolWire(
            lambda: _by_sentinels(hosts, service, _database(database, address), limit, common),
            f"{where}/{path}",
            limit=limit,
        )
    if kind == "unix":
        common.pop("socket_connect_timeout", None)
        common |= {"unix_socket_path": unquote(parts.path)}
        if not path:
            raise ValueError(address)
        return PoolWire(lambda: redis.Redis(**common), f"{parts.scheme}://{parts.path}", limit=limit)
    if kind or len(hosts) != 1:
        raise ValueError(address)
    ((host, port),) = hosts
    common |= {"host": host, "port": port, "db": _database(path, address)}
    return PoolWire(lambda: redis.Redis(**common), f"{where}/{common['db']}", limit=limit)


def wrapped(client: Any) -> Wire:
    """The wire over a client of the application's own."""
    if hasattr(client, "get_primaries"):
        return ClusterWire(lambda: client, "the cluster of the application", limit=None, ours=False)
    pool = getattr(client, "connection_pool", None)
    if pool is None or not hasattr(pool, "connection_kwargs"):
        raise DefinitionError(
            "no store works on that",
            argument="store",
            found=f"a {type(client).__module__}.{type(client).__qualname__}",
            allowed="a client of redis-py or valkey-py (not its asyncio one)",
        )
    said = pool.connection_kwargs
    where = said.get("path") or f"{said.get('host', 'sentinels')}:{said.get('port', _SENTINEL_PORT)}"
    return PoolWire(lambda: client, f"redis://{where}", limit=None, ours=False)


def _by_sentinels(
    hosts: Sequence[tuple[str, int]], service: str, database: int, limit: float, common: Mapping[str, Any]
) -> Any:
    quick = {"socket_timeout": limit / 4, "socket_connect_timeout": limit / 4}
    said = {**quick, "retry": Retry(NoBackoff(), 0)}
    sentinels: Any = Sentinel(hosts, sentinel_kwargs=said)  # type: ignore[no-untyped-call]  # theirs
    return sentinels.master_for(service, db=database, **{**common, "socket_connect_timeout": limit / 4})


def _hosts(netloc: str, port: int) -> list[tuple[str, int]]:
    hosts = []
    for part in netloc.split(",") if netloc else ["localhost"]:
        parsed = urlsplit(f"//{part}")
        if not parsed.hostname:
            raise ValueError(netloc)
        hosts.append((parsed.hostname, parsed.port or port))
    return hosts


def _database(path: str, address: str) -> int:
    if path and not path.isdigit():
        raise ValueError(address)
    return int(path or 0)


@cache
def digest(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def _taken(pool: Any) -> Any:
    """A connection from the pool of redis-py, or of valkey-py, which wants to know what for."""
    is_redis = type(pool).__module__.startswith("redis.")
    return pool.get_connection() if is_redis else pool.get_connection("EVALSHA")


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response(disable_decoding=True)
    except Exception as error:
        if _is_answer(error):
            return error
        raise


def _is_answer(error: Exception) -> bool:
    """Whether the server answered, if only with an error: then the connection is sound."""
    return any(kind.__name__ == "ResponseError" for kind in type(error).__mro__)


def _unknown_script(answer: object) -> bool:
    return type(answer).__name__ == "NoScriptError" or (
        isinstance(answer, Exception) and str(answer).startswith("NOSCRIPT")
    )


def _is_broken(error: Exception) -> bool:
    """Whether the connection failed, and another one may do better."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"ConnectionError", "OSError", "ClusterDownError"}) and not names & {
        "TimeoutError",
        "AuthenticationError",
        "BusyLoadingError",
    }


_IN_WORDS: Final = (
    ("WRONGPASS", "the password or the user is wrong"),
    ("NOAUTH", "it asks for a password, and none is given"),
    ("Authentication required", "it asks for a password, and none is given"),
    ("invalid username-password", "the password or the user is wrong"),
    ("invalid password", "the password is wrong"),
    ("READONLY", "it is a replica that may not be written: give rota the address of the primary"),
    ("read only replica", "it is a replica that may not be written: give rota the address of the primary"),
    ("OOM", "its memory is full (maxmemory with noeviction)"),
    ("used memory", "its memory is full (maxmemory with noeviction)"),
    ("LOADING", "it is still loading its data"),
    ("loading the dataset", "it is still loading its data"),
    ("NOREPLICAS", "it has fewer replicas than min-replicas-to-write demands"),
    ("MISCONF", "it cannot write to its disk (stop-writes-on-bgsave-error)"),
    ("BUSY", "another script blocks it"),
    ("NOPERM", "this user may not do that"),
    ("ACL failure", "this user may not do that"),
)


def _unavailable(where: str, error: Exception, limit: float | None) -> Exception:
    if isinstance(error, StoreUnavailable | DefinitionError):
        return error
    text = str(error)
    if "TimeoutError" in {kind.__name__ for kind in type(error).__mro__}:
        within = "its client's time limit" if limit is None else f"{limit:g} s"
        return StoreUnavailable(f"{where}: no answer within {within}")
    for sign, words in _IN_WORDS:
        if sign in text:
            detail = f" ({text})" if sign in ("NOPERM", "ACL failure", "MISCONF") else ""
            return StoreUnavailable(f"{where}: {words}{detail}")
    return StoreUnavailable(f"{where}: {text or type(error).__name__}")


def _as_bytes(answer: Any) -> Any:
    """A client that decodes answers text; we want what was sent."""
    if isinstance(answer, list | tuple):
        return [_as_bytes(each) for each in answer]
    return answer.encode() if isinstance(answer, str) else answer


def _texts(found: Mapping[Any, Any]) -> dict[str, str]:
    def text(value: object) -> str:
        return value.decode() if isinstance(value, bytes) else str(value)

    return {text(key): text(value) for key, value in found.items()}
