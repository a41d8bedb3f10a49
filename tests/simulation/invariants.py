"""What must hold in every world, judged from what the store wrote and what the bodies of the runs did.

    a   no attempt starts twice; without retry no occurrence does
    b   after the first mark every occurrence gets an end; no row stays open
    c   tasks without overlap never meet while both are in trust; at most n with a limit
    e   queue_one drops nothing; in calm weather nothing is missed or lost
    f   no attempt starts while an earlier one is alive in trust, or has succeeded
    g   one end for an attempt, and a true one: no lost while alive in trust, no start after lost, no start
        of what is recorded as not started, no outcome replaced while trust held
    h   the number of keys is bounded
    r   a retry that is owed is made

After a flush or a restart an end may be written anew, and b says nothing of what was due at or before the
epoch; nor, where no server looked until look-back after it, of what was due before that look (promise 13:
a new task and a forgotten mark look the same). h is a loose bound. e leaves out catch-up all without
overlap, which may have more work than time, and r what is not allow on a store that forgets nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenlet import getcurrent

from rota._core.rows import Answer, End, Look, Occurrence, Row, RowQuery
from rota._core.runs import Outcome, SkipReason
from rota._core.task import CatchUpKind, OverlapKind, Task
from rota._engine.events import Ended, Event
from rota._engine.run import Run
from tests.simulation.hub import BASE, Host, SimClock

if TYPE_CHECKING:
    from tests.simulation.world import World

NOT_STARTED: Final = {SkipReason.MISSED, SkipReason.COALESCED, SkipReason.OVERLAPPING, SkipReason.PAUSED}

Key = tuple[str, float, int]


class Violation(NamedTuple):
    invariant: str
    what: str
    about: object

    @property
    def kind(self) -> str:
        return f"{self.invariant} {self.what}"


class Body:
    """The body of a run, from its first instruction to its last."""

    def __init__(self, run: Run, host: Host, clock: SimClock, begin: float) -> None:
        self.run, self.host, self.clock = run, host, clock
        self.begin, self.end = begin, -1.0
        self.key = key_of(run.occurrence, run.attempt)
        self.settled = False
        self.denied: list[float] = []

    def __str__(self) -> str:
        return f"{self.run.occurrence.key} attempt {self.run.attempt} token {self.run.row.token}"

    @property
    def is_alive(self) -> bool:
        return self.end < 0

    @property
    def is_in_trust(self) -> bool:
        """As `Held.is_lost` says, without its memory: judged from the outside."""
        held = self.run.held
        return not held._lost and held.trust.holds_at(self.clock.boot())

    @property
    def trust_ends(self) -> float:
        """When trust ended, by the world's time; at the latest with the body, if a renewal was refused."""
        ends = self.run.held.trust.ends / self.clock._rate
        refused = self.run.held._lost and ends > self.end
        return self.end if refused else ends


def key_of(occurrence: Occurrence, attempt: int) -> Key:
    return occurrence.task, (occurrence.due - BASE).total_seconds(), attempt


def said(row: Row) -> Outcome | SkipReason:
    assert row.outcome is not None
    return row.reason or row.outcome


class Witness:
    """Sees every write of the store and every start and end of a body, and judges them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: list[Violation] = []
        self.starts: dict[Key, list[float]] = {}
        self.ends: dict[Key, list[tuple[float, Outcome | SkipReason]]] = {}
        self.old_ends: set[Key] = set()
        self.first_marks: dict[str, float] = {}
        self.new_marks: dict[str, float] = {}
        self.bodies: dict[str, list[Body]] = {}
        self.most_keys = 0
        self._final: dict[Key, Row] = {}
        self._standing: set[str] = set()
        self._forgot = False
        self._by_fiber: dict[object, Body] = {}

    def blame(self, invariant: str, what: str, about: object) -> None:
        self.violations.append(Violation(invariant, what, about))
        if self.world.trace:
            self.world.say("VIOLATION", invariant, what, about)

    # -- what the store does

    def saw_settle(self, answer: Answer[Row | None]) -> None:
        for row in answer.items:
            if row is None or row.outcome is None:
                continue
            key = key_of(row.occurrence, row.attempt)
            if self._final.get(key) is not row:
                self._final[key] = row
                self.ends.setdefault(key, []).append((self.world.hub.time, said(row)))
                if row.outcome is Outcome.LOST:
                    self._saw_lost(key)

    def _saw_lost(self, key: Key) -> None:
        now = self.world.hub.time
        for body in self.bodies.get(key[0], ()):
            if body.key == key and body.begin < now and body.is_alive:
                body.denied.append(now)
                if body.is_in_trust:
                    self.blame("g", "lost while alive in trust", body)

    def saw_advance(self, marks: Mapping[str, Any], answer: Answer[Any]) -> None:
        for key, stands in zip(marks, answer.items, strict=True):
            if key.startswith("mark:") and key not in self._standing:
                self._standing.add(key)
                task, instant = key.split(":")[1], (stands - BASE).total_seconds()
                self.first_marks.setdefault(task, instant)
                if self._forgot:
                    self.new_marks[task] = instant

    def counts_keys(self) -> None:
        memory = self.world.store._memory
        rows = sum(len(sheet.rows) for sheet in memory.sheets.values())
        leases = sum(len(places) for places in memory.leases.values())
        self.most_keys = max(self.most_keys, rows + leases + len(memory.marks))

    def forgets(self, kept: set[Key]) -> None:
        """The store remembers only these final rows: the others may get an end once more."""
        self._forgot = True
        self._standing = set(self.world.store._memory.marks)
        for key in [key for key in self.ends if key not in kept]:
            del self.ends[key]
            self._final.pop(key, None)
            self.old_ends.add(key)

    # -- what the runs do

    def starts_body(self, run: Run, host: Host, clock: SimClock) -> Body:
        now = self.world.hub.time
        body = Body(run, host, clock, now)
        bodies = self.bodies.setdefault(body.key[0], [])
        rivals = [other for other in bodies if other.is_alive and other.is_in_trust]
        if not run.task.allows_overlap and len(rivals) >= run.task.overlap.limit:
            self.blame("c", "meets another run", body)
        if run.attempt > 1:
            self._check_earlier(body, bodies, rivals)
        bodies.append(body)
        self._by_fiber[getcurrent()] = body
        self.starts.setdefault(body.key, []).append(now)
        return body

    def _check_earlier(self, body: Body, bodies: Sequence[Body], rivals: Sequence[Body]) -> None:
        for other in bodies:
            if other.key[:2] == body.key[:2] and other.key[2] < body.key[2]:
                if other in rivals:
                    self.blame("f", "retried while alive", body)
                elif self._final.get(other.key) and self._final[other.key].outcome is Outcome.SUCCEEDED:
                    self.blame("f", "retried after success", body)

    def ends_body(self, body: Body) -> None:
        """It has ended, or was killed. With trust that came back a run may turn out to have been denied."""
        body.end = self.world.hub.time
        if any(at < body.trust_ends for at in body.denied):
            self.blame("g", "lost while alive in trust", body)

    def kills(self, host: Host) -> None:
        for bodies in self.bodies.values():
            for body in bodies:
                if body.host is host and body.is_alive:
                    self.ends_body(body)

    def told_settle(self, ends: Sequence[End], answer: Answer[Row | None]) -> None:
        """The carrier of a run learns what stands for it."""
        body = self._by_fiber.get(getcurrent())
        if body is None:
            return
        for end, row in zip(ends, answer.items, strict=True):
            if end.token == body.run.row.token:
                body.settled = True
                replaced = row is not None and row.outcome is not end.outcome
                if replaced and body.is_in_trust and not self.world.store.volatile:
                    self.blame("g", "outcome replaced while trust held", body)

    def hears(self, event: Event) -> None:
        if isinstance(event, Ended):
            body = self._by_fiber.get(getcurrent())
            if body is not None and not body.settled:
                self.blame("g", "outcome never settled by a living server", body)

    # -- what must be true in the end

    def check(self) -> None:
        world = self.world
        view = world.store.look(Look({}, BASE))
        epoch = -1e9 if view.epoch is None else (view.epoch - BASE).total_seconds()
        now = (view.now - BASE).total_seconds()
        rows = {
            key_of(row.occurrence, row.attempt): row
            for row in world.store.rows(RowQuery(limit=1 << 30)).items
        }
        keys: dict[tuple[str, float], set[Key]] = {}
        for key in {*self.ends, *self.old_ends, *rows}:
            keys.setdefault(key[:2], set()).add(key)
        for task in world.schedules[0]:
            self._check_starts(task)
            due = world.due_after(max(0.0, self.first_marks.get(task.name, 1e9)))
            while due <= world.judged_until(now):
                self._check_occurrence(task, due, keys.get((task.name, due), set()), rows, epoch)
                due += world.period
        self._check_ends()
        if self.most_keys > world.most_keys:
            self.blame("h", "keys grow", self.most_keys)

    def _check_starts(self, task: Task) -> None:
        started = Counter[tuple[str, float]]()
        for key, times in self.starts.items():
            if key[0] == task.name:
                started[key[:2]] += len(times)
                if len(times) > 1:
                    self.blame("a", "attempt started twice", key)
        for occurrence, number in started.items():
            if task.attempts == 1 and number > 1:
                self.blame("a", "occurrence started twice", occurrence)

    def _check_occurrence(
        self, task: Task, due: float, keys: set[Key], rows: Mapping[Key, Row], epoch: float
    ) -> None:
        calm, about = self.world.calm, (task.name, due)
        new = self.new_marks.get(task.name, -1e9)
        looked_late = new - epoch >= self.world.shortest_look_back(task.name)
        if not keys and due > (new if looked_late else epoch):
            self.blame("b", "started, no row" if (*about, 1) in self.starts else "silent", about)
        for key in keys:
            row = rows.get(key)
            alive = any(body.key == key and body.is_alive for body in self.bodies.get(task.name, ()))
            if row is not None and row.is_open and self.world.hub.time > calm and not alive:
                self.blame("b", "open for ever", key)
        outcomes = {outcome for key in keys for _, outcome in self.ends.get(key, ())}
        if task.overlap.kind is OverlapKind.QUEUE_ONE and SkipReason.OVERLAPPING in outcomes:
            self.blame("e", "dropped instead of queued", about)
        busy = not task.allows_overlap and task.catch_up.kind is CatchUpKind.ALL
        dropped = SkipReason.MISSED in outcomes or Outcome.LOST in outcomes
        if dropped and not busy and due - self.world.step > calm:
            self.blame("e", "dropped in calm weather", about)
        if task.attempts > 1 and keys and task.allows_overlap and not self.world.store.volatile:
            self._check_retry(task, due, max(key[2] for key in keys))

    def _check_retry(self, task: Task, due: float, attempt: int) -> None:
        lost = [at for at, outcome in self.ends.get((task.name, due, attempt), ()) if outcome is Outcome.LOST]
        if lost and attempt < task.attempts:
            able = max(lost[0], self.world.somebody_lives_since)
            if able + self.world.step + 3 * self.world.period < due + task.crash.within.total_seconds():
                self.blame("r", "retry never made", (task.name, due))

    def _check_ends(self) -> None:
        for key, ends in self.ends.items():
            if len(ends) > 1:
                self.blame("g", "ended more than once", key)
            started = self.starts.get(key, ())
            for at, outcome in ends:
                if started and outcome in NOT_STARTED:
                    self.blame("g", "recorded unstarted, but started", key)
                if outcome is Outcome.LOST and any(time > at for time in started):
                    self.blame("g", "lost but started", key)
