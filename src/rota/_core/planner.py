"""What a tick decides: from the tasks and what the store shows, what to start, what to end, and why.

`plan` is pure and total: it reads no clock, asks nobody and never raises. A trigger that raises
breaks its own task and no other. Of each task the occurrences after its mark are considered,
however old; those still inside their window may be started, the others get their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from rota._core.rows import End, Look, Occurrence, Row, View, pruned_mark
from rota._core.runs import Outcome, SkipReason
from rota._core.task import CatchUpKind, Task
from rota._core.value import NOTHING, value

AHEAD: Final = timedelta(milliseconds=50)
"""How far past the store's now a plan goes: a server that wakes a little early asks, and is told "early"."""

COLLAPSE: Final = 100
"""More missed occurrences in a row than this are written as one row."""

FURTHEST: Final = 100_000
"""How many undecided occurrences of one task a tick goes through; the next tick goes on from there."""


@value
class Start:
    """An occurrence to start. `older` are the ends to write for those it stands for, once it is won."""

    task: Task
    due: datetime
    attempt: int = 1
    older: tuple[End, ...] = ()

    @property
    def occurrence(self) -> Occurrence:
        return Occurrence(self.task.key, self.due)

    @property
    def lease_first(self) -> bool:
        return self.task.may_wait(self.attempt)


@value
class NotYet:
    """An occurrence that is due and is neither started nor decided in this tick, and why."""

    occurrence: Occurrence
    why: str


@value
class Plan:
    """The decision of one tick, made at `now` for everything due up to `upto`.

    `first` are marks to write where none stands, `marks` those to move forward. `quiet_until` is
    set while a store that has forgotten must be left alone.
    """

    now: datetime
    upto: datetime
    starts: tuple[Start, ...] = ()
    ends: tuple[End, ...] = ()
    first: Mapping[str, datetime] = NOTHING
    marks: Mapping[str, datetime] = NOTHING
    not_yet: tuple[NotYet, ...] = ()
    first_seen: tuple[Task, ...] = ()
    quiet_until: datetime | None = None

    @property
    def owes_retries(self) -> bool:
        """Whether an attempt that this tick ends as lost may be followed by another at once."""
        return any(end.outcome is Outcome.LOST for end in self.ends)


def question(tasks: Iterable[Task], now: datetime) -> Look:
    """What a tick asks the store. `now` is an estimate; it only bounds what is shown without a mark."""
    held = tuple(tasks)
    furthest = max((task.look_back for task in held), default=timedelta(0))
    return Look({task.key: task.mark_key for task in held}, now - furthest - timedelta(hours=2))


def plan(tasks: Sequence[Task], view: View, *, server: str = "") -> Plan:
    """Decide what this tick does. `server` signs the ends that it writes."""
    now, upto = view.now, view.now + AHEAD
    rows: dict[str, list[Row]] = {}
    for row in view.rows:
        rows.setdefault(row.occurrence.task, []).append(row)
    ends = list(lost(view, server))
    parts = []
    for task in tasks:
        try:
            parts.append(_Part.of(task, view, upto, rows.get(task.key, ()), server))
        except Exception as error:
            broken = _broken(task, now, error, server)
            if all(row.occurrence != broken.occurrence for row in rows.get(task.key, ())):
                ends.append(broken)
    starts = [start for part in parts for start in part.starts]
    ends += [end for part in parts for end in part.ends]
    not_yet = [wait for part in parts for wait in part.not_yet]
    quiet = view.quiet_until if view.quiet_until is not None and now < view.quiet_until else None
    if quiet is not None:
        not_yet += [
            NotYet(start.occurrence, f"the store has forgotten; quiet until {quiet:%H:%M:%S}Z")
            for start in starts
        ]
        starts, ends = [], [end for end in ends if end.outcome is not Outcome.LOST]
    return Plan(
        now=now,
        upto=upto,
        starts=tuple(starts),
        ends=tuple(ends),
        first={part.task.mark_key: part.first for part in parts if part.first is not None},
        marks={part.task.mark_key: part.mark for part in parts if part.mark is not None},
        not_yet=tuple(not_yet),
        first_seen=tuple(part.task for part in parts if part.first is not None),
        quiet_until=quiet,
    )


def lost(view: View, server: str) -> Iterator[End]:
    """Ends for the open rows whose holder is gone: start-by has passed and their token holds no lease.

    start-by is the row's own, never worked out from this server's version of the schedule.
    """
    held = view.tokens_held
    for row in view.rows:
        if row.is_open and row.start_by is not None and view.now > row.start_by and row.token not in held:
            yield End(
                row.occurrence,
                row.attempt,
                row.token,
                Outcome.LOST,
                row.keep_until,
                server=row.server,
                detail=f"{row.server} holds no lease for it any more: killed, frozen or cut off "
                f"(found by {server or 'another server'})",
            )


class _Part:
    """The part of a plan that one task makes up."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.starts: list[Start] = []
        self.ends: list[End] = []
        self.not_yet: list[NotYet] = []
        self.first: datetime | None = None
        self.mark: datetime | None = None

    @classmethod
    def of(cls, task: Task, view: View, upto: datetime, rows: Sequence[Row], server: str) -> _Part:
        part = cls(task)
        now = view.now
        mark = view.marks.get(task.mark_key)
        if mark is None:
            part.first = mark = first_sight(task, view)
        start = max(mark, view.marks.get(pruned_mark(task.key), mark))
        latest: dict[datetime, Row] = {}
        for each in rows:
            standing = latest.get(each.occurrence.due)
            if standing is None or each.attempt > standing.attempt:
                latest[each.occurrence.due] = each
        unclaimed: list[datetime] = []
        undecided: list[datetime] = []
        unbroken = True
        for due in islice(task.trigger.between(start, upto), FURTHEST):
            row = latest.get(due)
            owed = row is not None and owes_retry(task, row, now)
            decided = row is not None and not row.is_open and not owed
            unbroken = unbroken and decided
            if unbroken:
                part.mark = due
            if row is None:
                if _too_old(task, due, view):
                    undecided.append(due)
                else:
                    unclaimed.append(due)
                continue
            part._miss(undecided, view, server)
            undecided = []
            if owed:
                part.starts.append(Start(task, due, row.attempt + 1))
            elif row.is_open:
                part.not_yet.append(NotYet(row.occurrence, f"claimed by {row.server}"))
        part._miss(undecided, view, server)
        part._choose(unclaimed, server)
        return part

    def _miss(self, undecided: Sequence[datetime], view: View, server: str) -> None:
        """Ends for occurrences that nobody decided in time; many in a row are one end on the oldest."""
        forgotten = [due for due in undecided if view.epoch is not None and due <= view.epoch]
        for due in forgotten:
            detail = f"unknown: it may have run; the store remembers nothing before {_stamp(view.epoch)}"
            self.ends.append(self._skip(due, SkipReason.STORE_LOST, detail, server))
        missed = undecided[len(forgotten) :]
        if len(missed) > COLLAPSE:
            late = self._how_late(missed[0], view.now)
            detail = f"{len(missed)} in a row, the last at {_stamp(missed[-1])}: {late}"
            self.ends.append(
                self._skip(missed[0], SkipReason.MISSED, detail, server, len(missed), missed[-1])
            )
            return
        for due in missed:
            self.ends.append(self._skip(due, SkipReason.MISSED, self._how_late(due, view.now), server))

    def _how_late(self, due: datetime, now: datetime) -> str:
        return (
            f"no server started it by {self.task.not_after(due):%H:%M:%S}Z "
            f"(allowed: {in_words(self.task.look_back)} late); found {in_words(now - due)} late"
        )

    def _choose(self, unclaimed: Sequence[datetime], server: str) -> None:
        """Which of the occurrences that may still be started are, and what becomes of the others."""
        if not unclaimed:
            return
        task = self.task
        if task.catch_up.kind is CatchUpKind.ALL:
            beyond, wanted = unclaimed[: -task.catch_up.most], unclaimed[-task.catch_up.most :]
            for due in beyond:
                detail = f"more than {task.catch_up.most} were waiting to be caught up"
                self.ends.append(self._skip(due, SkipReason.MISSED, detail, server))
            chosen = wanted if task.allows_overlap else wanted[:1]
            self.starts += [Start(task, due) for due in chosen]
            self.not_yet += [
                NotYet(Occurrence(task.key, due), "waits for the one before it")
                for due in wanted[len(chosen) :]
            ]
            return
        newest = unclaimed[-1]
        detail = f"the newer one due at {_stamp(newest)} stands for it"
        older = tuple(self._skip(due, SkipReason.COALESCED, detail, server) for due in unclaimed[:-1])
        start = Start(task, newest, older=older if task.may_wait() else ())
        if not start.lease_first:
            self.ends += older
        self.starts.append(start)

    def _skip(
        self,
        due: datetime,
        reason: SkipReason,
        detail: str,
        server: str,
        count: int = 1,
        last: datetime | None = None,
    ) -> End:
        return End(
            Occurrence(self.task.key, due),
            1,
            "",
            Outcome.SKIPPED,
            self.task.keep_until(last or due),
            server=server,
            reason=reason,
            detail=detail,
            count=count,
            last=last,
        )


def first_sight(task: Task, view: View) -> datetime:
    """From where a task that has no mark is considered: from now, or from before the store forgot.

    Where the store began to remember a short while ago, its loss must show in the history.
    """
    if view.epoch is not None and view.now - view.epoch < task.look_back:
        return view.epoch - task.look_back
    return view.now


def owes_retry(task: Task, row: Row, now: datetime) -> bool:
    """Whether another attempt is owed for a lost one, whoever wrote that it is lost."""
    return (
        row.outcome is Outcome.LOST
        and row.attempt < task.attempts
        and now <= task.not_after(row.occurrence.due, row.attempt + 1)
    )


def _too_old(task: Task, due: datetime, view: View) -> bool:
    return (view.epoch is not None and due <= view.epoch) or view.now > task.not_after(due)


def _broken(task: Task, now: datetime, error: Exception, server: str) -> End:
    """The end of a task whose trigger raised: one a minute, since no due instant is known."""
    minute = now.replace(second=0, microsecond=0)
    return End(
        Occurrence(task.key, minute),
        1,
        "",
        Outcome.SKIPPED,
        minute + task.look_back,
        server=server,
        reason=SkipReason.BROKEN,
        detail=f"its trigger raised {type(error).__name__}: {error}",
    )


def _stamp(instant: datetime | None) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}Z" if instant is not None else "never"


def in_words(span: timedelta) -> str:
    """A span as people say it, in its two largest units: `2 min`, `1 h 5 min`."""
    seconds = int(span.total_seconds())
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2]) or "0 s"
