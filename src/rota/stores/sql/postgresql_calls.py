"""One call of the PostgreSQL store: within its time limit, on whichever connection works, in our words.

A call that fails on a connection that was idle is asked once more on a new one, and one that met others in
a circle is asked again: every call may be repeated with the same token. Tables that are missing are created,
whoever else is doing the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeVar

from psycopg import pq

from rota.stores.base import StoreUnavailable, check_version, instant
from rota.stores.sql import postgresql_statements as sql
from rota.stores.sql.postgresql_sources import Source
from rota.stores.sql.postgresql_wire import (
    READ_COMMITTED,
    SNAPSHOT,
    Failed,
    Late,
    Lost,
    Table,
    explained,
    fly,
    number,
)

T = TypeVar("T")

Said = tuple[str, Sequence[bytes | None]]

OURS: Final = 0x726F7461
"""The first half of the number of each advisory lock of rota's."""

_IN_EACH_OTHERS_WAY: Final = frozenset({"40001", "40P01"})
_NO_TABLES: Final = frozenset({"42P01", "42704"})
_DEAD_AT_MOST: Final = 20


class Calls:
    """Calls on the connections of `source`, none longer than `limit` seconds."""

    def __init__(self, source: Source, *, limit: float, create: bool, prefix: str) -> None:
        self.where, self.limit, self.prefix = source.where, limit, prefix
        self._source, self._create = source, create

    def close(self) -> None:
        self._source.close()

    def read(self, statements: Sequence[Said]) -> tuple[datetime, list[Table]]:
        """The instant of the call and the answers, all from one snapshot that is not older."""
        return self._call(SNAPSHOT, [(sql.CLOCK_BEFORE_THE_SNAPSHOT, ()), *statements], 0, None)

    def write(
        self, statements: Sequence[Said], *, lock: Said | None = None, deadline: float | None = None
    ) -> tuple[datetime, list[Table]]:
        """The instant of the call, at which `lock` is held, and the answers. Each statement sees what was
        committed before it."""
        before = () if lock is None else (lock,)
        return self._call(READ_COMMITTED, [*before, (sql.CLOCK, ()), *statements], len(before), deadline)

    def state(self) -> tuple[int, Table]:
        """The process that the connection was told to speak with, and what its server says of itself."""

        def work(connection: pq.abc.PGconn, deadline: float) -> tuple[int, Table]:
            return connection.backend_pid, fly(connection, SNAPSHOT, [(sql.STATE.encode(), ())], deadline)[0]

        try:
            return self._connected(work, time.monotonic() + self.limit)
        except (Failed, Lost, Late) as error:
            raise explained(self.where, error, self.limit) from error

    def _call(
        self, begin: bytes, statements: Sequence[Said], clock: int, deadline: float | None
    ) -> tuple[datetime, list[Table]]:
        said = [(self._named(statement), values) for statement, values in statements]
        deadline = time.monotonic() + self.limit if deadline is None else deadline

        def ask(connection: pq.abc.PGconn, deadline: float) -> list[Table]:
            try:
                tables = fly(connection, begin, said, deadline)
            except Failed as error:
                if len(error.answered) > clock:
                    self._check(error.answered[clock])
                raise
            self._check(tables[clock])
            return tables[clock:]

        try:
            try:
                tables = self._connected(ask, deadline)
            except Failed as error:
                if error.state not in _NO_TABLES:
                    raise
                if not self._create:
                    words = f"{self.where}: it has no tables of rota, and create=false"
                    raise StoreUnavailable(words) from error
                self._connected(self._create_tables, deadline)
                tables = self._connected(ask, deadline)
        except (Failed, Lost, Late) as error:
            raise explained(self.where, error, self.limit) from error
        return instant(int(tables[0][0][1])), tables[1:]

    def _check(self, clock: Table) -> None:
        if not clock:
            raise Failed("42P01", f"{self.prefix}schema is empty", [])
        check_version(clock[0][0], self.where, sql.SCHEMA_VERSION)

    def _named(self, statement: str) -> bytes:
        return statement.replace("rota_", self.prefix).encode()

    def _create_tables(self, connection: pq.abc.PGconn, deadline: float) -> None:
        creating = [(self._named(statement), ()) for statement in sql.SCHEMA]
        try:
            fly(connection, READ_COMMITTED, [(sql.CREATING.encode(), (number(OURS),)), *creating], deadline)
        except Failed as error:
            if error.state == "42501":
                words = (
                    f"{self.where}: this user may not create the tables; `rota schema postgresql` prints them"
                )
                raise StoreUnavailable(f"{words}: {error}") from error
            raise

    def _connected(self, work: Callable[[pq.abc.PGconn, float], T], deadline: float) -> T:
        """What the work comes to on a connection that works."""
        fresh, died = False, 0
        while True:
            opened = True
            try:
                with self._source.one(fresh=fresh, deadline=deadline) as (connection, opened):
                    return work(connection, deadline)
            except Lost:
                died += 1
                if opened or died > _DEAD_AT_MOST or time.monotonic() > deadline:
                    raise
                fresh = True
            except Failed as error:
                if error.state not in _IN_EACH_OTHERS_WAY or time.monotonic() > deadline:
                    raise
