"""A task and its policies, as frozen values that answer the planner's questions.

The name is the identity of a task. Nothing else is part of any key, so that a deploy which edits a
command, a path or an expression cannot bring about a second run. Every policy has the default that
a careful operator would choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zlib import adler32, crc32

from rota._core.triggers import Trigger
from rota._core.value import NOTHING, replace, value


@value
class Occurrence:
    """One task at one due instant. `task` is the task's key, `due` an aware instant in UTC."""

    task: str
    due: datetime

    def __lt__(self, other: Occurrence) -> bool:
        return (self.task, self.due) < (other.task, other.due)

    @property
    def key(self) -> str:
        """As people and idempotency keys see it: `send_invoices@2026-03-29T01:00:00Z`."""
        due = self.due.astimezone(UTC)
        return f"{self.task}@{due.isoformat().removesuffix('+00:00')}Z"

    def __str__(self) -> str:
        return self.key


# -- the work


@value
class Function:
    """A callable or a coroutine function, called with `args` and `kwargs` in this process."""

    call: Callable[..., object]
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = NOTHING

    def describe(self) -> str:
        call = self.call
        name = getattr(call, "__qualname__", None) or type(call).__qualname__
        return f"{getattr(call, '__module__', None) or type(call).__module__}.{name}"


@value
class Command:
    """A program: a text for /bin/sh, or a list of arguments that no shell sees."""

    line: str | tuple[str, ...]
    cwd: str | None = None
    env: Mapping[str, str] = NOTHING

    def describe(self) -> str:
        return self.line if isinstance(self.line, str) else " ".join(self.line)


@value
class Module:
    """A Python module run by this interpreter, as `python -m name args` would."""

    name: str
    args: tuple[str, ...] = ()

    def describe(self) -> str:
        return " ".join(("python -m", self.name, *self.args))


Work = Function | Command | Module


# -- the policies


class Servers(StrEnum):
    """Who starts an occurrence: one server, or each server its own."""

    ONE = "one"
    EVERY = "every"


class OverlapKind(StrEnum):
    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    CANCEL_PREVIOUS = "cancel_previous"


@value
class Overlap:
    """What happens when an occurrence is due while an earlier run goes on.

    `limit` runs may go on at once; `key` puts several tasks under one limit; `wait` is how long a
    queued occurrence may wait for its turn.
    """

    kind: OverlapKind = OverlapKind.ALLOW
    limit: int = 1
    key: str | None = None
    wait: timedelta = timedelta(hours=1)


@value
class LeasePolicy:
    """How long a right to run lasts without being renewed: what a killed holder can block at most."""

    length: timedelta = timedelta(seconds=60)
    expires_after: timedelta | None = None


class CrashKind(StrEnum):
    SKIP = "skip"
    RETRY = "retry"


@value
class Crash:
    """What is owed for a run that was lost: nothing (at most once), or further attempts."""

    kind: CrashKind = CrashKind.SKIP
    retries: int = 0
    within: timedelta = timedelta(hours=1)


class CatchUpKind(StrEnum):
    NONE = "none"
    LATEST = "latest"
    ALL = "all"


@value
class CatchUp:
    """Which occurrences are still started after a time when no server could: those within the window."""

    kind: CatchUpKind = CatchUpKind.NONE
    within: timedelta = timedelta(0)
    most: int = 1


@value
class Retry:
    """Further tries within one run when its body fails."""

    times: int = 0
    wait: timedelta = timedelta(0)


@value
class Filter:
    """A condition that the winner of an occurrence judges just before it starts: `when` or `skip`."""

    name: str
    condition: Callable[[], object] | object
    wanted: bool

    @property
    def label(self) -> str:
        """As a history shows it: `when(is_open)`."""
        inner = self.condition
        shown = getattr(inner, "__qualname__", type(inner).__qualname__) if callable(inner) else repr(inner)
        return f"{self.name}({shown})"


@value
class OutputPolicy:
    """Where a run's output goes besides its row: a file, our own standard output, or neither."""

    path: str | None = None
    echo: bool = False


@value
class Task:
    """A named unit: what to run, when, under which policies.

    `source` is the file and line of its definition, for people. `server` is set only in a task that
    every server runs for itself: the identity of the one that this value belongs to.
    """

    name: str
    work: Work
    trigger: Trigger
    servers: Servers = Servers.ONE
    servers_stated: bool = False
    overlap: Overlap = Overlap()
    lease: LeasePolicy = LeasePolicy()
    crash: Crash = Crash()
    catch_up: CatchUp = CatchUp()
    grace: timedelta = timedelta(minutes=2)
    retry: Retry = Retry()
    time_limit: timedelta | None = None
    filters: tuple[Filter, ...] = ()
    environments: frozenset[str] = frozenset()
    output: OutputPolicy = OutputPolicy()
    former_name: str | None = None
    description: str = ""
    source: str = ""
    server: str | None = None

    @property
    def key(self) -> str:
        """What stands in the store: the first name it had, and the server where each has its own."""
        identity = self.former_name or self.name
        return identity if self.server is None else f"{identity}@{self.server}"

    def on(self, server: str) -> Task:
        """The task as this server holds it."""
        return replace(self, server=server) if self.servers is Servers.EVERY else self

    def runs_in(self, environment: str | None) -> bool:
        """Whether a server of this environment holds the task at all."""
        return not self.environments or environment in self.environments

    # -- what the planner asks

    @property
    def mark_key(self) -> str:
        """A mark belongs to a task and its trigger: a new trigger starts from now.

        Windows and policies are no part of it, so that editing one leaves nothing undecided behind.
        """
        identity = self.trigger.identity.encode()
        digest = f"{crc32(identity):08x}{adler32(identity):08x}"
        return f"mark:{self.key}:{digest}"

    @property
    def attempts(self) -> int:
        return 1 + self.crash.retries

    @property
    def allows_overlap(self) -> bool:
        return self.overlap.kind is OverlapKind.ALLOW

    def may_wait(self, attempt: int = 1) -> bool:
        """Whether an occurrence whose run key is held stays due instead of being decided.

        Then the lease is asked for first and the claim made second: a server that won the claim and
        then died waiting would have dropped the occurrence.
        """
        return (
            attempt > 1
            or self.overlap.kind is OverlapKind.QUEUE_ONE
            or (self.catch_up.kind is not CatchUpKind.NONE and not self.allows_overlap)
        )

    @property
    def look_back(self) -> timedelta:
        """How late an occurrence may be started for the first time."""
        windows = [self.grace]
        if self.catch_up.kind is not CatchUpKind.NONE:
            windows.append(self.catch_up.within)
        if self.overlap.kind is OverlapKind.QUEUE_ONE:
            windows.append(self.overlap.wait)
        return max(windows)

    @property
    def start_within(self) -> timedelta:
        """How soon after its claim a run must have its lease and begin."""
        return self.lease.length

    def not_after(self, due: datetime, attempt: int = 1) -> datetime:
        return due + (self.look_back if attempt == 1 else self.crash.within)

    def keep_until(self, due: datetime, attempt: int = 1) -> datetime:
        """Until when the row must be kept: no window of it or of the next occurrence is open any more."""
        following = self.trigger.next(due) or due
        latest = max(self.not_after(due, attempt), following + self.look_back)
        return max(latest, due + self.crash.within) if self.crash.retries else latest

    def run_key(self, due: datetime) -> str:
        """The lease that a run needs. It *is* the overlap policy; all attempts share one key."""
        if self.allows_overlap:
            return run_key(Occurrence(self.key, due).key)
        return run_key(self.overlap.key or self.key)

    @property
    def patience(self) -> timedelta:
        """How long the winner's filters may take together: a quarter lease."""
        return self.lease.length / 4


def run_key(task: str) -> str:
    """The lease under which at most one run of a task goes on."""
    return f"run:{task}"
