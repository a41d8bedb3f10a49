"""What DynamoDB's clock shows, told from the Date header of its answers.

Expressions know no time, and a Date has whole seconds, floored. But an answer dated D left the server between
the instant its request was sent and the instant it came back, so on this host's boot-time clock, which nobody
can step,

    D - received  <=  server's clock - boot clock  <  D + 1 s - sent

Each answer narrows the two bounds. `now` is the lower one: never later than the true time, so nothing is
early and nobody takes a lease over before its end; and behind it by less than the bounds are apart, about a
second after the first answer and some milliseconds after a few. It never goes back, unless the server's clock
does by more than a second: then it follows it. Smaller steps back are waited out.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from rota.stores.base import instant, microseconds

SECOND: Final = 1_000_000
"""All in this file is in microseconds."""

_KEPT: Final = 60 * SECOND
_WIDEST: Final = 2 * SECOND
"""Bounds further apart tell too little: with the tenth of it that a holder leaves unused, and a grain of a
second, a lease of ten seconds bears two."""
_FRONT_ENDS_DIFFER: Final = 30_000
_DRIFT: Final = 2_000
"""Two clocks that keep time part by less than one microsecond in so many: 500 ppm."""

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot() -> int:
    """The instant on this host's boot-time clock."""
    return time.clock_gettime_ns(_BOOT) // 1000


class ServerClock:
    """The bounds of one server's clock. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: int | None = None
        self._low = self._high = self._latest = 0

    def hear(self, header: str, sent: int, received: int) -> int:
        """Take in an answer, and say what it is dated."""
        date = microseconds(parsedate_to_datetime(header))
        low = date - received - _FRONT_ENDS_DIFFER
        high = date + SECOND - sent + _FRONT_ENDS_DIFFER
        with self._lock:
            if self._heard is not None:
                drift = max(0, received - self._heard) // _DRIFT
                old_low, old_high = self._low - drift, self._high + drift
                stepped_back = high < old_low - SECOND
                stepped_forward = low > old_high + SECOND
                if stepped_back:
                    self._latest = 0
                elif not stepped_forward:
                    low = max(low, old_low)
                    high = max(low, min(high, old_high))
            self._low, self._high = low, high
            self._heard = max(received, self._heard or 0)
        return date

    def now(self, at: int) -> datetime | None:
        """The instant on the server's clock; None where too little is known of it."""
        with self._lock:
            if self._heard is None or at - self._heard > _KEPT or self._high - self._low > _WIDEST:
                return None
            self._latest = max(self._latest, at + self._low)
            return instant(self._latest)

    def was_behind(self, now: datetime, at: int) -> bool:
        """Whether later answers have shown that it was more than a second later than `now`, told at `at`.

        So it is after a slow first answer, after this host was suspended unnoticed, or after the server's
        clock has jumped forward. A lease that counts from `now` would end before its holder's trust in it."""
        with self._lock:
            return at + self._low - microseconds(now) > SECOND
