"""A cron line in plain English, for lists and for the person who wonders what it means.

It says what the line does, not what it looks like: `*/40` is "at minutes 0 and 40 of every hour",
and two restricted day fields are joined by "or", because either matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rota._core.cron_syntax import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    MONTH_NAMES,
    WEEKDAY_NAMES,
    DayTests,
    Parsed,
    either_day,
    listed,
    split_days,
    values_of,
)

NTH: Final = ("", "first", "second", "third", "fourth", "fifth")
_MANY: Final = 6


def grouped(values: Sequence[int], words: Sequence[str]) -> str:
    """Values as words, with runs of three and more as `Monday to Friday`."""
    parts: list[str] = []
    start = 0
    while start < len(values):
        end = start
        while end + 1 < len(values) and values[end + 1] == values[end] + 1:
            end += 1
        if end - start >= 2:
            parts.append(f"{words[values[start]]} to {words[values[end]]}")
        else:
            parts.extend(words[value] for value in values[start : end + 1])
        start = end + 1
    return listed(parts)


def step(values: Sequence[int], size: int) -> int | None:
    """The step n where the values are every n-th of `size` from 0 and go on evenly past its end."""
    if len(values) > 1 and values[0] == 0 and size % len(values) == 0:
        width = size // len(values)
        if list(values) == list(range(0, size, width)):
            return width
    return None


def sentence(line: Parsed) -> str:
    """The whole line as one phrase, such as `at 02:30 every day`."""
    time, of_day = _time(
        values_of(line.second) if line.has_seconds else None, values_of(line.minute), values_of(line.hour)
    )
    day_text, _, weekday_text = line.text.split()[-3:]
    days = "" if day_text in "*?" else _days_of_month(split_days(DAY_OF_MONTH, day_text)[0])
    weekdays = "" if weekday_text in "*?" else _days_of_week(split_days(DAY_OF_WEEK, weekday_text)[0])
    text = time
    if days and weekdays:
        text += f" {days} {'or' if either_day(day_text, weekday_text) else 'and only'} {weekdays}"
    elif days or weekdays:
        text += f" {days or weekdays}"
    elif of_day:
        text += " every day"
    months = values_of(line.month)
    if len(months) < 12:
        text += f" in {grouped(months, ['', *MONTH_NAMES])}"
    return text


def _days_of_month(days: DayTests) -> str:
    parts = []
    if days.plain:
        values = values_of(days.plain)
        words = grouped(values, [str(day) for day in range(32)])
        parts.append(f"day{'s' if len(values) > 1 else ''} {words}")
    for number, what, _ in days.specials:
        if what == "W":
            parts.append(f"the weekday nearest to day {number}")
        elif what == "LW":
            parts.append("the last weekday")
        else:
            parts.append("the last day" + (f" but {number}" if number else ""))
    return f"on {listed(parts)} of the month"


def _days_of_week(days: DayTests) -> str:
    parts = []
    if days.plain:
        monday_first = sorted((day - 1) % 7 for day in values_of(days.plain))
        parts.append(grouped(monday_first, [*WEEKDAY_NAMES[1:], WEEKDAY_NAMES[0]]))
    for weekday, what, nth in days.specials:
        which = "last" if what == "L" else NTH[nth]
        parts.append(f"the {which} {WEEKDAY_NAMES[weekday]} of the month")
    return f"on {listed(parts)}"


def _time(seconds: Sequence[int] | None, minutes: Sequence[int], hours: Sequence[int]) -> tuple[str, bool]:
    """The phrase, and whether `every day` should follow it where no day is named."""
    exact = seconds is None or len(seconds) == 1
    if exact and len(minutes) * len(hours) <= _MANY and len(hours) < 24:
        ending = f":{seconds[0]:02}" if seconds and seconds[0] else ""
        times = [f"{hour:02}:{minute:02}{ending}" for hour in hours for minute in minutes]
        return f"at {listed(times)}", True
    parts = []
    if seconds is not None and list(seconds) != [0]:
        parts.append(_part("second", seconds, 60))
    if len(minutes) < 60 or not parts or not parts[0].startswith("every"):
        parts.append(_part("minute", minutes, 60))
    every_hour = len(hours) == 24
    if not every_hour:
        parts.append(_hours(hours))
    elif not parts[-1].startswith("every"):
        parts.append("every hour")
    return _joined(parts), not every_hour


def _part(unit: str, values: Sequence[int], size: int) -> str:
    if len(values) == size:
        return f"every {unit}"
    if width := step(values, size):
        return f"every {width} {unit}s"
    words = grouped(values, [str(value) for value in range(size)])
    return f"at {unit}{'s' if len(values) > 1 else ''} {words}"


def _hours(hours: Sequence[int]) -> str:
    words = grouped(hours, [str(value) for value in range(24)])
    return f"hour{'s' if len(hours) > 1 else ''} {words}"


def _joined(parts: Sequence[str]) -> str:
    text = parts[0]
    for part in parts[1:]:
        part = part.removeprefix("at ")
        if part.startswith("every ") and text.startswith("every ") and not part.endswith("hour"):
            text += f" in {part}"
        else:
            text += f" of {part}"
    return text
