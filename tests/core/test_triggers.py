"""Triggers: Cron, Every and Once, what narrows them, and what their identity is made of."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from rota import DefinitionError
from rota._core.cron import CronExpression
from rota._core.patterns import Grid, Opening, meeting
from rota._core.triggers import Cron, Every, Once, Restricted, Trigger, Window, parse_time

MICROSECOND, SECOND, MINUTE = timedelta(microseconds=1), timedelta(seconds=1), timedelta(minutes=1)
HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def walls(trigger: Trigger, after: str, upto: str, zone: str = "UTC") -> list[str]:
    found = trigger.between(at(after), at(upto))
    return [f"{instant.astimezone(ZoneInfo(zone)):%m-%d %H:%M}" for instant in found]


def following(trigger: Trigger, after: datetime) -> Iterator[datetime]:
    found = trigger.next(after)
    while found is not None:
        yield found
        found = trigger.next(found)


TRIGGERS: dict[str, Trigger] = {
    "cron": Cron.parse("*/10 * * * *", zone=BERLIN),
    "several lines": Cron.parse("0 * * * *", "30 */2 * * *", zone=BERLIN),
    "every minutes": Every(timedelta(minutes=5), zone=BERLIN),
    "every day": Every(DAY, zone=BERLIN, offset=timedelta(hours=2, minutes=30)),
    "every seconds": Every(timedelta(seconds=7)),
    "anchored": Every(timedelta(hours=36), anchor=at("2026-01-01T00:00:00.25")),
    "once": Once((at("2026-03-29T01:00"), at("2026-03-29T02:00:00.5"))),
    "restricted": Restricted(Every(timedelta(minutes=5)), BERLIN, windows=(Window.parse("22:00", "03:00"),)),
}
every_trigger = pytest.mark.parametrize("trigger", TRIGGERS.values(), ids=TRIGGERS)


# -- what all triggers promise


@every_trigger
def test_next_and_previous_are_strict_at_microseconds(trigger: Trigger) -> None:
    found = trigger.next(at("2026-03-28T23:00"))
    assert found is not None
    assert trigger.next(found - MICROSECOND) == found
    assert trigger.previous(found + MICROSECOND) == found
    later, earlier = trigger.next(found), trigger.previous(found)
    assert later is None or later > found
    assert earlier is None or earlier < found


@every_trigger
def test_between_leaves_its_start_out_and_takes_its_end_in(trigger: Trigger) -> None:
    first, second = islice(following(trigger, at("2026-03-28T23:00")), 2)
    assert list(trigger.between(first, second)) == [second]
    assert list(trigger.between(first - MICROSECOND, second)) == [first, second]
    assert list(trigger.between(first, second - MICROSECOND)) == []
    assert list(trigger.between(second, first)) == []


@every_trigger
def test_the_zone_that_an_instant_is_told_in_has_no_say(trigger: Trigger) -> None:
    asked = at("2026-03-29T00:59:30")
    for zone in (timezone(timedelta(hours=-9, minutes=-30)), ZoneInfo("Asia/Kathmandu"), ZoneInfo(BERLIN)):
        elsewhere = asked.astimezone(zone)
        assert trigger.next(elsewhere) == trigger.next(asked)
        assert trigger.previous(elsewhere) == trigger.previous(asked)


@every_trigger
def test_answers_are_in_utc(trigger: Trigger) -> None:
    found = trigger.next(at("2026-03-28T23:00").astimezone(ZoneInfo(BERLIN)))
    assert found is not None
    assert found.tzinfo is UTC


@every_trigger
def test_a_naive_datetime_is_no_instant(trigger: Trigger) -> None:
    naive = datetime(2026, 3, 29)  # noqa: DTZ001 - the point
    for ask in (trigger.next, trigger.previous, lambda asked: list(trigger.between(asked, asked))):
        with pytest.raises(DefinitionError, match="a datetime without a time zone is not an instant"):
            ask(naive)


@every_trigger
def test_a_trigger_is_a_value_that_can_be_sent_elsewhere(trigger: Trigger) -> None:
    again = pickle.loads(pickle.dumps(trigger))
    assert again == trigger
    assert hash(again) == hash(trigger)
    assert again.next(at("2026-03-28T23:00")) == trigger.next(at("2026-03-28T23:00"))


def test_the_zone_of_the_host_has_no_say_in_any_trigger() -> None:
    code = (
        "from datetime import *; from rota._core.triggers import *\n"
        "start = datetime(2026, 3, 28, 12, tzinfo=UTC)\n"
        "for trigger in (Cron.parse('30 2 * * *', zone='Europe/Berlin'), Every(timedelta(hours=7)),\n"
        "                Every(timedelta(days=2), zone='America/New_York'),\n"
        "                Every(timedelta(hours=7), anchor=start), Once((start + timedelta(hours=1),)),\n"
        "                Restricted(Every(timedelta(hours=1)), windows=(Window.parse('23:50', '00:05'),))):\n"
        "    print(trigger.identity, trigger.describe(), trigger.previous(start),\n"
        "          *trigger.between(start, start + timedelta(days=3)))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "TZ": host},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for host in ("UTC", NEW_YORK, "Australia/Lord_Howe")
    }
    assert len(answers) == 1
    assert answers.pop().count("\n") == 6


# -- Cron


def test_several_lines_are_a_union_and_each_instant_comes_once() -> None:
    trigger = Cron.parse("0 * * * *", "0 */2 * * *", "30 1 * * *")
    assert walls(trigger, "2026-06-01T00:00", "2026-06-01T04:00") == [
        "06-01 01:00",
        "06-01 01:30",
        "06-01 02:00",
        "06-01 03:00",
        "06-01 04:00",
    ]


def test_each_line_of_several_keeps_its_own_rule_in_a_gap() -> None:
    """The fixed line is made up at 03:00, where the other one is due anyhow: one occurrence."""
    trigger = Cron.parse("30 2 * * *", "0 * * * *", zone=BERLIN)
    assert walls(trigger, "2026-03-29T00:00", "2026-03-29T03:00", BERLIN) == [
        "03-29 03:00",
        "03-29 04:00",
        "03-29 05:00",
    ]


def test_each_line_of_several_keeps_its_own_rule_in_a_fold() -> None:
    trigger = Cron.parse("30 2 * * *", "15 * * * *", zone=BERLIN)
    found = list(trigger.between(at("2026-10-25T00:00"), at("2026-10-25T02:00")))
    assert found == [at("2026-10-25T00:15"), at("2026-10-25T00:30"), at("2026-10-25T01:15")]


def test_lines_in_one_gap_are_one_occurrence() -> None:
    trigger = Cron.parse("0 2 * * *", "10,50 2 * * *", zone=BERLIN)
    assert walls(trigger, "2026-03-29T00:00", "2026-03-29T02:00", BERLIN) == ["03-29 03:00"]


def test_a_gap_that_swallows_nothing_of_a_line_makes_nothing_up() -> None:
    trigger = Cron.parse("0 3 * * *", zone=BERLIN)
    assert walls(trigger, "2026-03-28T12:00", "2026-03-30T12:00", BERLIN) == ["03-29 03:00", "03-30 03:00"]
    weekday = Cron.parse("30 2 * * 1", zone=BERLIN)
    assert walls(weekday, "2026-03-28T12:00", "2026-03-30T12:00", BERLIN) == ["03-30 02:30"]


def test_a_line_with_seconds_is_made_up_once_as_well() -> None:
    trigger = Cron.parse("*/20 30 2 * * *", zone=BERLIN)
    assert list(trigger.between(at("2026-03-29T00:00"), at("2026-03-29T12:00"))) == [at("2026-03-29T01:00")]
    assert len(list(trigger.between(at("2026-10-25T00:00"), at("2026-10-25T12:00")))) == 3


@pytest.mark.parametrize(
    "text",
    ["10,50 * * * * *", "*/20 5,6 2-4 * * *", "0,59 59 23 * * *", "15-17 */30 * * * 1", "7 30 2,5 * * *"],
)
def test_a_line_with_seconds_agrees_both_ways_with_a_walk_over_every_second(text: str) -> None:
    trigger, expression = Cron.parse(text), CronExpression.parse(text)
    first, last = at("2026-05-31T23:58"), at("2026-06-01T05:02")
    seconds = [first + count * SECOND for count in range(1, (last - first) // SECOND + 1)]
    expected = [instant for instant in seconds if expression.matches(instant.replace(tzinfo=None))]
    assert expected
    assert list(trigger.between(first, last)) == expected
    backwards, before = [], last + MICROSECOND
    while (earlier := trigger.previous(before)) is not None and earlier > first:
        backwards.append(earlier)
        before = earlier
    assert backwards[::-1] == expected


def test_cron_needs_a_line_and_a_zone_that_exists() -> None:
    with pytest.raises(DefinitionError, match="no cron line"):
        Cron(())
    with pytest.raises(DefinitionError, match="there is no time zone"):
        Cron.parse("0 0 * * *", zone="Europe/Atlantis")


def test_the_identity_of_cron_is_its_lines_in_any_order_and_its_zone() -> None:
    one = Cron.parse("0 0 * * MON", "30 2 * * *", zone=BERLIN)
    assert one.identity == "cron 0 0 * * mon | 30 2 * * * in Europe/Berlin"
    assert one.identity == Cron.parse("30  2 * * *", "0 0 * * mon", "30 2 * * *", zone=BERLIN).identity
    assert one.identity != Cron.parse("0 0 * * MON", "30 2 * * *").identity
    assert Cron.parse("@daily").identity == Cron.parse("0 0 * * *").identity


def test_cron_describes_each_line_and_names_a_zone_other_than_utc() -> None:
    assert Cron.parse("0 0 * * *").describe() == "at 00:00 every day"
    assert Cron.parse("0 0 * * *", "*/5 * * * *", zone=BERLIN).describe() == (
        "at 00:00 every day; every 5 minutes (Europe/Berlin)"
    )
    assert Cron.parse("*/45 * * * *", "*/7 * * * *").warnings[0].startswith("*/45 restarts each hour")
    assert len(Cron.parse("*/45 * * * *", "*/7 * * * *").warnings) == 2


# -- Every


@pytest.mark.parametrize("hours", [1, 2, 3, 4, 6, 8, 12])
@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, "Asia/Kathmandu", "Australia/Lord_Howe"])
def test_a_pace_that_divides_the_day_is_that_of_the_cron_step(hours: int, zone: str) -> None:
    window = at("2026-01-01T00:00"), at("2026-12-31T00:00")
    every, cron = Every(hours * HOUR, zone=zone), Cron.parse(f"0 */{hours} * * *", zone=zone)
    assert list(every.between(*window)) == list(cron.between(*window))


def test_a_pace_follows_the_wall_through_a_gap() -> None:
    trigger = Every(2 * HOUR, zone=BERLIN)
    found = walls(trigger, "2026-03-28T22:00", "2026-03-29T04:00", BERLIN)
    assert found == ["03-29 00:00", "03-29 04:00", "03-29 06:00"]


def test_a_pace_follows_the_wall_through_a_fold_and_comes_in_both_passes() -> None:
    trigger = Every(30 * MINUTE, zone=BERLIN)
    found = list(trigger.between(at("2026-10-24T23:45"), at("2026-10-25T02:00")))
    assert {later - earlier for earlier, later in pairwise(found)} == {30 * MINUTE}
    assert len(found) == 5


def test_a_pace_may_be_shifted() -> None:
    trigger = Every(6 * HOUR, zone=BERLIN, offset=timedelta(hours=1, minutes=37))
    assert walls(trigger, "2026-06-01T00:00", "2026-06-02T00:00", BERLIN) == [
        "06-01 07:37",
        "06-01 13:37",
        "06-01 19:37",
        "06-02 01:37",
    ]
    assert trigger == Every(6 * HOUR, BERLIN, timedelta(hours=1, minutes=37))
    assert trigger.identity == Every(6 * HOUR, zone=BERLIN, offset=timedelta(hours=-5, minutes=37)).identity


def test_a_pace_that_divides_no_day_counts_on_from_a_monday_and_warns() -> None:
    trigger = Every(7 * HOUR)
    found = list(trigger.between(at("2001-01-01T00:00") - MICROSECOND, at("2001-01-03T00:00")))
    assert found == [at("2001-01-01T00:00") + count * 7 * HOUR for count in range(7)]
    assert trigger.warnings == ("every 7 hours does not divide a day: the times differ from day to day",)
    assert Every(6 * HOUR).warnings == Every(2 * DAY).warnings == Every(7 * SECOND).warnings == ()


def test_a_day_is_a_fixed_time_made_up_after_a_gap_and_run_once_in_a_fold() -> None:
    trigger = Every(DAY, zone=BERLIN, offset=timedelta(hours=2, minutes=30))
    assert walls(trigger, "2026-03-28T00:00", "2026-03-31T00:00", BERLIN) == [
        "03-28 02:30",
        "03-29 03:00",
        "03-30 02:30",
    ]
    assert list(trigger.between(at("2026-10-25T00:00"), at("2026-10-25T23:00"))) == [at("2026-10-25T00:30")]


def test_whole_days_are_the_cron_line_of_a_fixed_time() -> None:
    window = at("2026-01-01T00:00"), at("2027-01-01T00:00")
    for zone in (BERLIN, "Australia/Lord_Howe", "Africa/Casablanca"):
        every = Every(DAY, zone=zone, offset=timedelta(hours=2, minutes=15))
        assert list(every.between(*window)) == list(Cron.parse("15 2 * * *", zone=zone).between(*window))


def test_a_week_begins_on_monday_and_two_weeks_on_every_other() -> None:
    assert walls(Every(WEEK), "2026-06-01T00:00", "2026-06-16T00:00") == ["06-08 00:00", "06-15 00:00"]
    fortnight = list(Every(2 * WEEK).between(at("2026-01-01T00:00"), at("2026-04-01T00:00")))
    assert all(instant.weekday() == 0 for instant in fortnight)
    assert {later - earlier for earlier, later in pairwise(fortnight)} == {2 * WEEK}


@pytest.mark.parametrize("seconds", [1, 7, 30, 59])
def test_less_than_a_minute_is_real_seconds_through_gap_and_fold(seconds: int) -> None:
    trigger = Every(timedelta(seconds=seconds), zone=BERLIN)
    for change in ("2026-03-29T01:00", "2026-10-25T01:00"):
        found = list(trigger.between(at(change) - 2 * MINUTE, at(change) + 2 * MINUTE))
        assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(seconds=seconds)}


def test_an_anchor_makes_it_elapsed_time_before_and_after() -> None:
    anchor = at("2026-03-28T12:00:00.25")
    trigger = Every(36 * HOUR, zone=BERLIN, anchor=anchor)
    assert trigger.next(anchor) == anchor + 36 * HOUR
    assert trigger.next(anchor - MICROSECOND) == anchor
    assert trigger.previous(anchor) == anchor - 36 * HOUR
    assert list(trigger.between(anchor - 80 * HOUR, anchor + 80 * HOUR)) == [
        anchor + count * 36 * HOUR for count in (-2, -1, 0, 1, 2)
    ]


def test_anchors_that_give_the_same_instants_are_one_identity() -> None:
    anchor = at("2026-03-28T12:00")
    one = Every(HOUR, anchor=anchor)
    assert one.identity == Every(HOUR, anchor=anchor.astimezone(ZoneInfo(NEW_YORK)) - 30 * HOUR).identity
    assert one.identity == Every(HOUR, zone=BERLIN, anchor=anchor - 5 * MINUTE, offset=5 * MINUTE).identity
    assert one.identity != Every(HOUR, anchor=anchor + MICROSECOND).identity
    assert Every(HOUR).identity == "every 3600s offset 0s in UTC"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Every(timedelta(0)), "the period is too short"),
        (lambda: Every(timedelta(seconds=-60)), "the period is too short"),
        (lambda: Every(timedelta(seconds=1.5)), "the period is not a whole number of seconds"),
        (lambda: Every(60), "the period is not a whole number of seconds"),  # type: ignore[arg-type]
        (lambda: Every(HOUR, offset=MICROSECOND), "the offset is not a whole number of seconds"),
        (lambda: Every(HOUR, zone="Mars"), "there is no time zone"),
        (lambda: Every(HOUR, anchor=datetime(2026, 1, 1)), "without a time zone"),  # noqa: DTZ001
        (lambda: Once(()), "no instant"),
        (lambda: Once((datetime(2026, 1, 1),)), "without a time zone"),  # noqa: DTZ001
        (lambda: Window(0, 1441), "the end of a window is outside the day"),
        (lambda: Window(-1, 5), "the start of a window is outside the day"),
        (lambda: Window(1440, 5), "a window cannot start at 24:00"),
        (lambda: Restricted(Every(HOUR), days=frozenset()), "no such days"),
        (lambda: Restricted(Every(HOUR), days=frozenset({7})), "no such days"),
        (lambda: Restricted(Every(HOUR), starting=datetime(2026, 1, 1)), "without a time zone"),  # noqa: DTZ001
        (lambda: Restricted(Every(HOUR), until=datetime(2026, 1, 1)), "without a time zone"),  # noqa: DTZ001
        (lambda: Restricted(Every(HOUR), zone="Mars"), "there is no time zone"),
        (
            lambda: Restricted(Every(HOUR), starting=at("2026-01-02T00:00"), until=at("2026-01-01T00:00")),
            "it ends before it starts",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        (Every(MINUTE), "every minute"),
        (Every(5 * MINUTE, zone=BERLIN), "every 5 minutes (Europe/Berlin)"),
        (Every(90 * MINUTE), "every 1 hour 30 minutes"),
        (Every(HOUR, offset=5 * MINUTE), "every hour, 5 minutes later"),
        (Every(DAY), "every day at 00:00"),
        (Every(DAY, offset=timedelta(hours=2, seconds=5)), "every day at 02:00:05"),
        (Every(WEEK), "every week"),
        (Every(10 * DAY), "every 10 days"),
        (Every(HOUR, anchor=at("2026-01-01T00:10")), "every hour counted from 2026-01-01 00:10:00 UTC"),
        (Once((at("2026-01-01T00:10"),)), "once at 2026-01-01 00:10:00 UTC"),
        (
            Once((at("2026-01-02T00:00"), at("2026-01-01T00:10"))),
            "2 times, first at 2026-01-01 00:10:00 UTC, last at 2026-01-02 00:00:00 UTC",
        ),
        (
            Restricted(
                Every(5 * MINUTE),
                windows=(Window(480, 1020), Window(720, 750, inside=False)),
                days=frozenset({0, 1, 3}),
                starting=at("2026-01-01T00:00"),
                until=at("2026-02-01T00:00"),
            ),
            (
                "every 5 minutes, between 08:00 and 17:00, not between 12:00 and 12:30, "
                "on Monday, Wednesday and Sunday, from 2026-01-01 00:00+00:00, until 2026-02-01 00:00+00:00"
            ),
        ),
    ],
)
def test_a_trigger_is_described_in_plain_english(trigger: Trigger, words: str) -> None:
    assert trigger.describe() == words


# -- Once


def test_once_gives_its_instants_in_order_and_each_once() -> None:
    one, two = at("2026-01-01T00:00"), at("2026-01-02T00:00:00.5")
    trigger = Once((two, one, two.astimezone(ZoneInfo(BERLIN))))
    assert trigger.instants == (one, two)
    assert list(trigger.between(one - MICROSECOND, two)) == [one, two]
    assert trigger.next(two) is None
    assert trigger.previous(one) is None
    assert trigger.identity == Once((one, two)).identity != Once((one,)).identity


# -- Restricted

# oracle/laravel.md, table 3.4: now, start, end, open. A minute counts whole, as the oracle wants.
ROWS = [
    (113, "09:00:00", "8:00", "10:00", True),
    (114, "09:00:00", "9:00", "9:00", True),
    (115, "09:00:00", "23:00", "10:00", True),
    (116, "09:00:00", "8:00", "6:00", True),
    (117, "09:00:00", "10:00", "11:00", False),
    (118, "09:00:00", "10:00", "8:00", False),
    (121, "23:30:00", "23:00", "04:00", True),
    (122, "00:00:00", "23:00", "04:00", True),
    (123, "03:59:59", "23:00", "04:00", True),
    (124, "04:00:00", "23:00", "04:00", True),
    (125, "04:00:01", "23:00", "04:00", True),
    (125, "04:01:00", "23:00", "04:00", False),
    (126, "12:00:00", "23:00", "04:00", False),
    (127, "17:00:00", "8:00", "17:00", True),
    (128, "17:00:01", "8:00", "17:00", True),
    (128, "17:01:00", "8:00", "17:00", False),
    (129, "07:59:59", "8:00", "17:00", False),
    (130, "23:59:30", "00:00", "23:59", True),
    (131, "23:59:30", "00:00", "24:00", True),
    (132, "12:00:00", "0:00", "0:00", False),
    (132, "00:00:59", "0:00", "0:00", True),
    (133, "00:00:30", "23:59", "00:01", True),
    (134, "00:01:30", "23:59", "00:01", True),
    (134, "00:02:00", "23:59", "00:01", False),
]


@pytest.mark.parametrize(("row", "now", "start", "end", "inside"), ROWS)
def test_a_window_has_these_minutes_and_its_opposite_all_others(
    row: int, now: str, start: str, end: str, inside: bool
) -> None:
    instant = at(f"2026-06-16T{now}")
    minute = instant.hour * 60 + instant.minute
    for wanted in (True, False):
        window = Window.parse(start, end, inside=wanted)
        trigger = Restricted(Every(SECOND), windows=(window,))
        assert window.contains(minute) is (inside is wanted), row
        assert (trigger.next(instant - MICROSECOND) == instant) is (inside is wanted), row
        assert (trigger.previous(instant + MICROSECOND) == instant) is (inside is wanted), row


@pytest.mark.parametrize(("zone", "instants"), [("Europe/Rome", ["09:00"]), ("UTC", ["11:00"])])
def test_rows_119_and_120_the_wall_of_the_zone_decides(zone: str, instants: list[str]) -> None:
    trigger = Restricted(
        Once((at("2026-06-16T09:00"), at("2026-06-16T11:00"))),
        zone,
        windows=(Window.parse("10:00", "12:00"),),
    )
    found = trigger.between(at("2026-06-16T00:00"), at("2026-06-17T00:00"))
    assert [f"{instant:%H:%M}" for instant in found] == instants


@pytest.mark.parametrize(
    ("text", "minute"), [("0:00", 0), ("00:00", 0), ("9:05", 545), ("23:59", 1439), ("24:00", 1440)]
)
def test_a_time_of_day_is_hours_and_two_digits_of_minutes(text: str, minute: int) -> None:
    assert parse_time(text) == minute


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("9", "write 9:00"),
        ("24:01", None),
        ("9:5", None),
        ("12:60", None),
        ("13:08:10", "seconds are for cron lines of six fields"),
        ("9am", "the clock has 24 hours"),
        ("noon", "the clock has 24 hours"),
        ("", None),
        ("٣:00", None),
        (9, None),
    ],
)
def test_any_other_time_of_day_is_refused(text: str, hint: str | None) -> None:
    with pytest.raises(DefinitionError, match="not a time of day") as caught:
        parse_time(text)
    assert caught.value.hint == hint


def opens(trigger: Restricted, instant: datetime) -> bool:
    """Written without the code under test."""
    wall = instant.astimezone(ZoneInfo(trigger.zone))
    minute = wall.hour * 60 + wall.minute
    for window in trigger.windows:
        ends = window.end if window.end < 1440 else 1439
        over = window.start > window.end
        within = minute >= window.start or minute <= ends if over else window.start <= minute <= ends
        if within is not window.inside:
            return False
    if trigger.days is not None and wall.isoweekday() % 7 not in trigger.days:
        return False
    return (trigger.starting is None or instant >= trigger.starting) and (
        trigger.until is None or instant <= trigger.until
    )


INNER: list[Trigger] = [
    Cron.parse("30 2 * * *", zone=BERLIN),
    Cron.parse("*/10 * * * *", zone=BERLIN),
    Cron.parse("15 1-4 * * *", "0 */3 * * *", zone=BERLIN),
    Every(timedelta(minutes=35), zone=BERLIN),
    Every(timedelta(hours=25), zone=BERLIN),
    Every(timedelta(minutes=61), zone=BERLIN, anchor=at("2026-01-01T00:00:30")),
    Cron.parse("45 * * * *", zone=NEW_YORK),
]
LIMITS: list[dict[str, object]] = [
    {"windows": (Window.parse("22:00", "03:00"),)},
    {"windows": (Window.parse("22:00", "03:00", inside=False),)},
    {"windows": (Window.parse("02:00", "03:00"), Window.parse("02:30", "02:45", inside=False))},
    {"windows": (Window.parse("03:00", "03:00"),), "days": frozenset({0})},
    {"days": frozenset({1, 2, 3, 4, 5})},
    {"starting": at("2026-03-29T00:30"), "until": at("2026-03-29T01:00")},
]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("inner", INNER, ids=lambda trigger: trigger.identity)
def test_exactly_what_is_open_is_left(inner: Trigger, limits: dict[str, object]) -> None:
    trigger = Restricted(inner, BERLIN, **limits)  # type: ignore[arg-type]  # fields of Restricted
    for first, last in (
        (at("2026-03-26T00:00"), at("2026-03-31T00:00")),
        (at("2026-10-23T00:00"), at("2026-10-27T00:00")),
    ):
        expected = [instant for instant in inner.between(first, last) if opens(trigger, instant)]
        assert list(trigger.between(first, last)) == expected
        backwards, before = [], last + MICROSECOND
        while (earlier := trigger.previous(before)) is not None and earlier > first:
            backwards.append(earlier)
            before = earlier
        assert backwards[::-1] == expected


def test_what_is_made_up_counts_where_it_is_made_up() -> None:
    at_three = Restricted(Cron.parse("30 2 * * *", zone=BERLIN), BERLIN, (Window.parse("03:00", "03:00"),))
    assert at_three.next(at("2026-01-01T00:00")) == at("2026-03-29T01:00")
    assert at_three.next(at("2026-03-29T01:00")) == at("2027-03-28T01:00")
    assert at_three.previous(at("2026-03-29T01:00")) == at("2025-03-30T01:00")
    at_two = Restricted(Cron.parse("30 2 * * *", zone=BERLIN), BERLIN, (Window.parse("02:00", "02:59"),))
    assert at_two.next(at("2026-03-28T12:00")) == at("2026-03-30T00:30")


@pytest.mark.parametrize(
    "inner",
    [
        Cron.parse("0 3 * * *", zone=BERLIN),
        Cron.parse("*/7 3-5 * * *", zone=BERLIN),
        Cron.parse("0 3 29 2 *", zone=BERLIN),
        Every(DAY, zone=BERLIN, offset=3 * HOUR),
        Every(6 * HOUR, zone=BERLIN),
        Every(DAY, zone=BERLIN, anchor=at("2026-01-01T02:00")),
        Every(HOUR, anchor=at("2026-01-01T00:30")),
        Once((at("2026-01-01T00:00"), at("2027-01-01T00:00"))),
    ],
    ids=lambda trigger: trigger.identity,
)
@pytest.mark.parametrize("asked", [at("2026-06-01T00:00"), at("2040-06-01T00:00")])
def test_what_never_opens_is_known_at_once(inner: Trigger, asked: datetime) -> None:
    """A search day by day would take seconds; the bound is far above what it takes, and for no other use."""
    trigger = Restricted(inner, BERLIN, (Window.parse("13:20", "13:20"),))
    start = time.process_time()
    assert trigger.next(asked) is None
    assert trigger.previous(asked) is None
    assert time.process_time() - start < 2


def test_windows_that_exclude_each_other_warn_and_never_open() -> None:
    both = (Window.parse("08:00", "09:00"), Window.parse("10:00", "11:00"))
    trigger = Restricted(Cron.parse("*/45 * * * *"), windows=both)
    assert trigger.warnings[-1] == "no minute is in all the windows: it never opens"
    assert len(trigger.warnings) == 2
    assert trigger.next(at("2026-01-01T00:00")) is None
    assert trigger.previous(at("2026-01-01T00:00")) is None


RARE = [
    # elapsed time and one minute of the day meet after years, and in a zone at two phases of the wall
    (Every(timedelta(minutes=1439), anchor=at("2026-01-01T00:00")), "UTC", "12:00"),
    (Every(timedelta(minutes=1439), anchor=at("2026-01-01T00:00")), BERLIN, "12:00"),
    (Every(timedelta(minutes=1441), anchor=at("2026-01-01T00:00:00.25")), "Australia/Lord_Howe", "23:00"),
    (Every(timedelta(hours=24, seconds=50), anchor=at("2026-01-01T00:00")), NEW_YORK, "23:00"),
    (Every(timedelta(minutes=1439), zone=BERLIN), BERLIN, "12:00"),
    (Every(timedelta(seconds=59), zone=BERLIN), BERLIN, "12:00"),
    (Every(timedelta(seconds=59), anchor=at("2026-01-01T00:00")), BERLIN, "12:00"),
    (Once(tuple(at("2026-01-01T00:00") + count * DAY + HOUR * (count == 900) for count in range(901))),
     "UTC", "01:00"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("inner", "zone", "minute"), RARE, ids=lambda value: getattr(value, "identity", value)
)
def test_what_opens_once_in_years_is_found_both_ways(inner: Trigger, zone: str, minute: str) -> None:
    trigger = Restricted(inner, zone, (Window.parse(minute, minute),))
    asked = at("2026-01-01T00:30")
    found = trigger.next(asked)
    first = next(instant for instant in following(inner, asked) if opens(trigger, instant))
    assert found == first
    assert trigger.next(first - MICROSECOND) == first
    second = trigger.next(first)
    if second is not None:
        assert opens(trigger, second)
        assert trigger.previous(second) == first


@pytest.mark.parametrize("period", [60, 61, 97 * 60, 1439 * 60, 86_400, 25 * 3600, 8 * 86_400])
@pytest.mark.parametrize("opens", [range(720, 721), range(1435, 1445), [0, 10_079], range(3000, 4000)])
def test_where_a_grid_meets_an_opening_is_what_a_walk_over_the_grid_finds(
    period: int, opens: list[int]
) -> None:
    opening = Opening(sum(1 << minute for minute in opens))
    both = meeting(Grid(period, 17 % period, False), opening)
    times = [17 % period + count * period for count in range(2 * 10_080 + 1)]
    met = [wall for wall in times if opening.is_open(wall)]
    if both is None:
        assert met == []
        return
    assert met
    for wall in met[1:12]:
        assert both.next_wall(wall) == both.previous_wall(wall) == wall
    for earlier, later in pairwise(met[:12]):
        assert both.next_wall(earlier + 1) == later
        assert both.previous_wall(later - 1) == earlier


def test_both_bounds_are_included_to_the_microsecond() -> None:
    first, last = at("2026-01-01T00:00:00.5"), at("2026-01-01T02:00:00.5")
    trigger = Restricted(Every(HOUR, anchor=first), starting=first, until=last)
    assert list(trigger.between(at("2025-01-01T00:00"), at("2027-01-01T00:00"))) == [
        first,
        first + HOUR,
        last,
    ]
    assert trigger.previous(at("2027-01-01T00:00")) == last
    assert trigger.previous(first) is None
    narrower = Restricted(Every(HOUR, anchor=first), starting=first + MICROSECOND, until=last - MICROSECOND)
    assert list(narrower.between(at("2025-01-01T00:00"), at("2027-01-01T00:00"))) == [first + HOUR]
    assert narrower.previous(at("2027-01-01T00:00")) == first + HOUR


def test_windows_days_and_bounds_are_no_part_of_the_identity() -> None:
    inner = Cron.parse("*/5 * * * *", zone=BERLIN)
    narrowed = Restricted(
        inner,
        BERLIN,
        windows=(Window.parse("08:00", "09:00"),),
        days=frozenset({1}),
        starting=at("2026-01-01T00:00"),
        until=at("2026-02-01T00:00"),
    )
    assert narrowed.identity == inner.identity
    assert narrowed != Restricted(inner, BERLIN)


def test_the_bounds_of_the_calendar_are_no_error() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    for inner in INNER:
        for zone in ("UTC", BERLIN):
            trigger = Restricted(inner, zone, windows=(Window.parse("02:00", "03:30"),))
            assert trigger.next(last) is None
            assert trigger.previous(first) is None
    bounded = Restricted(Every(HOUR, anchor=at("2026-01-01T00:00")), starting=first, until=last)
    assert bounded.next(last) is None
