"""A store in the memory of this process: for tests, simulations and single-process applications.

Every call is one step under one lock, and every value in it is frozen, so nothing is copied. It is
also the model of a store that can forget: with `volatile=True` it carries an epoch, and `flush`,
`snapshot` and `restart` do to it what happens to a cache server in the field.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from rota.stores.base import (
    FORGOTTEN_AFTER,
    LONGEST_LEASE,
    STEP_BACK_ALLOWANCE,
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
    StoreMisused,
    View,
    acquired,
    check_claims,
    check_ends,
    check_leases,
    check_requests,
    claimed,
    moved,
    pruned_mark,
    renewed,
    settled,
    shown_after,
)

_LAST_ATTEMPT: Final = 1 << 62
_FENCES_BEFORE_A_SWEEP: Final = 1024


def _utc_now() -> datetime:
    return datetime.now(UTC)


class _Sheet:
    """The rows of one task, and their keys in order of due instant."""

    __slots__ = ("order", "rows")

    def __init__(self) -> None:
        self.rows: dict[tuple[datetime, int], Row] = {}
        self.order: list[tuple[datetime, int]] = []

    def put(self, row: Row) -> None:
        key = (row.occurrence.due, row.attempt)
        if key not in self.rows:
            insort(self.order, key)
        self.rows[key] = row

    def after(self, instant: datetime) -> list[Row]:
        order, rows = self.order, self.rows
        if order[-1][0] <= instant:
            return []
        return [rows[key] for key in order[bisect_right(order, (instant, _LAST_ATTEMPT)) :]]

    def copy(self) -> _Sheet:
        twin = _Sheet()
        twin.rows, twin.order = dict(self.rows), list(self.order)
        return twin


class Memory:
    """All that the store remembers; opaque to everybody else."""

    __slots__ = ("born", "epoch", "fences", "leases", "marks", "open", "sheets", "sweep_at")

    def __init__(self) -> None:
        self.sheets: dict[str, _Sheet] = {}
        self.open: dict[tuple[str, datetime, int], Row] = {}
        self.leases: dict[str, dict[int, Lease]] = {}
        self.fences: dict[str, tuple[int, datetime]] = {}
        self.marks: dict[str, datetime] = {}
        self.epoch: datetime | None = None
        self.born: object = None
        self.sweep_at = _FENCES_BEFORE_A_SWEEP

    def copy(self) -> Memory:
        twin = Memory()
        twin.sheets = {task: sheet.copy() for task, sheet in self.sheets.items()}
        twin.leases = {key: dict(places) for key, places in self.leases.items()}
        twin.open, twin.fences, twin.marks = dict(self.open), dict(self.fences), dict(self.marks)
        twin.epoch, twin.born, twin.sweep_at = self.epoch, self.born, self.sweep_at
        return twin

    def row(self, task: str, due: datetime, attempt: int) -> Row | None:
        sheet = self.sheets.get(task)
        return None if sheet is None else sheet.rows.get((due, attempt))

    def write(self, row: Row) -> None:
        task, due = row.occurrence.task, row.occurrence.due
        sheet = self.sheets.get(task)
        if sheet is None:
            sheet = self.sheets[task] = _Sheet()
        sheet.put(row)
        if row.outcome is None:
            self.open[task, due, row.attempt] = row
        else:
            self.open.pop((task, due, row.attempt), None)

    def move(self, key: str, value: datetime, now: datetime, *, first: bool = False) -> datetime:
        self.marks[key] = stands = moved(self.marks.get(key), value, now, first=first)
        return stands


class MemoryStore:
    """Rows, leases and marks of one process.

    `clock` is the store's clock. A volatile store can forget, so it carries an epoch and refuses
    what it may have forgotten; see promise 13. `longest_lease` and `allowance` are for tests that
    cannot wait that long.
    """

    def __init__(
        self,
        namespace: str = "",
        *,
        clock: Callable[[], datetime] = _utc_now,
        volatile: bool = False,
        longest_lease: timedelta = LONGEST_LEASE,
        allowance: timedelta = STEP_BACK_ALLOWANCE,
    ) -> None:
        self.namespace = namespace
        self.longest_lease = longest_lease
        self.allowance = allowance
        self.volatile = volatile
        self._clock = clock
        self._lock = threading.Lock()
        self._memory = Memory()
        self._process = object()

    def __repr__(self) -> str:
        return f"MemoryStore({self.namespace!r}{', volatile=True' if self.volatile else ''})"

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            shared=Shared.PROCESS,
            durable=False,
            clock="this process",
            grain=timedelta(microseconds=1),
            fenced=True,
            lists_rows=True,
            epoch=self.volatile,
            primitive="one step under one lock",
            trips="0",
            cannot=("see other processes", "remember anything after this process"),
        )

    def look(self, question: Look) -> View:
        with self._lock:
            now = self._enter()
            memory = self._memory
            marks, sheets = memory.marks, memory.sheets
            names = [*question.marks.values(), *map(pruned_mark, question.marks)]
            shown = {name: marks[name] for name in names if name in marks}
            starts = shown_after(question, shown)
            rows: list[Row] = []
            for task, start in starts.items():
                sheet = sheets.get(task)
                if sheet is not None:
                    rows += sheet.after(start)
            rows += [
                row
                for (task, due, _), row in memory.open.items()
                if task not in starts or due <= starts[task]
            ]
            leases = self._unexpired(now)
            return View(now, shown, rows, leases, memory.epoch, self._quiet_until())

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        check_claims(claims)
        with self._lock:
            now = self._enter()
            return Answer(now, [self._claim(claim, now) for claim in claims])

    def _claim(self, claim: Claim, now: datetime) -> Row | Refusal:
        memory, task = self._memory, claim.occurrence.task
        row = memory.row(task, claim.occurrence.due, claim.attempt)
        pruned = memory.marks.get(pruned_mark(task))
        answer = claimed(claim, row, now, epoch=memory.epoch, pruned=pruned)
        if row is None and isinstance(answer, Row):
            memory.write(answer)
        return answer

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        check_ends(ends)
        with self._lock:
            now = self._enter()
            return Answer(now, [self._settle(end, now) for end in ends])

    def _settle(self, end: End, now: datetime) -> Row | None:
        memory, task = self._memory, end.occurrence.task
        row = memory.row(task, end.occurrence.due, end.attempt)
        pruned = memory.marks.get(pruned_mark(task))
        answer = settled(end, row, now, epoch=memory.epoch, pruned=pruned)
        if answer is not None and answer is not row:
            memory.write(answer)
            if end.last is not None:
                memory.move(pruned_mark(task), end.last, now)
        return answer

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        check_requests(requests, self.longest_lease)
        with self._lock:
            now = self._enter()
            return Answer(now, [self._acquire(request, now) for request in requests])

    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        memory = self._memory
        answer = acquired(
            request,
            self._holders(request.key, now),
            now,
            fence_before=self._fence_before(request.key, now),
            epoch=memory.epoch,
            quiet_until=self._quiet_until(),
        )
        if isinstance(answer, Lease):
            self._hold(answer)
        return answer

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        check_leases(leases, ttl, self.longest_lease)
        with self._lock:
            now = self._enter()
            return Answer(now, [self._renew(lease, ttl, now) for lease in leases])

    def _renew(self, lease: Lease, ttl: timedelta, now: datetime) -> Lease | Refusal:
        answer = renewed(lease, self._holders(lease.key, now), now, ttl)
        if isinstance(answer, Lease):
            self._hold(answer)
        return answer

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        check_leases(leases)
        with self._lock:
            now = self._enter()
            return Answer(now, [self._release(lease, now) for lease in leases])

    def _release(self, lease: Lease, now: datetime) -> bool:
        for holder in self._holders(lease.key, now):
            if holder.token == lease.token:
                self._let_go(lease.key, holder.slot)
                if holder.fence:
                    self._memory.fences[lease.key] = (holder.fence, now)
                return True
        return False

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        with self._lock:
            now = self._enter()
            memory = self._memory
            return Answer(now, [memory.move(key, value, now, first=first) for key, value in marks.items()])

    def rows(self, query: RowQuery) -> Answer[Row]:
        with self._lock:
            now = self._enter()
            sheets = self._memory.sheets
            tasks = set(query.tasks) if query.tasks else sheets.keys()
            found = [
                row
                for task in tasks
                if task in sheets
                for row in sheets[task].rows.values()
                if (query.since is None or row.occurrence.due >= query.since)
                and (query.outcome is None or row.outcome is query.outcome)
                and (query.server is None or row.server == query.server)
                and (not query.open_only or row.is_open)
            ]
        found.sort(key=lambda row: (row.occurrence.task, -row.attempt))
        found.sort(key=lambda row: row.occurrence.due, reverse=True)
        return Answer(now, found[: max(0, query.limit)])

    def prune(self, before: datetime, *, most: int | None = None) -> int:
        with self._lock:
            now = self._enter()
            self._forget_fences(now)
            return sum(self._prune(task, before, most, now) for task in list(self._memory.sheets))

    def _prune(self, task: str, before: datetime, most: int | None, now: datetime) -> int:
        sheet, kept_until = self._memory.sheets[task], now - self.allowance
        final = [key for key in sheet.order if not sheet.rows[key].is_open]
        beyond = set() if most is None else set(final[: max(0, len(final) - most)])
        gone = [
            key
            for key in final
            if (row := sheet.rows[key]).ended is not None
            and (row.ended < before or key in beyond)
            and row.keep_until < kept_until
        ]
        if gone:
            self._memory.move(pruned_mark(task), gone[-1][0], now)
            for key in gone:
                del sheet.rows[key]
            sheet.order = [key for key in sheet.order if key in sheet.rows]
            if not sheet.order:
                del self._memory.sheets[task]
        return len(gone)

    def close(self) -> None:
        """Nothing is held open; what was written stays as long as the object does."""

    def flush(self) -> None:
        """Forget everything, as a cache does when told to; the process goes on."""
        self._must_be_volatile()
        with self._lock:
            self._memory = Memory()

    def snapshot(self) -> Memory:
        """What a volatile store would have on its disk now, for `restart`."""
        self._must_be_volatile()
        with self._lock:
            return self._memory.copy()

    def restart(self, snapshot: Memory | None = None) -> None:
        """Become a new process that remembers the snapshot only, or nothing."""
        self._must_be_volatile()
        with self._lock:
            self._memory = Memory() if snapshot is None else snapshot.copy()
            self._process = object()

    def _must_be_volatile(self) -> None:
        if not self.volatile:
            raise StoreMisused("only a volatile store forgets: MemoryStore(volatile=True)")

    def _enter(self) -> datetime:
        """The instant of this call; and where the memory is not of this process, a new epoch."""
        now = self._clock()
        if self.volatile and self._memory.born is not self._process:
            self._memory.born, self._memory.epoch = self._process, now
        return now

    def _quiet_until(self) -> datetime | None:
        epoch = self._memory.epoch
        return None if epoch is None else epoch + self.longest_lease

    def _holders(self, key: str, now: datetime) -> list[Lease]:
        places = self._memory.leases.get(key)
        return [] if places is None else [lease for lease in places.values() if lease.until > now]

    def _hold(self, lease: Lease) -> None:
        memory, key = self._memory, lease.key
        places = memory.leases.get(key)
        if places is None:
            places = memory.leases[key] = {}
        places[lease.slot] = lease
        if lease.fence:
            memory.fences[key] = (lease.fence, lease.until)

    def _let_go(self, key: str, slot: int) -> None:
        places = self._memory.leases[key]
        del places[slot]
        if not places:
            del self._memory.leases[key]

    def _unexpired(self, now: datetime) -> list[Lease]:
        """All leases in force; those that lapsed are let go on the way."""
        leases = [lease for places in self._memory.leases.values() for lease in places.values()]
        unexpired = [lease for lease in leases if lease.until > now]
        if len(unexpired) < len(leases):
            for lease in leases:
                if lease.until <= now:
                    self._let_go(lease.key, lease.slot)
        return unexpired

    def _fence_before(self, key: str, now: datetime) -> int:
        memory = self._memory
        if len(memory.fences) >= memory.sweep_at:
            self._forget_fences(now)
        kept = memory.fences.get(key)
        return 0 if kept is None else kept[0]

    def _forget_fences(self, now: datetime) -> None:
        memory = self._memory
        oldest = now - FORGOTTEN_AFTER
        memory.fences = {key: kept for key, kept in memory.fences.items() if kept[1] >= oldest}
        memory.sweep_at = max(_FENCES_BEFORE_A_SWEEP, 2 * len(memory.fences))


def open_memory(address: str, *, namespace: str) -> MemoryStore:
    """What `memory:` opens: a store of its own at every call."""
    if address not in ("memory:", "memory://"):
        raise ValueError(address)
    return MemoryStore(namespace)
