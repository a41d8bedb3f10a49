"""The grammar of a cron line: text in, bit masks out, or a refusal that names the field.

A field is refused rather than guessed at: whoever wrote `5/15` or `*/70` meant something, and no two
programs agree on what.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

from rota._core.value import value

_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_WEEKDAY_MASKS: Final = tuple(
    tuple(sum(1 << day for day in range(1, 32) if (first + day - 1) % 7 == weekday) for weekday in range(7))
    for first in range(7)
)
"""[weekday of the 1st][weekday]: the days of a month that are that weekday; 0 is Sunday."""

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_BLANKS: Final = " \t\r\n\f\v"
_QUOTES: Final = frozenset("'\"`“”‘’")
_FIELDS: Final = "5 fields (minute, hour, day of month, month, day of week), or 6 with the seconds first"
ALL_MONTHS: Final = 0b1111111111110
# fmt: off
MONTH_NAMES: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)
WEEKDAY_NAMES: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
# fmt: on
_MONTHS: Final = {name[:3].upper(): month for month, name in enumerate(MONTH_NAMES, 1)}
_WEEKDAYS: Final = {name[:3].upper(): day for day, name in enumerate(WEEKDAY_NAMES)}


@value
class Field:
    """One of the six places of a line: its values, and the words to tell of it."""

    name: str
    low: int
    high: int
    plural: str
    period: str
    names: dict[str, int]

    # There are six of them, told apart by which they are.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def allowed(self) -> str:
        text = f"{self.low}-{self.high}"
        return f"{text} or {next(iter(self.names))}-{list(self.names)[-1]}" if self.names else text


_SECOND: Final = Field("second", 0, 59, "seconds", "minute", {})
_MINUTE: Final = Field("minute", 0, 59, "minutes", "hour", {})
_HOUR: Final = Field("hour", 0, 23, "hours", "day", {})
DAY_OF_MONTH: Final = Field("day of month", 1, 31, "days", "month", {})
_MONTH: Final = Field("month", 1, 12, "months", "year", _MONTHS)
DAY_OF_WEEK: Final = Field("day of week", 0, 7, "weekdays", "week", _WEEKDAYS)


@value
class DayRule:
    """Which days of a month match, for each of the 28 kinds of month.

    `table[(length - 28) * 7 + weekday of the 1st]` has bit d set where day d matches; 0 is Sunday.
    """

    table: tuple[int, ...]

    def only(self, weekdays: int) -> DayRule:
        """The same rule on these weekdays only (bit 0 is Sunday)."""
        kept = [
            sum(mask for day, mask in enumerate(masks) if weekdays >> day & 1) for masks in _WEEKDAY_MASKS
        ]
        return DayRule(tuple(mask & kept[kind % 7] for kind, mask in enumerate(self.table)))

    def ever(self, months: int) -> bool:
        """Whether any month of the mask has such a day in some year."""
        if self.table[0]:
            return True  # a day that the shortest month can have, every month has in some year
        lengths = {_LENGTHS[month] for month in range(1, 13) if months >> month & 1}
        if 28 in lengths:
            lengths.add(29)
        return any(self.table[(length - 28) * 7 + first] for length in lengths for first in range(7))

    def on(self, day: date) -> bool:
        """Whether this date matches; months are not its business."""
        first = day.toordinal() - day.day + 1
        return bool(self.table[(length_of(day.year, day.month) - 28) * 7 + first % 7] >> day.day & 1)


def length_of(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


def values_of(mask: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [value for value in range(mask.bit_length()) if mask >> value & 1]


def listed(words: Sequence[str]) -> str:
    """`0, 7 and 14`, shortened in the middle when there are many."""
    if len(words) > 6:
        words = [*words[:3], "...", words[-1]]
        return ", ".join(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# -- lines


class BadField(Exception):
    """A field that means nothing; told with the whole line by `CronExpression.parse`."""

    def __init__(self, message: str, allowed: str | None, hint: str | None) -> None:
        super().__init__(message)
        self.message, self.allowed, self.hint = message, allowed, hint


def _bad(kind: Field, message: str, hint: str | None = None) -> NoReturn:
    raise BadField(f"{kind.name} {message}", kind.allowed, hint)


class Parsed(NamedTuple):
    """A line as masks: bit n is set where value n matches."""

    text: str
    second: int
    minute: int
    hour: int
    month: int
    days: DayRule
    fixed: bool
    has_seconds: bool
    warnings: tuple[str, ...] = ()


def read(text: str) -> Parsed:
    """The masks of a line; BadField if it has no meaning."""
    line = text.strip(_BLANKS)
    if not line:
        raise BadField("the expression is empty", _FIELDS, None)
    if line[0] in _QUOTES or line[-1] in _QUOTES:
        raise BadField("the expression is wrapped in quotes", "the bare expression", "take the quotes away")
    if line[0] == "@":
        line = _alias(line)
    # Blanks of other scripts are no blanks: they are refused as part of a field.
    parts = line.split() if line.isascii() else re.split(f"[{_BLANKS}]+", line)
    if len(parts) not in (5, 6):
        raise BadField(
            f"{len(parts)} field{'' if len(parts) == 1 else 's'} found",
            _FIELDS,
            "there is no field for the year" if len(parts) == 7 else None,
        )
    *seconds, minutes, hours, days, months, weekdays = parts
    try:
        second, notes = _mask(_SECOND, seconds[0]) if seconds else (1, ())
        minute, more = _mask(_MINUTE, minutes)
        notes += more
        hour, more = _mask(_HOUR, hours)
        notes += more
        rule, more = _days(days, weekdays)
        notes += more
        month, more = _mask(_MONTH, months)
        notes += more
    except BadField as bad:
        hint = bad.hint
        if hint is None and len(parts) == 6:
            hint = "the sixth field is for seconds, and stands first"
        elif hint is None and bad.message.startswith("hour ") and _swapped(minutes, hours):
            hint = f"did you mean {hours} {minutes}?"
        raise BadField(bad.message, bad.allowed, hint) from None
    if not rule.ever(month):
        where = f"day of month {days}, month {months}"
        raise BadField(
            f"no such date: {where}" + ("" if weekdays in "*?" else f", day of week {weekdays}"),
            "a date that some year has",
            None,
        )
    return Parsed(
        text=" ".join(parts),
        second=second,
        minute=minute,
        hour=hour,
        month=month,
        days=rule,
        fixed=not (minutes.startswith("*") or hours.startswith("*")),
        has_seconds=bool(seconds),
        warnings=notes,
    )


def _swapped(minutes: str, hours: str) -> bool:
    return bool(re.fullmatch("[0-9]{1,2}", hours) and re.fullmatch("[0-9]|1[0-9]|2[0-3]", minutes)) and (
        int(hours) < 60
    )


def _alias(line: str) -> str:
    word = line.lower()
    if word in ALIASES:
        return ALIASES[word]
    hint = None
    if word.startswith("@every"):
        hint = "write every(...), or a cron line such as */5 * * * *"
    elif word == "@reboot":
        hint = "a schedule knows times only; start it from the init system"
    raise BadField(f"there is no alias {line}", " ".join(ALIASES), hint)


@lru_cache(maxsize=4096)
def _mask(kind: Field, text: str) -> tuple[int, tuple[str, ...]]:
    """The values of a field without specials, and what to warn of."""
    mask, notes = 0, []
    for item in text.split(","):
        values = _values(kind, item, text)
        if "/" in item and len(values) == 1:
            notes.append(f"{item} is {kind.name} {values[0]} and nothing else")
        elif item.startswith("*/"):
            size = 7 if kind is DAY_OF_WEEK else kind.high - kind.low + 1
            step = int(item[2:])
            # A month has no fixed length, so no step of days divides it.
            if step > 1 and (size % step or kind is DAY_OF_MONTH):
                shown = listed([str(value) for value in values])
                notes.append(
                    f"{item} restarts each {kind.period}: "
                    f"{kind.plural} {shown}, not every {step} {kind.plural}"
                )
        for number in values:
            mask |= 1 << number
    return mask, tuple(notes)


def _values(kind: Field, item: str, text: str) -> list[int]:
    base, slash, step_text = item.partition("/")
    if not item:
        _bad(kind, f"{text!r} has an empty item")
    top = 6 if kind is DAY_OF_WEEK else kind.high
    if base == "*":
        values = list(range(kind.low, top + 1))
    elif base == "?":
        _bad(kind, "cannot be ?", "? may stand alone in one of the two day fields")
    else:
        first_text, dash, last_text = base.partition("-")
        first = _value(kind, first_text, item)
        last = _value(kind, last_text, item) if dash else first
        if kind is DAY_OF_WEEK and first == 7:
            first, last = 0, last % 7
        if last >= first:
            values = [value % 7 if kind is DAY_OF_WEEK else value for value in range(first, last + 1)]
        else:
            values = [*range(first, top + 1), *range(kind.low, last + 1)]
        if slash and not dash:
            steps = step_text.isascii() and step_text.isdigit() and 0 < int(step_text[:9]) <= top - first
            hint = f"say {base}-{top}/{step_text}" if steps else f"say {base}"
            _bad(kind, f"{item!r} has a number before the slash", hint)
    if not slash:
        return values
    if not (step_text.isascii() and step_text.isdigit()):
        _bad(kind, f"{item!r} has a step that is not a number")
    if not 1 <= int(step_text[:9]) <= len(values) or len(step_text) > 9:
        what = "zero" if not step_text.strip("0") else f"larger than its range of {len(values)}"
        _bad(kind, f"{item!r} has a step that is {what}")
    return values[:: int(step_text)]


def _value(kind: Field, text: str, item: str) -> int:
    word = text.upper()
    if word in kind.names:
        return kind.names[word]
    if not (text.isascii() and text.isdigit()):
        hint = None
        if word in _WEEKDAYS or word in _MONTHS:
            what, place = ("weekday", "last") if word in _WEEKDAYS else ("month", "last but one")
            hint = f"{text} is a {what}; its field is the {place}"
        elif word[:1] == "H":
            hint = "H is not known; a splay spreads tasks over time"
        _bad(kind, f"{item!r} is not a value", hint)
    if len(text) > 9 or not kind.low <= int(text) <= kind.high:
        _bad(kind, f"{text} is outside {kind.low}-{kind.high}")
    return int(text)


@lru_cache(maxsize=4096)
def _days(days: str, weekdays: str) -> tuple[DayRule, tuple[str, ...]]:
    """Both day fields together: either matches if both are restricted, else both must."""
    if days == weekdays == "?":
        raise BadField("both day fields are ?", "? in one of them", None)
    day_tests, notes = split_days(DAY_OF_MONTH, "*" if days == "?" else days)
    weekday_tests, more = split_days(DAY_OF_WEEK, "*" if weekdays == "?" else weekdays)
    either = either_day(days, weekdays)
    table = []
    for length in range(28, 32):
        for first in range(7):
            by_day = _days_of_month(day_tests, length, first)
            by_weekday = _days_of_week(weekday_tests, length, first)
            mask = by_day | by_weekday if either else by_day & by_weekday
            table.append(mask & ((2 << length) - 2))
    return DayRule(tuple(table)), notes + more


def either_day(days: str, weekdays: str) -> bool:
    """Whether one of the day fields is enough: where both are restricted, as crontab(5) says."""
    return not (days.startswith(("*", "?")) or weekdays.startswith(("*", "?")))


class DayTests(NamedTuple):
    """What a day field names: plain values, and (number, kind) for the specials."""

    plain: int
    specials: tuple[tuple[int, str, int], ...]


def split_days(kind: Field, text: str) -> tuple[DayTests, tuple[str, ...]]:
    plain, specials = [], []
    items = text.split(",")
    for item in items:
        special = _special(kind, item, alone=len(items) == 1)
        if special is None:
            plain.append(item)
        else:
            specials.append(special)
    mask, notes = _mask(kind, ",".join(plain)) if plain else (0, ())
    return DayTests(mask, tuple(specials)), notes


def _special(kind: Field, item: str, *, alone: bool) -> tuple[int, str, int] | None:
    word = item.upper()
    if kind is DAY_OF_MONTH:
        if found := re.fullmatch("L(?:-([0-9]{1,2}))?", word):
            back = int(found[1] or 0)
            if back > 30:
                _bad(kind, f"{item!r} is before the month begins", "L-30 is the furthest back")
            return back, "L", 0
        if word.endswith("W") and re.search("[0-9L]", word):
            nearest = re.fullmatch("(?:L|([0-9]{1,2}))W", word)
            if not alone or nearest is None:
                _bad(kind, f"{item!r} must stand alone", "W goes with one day, as in 15W or LW")
            return (_value(kind, nearest[1], item), "W", 0) if nearest[1] else (0, "LW", 0)
        return None
    if "#" in item:
        weekday, _, nth = item.partition("#")
        if nth not in ("1", "2", "3", "4", "5"):
            _bad(
                kind,
                f"{item!r} is not one of the weeks of a month",
                "5#2 is the second Friday; 1 to 5 may follow #",
            )
        return _value(kind, weekday, item) % 7, "#", int(nth)
    if word == "L":
        _bad(kind, "cannot be L alone", "5L is the last Friday of the month, SAT is Saturday")
    if word.endswith("L"):
        return _value(kind, item[:-1], item) % 7, "L", 0
    return None


def _days_of_month(tests: DayTests, length: int, first: int) -> int:
    mask = tests.plain
    for number, what, _ in tests.specials:
        day = length - number if what == "L" else length if what == "LW" else number
        if not 1 <= day <= length:
            continue
        if what != "L":
            weekday = (first + day - 1) % 7
            if weekday == 6:
                day += -1 if day > 1 else 2
            elif weekday == 0:
                day += 1 if day < length else -2
        mask |= 1 << day
    return mask


def _days_of_week(tests: DayTests, length: int, first: int) -> int:
    mask = 0
    for weekday, days in enumerate(_WEEKDAY_MASKS[first]):
        if tests.plain >> weekday & 1:
            mask |= days
    for weekday, what, nth in tests.specials:
        days = _WEEKDAY_MASKS[first][weekday]
        if what == "L":
            mask |= days & ~((2 << length - 7) - 1)
        else:
            mask |= days & (0b1111111 << nth * 7 - 6)
    return mask
