"""A store in an SQLite file, for the servers of one host.

A call is one transaction: BEGIN IMMEDIATE where it may write, a read snapshot where it only looks. The
store's clock is the host's. It is read once a call: after the write lock is held, so that no decision
is older than what it is made upon; and before the snapshot of a look is taken, so that a lease is
never judged by a later instant than the one it was read at.
"""

from __future__ import annotations

import json
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from textwrap import dedent
from typing import Any, Final
from urllib.parse import unquote

from rota.stores.base import (
    FORGOTTEN_AFTER,
    LEASE_COLUMNS,
    LONGEST_LEASE,
    ROW_COLUMNS,
    STEP_BACK_ALLOWANCE,
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
    Request,
    Row,
    RowQuery,
    Shared,
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
    lease_columns,
    lease_of,
    microseconds,
    moved,
    pruned_mark,
    renewed,
    row_columns,
    row_of,
    settled,
    shown_after,
)
from rota.stores.sql.sqlite_file import SQLiteFile

SCHEMA_VERSION: Final = 1

SCHEMA: Final = (
    "CREATE TABLE rota_schema (version INTEGER NOT NULL, latest INTEGER NOT NULL)",
    """
    CREATE TABLE rota_row (
        app TEXT NOT NULL, task TEXT NOT NULL, due INTEGER NOT NULL, attempt INTEGER NOT NULL,
        token TEXT NOT NULL, server TEXT NOT NULL,
        since INTEGER NOT NULL, start_by INTEGER, keep_until INTEGER NOT NULL,
        cause TEXT NOT NULL, outcome TEXT, reason TEXT, ended INTEGER, took INTEGER,
        count INTEGER NOT NULL, last INTEGER, detail TEXT NOT NULL, output TEXT NOT NULL,
        PRIMARY KEY (app, task, due, attempt)
    )
    """,
    "CREATE INDEX rota_row_open ON rota_row (app) WHERE outcome IS NULL",
    "CREATE INDEX rota_row_due ON rota_row (app, due)",
    """
    CREATE TABLE rota_lease (
        app TEXT NOT NULL, name TEXT NOT NULL, slot INTEGER NOT NULL,
        token TEXT, owner TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL,
        fence INTEGER NOT NULL, last_fence INTEGER NOT NULL, note TEXT NOT NULL,
        PRIMARY KEY (app, name, slot)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX rota_lease_until ON rota_lease (app, until)",
    """
    CREATE TABLE rota_mark (
        app TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (app, name)
    ) WITHOUT ROWID
    """,
)

_ROW: Final = ", ".join(ROW_COLUMNS)
_SHORT_ROW: Final = ", ".join(ROW_COLUMNS[:-1])
_LEASE: Final = ", ".join(LEASE_COLUMNS)
_PRUNABLE: Final = """
    FROM (
        SELECT app, task, due, attempt, ended, keep_until,
            row_number() OVER (PARTITION BY task ORDER BY due DESC, attempt DESC) AS place
        FROM rota_row WHERE app = ? AND outcome IS NOT NULL
    ) WHERE (? IS NOT NULL AND place > ? OR ended < ?) AND keep_until < ?"""
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class SQLiteStore:
    """Rows, leases and marks in the SQLite file at `path`, shared by the processes of one host.

    `clock` is the store's clock: the host's, unless a test drives it. No call takes longer than
    `limit`, waiting for locks included. With `create=False` the tables are expected to be there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        namespace: str = "",
        *,
        clock: Callable[[], datetime] = _utc_now,
        limit: timedelta = TIME_LIMIT,
        create: bool = True,
        longest_lease: timedelta = LONGEST_LEASE,
    ) -> None:
        self.path = os.path.abspath(path)
        self.namespace = namespace
        self.longest_lease = longest_lease
        self._clock = clock
        self._file = SQLiteFile(self.path, limit=limit.total_seconds(), create=create, prepare=self._prepare)

    def __repr__(self) -> str:
        return f"SQLiteStore({self.path!r}, {self.namespace!r})"

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            shared=Shared.HOST,
            durable=True,
            clock="this host",
            grain=_MICROSECOND,
            fenced=True,
            lists_rows=True,
            primitive="one transaction, BEGIN IMMEDIATE",
            trips="1",
            needs=("a local disk: a network file system cannot hold the write-ahead log",),
            cannot=(
                "see servers on other hosts",
                "tell a host clock that steps back by more than 10 minutes from the truth: it warns",
            ),
        )

    def look(self, question: Look) -> View:
        with self._reading() as (sql, now):
            names = {*question.marks.values(), *map(pruned_mark, question.marks)}
            marks = self._marks(sql, names)
            asked = [(task, microseconds(start)) for task, start in shown_after(question, marks).items()]
            rows = [
                *sql.execute(
                    f"SELECT {_SHORT_ROW} FROM json_each(?) AS asked CROSS JOIN rota_row"
                    " WHERE app = ? AND task = json_extract(asked.value, '$[0]')"
                    " AND due > json_extract(asked.value, '$[1]')",
                    (json.dumps(asked), self.namespace),
                )
            ]
            rows_open = sql.execute(
                f"SELECT {_SHORT_ROW} FROM rota_row WHERE app = ? AND outcome IS NULL", (self.namespace,)
            )
            leases = sql.execute(
                f"SELECT {_LEASE} FROM rota_lease WHERE app = ? AND until > ? AND token IS NOT NULL",
                (self.namespace, microseconds(now)),
            )
            shown = {(row[0], row[1], row[2]) for row in rows}
            rows += [row for row in rows_open if (row[0], row[1], row[2]) not in shown]
            return View(now, marks, [row_of(row) for row in rows], [lease_of(lease) for lease in leases])

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        check_claims(claims)
        with self._writing() as (sql, now):
            pruned = self._marks(sql, {pruned_mark(claim.occurrence.task) for claim in claims})
            answers: list[Row | Refusal] = []
            fresh: list[Row] = []
            for claim in claims:
                row = self._row(sql, claim.occurrence, claim.attempt)
                mark = pruned.get(pruned_mark(claim.occurrence.task))
                answer = claimed(claim, row, now, epoch=None, pruned=mark)
                if row is None and isinstance(answer, Row):
                    fresh.append(answer)
                answers.append(answer)
            self._put(sql, fresh)
            return Answer(now, answers)

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        check_ends(ends)
        with self._writing() as (sql, now):
            pruned = self._marks(sql, {pruned_mark(end.occurrence.task) for end in ends})
            answers: list[Row | None] = []
            for end in ends:
                row = self._row(sql, end.occurrence, end.attempt)
                mark = pruned_mark(end.occurrence.task)
                answer = settled(end, row, now, epoch=None, pruned=pruned.get(mark))
                if answer is not None and answer is not row:
                    self._put(sql, [answer])
                    if end.last is not None:
                        pruned[mark] = moved(pruned.get(mark), end.last, now)
                        self._set(sql, {mark: pruned[mark]})
                answers.append(answer)
            return Answer(now, answers)

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        check_requests(requests, self.longest_lease)
        with self._writing() as (sql, now):
            answers: list[Lease | Refusal] = []
            for request in requests:
                holders, fence = self._holders(sql, request.key, now)
                answer = acquired(request, holders, now, fence_before=fence, epoch=None, quiet_until=None)
                if isinstance(answer, Lease):
                    self._hold(sql, answer)
                answers.append(answer)
            return Answer(now, answers)

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        check_leases(leases, ttl, self.longest_lease)
        with self._writing() as (sql, now):
            answers: list[Lease | Refusal] = []
            for lease in leases:
                answer = renewed(lease, self._holders(sql, lease.key, now)[0], now, ttl)
                if isinstance(answer, Lease):
                    self._hold(sql, answer)
                answers.append(answer)
            return Answer(now, answers)

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        check_leases(leases)
        with self._writing() as (sql, now):
            at = microseconds(now)
            return Answer(
                now,
                [
                    sql.execute(
                        "UPDATE rota_lease SET token = NULL, until = ?"
                        " WHERE app = ? AND name = ? AND token = ? AND until > ?",
                        (at, self.namespace, lease.key, lease.token, at),
                    ).rowcount
                    == 1
                    for lease in leases
                ],
            )

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        with self._writing() as (sql, now):
            stood = self._marks(sql, marks)
            stand = {mark: moved(stood.get(mark), value, now, first=first) for mark, value in marks.items()}
            self._set(sql, {mark: at for mark, at in stand.items() if at != stood.get(mark)})
            return Answer(now, list(stand.values()))

    def rows(self, query: RowQuery) -> Answer[Row]:
        conditions: list[tuple[str, Any]] = [("app = ?", self.namespace)]
        if query.tasks:
            conditions.append(("task IN (SELECT value FROM json_each(?))", json.dumps(list(query.tasks))))
        if query.since is not None:
            conditions.append(("due >= ?", microseconds(query.since)))
        if query.outcome is not None:
            conditions.append(("outcome = ?", query.outcome.value))
        if query.server is not None:
            conditions.append(("server = ?", query.server))
        if query.open_only:
            conditions.append(("outcome IS NULL AND ?", True))
        where = " AND ".join(condition for condition, _ in conditions)
        with self._reading() as (sql, now):
            found = sql.execute(
                f"SELECT {_ROW} FROM rota_row WHERE {where} ORDER BY due DESC, task, attempt DESC LIMIT ?",
                (*(value for _, value in conditions), max(0, query.limit)),
            )
            return Answer(now, [row_of(row) for row in found])

    def prune(self, before: datetime, *, most: int | None = None) -> int:
        with self._writing() as (sql, now):
            sql.execute(
                "DELETE FROM rota_lease WHERE app = ? AND until < ?",
                (self.namespace, microseconds(now - FORGOTTEN_AFTER)),
            )
            limits = (
                self.namespace,
                most,
                most,
                microseconds(before),
                microseconds(now - STEP_BACK_ALLOWANCE),
            )
            last = {
                pruned_mark(task): instant(due)
                for task, due in sql.execute(f"SELECT task, MAX(due) {_PRUNABLE} GROUP BY task", limits)
            }
            stood = self._marks(sql, last)
            self._set(sql, {mark: moved(stood.get(mark), due, now) for mark, due in last.items()})
            where = f"(app, task, due, attempt) IN (SELECT app, task, due, attempt {_PRUNABLE})"
            return sql.execute(f"DELETE FROM rota_row WHERE {where}", limits).rowcount

    def close(self) -> None:
        self._file.close()

    def _row(self, sql: sqlite3.Connection, occurrence: Occurrence, attempt: int) -> Row | None:
        found = sql.execute(
            f"SELECT {_ROW} FROM rota_row WHERE app = ? AND task = ? AND due = ? AND attempt = ?",
            (self.namespace, occurrence.task, microseconds(occurrence.due), attempt),
        ).fetchone()
        return None if found is None else row_of(found)

    def _put(self, sql: sqlite3.Connection, rows: Sequence[Row]) -> None:
        sql.executemany(
            f"INSERT OR REPLACE INTO rota_row (app, {_ROW}) VALUES ({', '.join('?' * 18)})",
            [(self.namespace, *row_columns(row)) for row in rows],
        )

    def _marks(self, sql: sqlite3.Connection, names: Iterable[str]) -> dict[str, datetime]:
        found = sql.execute(
            "SELECT name, at FROM rota_mark WHERE app = ? AND name IN (SELECT value FROM json_each(?))",
            (self.namespace, json.dumps(list(names))),
        )
        return {name: instant(at) for name, at in found}

    def _set(self, sql: sqlite3.Connection, marks: Mapping[str, datetime]) -> None:
        sql.executemany(
            "INSERT OR REPLACE INTO rota_mark (app, name, at) VALUES (?, ?, ?)",
            [(self.namespace, name, microseconds(at)) for name, at in marks.items()],
        )

    def _holders(self, sql: sqlite3.Connection, key: str, now: datetime) -> tuple[list[Lease], int]:
        """Who holds the key now, and the highest fence it ever had."""
        found = sql.execute(
            f"SELECT {_LEASE}, last_fence FROM rota_lease WHERE app = ? AND name = ?", (self.namespace, key)
        ).fetchall()
        at = microseconds(now)
        holders = [lease_of(place[:-1]) for place in found if place[1] is not None and place[4] > at]
        return holders, max((place[-1] for place in found), default=0)

    def _hold(self, sql: sqlite3.Connection, lease: Lease) -> None:
        sql.execute(
            f"INSERT INTO rota_lease (app, {_LEASE}, last_fence) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (app, name, slot) DO UPDATE SET token = excluded.token, owner = excluded.owner,"
            " since = excluded.since, until = excluded.until, fence = excluded.fence, note = excluded.note,"
            " last_fence = max(last_fence, excluded.last_fence)",
            (
                self.namespace,
                *lease_columns(lease),
                lease.fence,
            ),
        )

    @contextmanager
    def _reading(self) -> Iterator[tuple[sqlite3.Connection, datetime]]:
        with self._file.transaction("BEGIN") as sql:
            yield sql, self._clock()

    @contextmanager
    def _writing(self) -> Iterator[tuple[sqlite3.Connection, datetime]]:
        with self._file.transaction("BEGIN IMMEDIATE") as sql:
            now = self._clock()
            ((version, latest),) = sql.execute("SELECT version, latest FROM rota_schema")
            check_version(version, self.path, SCHEMA_VERSION)
            stepped_back = instant(latest) - now
            yield sql, now
            if stepped_back > STEP_BACK_ALLOWANCE or stepped_back <= -_SECOND:
                sql.execute("UPDATE rota_schema SET latest = ?", (microseconds(now),))
        if stepped_back > STEP_BACK_ALLOWANCE:
            warnings.warn(
                f"{self.path}: the clock of this host has stepped back by {stepped_back}; more than"
                f" {STEP_BACK_ALLOWANCE} can start an occurrence twice",
                RuntimeWarning,
                stacklevel=4,
            )

    def _prepare(self, sql: sqlite3.Connection) -> None:
        """Find the tables, or create them, whoever else is doing the same."""
        if not self._has_tables(sql):
            if not self._file.create:
                raise StoreUnavailable(f"{self.path}: it has no tables of rota, and create=false")
            self._file.switch_to_wal(sql)
            sql.execute("BEGIN IMMEDIATE")
            if not self._has_tables(sql):
                for statement in SCHEMA:
                    sql.execute(statement)
                sql.execute("INSERT INTO rota_schema (version, latest) VALUES (?, 0)", (SCHEMA_VERSION,))
            sql.execute("COMMIT")
        ((version,),) = sql.execute("SELECT version FROM rota_schema")
        check_version(version, self.path, SCHEMA_VERSION)

    def _has_tables(self, sql: sqlite3.Connection) -> bool:
        return sql.execute("SELECT 1 FROM sqlite_master WHERE name = 'rota_schema'").fetchone() is not None


def schema() -> str:
    """The tables as SQL, for those who create them themselves."""
    statements = (
        "PRAGMA journal_mode = WAL",
        *(dedent(statement).strip() for statement in SCHEMA),
        f"INSERT INTO rota_schema (version, latest) VALUES ({SCHEMA_VERSION}, 0)",
    )
    return "".join(f"{statement};\n" for statement in statements)


def wrap(engine: Any, *, namespace: str) -> SQLiteStore:
    """The store in the file of an SQLAlchemy engine, with a connection of its own."""
    path = engine.url.database
    if not path or path == ":memory:":
        raise DefinitionError(
            "servers cannot share a database in memory", argument="store", found=path, allowed="a file"
        )
    return SQLiteStore(path, namespace)


def open_sqlite(
    address: str, *, namespace: str, timeout: timedelta = TIME_LIMIT, create: bool = True
) -> SQLiteStore:
    """What `sqlite:///path` opens; nothing is touched before the first call."""
    path = unquote(address.removeprefix("sqlite:///"))
    if not address.startswith("sqlite:///") or not path:
        raise ValueError(address)
    return SQLiteStore(path, namespace, limit=timeout, create=create)
