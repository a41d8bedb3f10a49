"""Windows, days and bounds: when a trigger's occurrences count, and how closed time is jumped over.

`Restricted` gives exactly those occurrences of its trigger whose instant is open; the minute on the
wall of the zone decides, and both ends of a window are in it. It never walks through closed time
step by step, and where trigger and windows cannot meet it says so (None) instead of searching on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rota._core import zones
from rota._core.cron_syntax import WEEKDAY_NAMES, listed
from rota._core.errors import DefinitionError
from rota._core.patterns import MINUTES, Grid, Opening, meeting
from rota._core.value import derived, value
from rota._core.zones import DAY, WallPattern

if TYPE_CHECKING:
    from rota._core.triggers import Trigger

_MICROSECOND: Final = timedelta(microseconds=1)
_PATIENCE: Final = 8
_MOST_PATIENCE: Final = 400
_GAPS_AHEAD: Final = 2 * 366 * DAY
_FARTHEST: Final = 400 * 366 * DAY


def in_zone(text: str, zone: str) -> str:
    """A description with the zone it holds in, unless that is UTC."""
    return text if zone == "UTC" else f"{text} ({zone})"


def parse_time(text: str) -> int:
    """The minute of the day of `H:MM` or `HH:MM`; 24:00 is the end of the day."""
    found = re.fullmatch("([0-9]{1,2}):([0-9]{2})", text) if isinstance(text, str) else None
    minute = int(found[1]) * 60 + int(found[2]) if found and int(found[2]) < 60 else MINUTES + 1
    if minute > MINUTES:
        hint = None
        if isinstance(text, str):
            if re.fullmatch("[0-9]{1,2}", text) and int(text) < 24:
                hint = f"write {text}:00"
            elif re.fullmatch("[0-9]{1,2}:[0-9]{2}:[0-9]{2}", text):
                hint = "seconds are for cron lines of six fields"
            elif re.search("am|pm|noon", text.lower()):
                hint = "the clock has 24 hours"
        raise DefinitionError(
            f"{text!r} is not a time of day",
            argument="time",
            found=text,
            allowed="HH:MM from 00:00 to 24:00",
            hint=hint,
        )
    return minute


@value
class Window:
    """The whole minutes of the day from `start` to `end`, both included; over midnight if start is later.

    1440 is 24:00, the end of the day: it takes in no minute of the next. With `inside=False` it is
    all other minutes.
    """

    start: int
    end: int
    inside: bool = True

    def __post_init__(self) -> None:
        for argument, minute in ("start", self.start), ("end", self.end):
            if not isinstance(minute, int) or not 0 <= minute <= MINUTES:
                raise DefinitionError(
                    f"the {argument} of a window is outside the day",
                    argument=argument,
                    found=minute,
                    allowed="minutes 0-1440",
                )
        if self.start == MINUTES:
            raise DefinitionError(
                "a window cannot start at 24:00", argument="start", found="24:00", hint="write 00:00"
            )

    @classmethod
    def parse(cls, start: str, end: str, *, inside: bool = True) -> Window:
        """From two times of day, such as 22:00 and 03:00."""
        return cls(parse_time(start), parse_time(end), inside)

    @property
    def minutes(self) -> int:
        """The open minutes of the day, as bits."""
        whole = (1 << MINUTES) - 1
        upto, since = (2 << self.end) - 1, whole & ~((1 << self.start) - 1)
        mask = (upto & since if self.start <= self.end else upto | since) & whole
        return mask if self.inside else whole & ~mask

    def contains(self, minute: int) -> bool:
        """Whether this minute of the day is open."""
        return bool(self.minutes >> minute & 1)

    def describe(self) -> str:
        start, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in (self.start, self.end))
        return f"{'' if self.inside else 'not '}between {start} and {end}"


@lru_cache(maxsize=1024)
def _opening(windows: tuple[Window, ...], days: frozenset[int] | None) -> Opening:
    minutes = (1 << MINUTES) - 1
    for window in windows:
        minutes &= window.minutes
    return Opening(sum(minutes << day * MINUTES for day in (range(7) if days is None else days)))


@value
class Elapsed:
    """Every `period` seconds from `start`, a second of UTC, and `microsecond` after each."""

    period: int
    start: int
    microsecond: int

    def met(self, offset: int, opening: Opening) -> WallPattern | None:
        """Where it meets the opening while the wall is `offset` ahead of UTC; None if nowhere."""
        return meeting(Grid(self.period, (self.start + offset) % self.period, False), opening)


@value
class Restricted:
    """The occurrences of a trigger that are open: in all windows, on one of the days (0 is Sunday),
    from `starting` to `until`, both included.

    The instant itself decides, by what the wall of `zone` shows: a run that is made up after a gap
    counts where it is made up. Windows are no part of the identity, so that changing one leaves
    nothing undecided behind.
    """

    trigger: Trigger
    zone: str = "UTC"
    windows: tuple[Window, ...] = ()
    days: frozenset[int] | None = None
    starting: datetime | None = None
    until: datetime | None = None
    _opening: Opening = derived()

    def __post_init__(self) -> None:
        zones.zone(self.zone)
        if self.days is not None and not (self.days and self.days <= frozenset(range(7))):
            raise DefinitionError(
                "no such days", argument="days", found=set(self.days), allowed="some of 0 (Sunday) to 6"
            )
        for argument, bound in ("starting", self.starting), ("until", self.until):
            if bound is not None and bound.utcoffset() is None:
                raise zones.naive(argument, bound)
        if self.starting is not None and self.until is not None and self.starting > self.until:
            raise DefinitionError("it ends before it starts", argument="until", found=self.until)
        object.__setattr__(self, "_opening", _opening(self.windows, self.days))

    @property
    def identity(self) -> str:
        return self.trigger.identity

    @property
    def warnings(self) -> tuple[str, ...]:
        notes: tuple[str, ...] = getattr(self.trigger, "warnings", ())
        return notes if self._opening.mask else (*notes, "no minute is in all the windows: it never opens")

    def next(self, after: datetime) -> datetime | None:
        zones.seconds(after)
        if self.starting is not None and after < self.starting:
            after = _shifted(self.starting, -_MICROSECOND)
        found = self.trigger.next(after)
        for attempt in range(self._patience()):
            if found is None or (self.until is not None and found > self.until):
                return None
            second = zones.seconds(found)
            opens = zones.next_instant(self.zone, self._opening, second)
            if opens is None:
                return None
            if opens == second:
                return found
            if attempt >= _PATIENCE and (patterns := self._patterns()):
                return self._bounded(self._far(patterns, opens))
            if attempt >= _PATIENCE and (elapsed := self._elapsed()):
                far = _next_elapsed(self.zone, elapsed, self._opening, opens)
                return self._bounded(far, elapsed.microsecond)
            found = self.trigger.next(_shifted(_instant(opens), -_MICROSECOND))
        return None

    def previous(self, before: datetime) -> datetime | None:
        zones.seconds(before)
        if self.until is not None and before > self.until:
            before = _shifted(self.until, _MICROSECOND)
        found = self.trigger.previous(before)
        for attempt in range(self._patience()):
            if found is None or (self.starting is not None and found < self.starting):
                return None
            second = zones.seconds(found)
            opens = zones.previous_instant(self.zone, self._opening, second)
            if opens is None:
                return None
            if opens == second:
                return found
            if attempt >= _PATIENCE and (patterns := self._patterns()):
                return self._bounded(self._far_back(patterns, opens))
            if attempt >= _PATIENCE and (elapsed := self._elapsed()):
                far = _previous_elapsed(self.zone, elapsed, self._opening, opens)
                return self._bounded(far, elapsed.microsecond)
            found = self.trigger.previous(_shifted(_instant(opens), timedelta(seconds=1)))
        return None

    def between(self, after: datetime, upto: datetime) -> Iterator[datetime]:
        found = self.next(after)
        while found is not None and found <= upto:
            yield found
            found = self.next(found)

    def describe(self) -> str:
        parts = [self.trigger.describe(), *(window.describe() for window in self.windows)]
        if self.days is not None:
            parts.append(f"on {listed([WEEKDAY_NAMES[day] for day in sorted(self.days, key=_monday_first)])}")
        if self.starting is not None:
            parts.append(f"from {self.starting.isoformat(' ', 'minutes')}")
        if self.until is not None:
            parts.append(f"until {self.until.isoformat(' ', 'minutes')}")
        return ", ".join(parts)

    # -- where trigger and windows rarely meet

    def _patterns(self) -> tuple[WallPattern, ...]:
        """The wall times of the trigger, where they are read off the same clock as the windows."""
        same_clock = getattr(self.trigger, "zone", None) == self.zone
        return getattr(self.trigger, "patterns", ()) if same_clock else ()

    def _elapsed(self) -> Elapsed | None:
        """The pace of the trigger, where it is elapsed time: then no clock has a say in it."""
        found: Elapsed | None = getattr(self.trigger, "elapsed", None)
        return found

    def _patience(self) -> int:
        """How many closed instants are tried; each of a finite number may be the last but one."""
        return max(_MOST_PATIENCE, len(getattr(self.trigger, "instants", ())) + 1)

    def _far(self, patterns: tuple[WallPattern, ...], first: int) -> int | None:
        found = [_next_open(self.zone, pattern, self._opening, first) for pattern in patterns]
        return min((second for second in found if second is not None), default=None)

    def _far_back(self, patterns: tuple[WallPattern, ...], last: int) -> int | None:
        found = [_previous_open(self.zone, pattern, self._opening, last) for pattern in patterns]
        return max((second for second in found if second is not None), default=None)

    def _bounded(self, second: int | None, microsecond: int = 0) -> datetime | None:
        found = None if second is None else zones.instant_of(second)
        found = found and found.replace(microsecond=microsecond)
        if found is None or (self.until is not None and found > self.until):
            return None
        return None if self.starting is not None and found < self.starting else found


def _next_open(zone: str, pattern: WallPattern, opening: Opening, first: int) -> int | None:
    """The meeting's first time at or after `first`, or a made-up run before it that falls into an opening."""
    ordinary = None
    if (both := meeting(pattern, opening)) is not None:
        ordinary = zones.next_instant(zone, both, first)
        while ordinary is not None and not _open_at(zone, opening, ordinary):
            ordinary = zones.next_instant(zone, both, ordinary + 1)
    if pattern.fixed:
        last = first + _GAPS_AHEAD if ordinary is None else min(first + _GAPS_AHEAD, ordinary)
        for stretch in zones.stretches(zone, first, last):
            owed = first <= stretch.start <= last and zones.made_up(pattern, stretch)
            if owed and opening.is_open(stretch.start + stretch.offset):
                return stretch.start
    return ordinary


def _previous_open(zone: str, pattern: WallPattern, opening: Opening, last: int) -> int | None:
    ordinary = None
    if (both := meeting(pattern, opening)) is not None:
        ordinary = zones.previous_instant(zone, both, last)
        while ordinary is not None and not _open_at(zone, opening, ordinary):
            ordinary = zones.previous_instant(zone, both, ordinary - 1)
    found = ordinary
    if pattern.fixed:
        first = last - _GAPS_AHEAD if ordinary is None else max(last - _GAPS_AHEAD, ordinary)
        for stretch in zones.stretches(zone, first, last):
            owed = first <= stretch.start <= last and zones.made_up(pattern, stretch)
            if owed and opening.is_open(stretch.start + stretch.offset):
                found = stretch.start
    return found


def _next_elapsed(zone: str, elapsed: Elapsed, opening: Opening, first: int) -> int | None:
    """The first open occurrence at or after `first` of what elapsed time alone decides.

    While the offset stays, elapsed time is a grid on the wall, so where it meets the opening is known
    for each offset. What the wrong offset promises is passed over, a stretch at a time.
    """
    offsets = {each.offset for each in zones.stretches(zone, first, first + _GAPS_AHEAD)}
    farthest = first + _FARTHEST
    while first <= farthest:
        offsets.add(zones.stretch_at(zone, first).offset)
        known = {}
        for offset in offsets:
            if (both := elapsed.met(offset, opening)) is not None:
                wall = both.next_wall(first + offset)
                if wall is not None:
                    known[offset] = wall - offset
        if not known:
            return None
        stretch = zones.stretch_at(zone, min(known.values()))
        found = known.get(stretch.offset)
        if found is not None and found < stretch.end:
            return found
        first = stretch.end
    return None


def _previous_elapsed(zone: str, elapsed: Elapsed, opening: Opening, last: int) -> int | None:
    offsets = {each.offset for each in zones.stretches(zone, last - _GAPS_AHEAD, last)}
    farthest = last - _FARTHEST
    while last >= farthest:
        offsets.add(zones.stretch_at(zone, last).offset)
        known = {}
        for offset in offsets:
            if (both := elapsed.met(offset, opening)) is not None:
                wall = both.previous_wall(last + offset)
                if wall is not None:
                    known[offset] = wall - offset
        if not known:
            return None
        stretch = zones.stretch_at(zone, max(known.values()))
        found = known.get(stretch.offset)
        if found is not None and found >= stretch.start:
            return found
        last = stretch.start - 1
    return None


def _open_at(zone: str, opening: Opening, second: int) -> bool:
    return opening.is_open(second + zones.stretch_at(zone, second).offset)


def _monday_first(day: int) -> int:
    return (day - 1) % 7


def _instant(second: int) -> datetime:
    return zones.instant_of(second) or datetime.max.replace(tzinfo=UTC)


def _shifted(instant: datetime, by: timedelta) -> datetime:
    try:
        return instant + by
    except OverflowError:
        return instant
