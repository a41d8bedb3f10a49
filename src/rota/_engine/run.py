"""A run as its task sees it, and the way to find one's own."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING

from rota._core.errors import LeaseLost, RotaError
from rota._core.rows import Cause, Occurrence, Row
from rota._core.task import Task
from rota._engine.heartbeat import Held

if TYPE_CHECKING:
    import logging

    from rota._engine.clock import Clock


class Lost:
    """Whether this run may no longer act: its lease has ended, or it was told to stop."""

    def __init__(self, held: Held, clock: Clock) -> None:
        self._held, self._clock = held, clock
        self._told = clock.signal()

    def is_set(self) -> bool:
        return self._held.is_lost or self._told.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until the run is lost, at most so long; whether it is."""
        if not self.is_set():
            self._clock.wait(self._told, min(seconds, self._held.seconds_left))
        return self.is_set()

    def tell(self) -> None:
        self._told.set()

    def __bool__(self) -> bool:
        return self.is_set()


class Run:
    """One execution of an occurrence.

    `fence` grows with every holding of the task's run key, so what a run writes can carry it and a
    resource can refuse a run that came before. It is 0 where several runs may go on at once under
    one key. `lost` is set when the run must stop: from then on another server may start the task.
    """

    def __init__(self, task: Task, row: Row, held: Held, *, start_until: float, clock: Clock) -> None:
        """`row` is its open row; by the boot-time clock it must begin before `start_until`."""
        self.task, self.row, self.held, self.start_until = task, row, held, start_until
        self.lost = Lost(held, clock)
        self.stopped_by: str | None = None

    def __repr__(self) -> str:
        return f"<Run {self.occurrence} attempt {self.attempt}>"

    @property
    def occurrence(self) -> Occurrence:
        return self.row.occurrence

    @property
    def attempt(self) -> int:
        """1 for the first attempt of the occurrence; more where the task is retried when it was lost."""
        return self.row.attempt

    @property
    def is_manual(self) -> bool:
        """Whether a person asked for this run, and not the schedule."""
        return self.row.cause is Cause.MANUAL

    @property
    def fence(self) -> int:
        return self.held.lease.fence

    @property
    def due(self) -> datetime:
        """The due instant that this run serves, in UTC."""
        return self.occurrence.due

    @property
    def key(self) -> str:
        """An idempotency key: the occurrence, the same for every attempt."""
        return self.occurrence.key

    @property
    def logger(self) -> logging.Logger:
        """A logger named after the task; what it is told stands in the run's output too."""
        import logging

        from rota._engine.output import catch_log

        catch_log()
        return logging.getLogger(f"rota.task.{self.task.name}")

    def check(self) -> None:
        """Raise LeaseLost if this run may no longer act. Call it before each lasting effect."""
        if self.lost:
            raise LeaseLost(f"{self.occurrence}: the lease of this run has ended")

    def stop(self, by: str) -> None:
        """Tell the run to stop; commands and coroutines are stopped."""
        self.stopped_by = by
        self.lost.tell()


_current: ContextVar[Run] = ContextVar("rota.run")


def current_run() -> Run:
    """The run in which this code is being executed.

    It is found in functions and coroutines that a task calls, also across `await`; not in threads
    that a task starts itself without copying its context. Elsewhere it raises RotaError.
    """
    run = _current.get(None)
    if run is None:
        raise RotaError("current_run() is called outside a run: rota did not start this code")
    return run
