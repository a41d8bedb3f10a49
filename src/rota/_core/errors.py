"""Every exception that rota raises, in one tree.

RotaError
├── DefinitionError      the schedule is wrong; raised where it is written, before anything runs
├── StoreError
│   ├── StoreUnavailable  nothing is known: the call may have been obeyed or not
│   └── StoreMisused      the call itself is wrong; repeating it will not help
├── LeaseLost            the right to act has ended while the work went on
├── TaskTimeout          a run took longer than its time limit
└── QueueError           a foreign task queue refused a job
"""

from __future__ import annotations

from collections.abc import Iterable


class RotaError(Exception):
    """The root: catch this to catch everything that rota raises on purpose."""


class DefinitionError(RotaError, ValueError):
    """The schedule cannot mean what it says.

    The message names the task, the place in the source, the argument, what was found, what is
    allowed and, where there is one, the way out. The parts are attributes as well, for tools. An
    error about a whole schedule has each of its `problems` on a line.
    """

    def __init__(
        self,
        message: str,
        *,
        task: str | None = None,
        argument: str | None = None,
        found: object = None,
        allowed: str | None = None,
        hint: str | None = None,
        source: str | None = None,
        problems: Iterable[DefinitionError] = (),
    ) -> None:
        self.message = message
        self.task = task
        self.argument = argument
        self.found = found
        self.allowed = allowed
        self.hint = hint
        self.source = source
        self.problems = tuple(problems)
        super().__init__(str(self))

    def __str__(self) -> str:
        where = ", ".join(
            part for part in (f"task {self.task!r}" if self.task else "", self.source or "") if part
        )
        text = f"{where}: {self.message}" if where else self.message
        if self.argument is not None:
            text += f" ({self.argument}={self.found!r})"
        if self.allowed:
            text += f"; allowed: {self.allowed}"
        if self.hint:
            text += f"; {self.hint}"
        return text

    def located(self, *, task: str | None, source: str | None) -> DefinitionError:
        """The same error, told with the task and the place it belongs to."""
        return DefinitionError(
            self.message,
            task=self.task or task,
            argument=self.argument,
            found=self.found,
            allowed=self.allowed,
            hint=self.hint,
            source=self.source or source,
        )


class StoreError(RotaError):
    """Something between us and the store went wrong."""


class StoreUnavailable(StoreError):
    """Nothing is known: the store may have obeyed or not. Ask again with the same token."""


class StoreMisused(StoreError, ValueError):
    """The call breaks the store's contract: a key twice in one list, a lease longer than allowed."""


class LeaseLost(RotaError):
    """The lease ended while the work went on: another server may act now, so this one must not."""


class TaskTimeout(RotaError):
    """A run took longer than its task's time limit and was stopped."""


class QueueError(RotaError):
    """A foreign task queue did not take the job that the schedule handed to it."""
