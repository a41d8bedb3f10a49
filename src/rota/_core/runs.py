"""How a run can end, and the words for why an occurrence was not started."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from rota._core.value import value


class Outcome(StrEnum):
    """The one end of an attempt. A final outcome never changes."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    SKIPPED = "skipped"

    @property
    def is_trouble(self) -> bool:
        """Whether a person would want to hear of it: the work was started and did not succeed."""
        return self in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED, Outcome.LOST)


class SkipReason(StrEnum):
    """Why an occurrence was decided without a start."""

    PAUSED = "paused"
    FILTERED = "filtered"
    OVERLAPPING = "overlapping"
    COALESCED = "coalesced"
    MISSED = "missed"
    STORE_LOST = "store_lost"
    BROKEN = "broken"

    @property
    def needs_no_row(self) -> bool:
        """Whether it may be written only where no row stands: nobody claimed the occurrence."""
        return self in (SkipReason.COALESCED, SkipReason.MISSED, SkipReason.STORE_LOST)


@value
class Result:
    """How the body of a run went: what it printed, how long it took, and one sentence for people."""

    outcome: Outcome
    detail: str = ""
    output: str = ""
    took: timedelta | None = None
