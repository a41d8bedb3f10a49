"""rota: a task scheduler for applications that run on more than one server.

The public names and nothing else. Importing them loads the standard library only, and each name is
loaded when it is first used: a tick that finds nothing due is over before the engine is loaded.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes as long to import as Python takes to start
if TYPE_CHECKING:
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
    from rota._core.fluent.chain import Chain
    from rota._core.runs import Outcome, SkipReason
    from rota._core.schedule import Schedule
    from rota._core.task import Occurrence, Task
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

_HOMES = {
    "_core.fluent.chain": ("Chain",),
    "_core.errors": (
        "DefinitionError",
        "LeaseLost",
        "QueueError",
        "RotaError",
        "StoreError",
        "StoreMisused",
        "StoreUnavailable",
        "TaskTimeout",
    ),
    "_core.runs": ("Outcome", "SkipReason"),
    "_core.schedule": ("Schedule",),
    "_core.task": ("Occurrence", "Task"),
    "_engine.run": ("Run", "current_run"),
}
_home_of = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _home_of:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    found: object = getattr(import_module(f"rota.{_home_of[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
