"""Wall clock and instants: gaps, folds and the daylight-saving rule, for every zone and any size of shift.

A zone is seen as stretches of constant offset, found by asking `zoneinfo` what the wall shows at an
instant (never the other way round, where it has to guess). Each stretch knows `shown`: the latest
wall time that any clock of the zone had shown before it began. That one number is the whole rule:

    wall at the start > shown    a gap: [shown, start) was never shown
    wall at the start < shown    a fold: walls before `shown` are shown again

All arithmetic is on whole seconds since 0001-01-01T00:00, of the wall or of UTC; the machine's own
time zone has no say. A pattern that is `fixed` is made up once right after a gap of up to three
hours and runs in the first pass of a fold only; any other pattern follows the clock as it is shown.
This is the rule of Debian's cron(8), for all shifts and not only for those of summer time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo, available_timezones

from rota._core.errors import DefinitionError

DAY: Final = 86_400
LONGEST_GAP: Final = 3 * 3600
"""A jump of more than this is a correction of the calendar; nothing in it is made up."""

_EPOCH: Final = datetime(1, 1, 1)  # noqa: DTZ001 - the zero of the wall's own count
_EPOCH_UTC: Final = datetime(1, 1, 1, tzinfo=UTC)
_END: Final = date.max.toordinal() * DAY
_BLOCK: Final = 32 * DAY
_MARGIN: Final = 2 * DAY  # more than any shift, so nothing outside can reach into a block
_PROBE: Final = DAY  # in the tz database no two changes are closer than six days


class WallPattern(Protocol):
    """A set of wall times, on whole seconds; a frozen value."""

    def __hash__(self) -> int:
        """Equal sets are alike."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether it is made up after a gap and kept to the first pass of a fold."""
        ...

    def next_wall(self, wall: int) -> int | None:
        """The first wall time of the set at or after `wall`."""

    def previous_wall(self, wall: int) -> int | None:
        """The last wall time of the set at or before `wall`."""


class Stretch(NamedTuple):
    """A time of constant offset: instants in [start, end) show the wall at instant + offset."""

    start: int
    end: int
    offset: int
    shown: int

    @property
    def gap(self) -> bool:
        """Whether what was skipped just before this stretch is made up."""
        return 0 < self.start + self.offset - self.shown <= LONGEST_GAP


@lru_cache(maxsize=1024)
def zone(name: str) -> tzinfo:
    """The zone of that name in the tz database. Names that depend on the host are refused."""
    if isinstance(name, str) and name and name not in ("localtime", "posixrules", "Factory"):
        try:
            if not name.startswith(("right/", "posix/")):
                return ZoneInfo(name)
        except (ValueError, OSError, LookupError):
            pass
    names = available_timezones()
    text = str(name)
    same = [known for known in sorted(names) if known.lower() == text.lower()]
    tails = [known for known in sorted(names) if known.lower().endswith("/" + text.lower().replace(" ", "_"))]
    from difflib import get_close_matches  # only an error needs it

    near = same or tails or get_close_matches(text, sorted(names), n=3, cutoff=0.6)
    raise DefinitionError(
        f"there is no time zone {name!r}",
        argument="timezone",
        found=name,
        allowed="a name of the tz database, such as Europe/Berlin or UTC",
        hint=f"did you mean {' or '.join(near[:3])}?" if near else None,
    )


# -- instants and seconds


def seconds(instant: datetime) -> int:
    """Whole seconds up to an aware instant; its microseconds are dropped."""
    try:
        passed = instant - _EPOCH_UTC
    except TypeError:
        raise naive("instant", instant) from None
    return passed.days * DAY + passed.seconds


def naive(argument: str, found: object) -> DefinitionError:
    """The error for a datetime that does not say which zone it is in."""
    return DefinitionError(
        "a datetime without a time zone is not an instant",
        argument=argument,
        found=found,
        allowed="an aware datetime, such as datetime.now(UTC)",
    )


def instant_of(second: int) -> datetime | None:
    """The instant in UTC, or None outside the years 1 to 9999."""
    if 0 <= second < _END:
        return _EPOCH_UTC + timedelta(second // DAY, second % DAY)
    return None


def wall_of(name: str, instant: datetime) -> datetime:
    """What a clock in the zone shows, as a naive datetime, to the microsecond."""
    second = seconds(instant)
    wall = second + stretch_at(name, second).offset
    return _EPOCH + timedelta(wall // DAY, wall % DAY, instant.microsecond)


def wall_seconds(wall: datetime) -> int:
    """The count of a naive wall time; its microseconds are dropped."""
    passed = wall - _EPOCH
    return passed.days * DAY + passed.seconds


# -- stretches


def _offset(where: tzinfo, second: int) -> int:
    second = min(max(second, 2 * DAY), _END - 2 * DAY)
    utc = _EPOCH + timedelta(second // DAY, second % DAY)
    shift = where.fromutc(utc.replace(tzinfo=where)).replace(tzinfo=None) - utc
    return shift.days * DAY + shift.seconds


def _changes(where: tzinfo, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Every (instant, new offset) in (low, high], both of whose ends are probed."""
    before, after = _offset(where, low), _offset(where, high)
    while before != after:
        left, right = low, high
        while right - left > 1:
            middle = (left + right) // 2
            if _offset(where, middle) == before:
                left = middle
            else:
                right = middle
        low, before = right, _offset(where, right)
        yield right, before


@lru_cache(maxsize=16_384)
def _stretches(name: str, block: int) -> tuple[Stretch, ...]:
    where = zone(name)
    first, last = block * _BLOCK - _MARGIN, (block + 1) * _BLOCK
    start, offset = first, _offset(where, first)
    shown = start + offset
    found = []
    for low in range(first, last, _PROBE):
        for change, new in _changes(where, low, low + _PROBE):
            if change < last:
                found.append(Stretch(start, change, offset, shown))
                shown = max(shown, change + offset)
                start, offset = change, new
    found.append(Stretch(start, last, offset, shown))
    return tuple(stretch for stretch in found if stretch.end > block * _BLOCK)


_ALWAYS: Final = Stretch(-(10**15), 10**15, 0, -(10**15))


def stretch_at(name: str, second: int) -> Stretch:
    """The stretch an instant lies in. It may be cut short, with nothing skipped or repeated at the cut."""
    if name == "UTC":
        return _ALWAYS
    for stretch in _stretches(name, second // _BLOCK):
        if second < stretch.end:
            return stretch
    raise AssertionError("blocks end where the next one begins")


def stretches(name: str, first: int, last: int) -> Iterator[Stretch]:
    """The stretches that [first, last] touches, in order."""
    while first <= last:
        stretch = stretch_at(name, first)
        yield stretch
        first = stretch.end


# -- the rule


def made_up(pattern: WallPattern, stretch: Stretch) -> bool:
    """Whether the gap before this stretch swallowed a time of the pattern that is owed now."""
    if not (pattern.fixed and stretch.gap):
        return False
    wall = pattern.next_wall(stretch.shown)
    return wall is not None and wall < stretch.start + stretch.offset


def next_instant(name: str, pattern: WallPattern, first: int) -> int | None:
    """The first occurrence at or after `first`."""
    while first < _END:
        stretch = stretch_at(name, first)
        if first == stretch.start and made_up(pattern, stretch):
            return first
        low = first + stretch.offset
        wall = pattern.next_wall(max(low, stretch.shown) if pattern.fixed else low)
        if wall is None:
            return None
        found = wall - stretch.offset
        if found < stretch.end:
            return found
        # No shift is as long as the margin: later walls all lie after `low`, so none is due before
        # `found` less the margin, and the stretches up to there need not be looked at.
        near = stretch.end - first < _MARGIN
        first = stretch.end if near else max(stretch.end, found - _MARGIN)
    return None


def previous_instant(name: str, pattern: WallPattern, last: int) -> int | None:
    """The last occurrence at or before `last`."""
    while last >= 0:
        stretch = stretch_at(name, last)
        wall = pattern.previous_wall(last + stretch.offset)
        begin = stretch.start + stretch.offset
        if wall is not None and wall >= (max(begin, stretch.shown) if pattern.fixed else begin):
            return wall - stretch.offset
        if made_up(pattern, stretch):
            return stretch.start
        if wall is None:
            return None
        near = last - stretch.start < _MARGIN
        last = stretch.start - 1 if near else min(stretch.start - 1, wall - stretch.offset + _MARGIN)
    return None
