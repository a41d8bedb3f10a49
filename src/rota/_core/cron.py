"""A cron line as a frozen value of bit masks: matching it, and finding its next and previous wall time.

What is accepted means the same to Debian's cron, wherever Debian's cron accepts it; everything else
is either an extension with one meaning (seconds first, `?`, `L`, `LW`, `15W`, `5#2`, `5L`, ranges
that wrap around) or refused with the field, what was found and what is allowed. An expression that
was parsed has at least one date in 400 years, so a search for one always ends.
"""

from __future__ import annotations

from datetime import date, datetime
from functools import lru_cache
from typing import Final

from rota._core import explain
from rota._core.cron_syntax import ALL_MONTHS, BadField, DayRule, Parsed, length_of, read
from rota._core.errors import DefinitionError
from rota._core.value import replace, value

_DAY: Final = 86_400
_LAST_ORDINAL: Final = date.max.toordinal()


@value
class CronExpression:
    """One cron line. Equal if written alike; the masks have bit n set where value n matches.

    `text` is the line with single blanks and its alias spelled out. `fixed` says whether it keeps to
    fixed times: neither its minute nor its hour begins with a star. `warnings` are sentences
    on what is allowed and rarely meant.
    """

    text: str
    second: int
    minute: int
    hour: int
    month: int
    days: DayRule
    fixed: bool
    has_seconds: bool
    warnings: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CronExpression) and self.text == other.text and self.days == other.days

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"CronExpression({self.text!r})"

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """Read a line of five fields, of six with the seconds first, or an alias such as @daily."""
        if not isinstance(text, str):
            raise DefinitionError("a cron expression is a text", argument="cron", found=text, allowed="str")
        return _parse(text)

    def explain(self) -> str:
        """The line in plain English: `at 02:30 every day`."""
        return explain.sentence(
            Parsed(
                self.text,
                self.second,
                self.minute,
                self.hour,
                self.month,
                self.days,
                self.fixed,
                self.has_seconds,
            )
        )

    def matches(self, wall: datetime) -> bool:
        """Whether a naive wall time matches; what is finer than the expression's own grain is dropped."""
        return bool(
            self.minute >> wall.minute & 1
            and self.hour >> wall.hour & 1
            and (not self.has_seconds or self.second >> wall.second & 1)
            and self.on(wall.date())
        )

    def on(self, day: date) -> bool:
        """Whether it has any time on this date."""
        return bool(self.month >> day.month & 1) and self.days.on(day)

    def restricted_to(self, weekdays: int) -> CronExpression | None:
        """The same expression on these weekdays only (bit 0 is Sunday); None if that is never."""
        days = self.days.only(weekdays)
        return replace(self, days=days) if days.ever(self.month) else None

    def next_wall(self, wall: int) -> int | None:
        """The first match at or after `wall`, both in seconds since 0001-01-01T00:00 of the wall clock."""
        day, second = divmod(wall, _DAY)
        ordinal = self._day_from(day + 1)
        if ordinal == day + 1:
            time = self._time_from(second)
            if time is not None:
                return day * _DAY + time
            ordinal = self._day_from(day + 2)
        if ordinal is None:
            return None
        return (ordinal - 1) * _DAY + _low(self.hour) * 3600 + _low(self.minute) * 60 + _low(self.second)

    def previous_wall(self, wall: int) -> int | None:
        """The last match at or before `wall`."""
        day, second = divmod(wall, _DAY)
        ordinal = self._day_to(day + 1)
        if ordinal == day + 1:
            time = self._time_to(second)
            if time is not None:
                return day * _DAY + time
            ordinal = self._day_to(day)
        if ordinal is None:
            return None
        return (ordinal - 1) * _DAY + _high(self.hour) * 3600 + _high(self.minute) * 60 + _high(self.second)

    def _time_from(self, time: int) -> int | None:
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        if self.hour >> hour & 1:
            if self.minute >> minute & 1 and (rest := self.second >> second):
                return time + _low(rest)
            if rest := self.minute >> minute + 1:
                return hour * 3600 + (minute + 1 + _low(rest)) * 60 + _low(self.second)
        if rest := self.hour >> hour + 1:
            return (hour + 1 + _low(rest)) * 3600 + _low(self.minute) * 60 + _low(self.second)
        return None

    def _time_to(self, time: int) -> int | None:
        hour, minute, second = time // 3600, time // 60 % 60, time % 60
        if self.hour >> hour & 1:
            if self.minute >> minute & 1 and (rest := self.second & (2 << second) - 1):
                return hour * 3600 + minute * 60 + _high(rest)
            if rest := self.minute & (1 << minute) - 1:
                return hour * 3600 + _high(rest) * 60 + _high(self.second)
        if rest := self.hour & (1 << hour) - 1:
            return _high(rest) * 3600 + _high(self.minute) * 60 + _high(self.second)
        return None

    def _day_from(self, ordinal: int) -> int | None:
        if ordinal > _LAST_ORDINAL:
            return None
        start = date.fromordinal(max(ordinal, 1))
        year, month, day = start.year, start.month, start.day
        while year <= 9999:
            if self.month >> month & 1:
                first = date(year, month, 1).toordinal()
                rest = self.days.table[(length_of(year, month) - 28) * 7 + first % 7] >> day
                if rest:
                    return first + day - 1 + _low(rest)
            day = 1
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return None

    def _day_to(self, ordinal: int) -> int | None:
        if ordinal < 1:
            return None
        start = date.fromordinal(min(ordinal, _LAST_ORDINAL))
        year, month, day = start.year, start.month, start.day
        while year >= 1:
            if self.month >> month & 1:
                first = date(year, month, 1).toordinal()
                rest = self.days.table[(length_of(year, month) - 28) * 7 + first % 7] & (2 << day) - 1
                if rest:
                    return first - 1 + _high(rest)
            day = 31
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
        return None


def _low(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _high(mask: int) -> int:
    return mask.bit_length() - 1


@lru_cache(maxsize=16_384)
def _parse(text: str) -> CronExpression:
    try:
        parsed = read(text)
    except BadField as bad:
        raise DefinitionError(
            bad.message, argument="cron", found=text, allowed=bad.allowed, hint=bad.hint
        ) from None
    warnings = parsed.warnings
    if parsed.has_seconds and parsed.month != ALL_MONTHS and parsed.text.split()[2:6:3] == ["*", "*"]:
        warnings += (f"six fields begin with the seconds: {explain.sentence(parsed)}",)
    return CronExpression(*parsed[:-1], warnings)
