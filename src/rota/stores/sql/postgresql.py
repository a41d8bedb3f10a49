"""A store in a PostgreSQL database, for servers on any number of hosts. Tested on version 15.

A call is one transaction, sent and answered in one piece. Its instant is the database server's clock, read
once: for leases after the locks of their keys are held, for claims, ends and marks before the first row is
written. So what is granted lies inside its window at the instant that is answered, and whoever waited for
another is dated before the wait, never after. A look reads its instant before it takes its snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from textwrap import dedent
from typing import Any, Final
from zlib import crc32

from rota.stores.base import (
    FORGOTTEN_AFTER,
    LONGEST_LEASE,
    STEP_BACK_ALLOWANCE,
    TIME_LIMIT,
    Answer,
    Claim,
    End,
    Guarantees,
    Lease,
    Look,
    Refusal,
    Request,
    Row,
    RowQuery,
    Shared,
    SkipReason,
    StoreUnavailable,
    View,
    acquired,
    check_claims,
    check_ends,
    check_leases,
    check_requests,
    claimed,
    instant,
    lease_of,
    microseconds,
    pruned_mark,
    renewed,
    row_of,
)
from rota.stores.sql import postgresql_statements as sql
from rota.stores.sql.postgresql_calls import OURS, Calls, Said
from rota.stores.sql.postgresql_sources import Own, Source, source_of
from rota.stores.sql.postgresql_statements import SCHEMA, SCHEMA_VERSION
from rota.stores.sql.postgresql_wire import Table, number, numbers, text, texts

__all__ = ["SCHEMA", "SCHEMA_VERSION", "PostgresStore", "open_postgresql", "schema", "wrap"]

_MICROSECOND: Final = timedelta(microseconds=1)
_END_OF_TIME: Final = 253_402_300_799_999_999
_LOCKS_OF_A_NAMESPACE: Final = 16
_IN_A_SLICE: Final = 1000
_NEEDS_NO_ROW: Final = texts(reason.value for reason in SkipReason if reason.needs_no_row)


class PostgresStore:
    """Rows, leases and marks in the tables of `source`; see `open_postgresql` and `wrap`.

    No call takes longer than `limit`. With `create=False` the tables are expected to be there. `prefix` is
    what the names of the tables begin with.
    """

    def __init__(
        self,
        source: Source,
        namespace: str = "",
        *,
        limit: timedelta = TIME_LIMIT,
        create: bool = True,
        prefix: str = "rota_",
        longest_lease: timedelta = LONGEST_LEASE,
    ) -> None:
        self.namespace = namespace
        self.longest_lease = longest_lease
        self._calls = Calls(source, limit=limit.total_seconds(), create=create, prefix=prefix)
        self._app = text(namespace)

    def __repr__(self) -> str:
        return f"PostgresStore({self._calls.where!r}, {self.namespace!r})"

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            shared=Shared.NETWORK,
            durable=True,
            clock="the database server",
            grain=_MICROSECOND,
            fenced=True,
            lists_rows=True,
            primitive="INSERT ... ON CONFLICT",
            trips="1",
            needs=(
                "the primary: a standby may only be read",
                "fsync and synchronous_commit on",
                "synchronous standbys, if a failover is to lose nothing",
            ),
            cannot=("know what a failover to an asynchronous standby has lost",),
        )

    def look(self, question: Look) -> View:
        tasks, marks = list(question.marks), list(question.marks.values())
        pruned = [pruned_mark(task) for task in tasks]
        since = number(microseconds(question.since))
        now, (stand, after, still_open, leases) = self._calls.read(
            [
                self._say(sql.MARKS, texts({*marks, *pruned})),
                self._say(sql.ROWS_AFTER, texts(tasks), texts(marks), since),
                self._say(sql.ROWS_OPEN),
                self._say(sql.LEASES),
            ]
        )
        rows = {row[:3]: row for table in (after, still_open) for row in table}
        return View(
            now,
            {name: instant(at) for name, at in stand},
            [row_of(row) for row in rows.values()],
            [lease_of(lease) for lease in leases],
        )

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        check_claims(claims)
        keys = _keys(claims)
        now, (((won,),), standing, marks) = self._calls.write(
            [
                self._say(
                    sql.CLAIM,
                    *keys,
                    texts(claim.token for claim in claims),
                    texts(claim.server for claim in claims),
                    numbers(microseconds(claim.not_before) for claim in claims),
                    numbers(microseconds(claim.not_after) for claim in claims),
                    numbers(claim.start_within // _MICROSECOND for claim in claims),
                    numbers(microseconds(claim.keep_until) for claim in claims),
                    texts(claim.cause.value for claim in claims),
                ),
                self._say(sql.STANDING_UNLESS_ALL_WERE_WON, *keys, number(len(claims))),
                self._say(sql.MARKS, texts({pruned_mark(claim.occurrence.task) for claim in claims})),
            ]
        )
        if int(won) == len(claims):
            return Answer(now, [claimed(claim, None, now, epoch=None, pruned=None) for claim in claims])
        rows, pruned = _rows(standing), {name: instant(at) for name, at in marks}
        answers: list[Row | Refusal] = []
        for claim in claims:
            row = rows.get(_key(claim))
            mark = pruned.get(pruned_mark(claim.occurrence.task))
            answer = claimed(claim, row, now, epoch=None, pruned=mark)
            if row is None and isinstance(answer, Row):
                raise self._in_vain(claim.occurrence.key)
            answers.append(answer)
        return Answer(now, answers)

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        check_ends(ends)
        keys, tokens = _keys(ends), texts(end.token for end in ends)
        statements = [
            self._say(
                sql.SETTLE,
                *keys,
                tokens,
                texts(end.server for end in ends),
                numbers(microseconds(end.keep_until) for end in ends),
                texts(end.outcome.value for end in ends),
                texts(None if end.reason is None else end.reason.value for end in ends),
                numbers(end.needs_no_row for end in ends),
                numbers(None if end.took is None else end.took // _MICROSECOND for end in ends),
                numbers(end.count for end in ends),
                numbers(None if end.last is None else microseconds(end.last) for end in ends),
                texts(end.detail for end in ends),
                texts(end.output for end in ends),
                _NEEDS_NO_ROW,
            ),
            self._say(sql.STANDING, *keys),
        ]
        if last := [end for end in ends if end.last is not None]:
            upto = numbers(None if end.last is None else microseconds(end.last) for end in last)
            tokens = texts(end.token for end in last)
            statements.append(self._say(sql.SETTLED_UP_TO, *_keys(last), tokens, upto))
        now, tables = self._calls.write(statements)
        rows = _rows(tables[1])
        return Answer(now, [rows.get(_key(end)) for end in ends])

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        check_requests(requests, self.longest_lease)
        keys = [request.key for request in requests]
        now, (_, held) = self._calls.write(
            [
                self._say(
                    sql.ACQUIRE,
                    texts(keys),
                    texts(request.token for request in requests),
                    texts(request.owner for request in requests),
                    numbers(_length(request.ttl) for request in requests),
                    numbers(_at(request.not_before) for request in requests),
                    numbers(_at(request.not_after) for request in requests),
                    numbers(request.slots for request in requests),
                    texts(request.note for request in requests),
                    number(_END_OF_TIME),
                ),
                self._say(sql.HOLDERS, texts(keys)),
            ],
            lock=self._lock(keys),
        )
        holders = _holders(held)
        answers: list[Lease | Refusal] = []
        for request in requests:
            others = holders.get(request.key, ())
            answer = acquired(request, others, now, fence_before=0, epoch=None, quiet_until=None)
            if isinstance(answer, Lease) and answer not in others:
                raise self._in_vain(request.key)
            answers.append(answer)
        return Answer(now, answers)

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        check_leases(leases, ttl, self.longest_lease)
        keys = [lease.key for lease in leases]
        tokens = texts(lease.token for lease in leases)
        length, end = number(_length(ttl)), number(_END_OF_TIME)
        now, (_, held) = self._calls.write(
            [self._say(sql.RENEW, texts(keys), tokens, length, end), self._say(sql.HOLDERS, texts(keys))],
            lock=self._lock(keys),
        )
        holders = _holders(held)
        return Answer(now, [renewed(lease, holders.get(lease.key, ()), now, ttl) for lease in leases])

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        check_leases(leases)
        keys = [lease.key for lease in leases]
        tokens = texts(lease.token for lease in leases)
        now, (free,) = self._calls.write([self._say(sql.RELEASE, texts(keys), tokens)], lock=self._lock(keys))
        released = set(free)
        return Answer(now, [(lease.key, lease.token) in released for lease in leases])

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        names = texts(marks)
        now, (_, stand) = self._calls.write(
            [
                self._say(
                    sql.ADVANCE,
                    names,
                    numbers(microseconds(at) for at in marks.values()),
                    b"t" if first else b"f",
                ),
                self._say(sql.MARKS, names),
            ]
        )
        at: dict[str, int] = dict(stand)
        return Answer(now, [instant(at[name]) for name in marks])

    def rows(self, query: RowQuery) -> Answer[Row]:
        now, (found,) = self._calls.read(
            [
                self._say(
                    sql.HISTORY,
                    texts(query.tasks) if query.tasks else None,
                    None if query.since is None else number(microseconds(query.since)),
                    None if query.outcome is None else text(query.outcome.value),
                    None if query.server is None else text(query.server),
                    b"t" if query.open_only else b"f",
                    number(max(0, query.limit)),
                )
            ]
        )
        return Answer(now, [row_of(row) for row in found])

    def prune(self, before: datetime, *, most: int | None = None) -> int:
        """In slices, each a transaction of its own. What the time limit leaves over is for the next call."""
        deadline = time.monotonic() + self._calls.limit
        allowance = number(STEP_BACK_ALLOWANCE // _MICROSECOND)
        values = [number(microseconds(before)), allowance, number(_IN_A_SLICE)]
        statement = self._say(sql.PRUNE, *values)
        if most is not None:
            statement = self._say(sql.PRUNE_TO_MOST, *values, number(most))
        self._calls.write([self._say(sql.FORGET, number(FORGOTTEN_AFTER // _MICROSECOND))], deadline=deadline)
        count, slice_ = 0, _IN_A_SLICE
        while slice_ == _IN_A_SLICE and (count == 0 or time.monotonic() < deadline - self._calls.limit / 2):
            _, (((slice_,),),) = self._calls.write([statement], deadline=deadline)
            count += slice_
        return count

    def concerns(self) -> Sequence[str]:
        """What an operator should know of the server, and of what stands before it."""
        named, ((pid, standby, fsync, commit, waits, standbys),) = self._calls.state()
        told = (
            (standby, "the server is a standby: it may only be read, and whatever is claimed fails"),
            (not fsync, "fsync is off: a crash of its host may lose what was decided"),
            (commit == "off", "synchronous_commit is off: a crash may lose the last decisions"),
            (standbys and not waits, "its standbys are asynchronous: a failover may lose the last commits"),
            (pid != named, "a pooler stands before the server; rota needs its session or transaction mode"),
        )
        return [words for holds, words in told if holds]

    def close(self) -> None:
        self._calls.close()

    def _say(self, statement: str, *values: bytes | None) -> Said:
        return statement, (self._app, *values)

    def _lock(self, keys: Sequence[str]) -> Said:
        """Calls about the same keys come one after the other.

        A few locks stand for all keys of a namespace, as the server has room for some thousands only. They
        are taken in order, for else two calls could wait in a circle.
        """
        parts = {crc32(text(key)) % _LOCKS_OF_A_NAMESPACE for key in keys}
        locks = {crc32(b"%d %s" % (part, self._app)) - (1 << 31) for part in parts}
        return sql.LOCK, (number(OURS), numbers(sorted(locks)))

    def _in_vain(self, key: str) -> StoreUnavailable:
        """Somebody has written to the tables by hand, between two statements of one call."""
        return StoreUnavailable(f"{self._calls.where}: what was written of {key!r} did not stay; ask again")


def _keys(items: Sequence[Claim] | Sequence[End]) -> tuple[bytes, bytes, bytes]:
    return (
        texts(item.occurrence.task for item in items),
        numbers(microseconds(item.occurrence.due) for item in items),
        numbers(item.attempt for item in items),
    )


def _key(item: Claim | End) -> tuple[str, int, int]:
    return item.occurrence.task, microseconds(item.occurrence.due), item.attempt


def _rows(table: Table) -> dict[tuple[str, int, int], Row]:
    return {row[:3]: row_of(row) for row in table}


def _holders(table: Table) -> dict[str, list[Lease]]:
    holders: dict[str, list[Lease]] = {}
    for columns in table:
        holders.setdefault(columns[0], []).append(lease_of(columns))
    return holders


def _length(ttl: timedelta) -> int:
    return min(ttl // _MICROSECOND, _END_OF_TIME)


def _at(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)


def schema(prefix: str = "rota_") -> str:
    """The tables as SQL, for those who create them themselves."""
    return "".join(f"{dedent(statement).strip()};\n" for statement in SCHEMA).replace("rota_", prefix)


def wrap(client: Any, *, namespace: str) -> PostgresStore:
    """The store on what the application has: a pool of psycopg_pool, an engine of SQLAlchemy that speaks
    through psycopg, or a function. A connection that the function opens is the store's, who keeps and closes
    it; a context manager that it answers is entered for one call."""
    return PostgresStore(source_of(client), namespace)


def open_postgresql(
    address: str,
    *,
    namespace: str,
    timeout: timedelta = TIME_LIMIT,
    create: bool = True,
    prefix: str = "rota_",
) -> PostgresStore:
    """What `postgresql://` opens; nothing is touched before the first call."""
    return PostgresStore(Own(address), namespace, limit=timeout, create=create, prefix=prefix)
