"""The guards of the design, each with the wrong piece of code that stands in for it when it is left out.

A mutant replaces functions of the real planner, runner, carrier, heartbeat or store while a world is
played. Several guards cover for each other, so mutants are planted in pairs too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from rota._core import planner
from rota._core.leases import Trust
from rota._core.planner import Plan, Start, owes_retry
from rota._core.rows import Refusal, Refused, View, pruned_mark
from rota._core.runs import Outcome, Result
from rota._core.task import Task
from rota._core.value import replace
from rota._engine import runner
from rota._engine.asking import Asking
from rota._engine.carrier import Carrier
from rota._engine.heartbeat import Held
from rota._engine.runner import Runner
from rota.stores import memory
from rota.stores.memory import MemoryStore
from tests.simulation.hub import BASE
from tests.simulation.world import World

LONG_AGO: Final = BASE - timedelta(days=1000)
GUARDS: Final[dict[str, Callable[[Patch], None]]] = {}
"""How each guard is left out; its docstring says what the guard is."""


class Patch:
    """Replaces attributes, and puts back what stood there."""

    def __init__(self) -> None:
        self._before: list[tuple[object, str, object]] = []

    def __call__(self, owner: object, name: str, wrong: Callable[[Any], object]) -> None:
        """Put `wrong(what stands there)` in the place of the attribute."""
        stands = vars(owner)[name]
        self._before.append((owner, name, stands))
        setattr(owner, name, wrong(stands))

    def undo(self) -> None:
        while self._before:
            setattr(*self._before.pop())


def guard(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    GUARDS[plant.__name__] = plant
    return plant


@contextmanager
def without(*guards: str) -> Iterator[None]:
    """Leave these guards out of the real code for a while."""
    patch = Patch()
    try:
        for name in guards:
            GUARDS[name](patch)
        yield
    finally:
        patch.undo()


def with_view(change: Callable[[Sequence[Task], View], View]) -> Callable[[Any], object]:
    """A planner that sees another view than the store showed."""
    return lambda plan: lambda tasks, view, **named: plan(tasks, change(tasks, view), **named)


# -- the store


@guard
def same_token(patch: Patch) -> None:
    """A claim asked again with its token is the same claim."""

    def wrong(right: Any) -> object:
        def claimed(claim: Any, row: Any, now: datetime, **known: Any) -> object:
            again = row is not None and row.token == claim.token
            return Refusal(Refused.HELD) if again else right(claim, row, now, **known)

        return claimed

    patch(memory, "claimed", wrong)


@guard
def claim_window(patch: Patch) -> None:
    """A claim outside [not_before, not_after] is refused."""

    def wrong(right: Any) -> object:
        def claimed(claim: Any, row: Any, now: datetime, **known: Any) -> object:
            since, until = min(now, claim.not_before), max(now, claim.not_after)
            open_for_ever = replace(claim, not_before=since, not_after=until)
            return right(open_for_ever, row, now, **known)

        return claimed

    patch(memory, "claimed", wrong)


def settle_anyway(right: Any, when: Callable[[Any, Any], bool]) -> object:
    """A settle that writes the end as if no row, or an open one of its own, stood there."""

    def settled(end: Any, row: Any, now: datetime, **known: Any) -> object:
        if row is None or (row.outcome is end.outcome and row.reason is end.reason) or not when(end, row):
            return right(end, row, now, **known)
        own = replace(row, token=end.token, outcome=None, reason=None)
        written = right(replace(end, outcome=Outcome.FAILED, reason=None), own, now, **known)
        return replace(written, outcome=end.outcome, reason=end.reason)

    return settled


@guard
def row_atomic(patch: Patch) -> None:
    """Settle is conditional: a final row never changes."""
    patch(memory, "settled", lambda right: settle_anyway(right, lambda end, row: True))


@guard
def absent_only(patch: Patch) -> None:
    """Missed, coalesced and store_lost are written only where no row stands."""

    def when(end: Any, row: Any) -> bool:
        return row.is_open and end.reason is not None and end.reason.needs_no_row

    patch(memory, "settled", lambda right: settle_anyway(right, when))


@guard
def lost_token(patch: Patch) -> None:
    """Lost ends only the open row whose token it names."""
    patch(
        memory,
        "settled",
        lambda right: settle_anyway(right, lambda end, row: row.is_open and end.outcome is Outcome.LOST),
    )


@guard
def lost_needs_row(patch: Patch) -> None:
    """Lost never creates a row."""

    def wrong(right: Any) -> object:
        def settled(end: Any, row: Any, now: datetime, **known: Any) -> object:
            if row is not None or end.outcome is not Outcome.LOST:
                return right(end, row, now, **known)
            written = right(replace(end, outcome=Outcome.FAILED), None, now, **known)
            return written and replace(written, outcome=Outcome.LOST)

        return settled

    patch(memory, "settled", wrong)


@guard
def ask_extends(patch: Patch) -> None:
    """Acquire asked again by the holder extends the lease."""

    def wrong(right: Any) -> object:
        def acquired(request: Any, holders: Any, now: datetime, **known: Any) -> object:
            answer = right(request, holders, now, **known)
            return next((lease for lease in holders if lease.token == request.token), answer)

        return acquired

    patch(memory, "acquired", wrong)


@guard
def keep(patch: Patch) -> None:
    """Rows are kept past every window plus the step-back allowance."""

    def wrong(right: Any) -> object:
        def prune(self: MemoryStore, before: datetime) -> object:
            self.allowance = timedelta(0)
            return right(self, before)

        return prune

    def keep_until(self: Task, due: datetime, attempt: int = 1) -> datetime:
        return self.not_after(due, attempt) + timedelta(seconds=5)

    patch(MemoryStore, "prune", wrong)
    patch(Task, "keep_until", lambda _: keep_until)


@guard
def floor(patch: Patch) -> None:
    """Prune leaves a mark: what lies at or before it can be neither claimed nor settled."""

    def wrong(right: Any) -> object:
        def prune(self: MemoryStore, before: datetime) -> object:
            number = right(self, before)
            for task in [key for key in self._memory.marks if key.startswith(pruned_mark(""))]:
                del self._memory.marks[task]
            return number

        return prune

    patch(MemoryStore, "prune", wrong)


@guard
def epoch(patch: Patch) -> None:
    """Claims with not_before <= epoch are refused."""
    patch(memory, "claimed", lambda right: lambda *asked, **known: right(*asked, **{**known, "epoch": None}))


@guard
def epoch_settle(patch: Patch) -> None:
    """Missed and coalesced are not written for what was due at or before the epoch."""
    patch(memory, "settled", lambda right: lambda *asked, **known: right(*asked, **{**known, "epoch": None}))


@guard
def quarantine(patch: Patch) -> None:
    """Requests without not_before are refused until epoch + the longest lease."""
    patch(memory, "acquired", lambda right: lambda *asked, **known: right(*asked, **{**known, "epoch": None}))


@guard
def run_id(patch: Patch) -> None:
    """Another server process is a new epoch even if the epoch record survived."""

    def wrong(right: Any) -> object:
        def restart(self: MemoryStore, snapshot: Any = None) -> None:
            right(self, snapshot)
            if snapshot is not None and snapshot.marks:
                self._memory.born = self._process

        return restart

    patch(MemoryStore, "restart", wrong)


@guard
def rows_first(patch: Patch) -> None:
    """Look reads rows before leases."""

    def compose(first: View, second: View) -> View:
        return View(second.now, first.marks, second.rows, first.leases, first.epoch, first.quiet_until)

    patch(World, "compose", lambda _: staticmethod(compose))


# -- the planner


@guard
def start_by(patch: Patch) -> None:
    """The run lease is refused, and lost is declared, only after start_by."""

    def at_once(right: Any) -> object:
        def lost(view: View, server: str) -> object:
            return right(replace(view, rows=[replace(row, start_by=LONG_AGO) for row in view.rows]), server)

        return lost

    def late(right: Any) -> object:
        return lambda request, *asked, **known: right(replace(request, not_after=None), *asked, **known)

    patch(planner, "lost", at_once)
    patch(memory, "acquired", late)


@guard
def start_by_in_row(patch: Patch) -> None:
    """Start-by stands in the row, it is not worked out from the reader's own schedule."""

    def change(tasks: Sequence[Task], view: View) -> View:
        lengths = {task.key: task.lease.length for task in tasks}
        rows = [
            replace(row, start_by=row.start_by and row.since + lengths[row.occurrence.task])
            for row in view.rows
        ]
        return replace(view, rows=rows)

    patch(runner, "plan", with_view(change))


@guard
def all_open(patch: Patch) -> None:
    """Look shows open rows on both sides of the mark."""

    def change(tasks: Sequence[Task], view: View) -> View:
        marks = {
            task.key: max(
                view.marks.get(task.mark_key, LONG_AGO), view.marks.get(pruned_mark(task.key), LONG_AGO)
            )
            for task in tasks
        }
        rows = [row for row in view.rows if row.occurrence.due > marks[row.occurrence.task]]
        return replace(view, rows=rows)

    patch(runner, "plan", with_view(change))


@guard
def mark_unbroken(patch: Patch) -> None:
    """The mark moves over the unbroken run of final rows only."""

    def last_decided(task: Task, view: View) -> datetime:
        latest = {}
        for row in sorted(view.rows, key=lambda row: row.attempt):
            if row.occurrence.task == task.key:
                latest[row.occurrence.due] = row
        done = [due for due, row in latest.items() if not (row.is_open or owes_retry(task, row, view.now))]
        return max(done, default=LONG_AGO)

    def wrong(right: Any) -> object:
        def plan(tasks: Sequence[Task], view: View, **named: Any) -> Plan:
            decided: Plan = right(tasks, view, **named)
            jumps = {
                task.mark_key: last
                for task in tasks
                if task.mark_key in view.marks
                and (last := last_decided(task, view)) > view.marks[task.mark_key]
            }
            return replace(decided, marks={**decided.marks, **jumps})

        return plan

    patch(runner, "plan", wrong)


@guard
def first_sight(patch: Patch) -> None:
    """A first mark is written only where none stands."""

    def wrong(right: Any) -> object:
        def advance(self: Asking, marks: Mapping[str, datetime], *, first: bool = False) -> None:
            right(self, marks)

        return advance

    patch(Asking, "advance", wrong)


@guard
def mark_per_trigger(patch: Patch) -> None:
    """A mark belongs to (task, trigger); windows are no part of its key."""

    def wrong(right: Any) -> object:
        return property(lambda self: f"{right.fget(self)}:{self.look_back}")

    patch(Task, "mark_key", wrong)


@guard
def retry_from_rows(patch: Patch) -> None:
    """Attempt k+1 is due because row k is lost, whoever wrote it."""
    wrote: dict[str, set[Any]] = {}

    def tick(right: Any) -> object:
        def forget_and_tick(self: Runner) -> object:
            wrote[self._server] = set()
            return right(self)

        return forget_and_tick

    def settle(right: Any) -> object:
        def settle_and_note(self: Any, ends: Any) -> Any:
            answer = right(self, ends)
            lost = {row.key for end, row in answer if row and row.outcome is end.outcome is Outcome.LOST}
            wrote.setdefault(str(self._clock._host), set()).update(lost)
            return answer

        return settle_and_note

    def plan(right: Any) -> object:
        def plan_from_memory(tasks: Sequence[Task], view: View, *, server: str) -> Plan:
            decided: Plan = right(tasks, view, server=server)
            known = wrote.get(server, set())
            starts = tuple(
                start
                for start in decided.starts
                if start.attempt == 1 or (start.occurrence, start.attempt - 1) in known
            )
            return replace(decided, starts=starts)

        return plan_from_memory

    patch(Runner, "tick", tick)
    patch(Asking, "settle", settle)
    patch(runner, "plan", plan)


@guard
def young_epoch(patch: Patch) -> None:
    """Until then nothing is started and nothing is settled as lost."""
    patch(runner, "plan", with_view(lambda tasks, view: replace(view, quiet_until=None)))


@guard
def lease_first(patch: Patch) -> None:
    """What may wait asks for the lease first and claims second."""
    patch(Start, "lease_first", lambda _: property(lambda self: False))


# -- the runner


@guard
def shared_run_key(patch: Patch) -> None:
    """All attempts of an occurrence share one run key."""

    def wrong(right: Any) -> object:
        def request(self: Runner, start: Start, token: str, not_after: datetime | None) -> object:
            asked = right(self, start, token, not_after)
            return replace(asked, key=f"{asked.key}#{start.attempt}") if start.task.allows_overlap else asked

        return request

    patch(Runner, "_request", wrong)


@guard
def give_back(patch: Patch) -> None:
    """A lease without a claim is released."""
    begun: set[str] = set()

    def begin(right: Any) -> object:
        def begin_and_note(self: Carrier, won: Any, lease: Any, *asked: Any, **named: Any) -> None:
            begun.add(lease.token)
            right(self, won, lease, *asked, **named)

        return begin_and_note

    def release(right: Any) -> object:
        return lambda self, leases: right(self, [lease for lease in leases if lease.token in begun])

    patch(Carrier, "begin", begin)
    patch(Asking, "release", release)


@guard
def early(patch: Patch) -> None:
    """Early means: ask again then."""
    patch(runner, "_is_early", lambda _: lambda item: False)


# -- the carrier and the heartbeat


@guard
def start_by_boot(patch: Patch) -> None:
    """The claimant too gives up a lease after it first sent the claim, by its boot clock."""

    def wrong(right: Any) -> object:
        return lambda self, won, *lease, **named: right(self, replace(won, start_until=1e12), *lease, **named)

    patch(Carrier, "begin", wrong)


@guard
def trust(patch: Patch) -> None:
    """The body starts only while trust holds."""

    def execute(self: Carrier, run: Any) -> Result:
        if self._clock.boot() >= run.start_until:
            return Result(Outcome.LOST)
        result = self._executor.execute(run)
        return Result(Outcome.LOST) if run.held.is_lost else result

    patch(Carrier, "_execute", lambda _: execute)


@guard
def trust_ends(patch: Patch) -> None:
    """Trust that has ended never comes back, whatever a later answer says."""

    def extended(self: Trust, sent: float, ttl: timedelta, grain: timedelta, *, answered: float) -> Trust:
        return replace(self, ends=max(self.ends, Trust.granted(sent, ttl, grain).ends))

    def lose(self: Held) -> None:
        self.trust = Trust(0.0)

    patch(Trust, "extended", lambda _: extended)
    patch(Held, "is_lost", lambda _: property(lambda self: not self.trust.holds_at(self._clock.boot())))
    patch(Held, "lose", lambda _: lose)


@guard
def trust_from_sent(patch: Patch) -> None:
    """Trust counts from the instant the request was sent."""

    def wrong(right: Any) -> object:
        return lambda self, won, lease, ttl, *, sent: right(self, won, lease, ttl, sent=self._clock.boot())

    patch(Carrier, "begin", wrong)


@guard
def settle_then_release(patch: Patch) -> None:
    """The outcome is settled before the lease is released."""

    def carry(self: Carrier, won: Any, run: Any) -> None:
        result = self._execute(run)
        self._heartbeat.drop(run.held)
        if not run.held.is_lost:
            self._asking.release([run.held.lease])
        self._asking.settle_surely(won.end(result.outcome, result=result))

    patch(Carrier, "_carry", lambda _: carry)


@guard
def settle_known(patch: Patch) -> None:
    """Settle is repeated until it is known, renewing meanwhile."""

    def settle_once(self: Asking, end: Any) -> object:
        answer = self._ask("settle", lambda: self._store.settle([end]), tries=1)
        return None if answer is None else answer.items[0]

    patch(Asking, "settle_surely", lambda _: settle_once)
