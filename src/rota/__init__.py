"""rota: a task scheduler for applications that run on more than one server.

The public names and nothing else. Importing them loads the standard library only.
"""

from rota._core.chain import Chain
from rota._core.errors import (
    DefinitionError,
    LeaseLost,
    QueueError,
    RotaError,
    StoreError,
    StoreMisused,
    StoreUnavailable,
    TaskTimeout,
)
from rota._core.rows import Occurrence
from rota._core.runs import Outcome, SkipReason
from rota._core.schedule import Schedule
from rota._core.task import Task
from rota._engine.run import Run, current_run

__all__ = [
    "Chain",
    "DefinitionError",
    "LeaseLost",
    "Occurrence",
    "Outcome",
    "QueueError",
    "RotaError",
    "Run",
    "Schedule",
    "SkipReason",
    "StoreError",
    "StoreMisused",
    "StoreUnavailable",
    "Task",
    "TaskTimeout",
    "current_run",
]
