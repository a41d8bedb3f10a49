"""The values that cross the seam: what is asked of a store, and what it answers.

A row is the written decision about one attempt of one occurrence. It is open from the claim until
its one end is settled, then final for ever. All instants are aware, in UTC, to the microsecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeVar

from rota._core.leases import EVERYTHING, PAUSE_PREFIX, Lease
from rota._core.runs import Outcome, SkipReason
from rota._core.task import Occurrence as Occurrence
from rota._core.value import NOTHING, value

T_co = TypeVar("T_co", covariant=True)

STEP_BACK_ALLOWANCE = timedelta(minutes=10)
"""How far a store's clock may step back before a decision that was forgotten could be made again."""


class Cause(StrEnum):
    """Who asked for the run: the schedule, or a person."""

    SCHEDULE = "schedule"
    MANUAL = "manual"


@value
class Claim:
    """A wish for the right to start an occurrence.

    `not_before` and `not_after` (both included) bound the instant of the claim by the store's
    clock. Whoever claims must hold the run lease within `start_within` of it. The row must be kept
    until `keep_until` at least.
    """

    occurrence: Occurrence
    attempt: int
    token: str
    server: str
    not_before: datetime
    not_after: datetime
    start_within: timedelta
    keep_until: datetime
    cause: Cause = Cause.SCHEDULE


@value
class End:
    """The end of an attempt: how it went, or why it was not started.

    `detail` is one sentence for people, `output` what the run printed. `took` is how long the body
    ran. A run of more than a hundred missed occurrences is one end on the oldest, with their
    `count` and the `last` of them; the store then moves `pruned:<task>` to `last` in the same step.
    """

    occurrence: Occurrence
    attempt: int
    token: str
    outcome: Outcome
    keep_until: datetime
    server: str = ""
    reason: SkipReason | None = None
    detail: str = ""
    output: str = ""
    took: timedelta | None = None
    count: int = 1
    last: datetime | None = None

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.SKIPPED) != (self.reason is not None):
            raise ValueError(f"a skip has a reason and nothing else has: {self.outcome}, {self.reason}")

    @property
    def needs_no_row(self) -> bool:
        """Whether it is written only where no row stands."""
        return self.reason is not None and self.reason.needs_no_row

    @property
    def says_nobody_ran(self) -> bool:
        """Whether it is a judgement that only a store may make that remembers the time in question."""
        return self.reason in (SkipReason.MISSED, SkipReason.COALESCED)


@value
class Row:
    """What stands on the sheet for one attempt. `outcome` is None while it is open.

    `since` is when the row was written, `ended` when it became final, both by the store's clock;
    `start_by` is None in a row that was never claimed.
    """

    occurrence: Occurrence
    attempt: int
    token: str
    server: str
    since: datetime
    start_by: datetime | None
    keep_until: datetime
    cause: Cause = Cause.SCHEDULE
    outcome: Outcome | None = None
    reason: SkipReason | None = None
    detail: str = ""
    output: str = ""
    ended: datetime | None = None
    took: timedelta | None = None
    count: int = 1
    last: datetime | None = None

    @property
    def key(self) -> tuple[Occurrence, int]:
        return self.occurrence, self.attempt

    @property
    def is_open(self) -> bool:
        return self.outcome is None


class Refused(StrEnum):
    """Why a store says no."""

    EARLY = "early"
    TOO_LATE = "too_late"
    HELD = "held"
    STORE_LOST = "store_lost"


@value
class Refusal:
    """A no, which is an answer and not an error. `by` (an owner, for people) and `until` where known."""

    reason: Refused
    by: str = ""
    until: datetime | None = None


@value
class Answer(Generic[T_co]):
    """The answers to a list, item by item in its order, all decided at the store's instant `now`."""

    now: datetime
    items: Sequence[T_co]


@value
class Look:
    """The question of a tick: the marks of these tasks, and what stands after them.

    `marks` maps a task's key to the key of its mark. Of each task the rows due after the later of
    its mark and `pruned:<task>` are shown; where there is no mark, those due after `since`.
    """

    marks: Mapping[str, str]
    since: datetime


@value
class View:
    """What a tick knows: the rows, read no later than the leases, and the leases unexpired at `now`.

    A store that reads its clock before its tables may show what was written a moment after `now`.

    `marks` holds the marks asked for and `pruned:<task>` of each asked task, where they exist.
    `rows` are those after the marks, and every open row of the application. On a volatile store
    `epoch` is when it began to remember, and nothing may be started before `quiet_until`.
    """

    now: datetime
    marks: Mapping[str, datetime] = NOTHING
    rows: Sequence[Row] = ()
    leases: Sequence[Lease] = ()
    epoch: datetime | None = None
    quiet_until: datetime | None = None

    @property
    def tokens_held(self) -> frozenset[str]:
        return frozenset(lease.token for lease in self.leases)

    @property
    def pauses(self) -> Mapping[str, Lease]:
        """The pauses in force by task key; `*` is the whole schedule."""
        return {
            lease.key.removeprefix(PAUSE_PREFIX): lease
            for lease in self.leases
            if lease.key.startswith(PAUSE_PREFIX)
        }

    def pause_of(self, task: str) -> Lease | None:
        pauses = self.pauses
        return pauses.get(EVERYTHING) or pauses.get(task)


@value
class RowQuery:
    """Which rows of the history: newest first, at most `limit`, of these tasks (all if empty),
    due at or after `since`, ended as `outcome`; `open_only` shows what is running."""

    tasks: Sequence[str] = ()
    since: datetime | None = None
    outcome: Outcome | None = None
    server: str | None = None
    open_only: bool = False
    limit: int = 100


def pruned_mark(task: str) -> str:
    """The mark up to which the rows of a task are gone, and all is decided."""
    return f"pruned:{task}"


def pause_key(task: str) -> str:
    return f"{PAUSE_PREFIX}{task}"
