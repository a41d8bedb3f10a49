"""What a time verb means: a trigger for whichever zone the task turns out to have.

The zone may be stated after the time, so a timing waits for it: `daily("02:00")` then
`timezone("Europe/Berlin")` is the same task as the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from rota._core.cron import CronExpression
from rota._core.errors import DefinitionError
from rota._core.fluent import words
from rota._core.triggers import Cron, Every, Once, Trigger
from rota._core.zones import zone as zone_named

SHORTEST_PERIOD: Final = timedelta(seconds=1)
_QUARTERS: Final = "1,4,7,10"


class Timing(NamedTuple):
    """When a task is due, but for the zone; and what a careful reader would remark on the verb."""

    within: Callable[[str], Trigger]
    warnings: tuple[str, ...] = ()


def every(period: timedelta, offset: timedelta | None, anchor: datetime | None) -> Timing:
    if period < SHORTEST_PERIOD or period % SHORTEST_PERIOD:
        raise DefinitionError(
            "this cannot be a pace",
            argument="period",
            found=str(period),
            allowed="one second or more, in whole seconds",
        )
    if offset is not None and anchor is not None:
        raise DefinitionError(
            "where to count from is said twice",
            argument="offset",
            found=offset,
            allowed="either offset or anchor",
        )
    if offset is not None and not (
        isinstance(offset, timedelta) and timedelta(0) <= offset < period and not offset % SHORTEST_PERIOD
    ):
        raise DefinitionError(
            "this is not an offset",
            argument="offset",
            found=offset,
            allowed=f"a timedelta of whole seconds from 0 to less than {period}",
        )
    if anchor is not None and not (isinstance(anchor, datetime) and anchor.utcoffset() is not None):
        raise DefinitionError(
            "this is not an instant", argument="anchor", found=anchor, allowed="an aware datetime"
        )
    return Timing(lambda zone: Every(period, zone=zone, offset=offset or timedelta(0), anchor=anchor))


def hourly(at: object) -> Timing:
    minutes = sorted({words.whole_number(minute, "at", 0, 59) for minute in words.several(at)})
    if not minutes:
        raise DefinitionError(
            "no minute is given", argument="at", found=at, allowed="a minute from 0 to 59, or a list of them"
        )
    return _from_lines([f"{','.join(map(str, minutes))} * * * *"])


def daily(at: object) -> Timing:
    return _from_lines(_lines(at))


def weekly(on: object, at: object) -> Timing:
    days = ",".join(map(str, sorted(words.weekdays(on, "on"))))
    return _from_lines(_lines(at, weekday=days))


def monthly(on: object, at: object) -> Timing:
    days = words.days_of_month(on)
    lines = [line for day, weekday in days for line in _lines(at, day=day, weekday=weekday)]
    return _from_lines(lines, _short_months(days, shortest=28, example="February"))


def quarterly(on: object, at: object) -> Timing:
    days = words.days_of_month(on)
    lines = [line for day, weekday in days for line in _lines(at, day=day, month=_QUARTERS, weekday=weekday)]
    return _from_lines(lines, _short_months(days, shortest=30, example="April"))


def yearly(on: object, at: object) -> Timing:
    month, day = words.day_of_year(on)
    leap = ("the 29th of February comes in leap years only",) if (month, day) == (2, 29) else ()
    return _from_lines(_lines(at, day=str(day), month=str(month)), leap)


def cron(lines: tuple[str, ...]) -> Timing:
    if not lines:
        raise DefinitionError(
            "no cron line is given",
            argument="cron",
            found=lines,
            allowed='one line or several, as in "*/5 * * * *"',
        )
    for line in lines:
        if not isinstance(line, str):
            raise DefinitionError(
                "a cron line is a text", argument="cron", found=line, allowed='a text such as "*/5 * * * *"'
            )
    return _from_lines(lines)


def once(at: object) -> Timing:
    moments = tuple(words.moment(value, "at", days=False) for value in words.several(at))
    if not moments:
        raise DefinitionError(
            "no instant is given",
            argument="at",
            found=at,
            allowed="an aware datetime or ISO text, or a list of them",
        )

    def within(zone: str) -> Once:
        return Once(tuple(sorted({_instant(moment, zone) for moment in moments})))

    return Timing(within)


def _instant(moment: date, zone: str) -> datetime:
    aware = isinstance(moment, datetime) and moment.utcoffset() is not None
    return words.instant(moment, UTC if aware else zone_named(zone), "at")


def _lines(at: object, *, day: str = "*", month: str = "*", weekday: str = "*") -> list[str]:
    """Cron lines for times of day: those that share a minute share a line."""
    hours: dict[int, list[int]] = {}
    for hour, minute in words.times_of_day(at):
        hours.setdefault(minute, []).append(hour)
    return [
        f"{minute} {','.join(map(str, of_day))} {day} {month} {weekday}" for minute, of_day in hours.items()
    ]


def _from_lines(lines: list[str] | tuple[str, ...], warnings: tuple[str, ...] = ()) -> Timing:
    expressions = tuple(map(CronExpression.parse, lines))
    return Timing(lambda zone: Cron(expressions, zone), warnings)


def _short_months(days: tuple[tuple[str, str], ...], *, shortest: int, example: str) -> tuple[str, ...]:
    numbers = [
        int(number) for day, _ in days if day[0].isdigit() and day != "1W" for number in day.split(",")
    ]
    return tuple(
        f"months without a day {number}, such as {example}, are left out; "
        'on="last" is the last day of each month'
        for number in numbers
        if number > shortest
    )
