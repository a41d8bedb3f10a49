"""One server with a real clock, real threads and a memory store, for the engine's own tests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

from rota._core.leases import Lease, Trust
from rota._core.rows import Occurrence, Row
from rota._core.runs import Result
from rota._core.task import Command, Function, LeasePolicy, Task, Work
from rota._core.triggers import Once
from rota._core.value import replace
from rota._engine.clock import Clock
from rota._engine.executor import Executor
from rota._engine.heartbeat import Held
from rota._engine.run import Run

DUE = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)


def task_of(work: Work | Callable[..., object] | str, **policies: object) -> Task:
    """A task named `task` that does this; a text is a shell command."""
    if isinstance(work, str):
        work = Command(work)
    elif callable(work):
        work = Function(work)
    task = Task("task", work, Once((DUE,)), lease=LeasePolicy(timedelta(seconds=60)))
    return replace(task, **policies)


class Bench:
    """An executor and the runs that it is given."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.executor = Executor(self.clock)
        self._fences = count(1)

    def run_of(self, task: Task, *, seconds_of_trust: float = 60.0, attempt: int = 1) -> Run:
        now = datetime.now(UTC)
        fence = next(self._fences)
        token = f"token-{fence}"
        row = Row(Occurrence(task.key, DUE), attempt, token, "web-1", now, now + timedelta(seconds=60), now)
        lease = Lease(task.run_key(DUE), token, "web-1", now, now + timedelta(seconds=60), fence)
        held = Held(lease, task.lease.length, Trust(self.clock.boot() + seconds_of_trust), self.clock)
        return Run(task, row, held, start_until=self.clock.boot() + 50, clock=self.clock)

    def execute(self, work: Work | Callable[..., object] | str, **policies: object) -> Result:
        return self.executor.execute(self.run_of(task_of(work, **policies)))
