"""What people write in a schedule, read strictly: times of day, days, durations, names.

Nothing is guessed. "9am", "24:00" or day 0 are refused where they are written, with what is
allowed, because a time that was understood differently shows only in the night it matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

from rota._core.errors import DefinitionError

WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
WEEKEND: Final = frozenset({0, 6})
WORKDAYS: Final = frozenset({1, 2, 3, 4, 5})

_DAYS: Final = {word: number for number, day in enumerate(WEEKDAYS) for word in (day, day[:3])}
_ORDINALS: Final = {
    word: number
    for number, words in enumerate(
        (("first", "1st"), ("second", "2nd"), ("third", "3rd"), ("fourth", "4th"), ("fifth", "5th")), 1
    )
    for word in words
}
_DAYS_IN_MONTH: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_TIME: Final = re.compile("([01]?[0-9]|2[0-3]):([0-5][0-9])")
_MONTH_AND_DAY: Final = re.compile("([0-9]{1,2})-([0-9]{1,2})")

LONGEST_NAME: Final = 200


def several(value: object) -> tuple[object, ...]:
    """One thing as a tuple of one; a list, tuple or set of things as a tuple."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return tuple(value)
    return (value,)


def time_of_day(text: object, argument: str = "at") -> tuple[int, int]:
    """Hour and minute of "HH:MM" or "H:MM"."""
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise DefinitionError(
            "this is not a time of day",
            argument=argument,
            found=text,
            allowed='"HH:MM" from "00:00" to "23:59"',
        )
    return int(found[1]), int(found[2])


def times_of_day(value: object) -> tuple[tuple[int, int], ...]:
    times = tuple(sorted({time_of_day(text) for text in several(value)}))
    if not times:
        raise DefinitionError(
            "no time of day is given", argument="at", found=value, allowed='"HH:MM", or a list of them'
        )
    return times


def whole_number(value: object, argument: str, least: int, most: int | None = None) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < least
        or (most is not None and value > most)
    ):
        allowed = (
            f"a whole number of {least} or more" if most is None else f"a whole number from {least} to {most}"
        )
        raise DefinitionError("this number cannot be meant", argument=argument, found=value, allowed=allowed)
    return value


def weekday(word: object, argument: str) -> int:
    """The number of a day of the week, 0 for Sunday."""
    number = _DAYS.get(word.lower()) if isinstance(word, str) else None
    if number is None:
        raise DefinitionError(
            "this is not a day of the week",
            argument=argument,
            found=word,
            allowed=f"{', '.join(WEEKDAYS)}, or the first three letters of one",
        )
    return number


def weekdays(value: object, argument: str) -> frozenset[int]:
    days = frozenset(weekday(word, argument) for word in several(value))
    if not days:
        raise DefinitionError(
            "no day is given", argument=argument, found=value, allowed='at least one day, as in "monday"'
        )
    return days


def days_of_month(value: object) -> tuple[tuple[str, str], ...]:
    """The day-of-month and day-of-week fields of the cron lines that mean these days together."""
    numbers: set[int] = set()
    fields: set[tuple[str, str]] = set()
    for day in several(value):
        if isinstance(day, int) and not isinstance(day, bool) and 1 <= day <= 31:
            numbers.add(day)
        else:
            fields.add(_named_day_of_month(day))
    if numbers:
        fields.add((",".join(map(str, sorted(numbers))), "*"))
    if not fields:
        raise _no_day_of_month(value)
    return tuple(sorted(fields))


def _named_day_of_month(day: object) -> tuple[str, str]:
    words = day.lower().split() if isinstance(day, str) else []
    match words:
        case ["last"]:
            return "L", "*"
        case ["first", "weekday"]:
            return "1W", "*"
        case ["last", "weekday"]:
            return "LW", "*"
        case ["last", name] if name in _DAYS:
            return "*", f"{_DAYS[name]}L"
        case [nth, name] if nth in _ORDINALS and name in _DAYS:
            return "*", f"{_DAYS[name]}#{_ORDINALS[nth]}"
    raise _no_day_of_month(day)


def _no_day_of_month(found: object) -> DefinitionError:
    return DefinitionError(
        "this is not a day of the month",
        argument="on",
        found=found,
        allowed='a number from 1 to 31, "last", "first weekday", "last weekday", '
        '"first monday" .. "fifth sunday", "last friday", or a list of them',
    )


def day_of_year(value: object) -> tuple[int, int]:
    """Month and day of "12-24" or (12, 24)."""
    month = day = 0
    if isinstance(value, str) and (found := _MONTH_AND_DAY.fullmatch(value)):
        month, day = int(found[1]), int(found[2])
    elif isinstance(value, tuple) and len(value) == 2 and all(type(part) is int for part in value):
        month, day = value
    if not (1 <= month <= 12 and 1 <= day <= _DAYS_IN_MONTH[month - 1]):
        raise DefinitionError(
            "this is not a day of the year",
            argument="on",
            found=value,
            allowed='"MM-DD" or (month, day), as in "12-24" or (12, 24)',
        )
    return month, day


def duration(value: object, argument: str, **parts: object) -> timedelta:
    """A length of time: either one timedelta, or numbers of units such as minutes=20."""
    given = {unit: number for unit, number in parts.items() if number != 0}
    allowed = f"one timedelta, or numbers of {', '.join(parts)}" if parts else "a timedelta longer than zero"
    if value is not None and (given or not isinstance(value, timedelta)):
        message = "a length of time is given twice" if given else "this is not a length of time"
        raise DefinitionError(message, argument=argument, found=value, allowed=allowed)
    length = value if isinstance(value, timedelta) else timedelta(0)
    for unit, number in given.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise DefinitionError("this is not a number", argument=unit, found=number, allowed=allowed)
        try:
            length += timedelta(**{unit: number})
        except (OverflowError, ValueError):
            raise DefinitionError("this is too long", argument=unit, found=number, allowed=allowed) from None
    if length <= timedelta(0):
        argument, found = next(iter(given.items()), (argument, value or length))
        raise DefinitionError(
            "a length of time must be longer than zero", argument=argument, found=found, allowed=allowed
        )
    return length


def moment(value: object, argument: str, *, days: bool) -> date:
    """A point in time: an aware datetime as it is, ISO text without an offset still naive, and
    where `days` are welcome a date."""
    allowed = 'an aware datetime or ISO text such as "2026-12-24T18:00", read in the time zone of the task'
    if days:
        allowed = f"a date, {allowed}"
    hint = None
    if isinstance(value, datetime):
        if value.utcoffset() is not None:
            return value
        hint = "a datetime without a time zone means another instant on every server"
    elif isinstance(value, date) and days:
        return value
    elif isinstance(value, str):
        try:
            if days and len(value) == len("2026-12-24"):
                return date.fromisoformat(value)
            if len(value) > len("2026-12-24"):
                return datetime.fromisoformat(value)
        except ValueError:
            pass
    raise DefinitionError(
        "this is not a point in time", argument=argument, found=value, allowed=allowed, hint=hint
    )


def instant(moment: date, zone: tzinfo, argument: str, *, end_of_day: bool = False) -> datetime:
    """The instant in UTC that a moment means in this zone; of a date its first, or its last.

    A wall-clock time that the zone skips or repeats is refused: for something that happens once
    there is no next day that would put a wrong guess right.
    """
    if not 2 <= moment.year <= 9998:
        raise DefinitionError(
            "this is too far away",
            argument=argument,
            found=str(moment),
            allowed="a time in the years 2 to 9998",
        )
    if not isinstance(moment, datetime):
        day = moment + timedelta(days=1) if end_of_day else moment
        first = datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
        return first - timedelta(microseconds=1) if end_of_day else first
    if moment.utcoffset() is not None:
        return moment.astimezone(UTC)
    local = moment.replace(tzinfo=zone)
    early, late = local.astimezone(UTC), local.replace(fold=1).astimezone(UTC)
    if early != late:
        skipped = early.astimezone(zone).replace(tzinfo=None) != moment
        raise DefinitionError(
            f"the clocks in {zone} {'skip this time' if skipped else 'show this time twice'}",
            argument=argument,
            found=moment.isoformat(sep=" "),
            allowed='another time, or one with its offset, as in "2026-12-24T18:00+01:00"',
        )
    return early


def label(value: object, argument: str) -> str:
    """A name that may stand in a key: it can be read, typed and told apart from every other."""
    if (
        not isinstance(value, str)
        or not value
        or len(value) > LONGEST_NAME
        or not value.isprintable()
        or value != value.strip()
        or "@" in value
        or value == "*"
    ):
        raise DefinitionError(
            "this cannot be a name",
            argument=argument,
            found=value,
            allowed=f'up to {LONGEST_NAME} printable characters without "@" and without blanks '
            'at either end; not "*" alone',
        )
    return value


def text(value: object, argument: str, allowed: str) -> str:
    """A text that says something: not empty, not blank, without NUL."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise DefinitionError("this says nothing", argument=argument, found=value, allowed=allowed)
    return value


def choice(value: object, argument: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise DefinitionError(
            "there is no such choice", argument=argument, found=value, allowed=", ".join(map(repr, choices))
        )
    return str(value)
