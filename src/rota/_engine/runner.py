"""The runner: one tick looks, plans, claims, and begins what it has won.

A task is due: who decides, and what stops a second server? `Runner.tick` asks the store what stands
(`look`), lets `planner.plan` decide, and claims what is to be started. The store lets one claim of
an occurrence through. Whoever wins it must get the run lease before the row's start-by, and begins
only while it trusts that lease. The order of the steps is the safety of the whole:

    claim, then lease    what is lost by a crash in between is recorded as lost, and blocks nobody
    lease, then claim    for what may wait: a refused lease decides nothing, so nothing is dropped
    settle, then release in between, no other server may find an open row without its lease
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from os import urandom
from typing import Final

from rota._core.due import due_between, next_due
from rota._core.leases import Lease, Request, margin
from rota._core.planner import NotYet, Plan, Start, plan, question
from rota._core.rows import Cause, Claim, End, Refusal, Refused, Row, RowQuery, View
from rota._core.runs import Outcome, SkipReason
from rota._core.task import Filter, Task
from rota._core.value import value
from rota._engine import events as told
from rota._engine.asking import TRIES, Asking
from rota._engine.carrier import Carrier, Won
from rota._engine.clock import Clock
from rota._engine.events import Events
from rota._engine.executor import Executing
from rota._engine.heartbeat import Heartbeat
from rota.stores.base import Store

LOOK_AGE: Final = 5.0
"""Seconds after which a look is too old to claim by."""

PATIENCE: Final = timedelta(seconds=5)
"""How long one-shot ticks wait for a task that is not due yet, and live into the next minute."""


def new_token() -> str:
    """A token: unique to one attempt of one server, and guessed by nobody."""
    return urandom(16).hex()


@value
class Tick:
    """What one tick did. `plan` is None if the store gave no answer; `left` more are due than had room."""

    plan: Plan | None
    left: int = 0


class Runner:
    """Ticks for one server. All that it stands on is handed in, so that a test can hand in other things."""

    def __init__(
        self,
        tasks: Iterable[Task],
        store: Store,
        *,
        server: str,
        environment: str | None,
        clock: Clock,
        executor: Executing,
        heartbeat: Heartbeat,
        events: Events,
        token: Callable[[], str] = new_token,
    ) -> None:
        self.tasks = tuple(task.on(server) for task in tasks if task.runs_in(environment))
        self._server, self._clock, self._token = server, clock, token
        self._executor, self._events = executor, events
        self.ask = Asking(store, clock, events)
        self.carrier = Carrier(self.ask, clock, executor, heartbeat, events)
        self._draining = False
        self.saw_open_rows = False
        """Whether some run was going on anywhere when the store was last looked at."""
        self.looked_at = clock.boot()

    # -- the tick

    def tick(self) -> Tick:
        """Start what is due and nobody else has, decide what cannot be started any more, and say why."""
        done = Tick(None)
        for _ in range(TRIES):
            looked = self._clock.boot()
            view = self.ask.look(question(self.tasks, self._clock.estimate()))
            if view is None:
                return done
            self.saw_open_rows, self.looked_at = any(row.is_open for row in view.rows), looked
            decided = plan(self.tasks, view, server=self._server)
            found_lost = self._clean_up(decided)
            starts, left = self._affordable(decided)
            done = Tick(decided, left)
            if starts and self._clock.boot() - looked > LOOK_AGE:
                continue
            self._claim_then_acquire([each for each in starts if not each.lease_first], view)
            self._acquire_then_claim([each for each in starts if each.lease_first], view)
            if not (decided.owes_retries and found_lost):
                break
        return done

    def _clean_up(self, decided: Plan) -> bool:
        """Write the ends and the marks that the plan asks for; whether some run was found lost."""
        if decided.first:
            self.ask.advance(decided.first, first=True)
            self._events.tell(told.FirstSeen(tuple(task.name for task in decided.first_seen), decided.now))
        found_lost = False
        for end, row in self.ask.settle(decided.ends):
            if row is None or row.outcome is not end.outcome or row.reason is not end.reason:
                continue
            if end.outcome is Outcome.LOST:
                found_lost = True
                self._events.tell(told.FoundLost(row))
            else:
                self._events.tell(told.Skipped(row))
        self.ask.advance(decided.marks)
        for not_yet in decided.not_yet:
            self._events.tell(told.Waits(not_yet))
        return found_lost

    def _affordable(self, decided: Plan) -> tuple[Sequence[Start], int]:
        """The starts there is room for. The others stay due, for this server later or another now."""
        room = 0 if self._draining else max(0, self._executor.free())
        why = "this server is stopping" if self._draining else "this server runs as much as it may"
        for start in decided.starts[room:]:
            self._events.tell(told.Waits(NotYet(start.occurrence, why)))
        return decided.starts[:room], len(decided.starts[room:])

    # -- claims and leases

    def _claim_then_acquire(self, starts: Sequence[Start], view: View) -> None:
        ready, ends = [], []
        for won in self._claim([(start, self._token()) for start in starts]):
            paused = _paused(won, view)
            if paused is not None:
                ends.append(paused)
            elif won.start.task.filters:
                self._judge(won, self._acquire_and_begin)
            else:
                ready.append(won)
        self._skip(ends)
        self._acquire_and_begin(ready)

    def _acquire_and_begin(self, won: Sequence[Won]) -> None:
        """Ask for the run lease of each in one call; begin those that got it, settle the others."""
        ends = []
        answers = self.ask.acquire(
            [self._request(each.start, each.row.token, each.row.start_by) for each in won]
        )
        for each, (item, sent) in zip(won, answers, strict=True):
            if isinstance(item, Lease):
                self.carrier.begin(each, item, each.start.task.lease.length, sent=sent)
            elif item is not None and item.reason is Refused.HELD and not each.start.task.allows_overlap:
                ends.append(each.skipped(SkipReason.OVERLAPPING, f"{item.by or 'another run'} still runs it"))
        self._skip(ends)

    def _acquire_then_claim(self, starts: Sequence[Start], view: View) -> None:
        """For what may wait: only who holds the lease claims, so waiting drops nothing."""
        wanted: dict[str, tuple[Start, Request]] = {}
        for start in starts:
            request = self._request(start, self._token(), None)
            wanted.setdefault(request.key, (start, request))
        granted: dict[str, tuple[Start, Lease, float]] = {}
        answers = self.ask.acquire([request for _, request in wanted.values()])
        for (start, request), (item, sent) in zip(wanted.values(), answers, strict=True):
            if isinstance(item, Lease):
                granted[request.token] = start, item, sent
            elif item is not None:
                self._events.tell(
                    told.Waits(NotYet(start.occurrence, f"{item.by or 'another run'} holds its turn"))
                )
        for won in self._claim([(start, token) for token, (start, _, _) in granted.items()]):
            self._skip(won.start.older)
            paused = _paused(won, view)
            if paused is not None:
                self._skip([paused])
                continue
            start, lease, sent = granted.pop(won.row.token)
            if start.task.filters:
                self._judge(won, lambda won, lease=lease, sent=sent: self._begin(won, lease, sent), lease)  # type: ignore[misc]  # mypy cannot type the defaults of a lambda
            else:
                self._begin([won], lease, sent)
        self.ask.release([lease for _, lease, _ in granted.values()])

    def _begin(self, won: Sequence[Won], lease: Lease, sent: float) -> None:
        for each in won:
            self.carrier.begin(each, lease, each.start.task.lease.length, sent=sent)

    def _claim(self, wanted: Sequence[tuple[Start, str]]) -> list[Won]:
        """The claims that are ours: open rows under our tokens. "early" means: ask again then."""
        if not wanted:
            return []
        asked = self._clock.boot()
        claims = [self._claim_of(start, token) for start, token in wanted]
        answer = self.ask.claim(claims)
        for _ in range(TRIES):
            if answer is None:
                return []
            early = [
                claim.not_before for claim, item in zip(claims, answer.items, strict=True) if _is_early(item)
            ]
            if not early:
                break
            self._clock.sleep(
                min(PATIENCE.total_seconds(), max(0.002, (min(early) - answer.now).total_seconds()))
            )
            answer = self.ask.claim(claims)
        if answer is None:
            return []
        won = []
        for (start, token), claim, item in zip(wanted, claims, answer.items, strict=True):
            if isinstance(item, Row) and item.token == token and item.is_open:
                until = asked + (claim.start_within - margin(start.task.lease.length)).total_seconds()
                won.append(Won(start, item, until))
        return won

    def _claim_of(self, start: Start, token: str, cause: Cause = Cause.SCHEDULE) -> Claim:
        task, due, attempt = start.task, start.due, start.attempt
        return Claim(
            start.occurrence,
            attempt,
            token,
            self._server,
            not_before=due,
            not_after=task.not_after(due, attempt),
            start_within=task.start_within,
            keep_until=task.keep_until(due, attempt),
            cause=cause,
        )

    def _request(self, start: Start, token: str, not_after: datetime | None) -> Request:
        task = start.task
        return Request(
            task.run_key(start.due),
            token,
            self._server,
            task.lease.length,
            not_after=not_after,
            slots=task.overlap.limit,
            note=start.occurrence.key,
        )

    # -- what the winner alone judges

    def _judge(self, won: Won, go_on: Callable[[Sequence[Won]], None], lease: Lease | None = None) -> None:
        """Judge the filters of one occurrence in a thread of its own, so that none delays another."""

        def judge() -> None:
            verdict = self._executor.judge(won.start.task)
            if verdict is None:
                go_on([won])
                return
            if isinstance(verdict, Filter):
                end = won.skipped(SkipReason.FILTERED, verdict.label)
            else:
                end = won.skipped(SkipReason.BROKEN, f"a filter raised {type(verdict).__name__}: {verdict}")
            self._skip([end])
            self.ask.release([lease] if lease is not None else [])

        self.carrier.spawn(judge)

    def _skip(self, ends: Sequence[End]) -> None:
        for _, row in self.ask.settle(ends):
            if row is not None:
                self._events.tell(told.Skipped(row))

    # -- by hand

    def call(self, task: Task) -> Row | None:
        """Run one task now, by hand, under the same locks; the row that stands for it in the end.

        None if the store gave no answer. Filters, windows and pauses are for the schedule: whoever
        calls by hand means it.
        """
        task = task.on(self._server)
        view = self.ask.look(question((), self._clock.estimate()))
        if view is None:
            return None
        start, token, asked = Start(task, view.now), self._token(), self._clock.boot()
        answer = self.ask.claim([self._claim_of(start, token, Cause.MANUAL)])
        row = None if answer is None else answer.items[0]
        if not isinstance(row, Row):
            return None
        self._acquire_and_begin(
            [Won(start, row, asked + (task.start_within - margin(task.lease.length)).total_seconds())]
        )
        self.carrier.finish()
        rows = self.ask.rows(RowQuery(tasks=(task.key,), since=start.due, limit=10)) or ()
        return next((each for each in rows if each.occurrence == start.occurrence), row)

    # -- one shot

    def run(self, *, ticked: Callable[[], None] = lambda: None) -> bool:
        """One tick, and further ones while runs end or tasks are about to be due; whether the store answered.

        This is `rota run`, started every minute on every server. It waits up to five seconds for a
        task that is due within that time. With tasks due within the minute it lives to five seconds
        past its end, so that the next process has taken over by then. `ticked` is called after the first
        tick that the store has answered.
        """
        opened = self._clock.estimate()
        minute_end = opened.replace(second=0, microsecond=0) + timedelta(minutes=1) + PATIENCE
        within_minute = False
        changed = self.carrier.changed
        tick = first = self.tick()
        if first.plan is not None:
            ticked()
        while True:
            wait = None
            due = None if tick.plan is None else self._due_until(minute_end, tick.plan.upto)
            if due is not None:
                within_minute = within_minute or bool(due.second or due.microsecond)
                seconds = (due - self._clock.estimate()).total_seconds()
                if within_minute or seconds <= PATIENCE.total_seconds():
                    wait = max(0.001, seconds)
            if wait is None and self.carrier.is_idle:
                return first.plan is not None
            a_run_ended = self._clock.wait(changed, wait)
            changed.clear()
            if self._draining:
                self.carrier.finish()
                return first.plan is not None
            if (
                not a_run_ended
                or tick.left
                or any(task.may_wait() or task.attempts > 1 for task in self.tasks)
            ):
                tick = self.tick()

    def _due_until(self, end: datetime, after: datetime) -> datetime | None:
        """The first instant after `after` and up to `end` at which a task is due."""
        soon = due_between([task.trigger for task in self.tasks], after, end) if after < end else []
        return next_due([self.tasks[place] for place in soon], after)

    def drain(self) -> None:
        """Start nothing more, and let `run` return when what goes on has ended. From any thread."""
        self._draining = True
        self.carrier.changed.set()


def _paused(won: Won, view: View) -> End | None:
    """The end of an occurrence whose task, or the whole schedule, is paused."""
    pause = view.pause_of(won.start.task.key)
    if pause is None:
        return None
    why = f": {pause.note}" if pause.note else ""
    return won.skipped(SkipReason.PAUSED, f"paused by {pause.owner}{why}")


def _is_early(item: Row | Refusal) -> bool:
    return isinstance(item, Refusal) and item.reason is Refused.EARLY
