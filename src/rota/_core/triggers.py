"""Triggers: the rules that give due instants. Cron, Every and Once, and what narrows them.

A trigger is a frozen value and a pure function of the instant asked about, so every server that
holds the same schedule names the same occurrences. All answers are aware, in UTC and exact; zones
and daylight saving end here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Protocol

from rota._core import zones
from rota._core.cron import CronExpression
from rota._core.errors import DefinitionError
from rota._core.patterns import Grid
from rota._core.value import derived, value
from rota._core.windows import Elapsed, Restricted, Window, in_zone, parse_time
from rota._core.zones import DAY, WallPattern

__all__ = ["Cron", "Every", "Once", "Restricted", "Trigger", "Window", "parse_time"]

_MONDAY: Final = zones.wall_seconds(datetime(2001, 1, 1))  # noqa: DTZ001 - a wall time
_EPOCH: Final = datetime(1, 1, 1, tzinfo=UTC)


class Trigger(Protocol):
    """A rule that gives due instants."""

    @property
    def identity(self) -> str:
        """Canonical text, stable over versions of rota: equal texts have equal occurrences."""
        ...

    def next(self, after: datetime) -> datetime | None:
        """The first occurrence strictly later than the instant, in UTC; None if there is none ever."""
        ...

    def previous(self, before: datetime) -> datetime | None:
        """The last occurrence strictly earlier than the instant, in UTC; None if there never was one."""
        ...

    def between(self, after: datetime, upto: datetime) -> Iterator[datetime]:
        """The occurrences in (after, upto], ascending, each once."""
        ...

    def describe(self) -> str:
        """The rule in plain English, with its zone if that is not UTC."""
        ...


def occurrences(trigger: Trigger, after: datetime, upto: datetime) -> Iterator[datetime]:
    """What every trigger's `between` gives."""
    found = trigger.next(after)
    while found is not None and found <= upto:
        yield found
        found = trigger.next(found)


@value
class Cron:
    """One or several cron lines in one zone. Several lines are a union: each instant comes once."""

    expressions: tuple[CronExpression, ...]
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if not self.expressions:
            raise DefinitionError("no cron line", argument="cron", found=(), allowed="at least one")
        zones.zone(self.zone)

    @classmethod
    def parse(cls, *texts: str, zone: str = "UTC") -> Cron:
        """From the lines as they are written."""
        return _parsed(texts, zone)

    @property
    def identity(self) -> str:
        lines = sorted({expression.text.lower() for expression in self.expressions})
        return f"cron {' | '.join(lines)} in {self.zone}"

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(note for expression in self.expressions for note in expression.warnings)

    @property
    def patterns(self) -> tuple[WallPattern, ...]:
        """The sets of wall times whose union, in the zone, this is."""
        return self.expressions

    def next(self, after: datetime) -> datetime | None:
        first = zones.seconds(after) + 1
        found = [zones.next_instant(self.zone, pattern, first) for pattern in self.expressions]
        known = [second for second in found if second is not None]
        return zones.instant_of(min(known)) if known else None

    def previous(self, before: datetime) -> datetime | None:
        last = zones.seconds(before) - (0 if before.microsecond else 1)
        found = [zones.previous_instant(self.zone, pattern, last) for pattern in self.expressions]
        known = [second for second in found if second is not None]
        return zones.instant_of(max(known)) if known else None

    def between(self, after: datetime, upto: datetime) -> Iterator[datetime]:
        return occurrences(self, after, upto)

    def describe(self) -> str:
        return in_zone("; ".join(expression.explain() for expression in self.expressions), self.zone)


@lru_cache(maxsize=16_384)
def _parsed(texts: tuple[str, ...], zone: str) -> Cron:
    return Cron(tuple(CronExpression.parse(text) for text in texts), zone)


@value
class Every:
    """Every `period`, aligned to the wall clock of the zone, or counted from an anchor.

    Without an anchor the wall times are Monday 2001-01-01 00:00 + offset + k * period: a period of
    less than a day follows the clock as it is shown, like `*` in cron; one of a day or more is a
    fixed time, made up after a gap and not repeated. Periods of less than a minute are real seconds.
    With an anchor it is elapsed time alone, before the anchor as well as after it.
    """

    period: timedelta
    zone: str = "UTC"
    offset: timedelta = timedelta(0)
    anchor: datetime | None = None
    _grid: Grid | None = derived()
    _step: timedelta = derived()
    _start: datetime = derived()

    def __post_init__(self) -> None:
        zones.zone(self.zone)
        for argument, span in ("period", self.period), ("offset", self.offset):
            if not isinstance(span, timedelta) or span % timedelta(seconds=1):
                raise DefinitionError(
                    f"the {argument} is not a whole number of seconds",
                    argument=argument,
                    found=span,
                    allowed="a timedelta of whole seconds",
                )
        if self.period < timedelta(seconds=1):
            raise DefinitionError(
                "the period is too short", argument="period", found=self.period, allowed="one second or more"
            )
        phase = _MONDAY + int(self.offset.total_seconds())
        period = int(self.period.total_seconds())
        if self.anchor is not None:
            if self.anchor.utcoffset() is None:
                raise zones.naive("anchor", self.anchor)
            grid, start = None, self.anchor.astimezone(UTC) + self.offset
        elif period < 60:
            base = phase - zones.stretch_at(self.zone, _MONDAY).offset
            grid, start = None, _EPOCH + timedelta(seconds=base)
        else:
            grid, start = Grid(period, phase % period, period >= DAY), _EPOCH
        for name, found in ("_grid", grid), ("_step", self.period), ("_start", start):
            object.__setattr__(self, name, found)

    @property
    def identity(self) -> str:
        text = f"every {int(self.period.total_seconds())}s"
        if self.anchor is not None:
            return f"{text} from {(self._start - _EPOCH) % self.period // timedelta(microseconds=1)}us"
        return f"{text} offset {int((self.offset % self.period).total_seconds())}s in {self.zone}"

    @property
    def warnings(self) -> tuple[str, ...]:
        day = timedelta(days=1)
        if self._grid is not None and self.period % day and day % self.period:
            return (f"every {_span(self.period)} does not divide a day: the times differ from day to day",)
        return ()

    @property
    def patterns(self) -> tuple[WallPattern, ...]:
        """The set of wall times that this is in its zone; empty where it is elapsed time."""
        return () if self._grid is None else (self._grid,)

    @property
    def elapsed(self) -> Elapsed | None:
        """The pace, where it is elapsed time; None where it keeps to the wall."""
        if self._grid is not None:
            return None
        period, start = int(self.period.total_seconds()), zones.seconds(self._start)
        return Elapsed(period, start, self._start.microsecond)

    def next(self, after: datetime) -> datetime | None:
        if self._grid is not None:
            second = zones.next_instant(self.zone, self._grid, zones.seconds(after) + 1)
            return None if second is None else zones.instant_of(second)
        zones.seconds(after)
        try:
            return self._start + ((after - self._start) // self.period + 1) * self.period
        except OverflowError:
            return None

    def previous(self, before: datetime) -> datetime | None:
        if self._grid is not None:
            last = zones.seconds(before) - (0 if before.microsecond else 1)
            second = zones.previous_instant(self.zone, self._grid, last)
            return None if second is None else zones.instant_of(second)
        zones.seconds(before)
        try:
            return self._start - ((self._start - before) // self.period + 1) * self.period
        except OverflowError:
            return None

    def between(self, after: datetime, upto: datetime) -> Iterator[datetime]:
        return occurrences(self, after, upto)

    def describe(self) -> str:
        text = f"every {_span(self.period)}"
        if self.anchor is not None:
            return f"{text} counted from {self._start.isoformat(' ').removesuffix('+00:00')} UTC"
        offset = self.offset % self.period
        if self.period == timedelta(days=1):
            text += f" at {_clock(offset)}"
        elif offset:
            text += f", {_span(offset)} later"
        return in_zone(text, self.zone)


def _clock(span: timedelta) -> str:
    minutes, seconds = divmod(span.seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}" + (f":{seconds:02}" if seconds else "")


def _span(span: timedelta) -> str:
    """`5 minutes`, `day`, `1 day 12 hours`: as one says it after `every`."""
    rest, parts = int(span.total_seconds()), []
    for unit, size in ("week", 7 * DAY), ("day", DAY), ("hour", 3600), ("minute", 60), ("second", 1):
        if unit == "week" and rest % size:
            continue
        count, rest = divmod(rest, size)
        if count:
            parts.append((count, unit))
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    return " ".join(f"{count} {unit}{'s' if count > 1 else ''}" for count, unit in parts)


@value
class Once:
    """These instants, and no others."""

    instants: tuple[datetime, ...]

    def __post_init__(self) -> None:
        if not self.instants:
            raise DefinitionError("no instant", argument="instants", found=(), allowed="at least one")
        for instant in self.instants:
            if not isinstance(instant, datetime) or instant.utcoffset() is None:
                raise zones.naive("instants", instant)
        found = sorted({instant.astimezone(UTC) for instant in self.instants})
        object.__setattr__(self, "instants", tuple(found))

    @property
    def identity(self) -> str:
        return "once " + " ".join(_written(instant).replace(" ", "T") for instant in self.instants)

    def next(self, after: datetime) -> datetime | None:
        zones.seconds(after)
        place = bisect_right(self.instants, after)
        return self.instants[place] if place < len(self.instants) else None

    def previous(self, before: datetime) -> datetime | None:
        zones.seconds(before)
        place = bisect_left(self.instants, before)
        return self.instants[place - 1] if place else None

    def between(self, after: datetime, upto: datetime) -> Iterator[datetime]:
        return occurrences(self, after, upto)

    def describe(self) -> str:
        shown = [f"{_written(instant)} UTC" for instant in self.instants]
        if len(shown) == 1:
            return f"once at {shown[0]}"
        return f"{len(shown)} times, first at {shown[0]}, last at {shown[-1]}"


def _written(instant: datetime) -> str:
    return instant.isoformat(" ").removesuffix("+00:00")
