"""Carries each run from its first look at trust to its settled end, in a thread of its own.

The order at the end is fixed: the outcome is settled, then the lease is released, and only then is
the run gone. Between the two no other server may find an open row without its lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

from rota._core.leases import Lease
from rota._core.planner import Start
from rota._core.rows import End, Row
from rota._core.runs import Outcome, Result, SkipReason
from rota._core.value import value
from rota._engine import events as told
from rota._engine.asking import Asking
from rota._engine.clock import Clock
from rota._engine.events import Events
from rota._engine.executor import Executing
from rota._engine.heartbeat import Heartbeat
from rota._engine.output import one_sentence
from rota._engine.run import Run


@value
class Won:
    """A claim that is ours: its open row, and until when by our boot-time clock the body may begin."""

    start: Start
    row: Row
    start_until: float

    def end(
        self,
        outcome: Outcome,
        *,
        reason: SkipReason | None = None,
        detail: str = "",
        result: Result | None = None,
    ) -> End:
        """The end of it, signed by the server that won it."""
        task, due, attempt = self.start.task, self.start.due, self.start.attempt
        return End(
            self.start.occurrence,
            attempt,
            self.row.token,
            outcome,
            task.keep_until(due, attempt),
            server=self.row.server,
            reason=reason,
            detail=one_sentence(detail or (result.detail if result else "")),
            output=result.output if result else "",
            took=result.took if result else None,
        )

    def skipped(self, reason: SkipReason, detail: str) -> End:
        return self.end(Outcome.SKIPPED, reason=reason, detail=detail)


class Carrier:
    """The runs of this server."""

    def __init__(
        self, asking: Asking, clock: Clock, executor: Executing, heartbeat: Heartbeat, events: Events
    ) -> None:
        self._asking, self._clock, self._events = asking, clock, events
        self._executor, self._heartbeat = executor, heartbeat
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._busy = 0
        self.changed = clock.signal()

    def begin(self, won: Won, lease: Lease, ttl: timedelta, *, sent: float) -> None:
        """Carry a run whose lease was asked for at `sent`."""
        held = self._heartbeat.hold(lease, ttl, sent=sent)
        run = Run(won.start.task, won.row, held, start_until=won.start_until, clock=self._clock)
        with self._lock:
            self._runs[lease.token] = run
        self.spawn(lambda: self._carry(won, run))

    def _carry(self, won: Won, run: Run) -> None:
        result = self._execute(run)
        row = self._asking.settle_surely(won.end(result.outcome, result=result))
        self._heartbeat.drop(run.held)
        if not run.held.is_lost:
            self._asking.release([run.held.lease])
        with self._lock:
            self._runs.pop(run.held.lease.token, None)
        self._events.tell(told.Ended(run.occurrence, run.attempt, result, row))

    def _execute(self, run: Run) -> Result:
        """The last look at trust and the first instruction of the body stand next to each other."""
        late = self._clock.estimate() - run.due
        if run.stopped_by is not None:
            return Result(Outcome.CANCELLED, f"stopped by {run.stopped_by} before it began")
        if run.held.is_lost or self._clock.boot() >= run.start_until:
            return Result(
                Outcome.LOST, "this server came too late to begin: it was frozen, or the store was slow"
            )
        self._events.tell(told.Started(run.occurrence, run.attempt, run.fence, late))
        result = self._executor.execute(run)
        if run.held.is_lost and result.outcome is not Outcome.CANCELLED:
            self._events.tell(told.LeaseEnded(run.occurrence, run.attempt))
            return Result(Outcome.LOST, "its lease ended while it ran", result.output, result.took)
        return result

    def spawn(self, body: Callable[[], None]) -> None:
        """Do something in a thread of its own; `finish` waits for it, and `changed` is set at its end."""
        with self._lock:
            self._busy += 1

        def carried() -> None:
            try:
                body()
            finally:
                with self._lock:
                    self._busy -= 1
                self.changed.set()

        self._executor.spawn(carried)

    @property
    def is_idle(self) -> bool:
        """Whether every run has ended and is settled."""
        with self._lock:
            return self._busy == 0

    @property
    def runs(self) -> Sequence[Run]:
        with self._lock:
            return tuple(self._runs.values())

    def finish(self) -> None:
        """Wait until every run has ended and is settled."""
        while not self.is_idle:
            self._clock.wait(self.changed, None)
            self.changed.clear()

    def stop(self, by: str) -> None:
        """Tell every run to stop; `finish` waits for them."""
        for run in self.runs:
            run.stop(by)
