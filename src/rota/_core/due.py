"""Which of N triggers have an occurrence in a window: one by one, or all at once with transposed bit sets.

Both agree exactly with `trigger.next(after) <= upto`. `DueIndex` is for a process that stays: for every
minute, hour and kind of day it holds one integer with bit i set where row i matches, so a minute is
judged for all rows by three ANDs. Daylight saving is the same rule as in `zones`, applied to sets.
What a minute cannot express (seconds, windows) is found the same way and then asked for its next
occurrence; what has no minutes at all (elapsed time, dates, foreign triggers) is always asked.

A trigger that raises counts as due, so that whoever plans it meets the error at that task alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

from rota._core import zones
from rota._core.cron import CronExpression
from rota._core.cron_syntax import ALL_MONTHS, DayRule, length_of
from rota._core.triggers import Cron, Every, Restricted, Trigger
from rota._core.zones import DAY

if TYPE_CHECKING:
    from rota._core.task import Task

FORESIGHT: Final = timedelta(seconds=90)
"""How far ahead a one-shot tick looks before it opens the store: an estimate may be off by this much."""

_LONGEST: Final = timedelta(hours=4)
"""A longer window is cheaper trigger by trigger than minute by minute."""

_AS_NUMBERS: Final = bytes(1 if byte == ord("1") else 0 for byte in range(256))


def worth_asking(tasks: Iterable[Task], now: datetime) -> bool:
    """Whether a one-shot tick at the estimated instant `now` must open the store at all.

    It must where something may be due, with room for an estimate that is a little off, and wherever
    an occurrence may wait or be retried, since that shows in the store only.
    """
    windows: dict[timedelta, list[Trigger]] = {}
    for task in tasks:
        if task.may_wait() or task.attempts > 1:
            return True
        windows.setdefault(task.look_back, []).append(task.trigger)
    return any(due_between(group, now - back, now + FORESIGHT) for back, group in windows.items())


def next_due(tasks: Iterable[Task], after: datetime) -> datetime | None:
    """The first instant after `after` at which any of the tasks is due. A broken trigger has none."""
    soonest: datetime | None = None
    for task in tasks:
        try:
            due = task.trigger.next(after)
        except Exception:  # told by `plan`, which meets the same trigger in each tick
            continue
        if due is not None and (soonest is None or due < soonest):
            soonest = due
    return soonest


def due_between(triggers: Sequence[Trigger], after: datetime, upto: datetime) -> list[int]:
    """The places of the triggers with an occurrence in (after, upto], for a process that asks once."""
    first, last = zones.seconds(after) + 1, zones.seconds(upto)
    moments: dict[str, list[_Moment] | None] = {}
    known: dict[int, bool] = {}
    found = []
    for place, trigger in enumerate(triggers):
        due = known.get(id(trigger))
        if due is None:
            if type(trigger) is Cron:
                zone = trigger.zone
                if zone not in moments:
                    moments[zone] = _moments(zone, first, last)
                due = _matches(trigger, moments[zone], after, upto)
            else:
                due = _asked(trigger, after, upto)
            known[id(trigger)] = due
        if due:
            found.append(place)
    return found


def _asked(trigger: Trigger, after: datetime, upto: datetime) -> bool:
    try:
        found = trigger.next(after)
    except Exception:
        return True
    return found is not None and found <= upto


class _Moment(NamedTuple):
    """A minute of the wall, taken apart as the masks of an expression want it."""

    minute: int
    hour: int
    day: int
    month: int
    kind: int


def _moments(zone: str, first: int, last: int) -> list[_Moment] | None:
    """The minutes that begin in [first, last]; None where it is not a few of an ordinary day."""
    stretch = zones.stretch_at(zone, first)
    low, high = first + stretch.offset, last + stretch.offset
    if last >= stretch.end or first == stretch.start or low < stretch.shown or last - first > 600:
        return None
    return [_moment(minute) for minute in range(-(-low // 60), high // 60 + 1)]


def _moment(minute: int) -> _Moment:
    ordinal, time = divmod(minute, 1440)
    day = date.fromordinal(ordinal + 1)
    first = (ordinal + 2 - day.day) % 7
    return _Moment(
        time % 60, time // 60, day.day, day.month, (length_of(day.year, day.month) - 28) * 7 + first
    )


def _matches(trigger: Cron, moments: list[_Moment] | None, after: datetime, upto: datetime) -> bool:
    for expression in trigger.expressions:
        if moments is None or expression.has_seconds:
            return _asked(trigger, after, upto)
        for minute, hour, day, month, kind in moments:
            if (
                expression.minute >> minute & 1
                and expression.hour >> hour & 1
                and expression.month >> month & 1
                and expression.days.table[kind] >> day & 1
            ):
                return True
    return False


# -- resident


class _Row(NamedTuple):
    """One set of minutes: what a cron line is, or an interval that divides a day."""

    place: int
    zone: str
    minute: int
    hour: int
    month: int
    days: DayRule
    fixed: bool
    coarse: bool  # has seconds: any of its minute may be meant
    check: bool  # a hit must still be asked for


_ANY_DAY: Final = CronExpression.parse("* * * * *").days


def _rows(place: int, trigger: Trigger) -> list[_Row]:
    """A trigger as rows; none where minutes do not describe it."""
    if isinstance(trigger, Restricted):
        return [row._replace(check=True) for row in _rows(place, trigger.trigger)]
    if isinstance(trigger, Cron):
        return [
            _Row(
                place,
                trigger.zone,
                each.minute,
                each.hour,
                each.month,
                each.days,
                each.fixed,
                each.has_seconds,
                each.has_seconds,
            )
            for each in trigger.expressions
        ]
    if isinstance(trigger, Every) and trigger.patterns:
        period, offset = int(trigger.period.total_seconds()), int(trigger.offset.total_seconds())
        if period % 60 == 0 and offset % 60 == 0 and DAY % period == 0:
            times = [(offset + count * period) % DAY // 60 for count in range(DAY // period)]
            minutes, hours = {time % 60 for time in times}, {time // 60 for time in times}
            if len(minutes) * len(hours) == len(times):
                minute, hour = sum(1 << value for value in minutes), sum(1 << value for value in hours)
                fixed = period == DAY
                return [_Row(place, trigger.zone, minute, hour, ALL_MONTHS, _ANY_DAY, fixed, False, False)]
    return []


class _ZoneIndex:
    """The rows of one zone, turned on their side: for each value, which rows have it."""

    def __init__(self, zone: str, rows: Sequence[_Row]) -> None:
        self._zone = zone
        self._places = [row.place for row in rows]
        self._check = _bits([index for index, row in enumerate(rows) if row.check], len(rows))
        self._fixed = _bits([index for index, row in enumerate(rows) if row.fixed], len(rows))
        self._coarse = _bits([index for index, row in enumerate(rows) if row.coarse], len(rows))
        self._minutes = _transposed([row.minute for row in rows], 60)
        self._hours = _transposed([row.hour for row in rows], 24)
        groups: dict[tuple[int, int], tuple[DayRule, list[int]]] = {}
        for index, row in enumerate(rows):
            groups.setdefault((id(row.days), row.month), (row.days, []))[1].append(index)
        self._days = [
            (rule, month, _bits(members, len(rows))) for (_, month), (rule, members) in groups.items()
        ]
        self._known_days: dict[int, int] = {}

    def between(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Places that are due in [first, last], and places that may be."""
        hits = 0
        for stretch in zones.stretches(self._zone, first, last):
            begin = stretch.start + stretch.offset
            low, high = max(first + stretch.offset, begin), min(last, stretch.end - 1) + stretch.offset
            if stretch.start >= first and stretch.gap:
                hits |= self._shown(stretch.shown, begin - 1) & self._fixed
            if low < stretch.shown:
                hits |= self._shown(low, min(high, stretch.shown - 1)) & ~self._fixed
            hits |= self._shown(max(low, stretch.shown), high)
        return self._decoded(hits & ~self._check), self._decoded(hits & self._check)

    def _shown(self, low: int, high: int) -> int:
        """The rows with a minute in these wall times; coarse ones where it begins before them, too."""
        hits, among = 0, self._coarse if low % 60 else -1
        for minute in range(low // 60, high // 60 + 1):
            day, time = divmod(minute, 1440)
            hits |= self._minutes[time % 60] & self._hours[time // 60] & self._on(day) & among
            among = -1
        return hits

    def _on(self, day: int) -> int:
        bits = self._known_days.get(day)
        if bits is None:
            bits, moment = 0, _moment(day * 1440)
            for rule, month, members in self._days:
                if month >> moment.month & 1 and rule.table[moment.kind] >> moment.day & 1:
                    bits |= members
            # One assignment, so that two threads at worst compute the same value twice.
            self._known_days = {**dict(list(self._known_days.items())[-3:]), day: bits}
        return bits

    def _decoded(self, hits: int) -> list[int]:
        flags = f"{hits:b}"[::-1].encode().translate(_AS_NUMBERS) if hits else b""
        return list(compress(self._places, flags))


def _bits(members: Iterable[int], size: int) -> int:
    flags = bytearray(size // 8 + 1)
    for index in members:
        flags[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(flags, "little")


def _transposed(masks: Sequence[int], size: int) -> list[int]:
    """For each value, the bits of the rows whose mask has it; equal masks are handled together."""
    groups: dict[int, list[int]] = {}
    for index, mask in enumerate(masks):
        groups.setdefault(mask, []).append(index)
    columns = [0] * size
    for mask, members in groups.items():
        bits = _bits(members, len(masks))
        for value in range(size):
            if mask >> value & 1:
                columns[value] |= bits
    return columns


class DueIndex:
    """Answers for a fixed list of triggers, as often as asked. Safe to use from several threads."""

    def __init__(self, triggers: Sequence[Trigger]) -> None:
        self._triggers = tuple(triggers)
        by_zone: dict[str, list[_Row]] = {}
        asked: dict[int, list[int]] = {}
        for place, trigger in enumerate(self._triggers):
            rows = _rows(place, trigger)
            for row in rows:
                by_zone.setdefault(row.zone, []).append(row)
            if not rows:
                asked.setdefault(id(trigger), []).append(place)
        self._zones = [_ZoneIndex(zone, rows) for zone, rows in by_zone.items()]
        self._asked = list(asked.values())

    def between(self, after: datetime, upto: datetime) -> list[int]:
        """The places of the triggers with an occurrence in (after, upto], ascending."""
        first, last = zones.seconds(after) + 1, zones.seconds(upto)
        if upto - after > _LONGEST:
            return due_between(self._triggers, after, upto)
        found: set[int] = set()
        for zone in self._zones:
            due, doubtful = zone.between(first, last)
            found.update(due)
            found.update(place for place in doubtful if self._asks(place, after, upto))
        for places in self._asked:
            if self._asks(places[0], after, upto):
                found.update(places)
        return sorted(found)

    def _asks(self, place: int, after: datetime, upto: datetime) -> bool:
        return _asked(self._triggers[place], after, upto)
