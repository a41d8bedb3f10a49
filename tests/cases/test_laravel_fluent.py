"""Laravel's scheduler as an oracle: its fluent rows (oracle/laravel.md), each as one rota line.

A row that means the same is checked by its instants, over two years where months matter. A row that
rota refuses, or answers otherwise on purpose, stands with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rota import DefinitionError, Schedule
from rota._core.task import Overlap, OverlapKind, Servers
from rota._core.triggers import Cron

Line = Callable[[Any], object]


class Same(NamedTuple):
    """Row, the rota line, and the cron lines whose instants it has."""

    row: str
    says: Line
    cron: str | tuple[str, ...]


class Differs(NamedTuple):
    """Row, what rota does with it, and why. `says` is the nearest line; `part` is in the refusal."""

    row: str
    says: Line
    part: str
    reason: str


def job() -> None: ...


def instants(says: Line, start: str, end: str, *, timezone: str = "UTC") -> list[datetime]:
    schedule = Schedule("shop", timezone=timezone)
    says(schedule.call(job))
    return list(schedule["job"].trigger.between(*(datetime.fromisoformat(text) for text in (start, end))))


def expected(cron: str | tuple[str, ...], start: str, end: str) -> list[datetime]:
    lines = (cron,) if isinstance(cron, str) else cron
    return list(Cron.parse(*lines).between(*(datetime.fromisoformat(text) for text in (start, end))))


QUARTER_HOURS = [15, 30, 45]

# -- 3.1 Frequency -> expression

FREQUENCIES = [
    Same("1", lambda t: t.every(minutes=1), "* * * * *"),
    Same("2", lambda t: t.cron("* * * * *"), "* * * * *"),
    Same("3", lambda t: t.every(minutes=2), "*/2 * * * *"),
    Same("4", lambda t: t.every(minutes=3), "*/3 * * * *"),
    Same("5", lambda t: t.every(minutes=4), "*/4 * * * *"),
    Same("6", lambda t: t.every(minutes=5), "*/5 * * * *"),
    Same("7", lambda t: t.every(minutes=10), "*/10 * * * *"),
    Same("8", lambda t: t.every(minutes=15), "*/15 * * * *"),
    Same("9", lambda t: t.every(minutes=30), "*/30 * * * *"),
    Same("10", lambda t: t.hourly(), "0 * * * *"),
    Same("13", lambda t: t.hourly(at=37), "37 * * * *"),
    Same("14", lambda t: t.every(minutes=10), "*/10 * * * *"),
    Same("15", lambda t: t.hourly(at=QUARTER_HOURS), "15,30,45 * * * *"),
    Same("16", lambda t: t.hourly(at=17), "17 * * * *"),
    Same("17", lambda t: t.every(hours=2, offset=timedelta(hours=1)), "0 1-23/2 * * *"),
    Same("18", lambda t: t.every(hours=2, offset=timedelta(hours=1, minutes=37)), "37 1-23/2 * * *"),
    Same("19", lambda t: t.cron("*/10 1-23/2 * * *"), "*/10 1-23/2 * * *"),
    Same("20", lambda t: t.cron("15,30,45 1-23/2 * * *"), "15,30,45 1-23/2 * * *"),
    *(
        same
        for row, hours in (("21", 2), ("22", 3), ("23", 4), ("24", 6))
        for same in (
            Same(row, lambda t, h=hours: t.every(hours=h), f"0 */{hours} * * *"),
            Same(
                row, lambda t, h=hours: t.every(hours=h, offset=timedelta(minutes=37)), f"37 */{hours} * * *"
            ),
            Same(row, lambda t, h=hours: t.cron(f"*/10 */{h} * * *"), f"*/10 */{hours} * * *"),
            Same(row, lambda t, h=hours: t.cron(f"15,30,45 */{h} * * *"), f"15,30,45 */{hours} * * *"),
        )
    ),
    Same("25", lambda t: t.daily(), "0 0 * * *"),
    Same("26", lambda t: t.daily(at="13:08"), "8 13 * * *"),
    Same("27", lambda t: t.daily(at="2:00"), "0 2 * * *"),
    Same("28", lambda t: t.daily(at=("1:00", "13:00")), "0 1,13 * * *"),
    Same("29", lambda t: t.daily(at=("3:00", "15:00")), "0 3,15 * * *"),
    Same("30", lambda t: t.daily(at=("3:05", "15:05")), "5 3,15 * * *"),
    Same("31", lambda t: t.daily(at=("1:00", "13:00")), "0 1,13 * * *"),
    Same("32", lambda t: t.weekly(), "0 0 * * 0"),
    Same("33", lambda t: t.weekly(on="monday"), "0 0 * * 1"),
    Same("34", lambda t: t.weekly(on="monday", at="8:00"), "0 8 * * 1"),
    Same("35", lambda t: t.weekly(on=["mon", "wed", "fri"], at="8:30"), "30 8 * * 1,3,5"),
    Same("36", lambda t: t.daily(at="8:30").weekdays(), "30 8 * * 1-5"),
    Same("37", lambda t: t.weekly(on="MON", at="8:30"), "30 8 * * MON"),
    Same("38", lambda t: t.monthly(), "0 0 1 * *"),
    Same("39", lambda t: t.monthly(on=1), "0 0 1 * *"),
    Same("40", lambda t: t.monthly(on=4, at="15:00"), "0 15 4 * *"),
    Same("41", lambda t: t.monthly(on=4, at="15:15"), "15 15 4 * *"),
    Same("42", lambda t: t.monthly(on=31, at="15:00"), "0 15 31 * *"),
    Same("43", lambda t: t.monthly(on="last", at="15:00"), "0 15 L * *"),
    Same("44", lambda t: t.monthly(on=[1, 16]), "0 0 1,16 * *"),
    Same("45", lambda t: t.monthly(on=[1, 16], at="1:30"), "30 1 1,16 * *"),
    Same("46", lambda t: t.monthly(on=[1, 16], at="13:00"), "0 13 1,16 * *"),
    Same("47", lambda t: t.monthly(on=[1, 15]), "0 0 1,15 * *"),
    Same("48", lambda t: t.monthly(on=[1, 10, 20, 30]), "0 0 1,10,20,30 * *"),
    Same("49", lambda t: t.monthly(on=5), "0 0 5 * *"),
    Same("51", lambda t: t.monthly(on=[1, 15], at="10:30"), "30 10 1,15 * *"),
    Same("52", lambda t: t.monthly(at="10:30", on=[1, 15]), "30 10 1,15 * *"),
    Same("53", lambda t: t.monthly(on="last"), "0 0 L * *"),
    Same(
        "54", lambda t: t.monthly(on="last"), ("0 0 31 1,3,5,7,8,10,12 *", "0 0 30 4,6,9,11 *", "0 0 28 2 *")
    ),
    Same("55", lambda t: t.monthly(on="last", at="15:00"), "0 15 L * *"),
    Same("56", lambda t: t.quarterly(), "0 0 1 1-12/3 *"),
    Same("57", lambda t: t.quarterly(on=4, at="15:00"), "0 15 4 1-12/3 *"),
    Same("58", lambda t: t.quarterly(on=1), "0 0 1 1-12/3 *"),
    Same("59", lambda t: t.yearly(), "0 0 1 1 *"),
    Same("60", lambda t: t.yearly(on=(4, 5), at="15:08"), "8 15 5 4 *"),
    Same("61", lambda t: t.yearly(on="06-01", at="17:00"), "0 17 1 6 *"),
    Same("62", lambda t: t.cron("1 9 * 7 1"), "1 9 * 7 1"),
    Same("63", lambda t: t.cron("1 9 20 7 2"), "1 9 20 7 2"),
    Same("64", lambda t: t.every(minutes=1).weekdays(), "* * * * 1-5"),
    Same("64", lambda t: t.every(minutes=1).weekends(), "* * * * 6,0"),
    *(
        Same("65", lambda t, day=day: t.every(minutes=1).on_days(day), f"* * * * {number}")
        for number, day in enumerate(
            ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
        )
    ),
    Same("66", lambda t: t.weekdays().daily(), "0 0 * * 1-5"),
    Same("67", lambda t: t.weekdays().hourly(), "0 * * * 1-5"),
    Same("67", lambda t: t.hourly().weekdays(), "0 * * * 1-5"),
    Same("69", lambda t: t.weekly(on="monday", at="13:00"), "0 13 * * 1"),
    Same("70", lambda t: t.daily().weekdays(), "0 0 * * 1-5"),
    Same("72", lambda t: t.every(minutes=1).on_days("mon"), "* * * * 1"),
    Same("72", lambda t: t.every(minutes=1).on_days("sun", "wed"), "* * * * 0,3"),
    Same("79", lambda t: t.cron("0 5 * * *").on_days("mon"), "0 5 * * 1"),
    Same("80", lambda t: t.cron("0  5 *\t* *").on_days("mon"), "0 5 * * 1"),
    Same("81", lambda t: t.cron(" 0 5 * * *").on_days("mon"), "0 5 * * 1"),
    Same("82", lambda t: t.cron("@daily"), "0 0 * * *"),
    Same("83", lambda t: t.cron("@daily").on_days("mon"), "0 0 * * 1"),
    Same("92", lambda t: t.every(minutes=6), "*/6 * * * *"),
]

UNDO = "Laravel splices fields of the first time verb into the second; nobody would guess the result"

REFUSED = [
    Differs("11", lambda t: t.every(minutes=5).hourly(), "hourly() would undo every()", UNDO),
    Differs("12", lambda t: t.hourly().every(minutes=5), "every() would undo hourly()", UNDO),
    Differs("14", lambda t: t.hourly(at="*/10"), "a whole number from 0 to 59", "a step is a pace: every()"),
    Differs("16", lambda t: t.hourly(at="17"), "a whole number from 0 to 59", "a minute is a number"),
    Differs("36", lambda t: t.weekly(on="1-5"), "not a day of the week", "days have names"),
    Differs("50", lambda t: t.monthly(on=[]), "not a day of the month", "as the row wants"),
    Differs("68", lambda t: t.daily().hourly(), "hourly() would undo daily()", UNDO),
    Differs("68", lambda t: t.hourly().daily(), "daily() would undo hourly()", UNDO),
    Differs("71", lambda t: t.on_days("mon").on_days("tue"), "would undo", "on_days() takes both"),
    Differs("72", lambda t: t.on_days("1,2"), "not a day of the week", "days have names"),
    Differs("72", lambda t: t.on_days("1-3"), "not a day of the week", "days have names"),
    Differs("73", lambda t: t.monthly().daily(), "daily() would undo monthly()", UNDO),
    Differs("73", lambda t: t.daily().monthly(), "monthly() would undo daily()", UNDO),
    Differs("74", lambda t: t.monthly().weekly(), "weekly() would undo monthly()", UNDO),
    Differs("75", lambda t: t.yearly().daily(), "daily() would undo yearly()", UNDO),
    Differs("75", lambda t: t.yearly().monthly(), "monthly() would undo yearly()", UNDO),
    Differs("76", lambda t: t.quarterly().yearly(), "yearly() would undo quarterly()", UNDO),
    Differs("76", lambda t: t.yearly().quarterly(), "quarterly() would undo yearly()", UNDO),
    Differs("77", lambda t: t.daily().every(minutes=5), "every() would undo daily()", UNDO),
    Differs("78", lambda t: t.daily(at="13:00").every(minutes=1), "every() would undo daily()", UNDO),
    Differs("85", lambda t: t.weekly().every(seconds=1), "every() would undo weekly()", UNDO),
    Differs("86", lambda t: t.every(seconds=20).hourly(), "hourly() would undo every()", UNDO),
    Differs("87", lambda t: t.every(hours=3).every(seconds=1), "every() would undo every()", UNDO),
    Differs("88", lambda t: t.every(seconds=30).every(seconds=10), "every() would undo every()", UNDO),
    Differs("89", lambda t: t.every(seconds=1).every(minutes=1), "every() would undo every()", UNDO),
    Differs("90", lambda t: t.every(seconds=0), "longer than zero", "refused in Laravel as well"),
    Differs("90", lambda t: t.every(seconds=-5), "longer than zero", "refused in Laravel as well"),
    # -- 3.2 Time strings
    Differs("93", lambda t: t.daily(at="13"), "not a time of day", "it may be a typing error"),
    Differs("94", lambda t: t.daily(at="13:08:10"), "not a time of day", "no seconds are ignored"),
    Differs("97", lambda t: t.daily(at="9am"), "not a time of day", "as the row wants"),
    Differs("98", lambda t: t.daily(at="7:5 pm"), "not a time of day", "as the row wants"),
    Differs("99", lambda t: t.daily(at="noon"), "not a time of day", "as the row wants"),
    Differs("99", lambda t: t.daily(at=""), "not a time of day", "as the row wants"),
    Differs("100", lambda t: t.daily(at="24:00"), "not a time of day", "as the row wants"),
    Differs("101", lambda t: t.daily(at="25:61"), "not a time of day", "as the row wants"),
    Differs("96", lambda t: t.daily(at="0:0"), "not a time of day", 'a minute has two digits: "0:00"'),
    # -- 3.3 Due test
    Differs("110", lambda t: t.even_when_paused(), "not available yet", "a pause is for all"),
    # -- 3.4 between
    Differs("131", lambda t: t.hourly().between("00:00", "24:00"), "not a time of day", "write 23:59"),
]  # fmt: skip

TIMES = [
    Same("95", lambda t: t.daily(at="09:05"), "5 9 * * *"),
    Same("96", lambda t: t.daily(at="0:00"), "0 0 * * *"),
]


def row_of(case: Same | Differs) -> str:
    return f"row {case.row}"


@pytest.mark.parametrize("case", FREQUENCIES + TIMES, ids=row_of)
def test_a_row_of_laravel_and_its_rota_line_have_the_same_instants(case: Same) -> None:
    lines = (case.cron,) if isinstance(case.cron, str) else case.cron
    by_week = all(line.split()[2:4] in (["*", "*"], []) for line in lines)
    start, end = "2025-12-31T23:59+00:00", f"{'2026-01-12' if by_week else '2027-12-31'}T23:59+00:00"

    found = instants(case.says, start, end)

    assert found
    assert found == expected(case.cron, start, end)


@pytest.mark.parametrize("case", REFUSED, ids=row_of)
def test_a_row_of_laravel_that_rota_refuses_is_refused_where_it_is_written(case: Differs) -> None:
    assert case.reason
    with pytest.raises(DefinitionError, match=re.escape(case.part)):
        case.says(Schedule("shop").call(job))


@pytest.mark.parametrize(("seconds", "runs"), [(1, 60), (2, 30), (5, 12), (10, 6), (15, 4), (20, 3), (30, 2)])
def test_row_84_sub_minute_paces(seconds: int, runs: int) -> None:
    start, end = "2025-12-31T23:59:59+00:00", "2026-01-01T00:00:59+00:00"
    assert len(instants(lambda t: t.every(seconds=seconds), start, end)) == runs


def test_row_91_a_pace_that_does_not_divide_a_minute_is_a_pace_all_the_same() -> None:
    """Laravel starts anew each minute, so it must refuse 7 seconds; rota counts on."""
    found = instants(lambda t: t.every(seconds=7), "2026-01-01T00:00+00:00", "2026-01-01T00:05+00:00")
    assert {after - before for before, after in pairwise(found)} == {timedelta(seconds=7)}


# -- 3.3 Due test


def test_row_102_thursdays() -> None:
    found = instants(
        lambda t: t.every(minutes=1).on_days("thu"), "2014-12-31T23:59+00:00", "2015-01-01T00:00+00:00"
    )
    assert found == [datetime(2015, 1, 1, tzinfo=UTC)]


def test_row_103_the_day_of_the_week_is_that_of_the_zone() -> None:
    found = instants(
        lambda t: t.weekly(on="wednesday", at="19:00").timezone("EST"),
        "2014-12-31T23:59+00:00",
        "2015-01-01T00:00+00:00",
    )
    assert found == [datetime(2015, 1, 1, tzinfo=UTC)]


def task_of(*says: Line) -> Any:
    schedule = Schedule("shop")
    chain = schedule.call(job).every(minutes=1)
    for say in says:
        say(chain)
    return schedule["job"]


def test_rows_104_106_107_conditions_are_no_part_of_being_due() -> None:
    plain = task_of()
    for say, filters in (
        (lambda t: t.skip(True), [("skip", True, False)]),
        (lambda t: t.when(False), [("when", False, True)]),
        (lambda t: t.when(job), [("when", job, True)]),
        (lambda t: t.when(job).skip(job), [("when", job, True), ("skip", job, False)]),
    ):
        task = task_of(say)
        assert task.trigger == plain.trigger
        assert [(each.name, each.condition, each.wanted) for each in task.filters] == filters


def test_rows_105_111_environments() -> None:
    assert not task_of(lambda t: t.environments("local")).runs_in("production")
    both = task_of(lambda t: t.environments("staging", "production"))
    assert all(both.runs_in(name) for name in ("staging", "production"))
    assert task_of().runs_in("production")


def test_row_108_the_next_run_has_the_time_that_was_said() -> None:
    found = instants(lambda t: t.daily(at="10:15"), "2026-01-01T00:00+00:00", "2026-01-02T00:00+00:00")
    assert [f"{instant:%H:%M:%S}" for instant in found] == ["10:15:00"]


# -- 3.4 between / unlessBetween: (row, now, start, end, inside); differing rows give what rota wants

WINDOWS = [
    ("113", "09:00:00", "8:00", "10:00", True),
    ("114", "09:00:00", "9:00", "9:00", True),
    ("115", "09:00:00", "23:00", "10:00", True),
    ("116", "09:00:00", "8:00", "6:00", True),
    ("117", "09:00:00", "10:00", "11:00", False),
    ("118", "09:00:00", "10:00", "8:00", False),
    ("121", "23:30:00", "23:00", "04:00", True),
    ("122", "00:00:00", "23:00", "04:00", True),
    ("123", "03:59:59", "23:00", "04:00", True),
    ("124", "04:00:00", "23:00", "04:00", True),
    ("125 differs: whole minutes", "04:00:01", "23:00", "04:00", True),
    ("125 a minute later", "04:01:00", "23:00", "04:00", False),
    ("126", "12:00:00", "23:00", "04:00", False),
    ("127", "17:00:00", "8:00", "17:00", True),
    ("128 differs as wanted: whole minutes", "17:00:01", "8:00", "17:00", True),
    ("129", "07:59:59", "8:00", "17:00", False),
    ("132", "12:00:00", "0:00", "0:00", False),
    ("133", "00:00:30", "23:59", "00:01", True),
    ("134 differs: whole minutes", "00:01:30", "23:59", "00:01", True),
    ("134 a minute later", "00:02:00", "23:59", "00:01", False),
]


@pytest.mark.parametrize(
    ("row", "now", "start", "end", "inside"), WINDOWS, ids=[f"row {w[0]}" for w in WINDOWS]
)
def test_a_window_includes_both_its_minutes(row: str, now: str, start: str, end: str, inside: bool) -> None:
    instant = datetime.fromisoformat(f"2026-06-16T{now}+00:00")
    second_before = (instant - timedelta(seconds=1)).isoformat()

    within = instants(lambda t: t.every(seconds=1).between(start, end), second_before, instant.isoformat())
    outside = instants(
        lambda t: t.every(seconds=1).except_between(start, end), second_before, instant.isoformat()
    )

    assert within == ([instant] if inside else [])
    assert outside == ([] if inside else [instant])


def test_row_130_a_window_of_all_minutes_is_always_open_and_its_opposite_is_refused() -> None:
    """Laravel leaves out the last minute but for its first instant; the row wants whole minutes."""
    window = "2026-06-16T23:59:29+00:00", "2026-06-16T23:59:30+00:00"
    assert instants(lambda t: t.every(seconds=1).between("00:00", "23:59"), *window)
    with pytest.raises(DefinitionError, match="never be due"):
        instants(lambda t: t.every(seconds=1).except_between("00:00", "23:59"), *window)


@pytest.mark.parametrize(
    "says",
    [
        lambda t: t.every(minutes=1).timezone("Europe/Rome").between("10:00", "12:00"),
        lambda t: t.every(minutes=1).between("10:00", "12:00").timezone("Europe/Rome"),
    ],
    ids=["row 119", "row 120"],
)
def test_a_window_is_read_in_the_zone_of_the_task(says: Line) -> None:
    assert instants(says, "2026-06-16T08:59+00:00", "2026-06-16T09:00+00:00")
    assert not instants(says, "2026-06-16T10:59+00:00", "2026-06-16T11:00+00:00")


# -- 3.11 Groups


def same_instants(schedule: Schedule, lines: Iterable[tuple[str, str]]) -> None:
    start, end = "2025-12-31T23:59+00:00", "2026-01-12T00:00+00:00"
    for name, cron in lines:
        window = (datetime.fromisoformat(start), datetime.fromisoformat(end))
        assert list(schedule[name].trigger.between(*window)) == expected(cron, start, end), name


def test_row_341_a_task_of_a_group_may_have_its_own_time() -> None:
    schedule = Schedule("shop")
    with schedule.daily().group():
        schedule.command("inspire").name("one")
        schedule.command("inspire").name("two").daily(at=("1:00", "13:00"))

    same_instants(schedule, [("one", "0 0 * * *"), ("two", "0 1,13 * * *")])


def test_row_342_and_its_own_pace() -> None:
    schedule = Schedule("shop")
    with schedule.every(seconds=30).group():
        schedule.command("a").name("a")
        schedule.command("b").name("b").every(seconds=20)

    same_instants(schedule, [("a", "*/30 * * * * *"), ("b", "*/20 * * * * *")])


def test_row_343_an_inner_group_may_have_its_own_zone() -> None:
    schedule = Schedule("shop", timezone="Europe/Berlin")
    with schedule.daily(at="12:00").timezone("UTC").group():
        schedule.command("a").name("a")
        with schedule.on_one_server().timezone("Asia/Dhaka").group():
            schedule.command("b").name("b")

    same_instants(schedule, [("a", "0 12 * * *"), ("b", "0 6 * * *")])


@pytest.mark.parametrize(
    "guard", [lambda c: c, lambda c: c.without_overlapping()], ids=["row 344", "row 345"]
)
def test_rows_344_345_the_days_of_a_group_stay_when_a_task_says_its_time(guard: Line) -> None:
    schedule = Schedule("shop")
    group: Any = guard(schedule.weekdays())
    with group.group():
        schedule.command("a").name("at midnight").daily(at="00:00")
        schedule.daily(at="01:00").do(job).name("at one")
        schedule.call(job).daily(at="04:00")

    same_instants(
        schedule, [("at midnight", "0 0 * * 1-5"), ("at one", "0 1 * * 1-5"), ("job", "0 4 * * 1-5")]
    )


def test_row_344_a_task_without_any_time_is_refused_where_laravel_runs_it_every_minute() -> None:
    schedule = Schedule("shop")
    with schedule.weekdays().group():
        schedule.command("a").name("a")

    with pytest.raises(DefinitionError, match="never said when to run"):
        _ = schedule.tasks


def test_row_346_nested_groups_narrow_each_other() -> None:
    schedule = Schedule("shop")
    with schedule.on_days("mon", "tue", "wed", "thu", "fri", "sat").every(minutes=1).group():
        with schedule.between("7:00", "8:00").group():
            schedule.call(lambda: None).name("task1")
            schedule.call(lambda: None).name("task2")
        schedule.call(lambda: None).name("task3").daily(at="8:05")

    def due_at(hour: int, minute: int) -> list[str]:
        monday = datetime(2026, 1, 5, hour, minute, tzinfo=UTC)
        window = monday - timedelta(seconds=1), monday
        return [task.name for task in schedule if list(task.trigger.between(*window))]

    assert due_at(7, 30) == ["task1", "task2"]
    assert due_at(8, 5) == ["task3"]


def test_row_348_the_settings_of_a_group_reach_each_task() -> None:
    schedule = Schedule("shop")
    with (
        schedule.hourly()
        .timezone("Asia/Tokyo")
        .on_one_server()
        .environments("a")
        .without_overlapping()
        .group()
    ):
        schedule.command("one").name("one")
        schedule.module("two").name("two")

    for task in schedule:
        assert task.trigger == Cron.parse("0 * * * *", zone="Asia/Tokyo")
        assert (task.servers, task.servers_stated) == (Servers.ONE, True)
        assert task.environments == {"a"}
        assert task.overlap == Overlap(OverlapKind.SKIP)


def test_row_353_a_group_needs_no_time() -> None:
    schedule = Schedule("shop")
    with schedule.skip(job).group():
        schedule.command("one").name("one").hourly()

    assert [each.name for each in schedule["one"].filters] == ["skip"]


WITHOUT_A_LINE = {
    "109": "maintenance mode is a pause, and not part of the schedule",
    "112": "an environment's list of tasks is the runner's: tests/cli",
    "347": "there are no free attributes: nothing in rota would read them",
    "348": "user(): a command names its own; run_in_background(): no run waits for another",
    "349": "a lease is not let go because a signal came: it ends with the run",
    "350": "there are no macros: a function that takes a chain is one",
    "351": "hooks are listeners of the runner, not facts about a task",
    "352": "hooks are listeners of the runner, not facts about a task",
}


def test_every_row_of_the_fluent_tables_has_its_place() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    named = {case.row for case in FREQUENCIES + TIMES} | {case.row for case in REFUSED} | set(WITHOUT_A_LINE)
    named |= {row.split()[0] for row, *_ in WINDOWS}
    for rows in re.findall(r"def test_rows?_((?:[0-9]+_)+)|ids=\[([^\]f]*)\]", here):
        named |= set(re.findall("[0-9]+", " ".join(rows)))

    wanted = {str(row) for row in (*range(1, 113), *range(113, 135), *range(341, 354))}
    assert sorted(wanted - named, key=int) == []
