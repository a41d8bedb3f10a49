"""A store on Redis or Valkey. A call is one Lua script: one step at the server's clock, and one round trip.

Redis may forget: it is flushed, or restarted without all that it had said. So the store carries an epoch,
which the scripts read and renew in the same step as every decision; see promise 13 and `scripts`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from json.encoder import encode_basestring as _quoted
from typing import Any, Final
from urllib.parse import quote

from rota.stores.base import (
    LONGEST_LEASE,
    RECORD_VERSION,
    ROW_COLUMNS,
    STEP_BACK_ALLOWANCE,
    TIME_LIMIT,
    Answer,
    Claim,
    End,
    Guarantees,
    Lease,
    Look,
    Refusal,
    Refused,
    Request,
    Row,
    RowQuery,
    Shared,
    StoreMisused,
    StoreUnavailable,
    View,
    check_claims,
    check_ends,
    check_leases,
    check_requests,
    check_version,
    claimed,
    instant,
    is_notice,
    lease_of,
    microseconds,
    row_of,
)
from rota.stores.redis import history, scripts
from rota.stores.redis.routes import concerns, opened, wrapped
from rota.stores.redis.timed import within
from rota.stores.redis.wire import Wire

_MICROSECOND: Final = timedelta(microseconds=1)
_SLICE: Final = 500
"""Rows that one script looks at to prune or to find them: others wait meanwhile."""

_NUMBERS: Final = frozenset(
    ROW_COLUMNS.index(name)
    for name in ("due", "attempt", "since", "start_by", "keep_until", "ended", "took", "count", "last")
)
_NULLABLE: Final = frozenset(
    ROW_COLUMNS.index(name) for name in ("start_by", "outcome", "reason", "ended", "took", "last")
)
_LETTERS: Final = {"s": Refused.STORE_LOST, "e": Refused.EARLY, "t": Refused.TOO_LATE}
_LEASE_NUMBERS: Final = frozenset({3, 4, 5, 6})


class RedisStore:
    """Rows, leases and marks on the Redis or Valkey server behind `wire`.

    `durable`: the server syncs each write to its disk before it answers (appendonly yes, appendfsync always),
    so a restart forgets nothing and is no new epoch; a fail-over to a replica still is one. With
    `wait_replicas` a claim, an end or a lease counts only once so many replicas have it.
    """

    def __init__(
        self,
        wire: Wire,
        namespace: str = "",
        *,
        wait_replicas: int = 0,
        durable: bool = False,
        longest_lease: timedelta = LONGEST_LEASE,
    ) -> None:
        self.namespace = namespace
        self.longest_lease = longest_lease
        self.durable = durable
        self._wire = wire
        self._wait_replicas = wait_replicas
        self.prefix = f"{{rota:{quote(namespace, safe='/@ ')}}}:"

    def __repr__(self) -> str:
        return f"RedisStore({self._wire.where!r}, {self.namespace!r})"

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            shared=Shared.NETWORK,
            durable=self.durable,
            clock="the Redis server",
            grain=_MICROSECOND,
            fenced=True,
            lists_rows=True,
            epoch=True,
            primitive="one Lua script",
            trips="1",
            needs=(
                "maxmemory-policy noeviction: keys that are evicted are forgotten without notice",
                "the right to call INFO, TIME and Lua scripts",
                "?durable=true only where appendfsync is always: then a restart forgets nothing",
                "?wait_replicas=n where a fail-over must not cost the last grants",
            ),
            cannot=(
                "remember after a restart what was not on its disk, or anything after a flush: it notices",
                "keep what a replica had not received when it takes over: it notices, as after a restart",
                "keep two primaries apart that a broken network has parted: both grant",
            ),
        )

    def look(self, question: Look) -> View:
        asked = {"marks": list(question.marks.items()), "since": str(microseconds(question.since))}
        now, epoch, (marks, rows, leases) = self._call(scripts.LOOK, asked)
        found = iter(marks)
        return View(
            now,
            {_text(name): instant(int(at)) for name, at in zip(found, found, strict=True)},
            [self._row(text) for text in rows],
            [_lease(text) for text in leases],
            epoch,
            epoch + self.longest_lease,
        )

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        check_claims(claims)
        now, _, (letters, others) = self._call(
            scripts.CLAIM,
            {"items": [_claim(claim) for claim in claims], "version": str(RECORD_VERSION)},
            self._wait_replicas,
        )
        rows = iter(others)
        answers: list[Row | Refusal] = []
        for letter, claim in zip(_text(letters), claims, strict=True):
            if letter == "g":
                answers.append(claimed(claim, None, now, epoch=None, pruned=None))
            elif letter == "r":
                answers.append(self._row(next(rows), next(rows)))
            else:
                reason = _LETTERS[letter]
                until = claim.not_before if reason is Refused.EARLY else None
                answers.append(Refusal(reason, until=until))
        return Answer(now, answers)

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        check_ends(ends)
        now, answers = self._decide(scripts.SETTLE, [_end(end) for end in ends], replicas=self._wait_replicas)
        return Answer(now, [None if said[0] == b"none" else self._row(*said[1:]) for said in answers])

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        check_requests(requests, self.longest_lease)
        now, answers = self._decide(
            scripts.ACQUIRE,
            [
                (
                    request.key,
                    request.token,
                    request.owner,
                    request.ttl // _MICROSECOND,
                    "" if request.not_before is None else microseconds(request.not_before),
                    "" if request.not_after is None else microseconds(request.not_after),
                    request.slots,
                    request.note,
                    int(is_notice(request.key)),
                )
                for request in requests
            ],
            replicas=self._wait_replicas,
        )
        return Answer(
            now,
            [
                _lease(said[1]) if said[0] == b"lease" else _refusal(said, request.not_before)
                for said, request in zip(answers, requests, strict=True)
            ],
        )

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        check_leases(leases, ttl, self.longest_lease)
        items = [(lease.key, lease.token, lease.slot) for lease in leases]
        now, answers = self._decide(
            scripts.RENEW, items, replicas=self._wait_replicas, ttl=str(ttl // _MICROSECOND)
        )
        return Answer(now, [_lease(said[1]) if said[0] == b"lease" else _refusal(said) for said in answers])

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        check_leases(leases)
        now, answers = self._decide(scripts.RELEASE, [(lease.key, lease.token) for lease in leases])
        return Answer(now, [said[0] == b"1" for said in answers])

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        items = [(mark, microseconds(value)) for mark, value in marks.items()]
        now, answers = self._decide(scripts.ADVANCE, items, first=first)
        return Answer(now, [instant(int(said[0])) for said in answers])

    def rows(self, query: RowQuery) -> Answer[Row]:
        limit = max(0, query.limit)
        asked = {
            "tasks": list(dict.fromkeys(query.tasks)),
            "since": "" if query.since is None else str(microseconds(query.since)),
            "outcome": query.outcome or "",
            "open_only": query.open_only,
            "limit": str(limit),
            "slice": str(_SLICE),
        }
        if query.server is not None:
            asked["server"] = query.server
        found: dict[object, Row] = {}
        place: Sequence[bytes | str] = ("1", "", "0", "0", "")
        with within(self._wire.limit):
            while True:
                now, _, (place, answers) = self._call(history.ROWS, {**asked, "place": _texts(place)})
                for row in (self._row(*said) for said in answers):
                    found[row.key] = row
                if not place:
                    break
        rows = sorted(found.values(), key=lambda row: (row.occurrence.task, -row.attempt))
        rows.sort(key=lambda row: row.occurrence.due, reverse=True)
        return Answer(now, rows[:limit])

    def prune(self, before: datetime, *, most: int | None = None) -> int:
        """It stops between two slices when the time limit comes near; the next prune goes on."""
        enough = time.monotonic() + self._wire.limit / 2
        asked = {
            "before": str(microseconds(before)),
            "allowance": str(STEP_BACK_ALLOWANCE // _MICROSECOND),
            "slice": str(_SLICE),
        }
        total, kept, more = 0, 0, True
        while more and time.monotonic() < enough:
            _, _, answer = self._call(history.PRUNE, {**asked, "kept": str(kept)})
            gone, kept, rest = (int(number) for number in answer)
            total, more = total + gone, rest > 0
        place: Sequence[bytes | str] = ("0", "") if most is not None else ()
        while place and time.monotonic() < enough:
            asked_here = {**asked, "most": str(most), "place": _texts(place)}
            _, _, (count, place) = self._call(history.THIN, asked_here)
            total += int(count)
        return total

    def close(self) -> None:
        self._wire.close()

    def concerns(self) -> Sequence[str]:
        """What an operator should see to, in words; the most pressing first."""
        return concerns(self._wire, self.prefix.encode(), durable=self.durable)

    def _decide(
        self, script: str, items: Iterable[Sequence[object]], replicas: int = 0, **more: object
    ) -> tuple[datetime, Sequence[Any]]:
        asked = {"items": [[str(part) for part in item] for item in items], **more}
        asked |= {"version": str(RECORD_VERSION), "longest": str(self.longest_lease // _MICROSECOND)}
        now, _, answers = self._call(script, asked, replicas)
        return now, answers

    def _call(
        self, script: str, asked: Mapping[str, object], replicas: int = 0
    ) -> tuple[datetime, datetime, Any]:
        asked = {**asked, "durable": self.durable, "touch": replicas > 0}
        try:
            argument = json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError as error:
            raise StoreMisused(f"{self._wire.where}: {error}") from error
        now, epoch, answers = self._wire.call(script, self.prefix.encode(), argument, replicas)
        return instant(int(now)), instant(int(epoch)), answers

    def _row(self, text: bytes, output: bytes = b"") -> Row:
        try:
            version, since, start_by, *rest = json.loads(text)
            check_version(int(version), f"{self._wire.where}, a row of {self.namespace}")
            columns = [*rest[:5], since, start_by, *rest[5:]]
            values = [
                None if column == "" and place in _NULLABLE else int(column) if place in _NUMBERS else column
                for place, column in enumerate(columns)
            ]
            return row_of([*values, _text(output)] if len(values) == len(ROW_COLUMNS) - 1 else values)
        except (ValueError, TypeError) as error:
            raise StoreUnavailable(f"{self._wire.where}: a row of {self.namespace} cannot be read") from error


def _claim(claim: Claim) -> tuple[object, ...]:
    """A claim as its script reads it; the last part is the row to be written, but for its instants."""
    task, due = claim.occurrence.task, microseconds(claim.occurrence.due)
    row = (
        f'{_quoted(task)},"{due}","{claim.attempt}",{_quoted(claim.token)},{_quoted(claim.server)},'
        f'"{microseconds(claim.keep_until)}","{claim.cause}","","","","","1","",""]'
    )
    window = microseconds(claim.not_before), microseconds(claim.not_after)
    return (task, due, claim.attempt, *window, claim.start_within // _MICROSECOND, row)


def _end(end: End) -> tuple[object, ...]:
    return (
        end.occurrence.task,
        microseconds(end.occurrence.due),
        end.attempt,
        end.token,
        end.server,
        microseconds(end.keep_until),
        end.outcome,
        end.reason or "",
        "" if end.took is None else end.took // _MICROSECOND,
        end.count,
        "" if end.last is None else microseconds(end.last),
        end.detail,
        end.output,
        int(end.needs_no_row),
        int(end.says_nobody_ran),
    )


def _lease(text: bytes) -> Lease:
    values = json.loads(text)
    return lease_of([int(value) if place in _LEASE_NUMBERS else value for place, value in enumerate(values)])


def _refusal(said: Sequence[bytes], not_before: datetime | None = None) -> Refusal:
    reason = Refused(_text(said[0]))
    if reason is Refused.EARLY:
        return Refusal(reason, until=not_before)
    if reason is Refused.HELD:
        return Refusal(reason, _text(said[1]), instant(int(said[2])))
    return Refusal(reason, until=instant(int(said[1])) if len(said) > 1 else None)


def _text(value: bytes) -> str:
    return value.decode()


def _texts(values: Sequence[bytes | str]) -> list[str]:
    """Where a script has come to, to be told to the next one."""
    return [value if isinstance(value, str) else value.decode() for value in values]


def open_redis(
    address: str,
    *,
    namespace: str,
    timeout: timedelta = TIME_LIMIT,
    wait_replicas: int = 0,
    durable: bool = False,
    **options: str,
) -> RedisStore:
    """What `redis://`, `rediss://`, `valkey://`, `redis+sentinel://` and their like open; nothing is touched
    before the first call."""
    wire = opened(address, limit=timeout.total_seconds(), **options)
    return RedisStore(wire, namespace, wait_replicas=wait_replicas, durable=durable)


def wrap(client: Any, *, namespace: str) -> RedisStore:
    """The store where a client of redis-py or valkey-py leads, be it of one server, a cluster or sentinels.

    It has connections of its own with the client's settings (address, user, TLS), so that a call ends after
    5 seconds, or sooner where the client's limits are shorter, and so that nothing is repeated behind its
    back. `close` leaves the client open."""
    return RedisStore(wrapped(client), namespace)
