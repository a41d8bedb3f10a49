"""The only reader of time: the host's wall clock, the boot-time clock, and the offset to the store's clock.

The wall clock may be wrong and may be stepped, so it decides nothing: it is a first guess of the
store's time until a store has answered. From then on the guess is carried by the boot-time clock,
which nobody can step and which goes on while the machine is suspended.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from threading import Event

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Signal(Protocol):
    """Something that one thread sets and another waits for."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...


class Clock:
    """Time as this process sees it. Safe to use from any thread."""

    def __init__(self, offset: timedelta | None = None) -> None:
        """`offset` is the last known difference of the store's clock to this host's, if there is one."""
        self._offset = offset or timedelta(0)
        self._learned: tuple[datetime, float] | None = None

    def wall(self) -> datetime:
        """The host's wall clock, in UTC."""
        return datetime.now(UTC)

    def boot(self) -> float:
        """Seconds since boot, suspended time included. Only differences mean anything."""
        return time.clock_gettime(_BOOT)

    def learn(self, now: datetime, *, sent: float, answered: float) -> None:
        """Take in that the store's clock showed `now` between these two instants of the boot-time clock."""
        self._learned = now, (sent + answered) / 2

    def estimate(self) -> datetime:
        """What the store's clock shows now, as far as we know."""
        if self._learned is None:
            return self.wall() + self._offset
        now, at = self._learned
        return now + timedelta(seconds=self.boot() - at)

    @property
    def offset(self) -> timedelta:
        """How far the store's clock is ahead of this host's."""
        return self._offset if self._learned is None else self.estimate() - self.wall()

    @property
    def knows_the_store(self) -> bool:
        """Whether a store has answered in this process."""
        return self._learned is not None

    def signal(self) -> Signal:
        from threading import Event  # a tick that has nothing to do needs no threads

        return Event()

    def wait(self, signal: Signal, seconds: float | None) -> bool:
        """Wait until the signal is set, at most so long; whether it is set."""
        return cast("Event", signal).wait(None if seconds is None else max(0.0, seconds))

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))
