"""Cron lines: what is read, what is refused and how it is told, and what a line means in English."""

from __future__ import annotations

import calendar
import pickle
from collections.abc import Callable
from datetime import date, datetime

import pytest

from rota import DefinitionError
from rota._core.cron import CronExpression


def wall(text: str) -> datetime:
    return datetime.fromisoformat(text)


def refusal(text: str) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        CronExpression.parse(text)
    return caught.value


def days_of(text: str, year: int, month: int) -> list[int]:
    """The days of a month on which an expression has a time."""
    expression = CronExpression.parse(text)
    found = []
    for day in range(1, 32):
        try:
            date = datetime(year, month, day)  # noqa: DTZ001 - a wall time
        except ValueError:
            break
        if expression.on(date.date()):
            found.append(day)
    return found


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@Weekly", "0 0 * * 0"),
        ("@DAILY", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("  0\t5  * * *\n", "0 5 * * *"),
    ],
)
def test_aliases_and_blanks_come_out_as_the_plain_line(text: str, same: str) -> None:
    assert CronExpression.parse(text) == CronExpression.parse(same)
    assert CronExpression.parse(text).text == same


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * 7-3", "0 0 * * 0-3"),
        ("0 0 * * FRI-MON", "0 0 * * 0,1,5,6"),
        ("0 0 * * 5-1", "0 0 * * 0,1,5,6"),
        ("0 0 * * sun-SAT", "0 0 * * 0-6"),
        ("0 0 * * MON-sun", "0 0 * * 0-6"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("10-5 * * * *", "0-5,10-59 * * * *"),
        ("0 22-2/2 * * *", "0 22,0,2 * * *"),
        ("0 0 28-3 * *", "0 0 1,2,3,28,29,30,31 * *"),
        ("0 0 1 NOV-feb *", "0 0 1 1,2,11,12 *"),
        ("01 * * * *", "1 * * * *"),
        ("0 0 1 */3 *", "0 0 1 1,4,7,10 *"),
        ("*/40 * * * *", "0,40 * * * *"),
        ("0 12 * * ?", "0 12 * * *"),
        ("0 12 ? * 1", "0 12 * * 1"),
        ("0 0 * * 0,7", "0 0 * * 0"),
    ],
)
def test_two_ways_to_write_the_same_times_have_the_same_times(text: str, other: str) -> None:
    one, two = CronExpression.parse(text), CronExpression.parse(other)
    assert (one.second, one.minute, one.hour, one.month) == (two.second, two.minute, two.hour, two.month)
    assert one.days == two.days


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("30 2 * * *", True),
        ("0-59/5 0-23 * * *", True),
        ("* 2 * * *", False),
        ("30 * * * *", False),
        ("30 */2 * * *", False),
        ("30 *,5 * * *", False),
        ("* 30 2 * * *", True),
        ("0 */5 2 * * *", False),
        ("@hourly", False),
    ],
)
def test_a_star_at_the_head_of_minute_or_hour_makes_a_line_follow_the_clock(text: str, fixed: bool) -> None:
    assert CronExpression.parse(text).fixed is fixed


@pytest.mark.parametrize(
    ("text", "year", "month", "days"),
    [
        ("0 0 L * *", 2024, 2, [29]),
        ("0 0 L-1 * *", 2024, 2, [28]),
        ("0 0 1,L * *", 2023, 2, [1, 28]),
        ("0 0 L-30 * *", 2024, 1, [1]),
        ("0 0 LW * *", 2024, 3, [29]),
        ("0 0 LW * *", 2024, 6, [28]),
        ("0 0 lw * *", 2024, 7, [31]),
        ("0 0 15W * *", 2024, 6, [14]),
        ("0 0 15W * *", 2024, 9, [16]),
        ("0 0 1W * *", 2011, 5, [2]),
        ("0 0 1W * *", 2024, 6, [3]),
        ("0 0 3W * *", 2011, 7, [4]),
        ("0 0 16W * *", 2011, 7, [15]),
        ("0 0 28W * *", 2011, 7, [28]),
        ("0 0 30W * *", 2011, 7, [29]),
        ("0 0 31W * *", 2011, 7, [29]),
        ("0 0 31W * *", 2011, 6, []),
        ("0 0 * * 5#2", 2011, 7, [8]),
        ("0 0 * * FRI#1", 2011, 7, [1]),
        ("0 0 * * 3#5", 2011, 7, []),
        ("0 0 * * 7#1,1#1", 2011, 7, [3, 4]),
        ("0 0 * * 5L", 2011, 7, [29]),
        ("0 0 * * 7L", 2011, 7, [31]),
        ("0 0 * * friL", 2011, 7, [29]),
        ("0 0 13 * 5", 2026, 2, [6, 13, 20, 27]),
        ("0 0 13 * 5", 2026, 8, [7, 13, 14, 21, 28]),
        ("0 0 1-31 * 1", 2026, 2, list(range(1, 29))),
        ("0 0 */10 * 1", 2026, 6, [1]),
        ("0 0 */2 * 1", 2024, 1, [1, 15, 29]),
        ("0 0 1-7 * */7", 2026, 3, [1]),
        ("0 0 31 2 1", 2026, 2, [2, 9, 16, 23]),
    ],
)
def test_the_days_of_a_month_are(text: str, year: int, month: int, days: list[int]) -> None:
    assert days_of(text, year, month) == days


REFUSED = {
    "0 24 * * *": "hour 24 is outside 0-23",
    "60 * * * *": "minute 60 is outside 0-59",
    "0 0 0 * *": "day of month 0 is outside 1-31",
    "0 0 32 * *": "day of month 32 is outside 1-31",
    "0 0 1 0 *": "month 0 is outside 1-12",
    "0 0 * 13 *": "month 13 is outside 1-12",
    "0 0 * * 8": "day of week 8 is outside 0-7",
    "A 1 2 3 4": "minute 'A' is not a value",
    "-1 * * * *": "minute '-1' is not a value",
    "1.5 * * * *": "minute '1.5' is not a value",
    "1--5 * * * *": "minute '1--5' is not a value",
    "1-2-3 * * * *": "minute '1-2-3' is not a value",
    "1,2,3, * * * *": "minute '1,2,3,' has an empty item",
    ",1 * * * *": "minute ',1' has an empty item",
    "1_0 * * * *": "minute '1_0' is not a value",
    "+5 * * * *": "minute '+5' is not a value",
    "1-1_0 * * * *": "minute '1-1_0' is not a value",
    "０ ０ * * *": "minute '０' is not a value",
    "٣ * * * *": "minute '٣' is not a value",
    "*/٣ * * * *": "a step that is not a number",
    "0\u00a00 * * * *": "minute",
    "*/0 * * * *": "a step that is zero",
    "1-5/0 * * * *": "a step that is zero",
    "5-5/0 * * * *": "a step that is zero",
    "*/-5 * * * *": "a step that is not a number",
    "*/ * * * *": "a step that is not a number",
    "*/5/5 * * * *": "a step that is not a number",
    "*/70 * * * *": "larger than its range of 60",
    "0-59/65 10 * * *": "larger than its range of 60",
    "0 */25 * * *": "larger than its range of 24",
    f"*/{'9' * 5000} * * * *": "larger than its range of 60",
    f"{'9' * 5000} * * * *": "is outside 0-59",
    "? * * * *": "minute cannot be ?",
    "0 0 ? * ?": "both day fields are ?",
    "0 0 1,? * *": "day of month cannot be ?",
    "0 0 1,15W * *": "must stand alone",
    "0 0 1-15W * *": "must stand alone",
    "0 0 L-31 * *": "before the month begins",
    "0 0 32W * *": "day of month 32 is outside 1-31",
    "0 0 L/2 * *": "day of month",
    "0 0 * * 1#6": "not one of the weeks of a month",
    "0 0 * * 1#0": "not one of the weeks of a month",
    "0 0 * * 1-5#2": "day of week",
    "0 0 * * 8L": "day of week 8 is outside 0-7",
    "0 0 30 2 *": "no such date: day of month 30, month 2",
    "0 0 31 4,6 *": "no such date: day of month 31, month 4,6",
    "0 0 31 2 ?": "no such date",
    "0 0 31W 2 *": "no such date",
    "0 0 */16 * 1#5": "no such date",
    "": "the expression is empty",
    "* * * *": "4 fields found",
    "*": "1 field found",
    "@reboot": "there is no alias @reboot",
    "@every 5m": "there is no alias @every 5m",
    "@fortnightly": "there is no alias @fortnightly",
}


@pytest.mark.parametrize("text", REFUSED, ids=[text[:20] for text in REFUSED])
def test_what_has_no_meaning_is_refused_with_its_field_and_what_was_found(text: str) -> None:
    error = refusal(text)
    assert REFUSED[text] in error.message
    assert (error.argument, error.found) == ("cron", text)
    assert error.allowed


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("0 30 * * *", "did you mean 30 0?"),
        ("5/15 * * * *", "say 5-59/15"),
        ("0 5/2 * * *", "say 5-23/2"),
        ("59/15 * * * *", "say 59"),
        ("5/0 * * * *", "say 5"),
        ("0 0 5 * 1/2", "say 1-6/2"),
        ("0 0 0 1 1 0 *", "there is no field for the year"),
        ("0 2 * * 2 * *", "there is no field for the year"),
        ("0 0 1 1 0 *", "the sixth field is for seconds, and stands first"),
        ("0 MON * * *", "MON is a weekday; its field is the last"),
        ("0 0 jan * *", "jan is a month; its field is the last but one"),
        ("H * * * *", "H is not known; a splay spreads tasks over time"),
        ("0 0 * * L", "5L is the last Friday of the month, SAT is Saturday"),
        ("@every 5m", "write every(...), or a cron line such as */5 * * * *"),
        ("@reboot", "a schedule knows times only; start it from the init system"),
    ],
)
def test_a_refusal_says_the_way_out(text: str, hint: str) -> None:
    assert refusal(text).hint == hint


@pytest.mark.parametrize("quotes", ['""', "''", "``", "“”", '" ', ' "'])
def test_quotes_that_came_along_are_named_as_such(quotes: str) -> None:
    error = refusal(f"{quotes[0]}0 * * * *{quotes[1]}")
    assert error.message == "the expression is wrapped in quotes"


def test_a_refusal_reads_as_one_sentence_with_all_its_parts() -> None:
    assert str(refusal("0 30 * * *")) == (
        "hour 30 is outside 0-23 (cron='0 30 * * *'); allowed: 0-23; did you mean 30 0?"
    )


def test_what_is_not_a_text_is_refused() -> None:
    with pytest.raises(DefinitionError, match="is a text"):
        CronExpression.parse(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("*/45 * * * *", "*/45 restarts each hour: minutes 0 and 45, not every 45 minutes"),
        ("*/40 * * * *", "*/40 restarts each hour: minutes 0 and 40, not every 40 minutes"),
        ("*/7 * * * *", "*/7 restarts each hour: minutes 0, 7, 14, ..., 56, not every 7 minutes"),
        ("0 */5 * * *", "*/5 restarts each day: hours 0, 5, 10, 15 and 20, not every 5 hours"),
        ("0 0 */2 * *", "*/2 restarts each month: days 1, 3, 5, ..., 31, not every 2 days"),
        ("0 0 1 */5 *", "*/5 restarts each year: months 1, 6 and 11, not every 5 months"),
        ("0 0 * * */2", "*/2 restarts each week: weekdays 0, 2, 4 and 6, not every 2 weekdays"),
        ("*/60 * * * *", "*/60 is minute 0 and nothing else"),
        ("0 2 * * 2 *", "six fields begin with the seconds: at minute 2 of every hour in February"),
    ],
)
def test_what_is_rarely_meant_is_warned_of(text: str, warning: str) -> None:
    assert CronExpression.parse(text).warnings == (warning,)


@pytest.mark.parametrize("text", ["*/5 * * * *", "0 */6 * * *", "0 0 1 */3 *", "0 30 2 * * *", "*/1 * * * *"])
def test_what_is_even_is_not_warned_of(text: str) -> None:
    assert CronExpression.parse(text).warnings == ()


def test_a_line_of_five_fields_is_matched_by_the_minute_and_one_of_six_by_the_second() -> None:
    assert CronExpression.parse("47 21 * * *").matches(wall("2026-01-01T21:47:30.5"))
    assert not CronExpression.parse("47 21 * * *").matches(wall("2026-01-01T21:48:00"))
    assert CronExpression.parse("30 47 21 * * *").matches(wall("2026-01-01T21:47:30.5"))
    assert not CronExpression.parse("30 47 21 * * *").matches(wall("2026-01-01T21:47:31"))


EXPLAINED = {
    "* * * * *": "every minute",
    "*/5 * * * *": "every 5 minutes",
    "*/40 * * * *": "at minutes 0 and 40 of every hour",
    "*/45 * * * *": "at minutes 0 and 45 of every hour",
    "30 * * * *": "at minute 30 of every hour",
    "30 2 * * *": "at 02:30 every day",
    "0 0,12 * * *": "at 00:00 and 12:00 every day",
    "0 9-17 * * MON-FRI": "at minute 0 of hours 9 to 17 on Monday to Friday",
    "*/10 8-23 * * *": "every 10 minutes of hours 8 to 23 every day",
    "* 2 * * *": "every minute of hour 2 every day",
    "30 8 * * 1,3,5": "at 08:30 on Monday, Wednesday and Friday",
    "0 0 * * 0,6": "at 00:00 on Saturday and Sunday",
    "0 13 13 * 5": "at 13:00 on day 13 of the month or on Friday",
    "0 0 */2 * 1": "at 00:00 on days 1, 3, 5, ..., 31 of the month and only on Monday",
    "0 0 1 1 *": "at 00:00 on day 1 of the month in January",
    "0 0 1 */3 *": "at 00:00 on day 1 of the month in January, April, July and October",
    "0 0 L * *": "at 00:00 on the last day of the month",
    "0 0 L-2 * *": "at 00:00 on the last day but 2 of the month",
    "0 0 LW * *": "at 00:00 on the last weekday of the month",
    "0 0 15W * *": "at 00:00 on the weekday nearest to day 15 of the month",
    "0 12 ? * 5#2": "at 12:00 on the second Friday of the month",
    "0 12 * * 1L": "at 12:00 on the last Monday of the month",
    "* * * * * *": "every second",
    "*/10 * * * * *": "every 10 seconds",
    "15 30 2 * * *": "at 02:30:15 every day",
    "@hourly": "at minute 0 of every hour",
    "*/45 * * * * *": "at seconds 0 and 45 of every minute",
    "15 */5 * * * *": "at second 15 of every 5 minutes",
    "5-10 * 3 * * *": "at seconds 5 to 10 of every minute of hour 3 every day",
    "* * 3 * * *": "every second of hour 3 every day",
    "0 9 1-31 * 1": "at 09:00 on days 1 to 31 of the month or on Monday",
    "0 0 29 2 5": "at 00:00 on day 29 of the month or on Friday in February",
    "0 0 1,L * *": "at 00:00 on day 1 and the last day of the month",
    "0 0 * * 1,5L": "at 00:00 on Monday and the last Friday of the month",
}


@pytest.mark.parametrize("text", EXPLAINED)
def test_a_line_in_plain_english(text: str) -> None:
    assert CronExpression.parse(text).explain() == EXPLAINED[text]


@pytest.mark.parametrize("step", [7, 11, 23, 40, 45, 59])
def test_an_uneven_step_is_never_called_every_so_many_minutes(step: int) -> None:
    assert f"every {step}" not in CronExpression.parse(f"*/{step} * * * *").explain()


@pytest.mark.parametrize("step", range(1, 61))
def test_every_n_minutes_is_said_only_where_it_is_true(step: int) -> None:
    said = CronExpression.parse(f"*/{step} * * * *").explain()
    assert (said == f"every {step} minutes") is (60 % step == 0 and 1 < step < 60)


@pytest.mark.parametrize("days", ["13", "1-31", "1-7", "L", "15W", "5,*", "31"])
@pytest.mark.parametrize("weekdays", ["5", "0-7", "MON-FRI", "5#2", "5L", "1,*"])
def test_two_restricted_day_fields_are_joined_by_or(days: str, weekdays: str) -> None:
    expression = CronExpression.parse(f"0 0 {days} * {weekdays}")
    assert " or on " in expression.explain()
    assert set(days_of(f"0 0 {days} * *", 2026, 7)) <= set(days_of(expression.text, 2026, 7))
    assert set(days_of(f"0 0 * * {weekdays}", 2026, 7)) <= set(days_of(expression.text, 2026, 7))


@pytest.mark.parametrize("starred", ["*", "*/2", "*,5", "*/1"])
def test_a_day_field_that_begins_with_a_star_is_joined_by_and(starred: str) -> None:
    for text in (f"0 0 {starred} * 1-5", f"0 0 13-19 * {starred}"):
        expression = CronExpression.parse(text)
        assert " or " not in expression.explain()
        day, _, weekday = text.split()[2:]
        both = set(days_of(f"0 0 {day} * *", 2026, 7)) & set(days_of(f"0 0 * * {weekday}", 2026, 7))
        assert set(days_of(text, 2026, 7)) == both


Find = Callable[[list[date]], date | None]


def nearest_to(wanted: int) -> Find:
    def find(days: list[date]) -> date | None:
        working = [day for day in days if day.weekday() < 5]
        return min(working, key=lambda day: abs(day.day - wanted)) if wanted <= len(days) else None

    return find


def nth(weekday: int, place: int) -> Find:
    def find(days: list[date]) -> date | None:
        found = [day for day in days if day.isoweekday() % 7 == weekday]
        return found[place] if place < len(found) else None

    return find


SPECIAL_DAYS: dict[str, Find] = {
    "0 0 L * *": lambda days: days[-1],
    "0 0 L-5 * *": lambda days: days[-6],
    "0 0 LW * *": lambda days: [day for day in days if day.weekday() < 5][-1],
    **{f"0 0 {wanted}W * *": nearest_to(wanted) for wanted in (1, 2, 15, 28, 29, 30, 31)},
    **{f"0 0 * * {day}#{place + 1}": nth(day, place) for day in range(7) for place in range(5)},
    **{f"0 0 * * {day}L": nth(day, -1) for day in range(7)},
}


@pytest.mark.parametrize("text", SPECIAL_DAYS)
def test_a_special_day_is_that_of_the_calendar_in_each_kind_of_month(text: str) -> None:
    for year in (*range(2000, 2028), 2100):
        for month in range(1, 13):
            length = calendar.monthrange(year, month)[1]
            found = SPECIAL_DAYS[text]([date(year, month, day) for day in range(1, length + 1)])
            assert days_of(text, year, month) == ([found.day] if found else []), (year, month)


def test_a_hint_that_says_what_to_write_can_be_followed() -> None:
    for text in (
        "5/15 * * * *",
        "59/15 * * * *",
        "5/0 * * * *",
        "5/55 * * * *",
        "5/54 * * * *",
        "58/1 * * * *",
    ):
        hint = refusal(text).hint or ""
        assert hint.startswith("say ")
        CronExpression.parse(text.replace(text.split()[0], hint.removeprefix("say ")))


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 L-28 2 *", "0 0 31 2 5", "0 0 29W 2 *", "0 0 * 2 1#5"])
def test_a_date_that_some_year_has_is_not_refused(text: str) -> None:
    assert any(days_of(text, year, 2) for year in range(2000, 2028))


def test_a_line_is_a_frozen_value() -> None:
    line = CronExpression.parse("*/5 8-18 * * MON-FRI")
    assert line == CronExpression.parse(" */5  8-18 * * MON-FRI")
    assert hash(line) == hash(CronExpression.parse(" */5  8-18 * * MON-FRI"))
    assert line not in (CronExpression.parse("*/5 8-18 * * 1-5"), line.text)
    assert repr(line) == "CronExpression('*/5 8-18 * * MON-FRI')"
    assert pickle.loads(pickle.dumps(line)) == line
    with pytest.raises(AttributeError, match="frozen"):
        line.minute = 0  # type: ignore[misc]  # the point


def test_a_search_ends_where_the_calendar_ends() -> None:
    last = date.max.toordinal() * 86_400 - 1
    assert CronExpression.parse("59 23 31 12 *").next_wall(last - 100) == last - 59
    assert CronExpression.parse("59 23 31 12 *").next_wall(last) is None
    assert CronExpression.parse("0 0 1 1 *").previous_wall(0) == 0
    assert CronExpression.parse("1 0 1 1 *").previous_wall(0) is None
