"""A store in a MySQL or MariaDB database.

A call is one transaction in one packet, so no lock is ever held while an answer travels. The server decides
in its own language and answers what stands afterwards; from that the pure decisions give the answer of each
item, and find nothing left to write. A look needs two trips: where the marks stand, then one snapshot.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import pymysql

from rota.stores.base import (
    LONGEST_LEASE,
    TIME_LIMIT,
    Answer,
    Claim,
    DefinitionError,
    End,
    Guarantees,
    Lease,
    Look,
    Occurrence,
    Refusal,
    Refused,
    Request,
    Row,
    RowQuery,
    Shared,
    StoreError,
    StoreMisused,
    StoreUnavailable,
    View,
    acquired,
    check_claims,
    check_ends,
    check_leases,
    check_requests,
    check_version,
    claimed,
    instant,
    lease_of,
    pruned_mark,
    renewed,
    row_of,
    settled,
    shown_after,
)
from rota.stores.sql.mysql_concerns import concerns
from rota.stores.sql.mysql_connection import (
    ANOTHER_VERSION,
    CONFLICTS,
    NO_SUCH_TABLE,
    Address,
    Deadline,
    Link,
    Rows,
    code_of,
    explained,
    is_lost,
    is_wrong,
)
from rota.stores.sql.mysql_lending import Lend, by_engine, by_function, in_turn, own
from rota.stores.sql.mysql_schema import SCHEMA_VERSION, schema
from rota.stores.sql.mysql_statements import BEGIN_READING, COMMIT, Statements

__all__ = ["MySQLStore", "open_mysql", "schema", "wrap"]

T = TypeVar("T")
Ask = Callable[[Sequence[str]], list[Rows]]

_PACKET: Final = 4 << 20
_PRUNED_AT_ONCE: Final = 1000
_PAUSE: Final = 0.02


class MySQLStore:
    """Rows, leases and marks of `namespace` in tables of a database.

    `where` is the database's name in errors. `lend` gives a connection within a deadline; it is asked for a
    new one after that was found dead.
    """

    def __init__(
        self,
        where: str,
        namespace: str,
        lend: Lend,
        *,
        close: Callable[[], None] = lambda: None,
        limit: timedelta = TIME_LIMIT,
        create: bool = True,
        prefix: str = "rota_",
        longest_lease: timedelta = LONGEST_LEASE,
    ) -> None:
        self.where = where
        self.namespace = namespace
        self.longest_lease = longest_lease
        self._say = Statements(prefix, namespace)
        self._lend = lend
        self._close = close
        self._limit = limit.total_seconds()
        self._create = create

    def __repr__(self) -> str:
        return f"MySQLStore({self.where!r}, {self.namespace!r})"

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            shared=Shared.NETWORK,
            durable=True,
            clock="the database server",
            grain=timedelta(microseconds=1),
            fenced=True,
            lists_rows=True,
            primitive="INSERT ... ON DUPLICATE KEY UPDATE",
            trips="1; 2 for a look, and where a wait outlasted the window",
            needs=(
                "the primary: never a replica, and with Galera all servers on one node",
                "innodb_flush_log_at_trx_commit=1, or a power cut may take the last second",
                "binlog_format ROW or MIXED",
                "no proxy that splits a packet of several statements, or reads elsewhere than it writes",
            ),
            cannot=(
                "keep what an asynchronous replica had not received when it took over",
                "notice that the server's clock was set",
            ),
        )

    def look(self, question: Look) -> View:
        names = [*question.marks.values(), *map(pruned_mark, question.marks)]

        def work(ask: Ask) -> View:
            known = (
                _marks(ask([*BEGIN_READING, self._say.guard, self._say.marks(names), COMMIT])[0])
                if names
                else {}
            )
            clock, leases, marks, *rows = ask(self._say.look(names, shown_after(question, known)))
            stand = _marks(marks)
            starts = shown_after(question, stand)
            shown: dict[tuple[Occurrence, int], Row] = {}
            for row in (row_of(_read(columns)) for some in rows for columns in some):
                start = starts.get(row.occurrence.task)
                if row.is_open or (start is not None and row.occurrence.due > start):
                    shown[row.key] = row
            return View(_now(clock), stand, list(shown.values()), list(map(_lease, leases)))

        return self._call(work)

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        check_claims(claims)
        if not claims:
            return self._nothing()
        statements = self._say.claim(claims, _new_call())

        def work(ask: Ask) -> Answer[Row | Refusal]:
            clock, rows, marks = ask(statements)
            now, stand, pruned = _now(clock), _rows(rows), _marks(marks)
            answers = []
            for claim in claims:
                row = stand.get((claim.occurrence, claim.attempt))
                mark = pruned.get(pruned_mark(claim.occurrence.task))
                answer = claimed(claim, row, now, epoch=None, pruned=mark)
                self._expect(row is not None or isinstance(answer, Refusal), claim.occurrence)
                answers.append(answer)
            return Answer(now, answers)

        return self._call(work)

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        check_ends(ends)
        if not ends:
            return self._nothing()
        call = _new_call()

        def work(ask: Ask) -> Answer[Row | None]:
            now: datetime | None = None
            stand: dict[tuple[Occurrence, int], Row] = {}
            pruned: dict[str, datetime] = {}
            for some in _packets(ends):
                clock, rows, marks = ask(self._say.settle(some, call, now))
                now = _now(clock)
                stand |= _rows(rows)
                pruned |= _marks(marks)
            assert now is not None
            answers = []
            for end in ends:
                row = stand.get((end.occurrence, end.attempt))
                mark = pruned.get(pruned_mark(end.occurrence.task))
                answer = settled(end, row, now, epoch=None, pruned=mark)
                self._expect(answer is row, end.occurrence)
                answers.append(answer)
            return Answer(now, answers)

        return self._call(work)

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        check_requests(requests, self.longest_lease)
        if not requests:
            return self._nothing()
        statements = self._say.acquire(requests)

        def work(ask: Ask) -> Answer[Lease | Refusal]:
            clock, leases, clock_after = ask(statements)
            now, after, holders = _now(clock), _now(clock_after), _holders(leases)
            answers: list[Lease | Refusal] = []
            too_late: list[Lease] = []
            for request in requests:
                held = holders.get(request.key, [])
                answer = acquired(request, held, now, fence_before=0, epoch=None, quiet_until=None)
                self._expect(isinstance(answer, Refusal) or answer in held, request.key)
                if isinstance(answer, Lease) and request.not_after is not None and after > request.not_after:
                    # It was written in time but shown too late: a look in between has judged without it.
                    if answer.since == now:
                        too_late.append(answer)
                    answer = Refusal(Refused.TOO_LATE)
                answers.append(answer)
            if too_late:
                ask(self._say.release(too_late))
            return Answer(now, answers)

        return self._call(work)

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        check_leases(leases, ttl, self.longest_lease)
        if not leases:
            return self._nothing()
        statements = self._say.renew(leases, ttl)

        def work(ask: Ask) -> Answer[Lease | Refusal]:
            clock, rows = ask(statements)
            now, holders = _now(clock), _holders(rows)
            answers = []
            for lease in leases:
                held = holders.get(lease.key, [])
                answer = renewed(lease, held, now, ttl)
                self._expect(isinstance(answer, Refusal) or answer in held, lease.key)
                answers.append(answer)
            return Answer(now, answers)

        return self._call(work)

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        check_leases(leases)
        if not leases:
            return self._nothing()
        statements = self._say.release(leases)

        def work(ask: Ask) -> Answer[bool]:
            clock, rows = ask(statements)
            held = {(lease.key, lease.token) for lease in map(_lease, rows)}
            return Answer(_now(clock), [(lease.key, lease.token) in held for lease in leases])

        return self._call(work)

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        if not marks:
            return self._nothing()
        statements = self._say.advance(marks, first=first)

        def work(ask: Ask) -> Answer[datetime]:
            clock, rows = ask(statements)
            stand = _marks(rows)
            return Answer(_now(clock), [stand[mark] for mark in marks])

        return self._call(work)

    def rows(self, query: RowQuery) -> Answer[Row]:
        statements = self._say.rows(query)

        def work(ask: Ask) -> Answer[Row]:
            clock, rows = ask(statements)
            return Answer(_now(clock), [row_of(_read(columns)) for columns in rows])

        return self._call(work)

    def prune(self, before: datetime, *, most: int | None = None) -> int:
        """As the protocol says; what does not fit into the time limit is left for the next time."""
        count, deadline = 0, Deadline(time.monotonic() + self._limit)
        call, find = _new_call(), self._say.prunable(before, most, _PRUNED_AT_ONCE)

        def work(ask: Ask) -> tuple[int, bool]:
            (found,) = ask(find)
            if not found:
                return 0, False
            keys = [(task.decode(), due, attempt) for task, due, attempt in found]
            (((gone,),),) = ask(self._say.prune(keys, call))
            return int(gone), len(found) == _PRUNED_AT_ONCE

        more = True
        while more and (count == 0 or deadline.left_or_zero() > self._limit / 2):
            gone, more = self._call(work, deadline)
            count += gone
        return count

    def close(self) -> None:
        self._close()

    def concerns(self) -> Sequence[str]:
        """What about this server weakens what the store promises, as sentences."""
        return self._call(lambda ask: list(concerns(ask, self._say.names)))

    def _nothing(self) -> Answer[Any]:
        """The answer to an empty list."""
        return self.rows(RowQuery(limit=0))

    def _expect(self, holds: bool, key: object) -> None:
        """The pure decision and the server's agree, or else nothing is known."""
        if not holds:
            raise StoreUnavailable(f"{self.where}: the server has decided otherwise than rota about {key}")

    def _call(self, work: Callable[[Ask], T], deadline: Deadline | None = None) -> T:
        """Do the work within the time limit, once more where a connection was dead when it was taken."""
        deadline = deadline or Deadline(time.monotonic() + self._limit)
        fresh = False
        while True:
            opened = True
            try:
                with self._lend(deadline, fresh) as (link, opened):
                    return self._work(link, work, deadline)
            except StoreError:
                raise
            except (pymysql.Error, OSError, RuntimeError) as error:
                over = deadline.left_or_zero() == 0
                if is_lost(error) and not opened and not over:
                    fresh = True
                    continue
                if is_wrong(error):
                    raise StoreMisused(f"{self.where}: {error.args[-1]}") from error
                raise StoreUnavailable(
                    f"{self.where}: {explained(error, over=over, limit=self._limit)}"
                ) from error

    def _work(self, link: Link, work: Callable[[Ask], T], deadline: Deadline) -> T:
        """Do the work, again where it met others, and after the tables were created."""
        create = self._create
        while True:
            try:
                return work(lambda statements: link.ask(statements, deadline))
            except pymysql.MySQLError as error:
                code = code_of(error)
                if not (code in CONFLICTS or code in (NO_SUCH_TABLE, ANOTHER_VERSION)):
                    raise
                link.rollback(deadline)
                if code == ANOTHER_VERSION:
                    for (version,) in link.ask([*BEGIN_READING, self._say.version, COMMIT], deadline)[0]:
                        check_version(version, self.where, SCHEMA_VERSION)
                    raise
                if code == NO_SUCH_TABLE:
                    if not create:
                        how = "create=false" if not self._create else "they cannot be created"
                        raise StoreUnavailable(
                            f"{self.where}: it has no tables of rota, and {how}"
                        ) from error
                    create = False
                    link.ask([*self._say.tables, COMMIT], deadline)
                elif deadline.left_or_zero() < 2 * _PAUSE:
                    raise
                else:
                    time.sleep(random.uniform(0, _PAUSE))


def _packets(ends: Sequence[End]) -> Iterator[Sequence[End]]:
    """The ends in lists whose text fits into one packet each."""
    some: list[End] = []
    size = 0
    for end in ends:
        length = 2 * len((end.detail + end.output).encode(errors="replace"))
        if some and size + length > _PACKET:
            yield some
            some, size = [], 0
        some.append(end)
        size += length
    yield some


def _new_call() -> int:
    return random.getrandbits(61) + 2


def _read(columns: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(column.decode() if isinstance(column, bytes) else column for column in columns)


def _now(rows: Rows) -> datetime:
    return instant(rows[0][0])


def _lease(columns: Sequence[Any]) -> Lease:
    return lease_of(_read(columns))


def _rows(rows: Rows) -> dict[tuple[Occurrence, int], Row]:
    return {row.key: row for row in (row_of(_read(columns)) for columns in rows)}


def _marks(rows: Rows) -> dict[str, datetime]:
    return {name.decode(): instant(at) for name, at in rows}


def _holders(rows: Rows) -> dict[str, list[Lease]]:
    holders: dict[str, list[Lease]] = {}
    for lease in map(_lease, rows):
        holders.setdefault(lease.key, []).append(lease)
    return holders


def wrap(client: Any, *, namespace: str) -> MySQLStore:
    """The store on what the application has: an engine of SQLAlchemy (with PyMySQL), a connection of PyMySQL,
    or a function.

    The function opens a connection, which is closed after the call, or gives a context manager that lends
    one. What is lent must be in no transaction; it is left as it was found. A connection by itself serves one
    thread after another and is never closed.
    """
    if hasattr(client, "raw_connection"):
        if client.dialect.driver != "pymysql":
            raise DefinitionError(
                "no store works on an engine of that driver",
                argument="store",
                found=client.dialect.driver,
                allowed="pymysql",
            )
        return MySQLStore("the database of the engine", namespace, lambda *_: by_engine(client))
    if isinstance(client, pymysql.Connection):
        lock = threading.Lock()
        return MySQLStore(
            "the database of the connection", namespace, lambda deadline, _: in_turn(client, lock, deadline)
        )
    return MySQLStore("the database of the function", namespace, lambda *_: by_function(client))


def open_mysql(
    address: str,
    *,
    namespace: str,
    timeout: timedelta = TIME_LIMIT,
    create: bool = True,
    prefix: str = "rota_",
    unix_socket: str = "",
    ssl: bool = False,
    ssl_ca: str = "",
) -> MySQLStore:
    """What `mysql://user:password@host:port/database` opens; nothing is touched before the first call.

    With `ssl` the connection is encrypted, and the server must show a certificate for its name by an
    authority in `ssl_ca` (a file; else those the system trusts). With `ssl_ca` alone
    the name is not compared.
    """
    parts = urlsplit(address)
    database = unquote(parts.path.removeprefix("/"))
    if not database or not address.partition(":")[2].startswith("//"):
        raise ValueError("it names no database")
    where = Address(
        unquote(parts.hostname or "localhost"),
        parts.port or 3306,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        database,
        unix_socket,
        ssl,
        ssl_ca,
    )
    lend, close = own(where, timeout.total_seconds())
    return MySQLStore(str(where), namespace, lend, close=close, limit=timeout, create=create, prefix=prefix)
