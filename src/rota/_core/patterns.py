"""Sets of wall times besides cron lines: a grid, the open minutes of a week, and where a pattern meets them.

Where two sets meet is computed, not searched for, so that the answer `never` costs no more than any other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rota._core.cron import CronExpression
from rota._core.value import value
from rota._core.zones import DAY, WallPattern

MINUTES: Final = 1440
"""In a day."""

_WEEK: Final = 7 * DAY


@value
class Grid:
    """The wall times phase + k * period; one of whole days or more is a fixed time."""

    period: int
    phase: int
    fixed: bool

    def next_wall(self, wall: int) -> int:
        return wall + (self.phase - wall) % self.period

    def previous_wall(self, wall: int) -> int:
        return wall - (wall - self.phase) % self.period


@value
class Opening:
    """The open minutes of a week as bits from Sunday 00:00; as a pattern, every second of them."""

    mask: int
    fixed: bool = False

    def is_open(self, wall: int) -> bool:
        return bool(self.mask >> (wall + DAY) % _WEEK // 60 & 1)

    def next_wall(self, wall: int) -> int | None:
        if not self.mask:
            return None
        minute = (wall + DAY) % _WEEK // 60
        if rest := self.mask >> minute:
            ahead = (rest & -rest).bit_length() - 1
        else:
            ahead = (self.mask & -self.mask).bit_length() - 1 + 7 * MINUTES - minute
        return wall - wall % 60 + ahead * 60 if ahead else wall

    def previous_wall(self, wall: int) -> int | None:
        if not self.mask:
            return None
        minute = (wall + DAY) % _WEEK // 60
        rest = self.mask & (2 << minute) - 1
        behind = (
            minute - (rest.bit_length() - 1) if rest else minute + 7 * MINUTES - self.mask.bit_length() + 1
        )
        return wall - wall % 60 - behind * 60 + 59 if behind else wall


@value
class OpenPattern:
    """The times of a pattern at which it is open, where every date of the pattern has an open minute."""

    pattern: WallPattern
    opening: Opening
    fixed: bool

    def next_wall(self, wall: int) -> int | None:
        found = self.pattern.next_wall(wall)
        while found is not None and not self.opening.is_open(found):
            opens = self.opening.next_wall(found)
            found = None if opens is None else self.pattern.next_wall(opens)
        return found

    def previous_wall(self, wall: int) -> int | None:
        found = self.pattern.previous_wall(wall)
        while found is not None and not self.opening.is_open(found):
            opens = self.opening.previous_wall(found)
            found = None if opens is None else self.pattern.previous_wall(opens)
        return found


@value
class OpenGrid:
    """The times of a grid at which it is open, by arithmetic: a period of 1441 minutes meets an
    opening of one minute once in four years."""

    grid: Grid
    runs: tuple[tuple[int, int], ...]
    fixed: bool

    def next_wall(self, wall: int) -> int | None:
        first = self.grid.next_wall(wall)
        at = (first + DAY) % _WEEK
        steps = [_steps(self.grid.period, begin - at, end - at) for begin, end in self.runs]
        known = [step for step in steps if step is not None]
        return first + min(known) * self.grid.period if known else None

    def previous_wall(self, wall: int) -> int | None:
        last = self.grid.previous_wall(wall)
        at = (last + DAY) % _WEEK
        steps = [_steps(self.grid.period, at - end, at - begin) for begin, end in self.runs]
        known = [step for step in steps if step is not None]
        return last - min(known) * self.grid.period if known else None


def _steps(period: int, begin: int, end: int) -> int | None:
    """The least k >= 0 with k * period in [begin, end], all within a week that goes round."""
    begin, end = begin % _WEEK, end % _WEEK
    return 0 if begin > end else _first_multiple(period % _WEEK, _WEEK, begin, end)


def _first_multiple(step: int, size: int, low: int, high: int) -> int | None:
    """The least k >= 0 with low <= k * step mod size <= high, as Euclid would find it."""
    if low == 0:
        return 0
    if step == 0:
        return None
    count = -(-low // step)
    if count * step <= high:
        return count
    rounds = _first_multiple(size % step, step, -high % step, -low % step)
    return None if rounds is None else -(-(low + size * rounds) // step)


@lru_cache(maxsize=1024)
def meeting(pattern: WallPattern, opening: Opening) -> WallPattern | None:
    """The times of the pattern at which it is open; None if there are none, or if that is not known."""
    if isinstance(pattern, CronExpression):
        times = sum(pattern.minute << 60 * hour for hour in range(24) if pattern.hour >> hour & 1)
        shared = opening.mask & sum(times << day * MINUTES for day in range(7))
        days = sum(1 << day for day in range(7) if shared >> day * MINUTES & (1 << MINUTES) - 1)
        narrowed = pattern.restricted_to(days)
        return narrowed and OpenPattern(narrowed, Opening(shared), pattern.fixed)
    if isinstance(pattern, Grid):
        found = OpenGrid(pattern, tuple(_runs(opening.mask)), pattern.fixed)
        return found if found.next_wall(0) is not None else None
    return None


def _runs(mask: int) -> list[tuple[int, int]]:
    """The stretches of set bits, as the first and last second of their minutes."""
    runs, at = [], 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        length = (mask ^ mask + 1).bit_length() - 1
        runs.append(((at + skip) * 60, (at + skip + length) * 60 - 1))
        mask >>= length
        at += skip + length
    return runs
