"""Real reports from the field about time and cron lines: group a of open.json, case by case.

A regular case is an expression, a zone and two bounds; its instants are compared exactly. The others
have a test of their own each.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rota import DefinitionError, Schedule
from rota._core.cron import CronExpression
from rota._core.triggers import Cron, Every, Restricted, Trigger, Window

CASES: list[dict[str, Any]] = [
    case
    for case in json.loads((Path(__file__).parent / "open.json").read_text(encoding="utf-8"))
    if case["group"] == "a"
]
REGULAR = re.compile(
    r"expression '(?P<cron>[^']+)', zone (?P<zone>\S+); "
    r"all fire instants t with (?P<after>\S+) < t <= (?P<upto>\S+)"
)


class Regular(NamedTuple):
    """A case that is a list of instants."""

    id: str
    cron: str
    zone: str
    after: datetime
    upto: datetime
    instants: list[datetime]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def regular() -> list[Regular]:
    found = []
    for case in CASES:
        if match := REGULAR.fullmatch(case["input"]):
            instants = [at(text) for text in case["expected"]["instants_utc"]]
            bounds = at(match["after"]), at(match["upto"])
            found.append(Regular(case["id"], match["cron"], match["zone"], *bounds, instants))
    return found


def job() -> None: ...


REGULARS = regular()
each_regular_case = pytest.mark.parametrize("case", REGULARS, ids=lambda case: case.id)


@each_regular_case
def test_a_case_has_exactly_its_instants(case: Regular) -> None:
    trigger = Cron.parse(case.cron, zone=case.zone)
    assert list(trigger.between(case.after, case.upto)) == case.instants


@each_regular_case
def test_a_case_has_the_same_instants_backwards(case: Regular) -> None:
    trigger = Cron.parse(case.cron, zone=case.zone)
    found, before = [], case.upto + timedelta(microseconds=1)
    while (earlier := trigger.previous(before)) is not None and earlier > case.after:
        found.append(earlier)
        before = earlier
    assert found[::-1] == case.instants


@each_regular_case
def test_a_case_has_the_same_instants_through_the_schedule(case: Regular) -> None:
    schedule = Schedule("shop", timezone=case.zone)
    schedule.call(job).cron(case.cron)
    assert list(schedule["job"].trigger.between(case.after, case.upto)) == case.instants


def refusal(text: str) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        CronExpression.parse(text)
    return caught.value


def test_tz_51_a_task_of_every_second_does_not_pause_when_the_clock_goes_back() -> None:
    trigger = Every(timedelta(seconds=1), zone="Europe/Vienna")
    found = list(trigger.between(at("2025-10-26T00:59:55Z"), at("2025-10-26T01:00:05Z")))
    assert found == [at("2025-10-26T00:59:55Z") + timedelta(seconds=count) for count in range(1, 11)]


def test_tz_51_nor_does_a_cron_line_with_seconds() -> None:
    trigger = Cron.parse("* * * * * *", zone="Europe/Vienna")
    assert len(list(trigger.between(at("2025-10-26T00:59:55Z"), at("2025-10-26T01:00:05Z")))) == 10


def test_sy_13_a_start_before_a_slash_is_refused_and_the_hint_can_be_used() -> None:
    error = refusal("59/15 * * * *")
    assert "'59/15' has a number before the slash" in error.message
    assert error.hint == "say 59"
    assert CronExpression.parse("59 * * * *").minute == 1 << 59


def test_sy_15_an_hour_of_30_is_refused_and_the_swap_is_named() -> None:
    assert CronExpression.parse("0 0 * * *").fixed
    error = refusal("0 30 * * *")
    assert error.message == "hour 30 is outside 0-23"
    assert error.hint == "did you mean 30 0?"


def test_sy_16_six_fields_are_seconds_first_and_a_line_that_looks_otherwise_warns() -> None:
    """The sixth field is documented as the first; what was meant as `2 o'clock on Tuesdays` says so."""
    expression = CronExpression.parse("0 2 * * 2 *")
    assert expression.has_seconds
    assert expression.warnings == (
        "six fields begin with the seconds: at minute 2 of every hour in February",
    )
    assert "6 with the seconds first" in str(refusal("0 2 * * 2 * report"))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("1_0 * * * *", "1_0"),
        ("+5 * * * *", "+5"),
        ("1-1_0 * * * *", "1-1_0"),
        ("０ ０ * * *", "０"),
        ("٣ * * * *", "٣"),
    ],
)
def test_sy_17_only_plain_digits_are_digits(text: str, field: str) -> None:
    assert f"minute {field!r} is not a value" in refusal(text).message


SY_18 = at("2026-01-01T21:44:59Z"), at("2026-01-02T03:15:00Z")


def test_sy_18_a_window_over_midnight_is_open_at_night_and_at_both_ends() -> None:
    trigger = Restricted(Cron.parse("*/15 * * * *"), windows=(Window.parse("22:00", "03:00"),))
    found = list(trigger.between(*SY_18))
    assert len(found) == 21
    assert found == [at("2026-01-01T22:00Z") + timedelta(minutes=15) * count for count in range(21)]


def test_sy_18_the_opposite_window_is_open_for_the_rest() -> None:
    trigger = Restricted(Cron.parse("*/15 * * * *"), windows=(Window.parse("22:00", "03:00", inside=False),))
    assert list(trigger.between(*SY_18)) == [at("2026-01-01T21:45Z"), at("2026-01-02T03:15Z")]


def test_sy_19_zone_and_window_may_come_in_any_order() -> None:
    schedule = Schedule("shop")
    every_minute = schedule.call(job).every(minutes=1)
    every_minute.name("a").timezone("Europe/Rome").between("10:00", "12:00")
    every_minute = schedule.call(job).every(minutes=1)
    every_minute.name("b").between("10:00", "12:00").timezone("Europe/Rome")

    def due(trigger: Trigger, now: datetime) -> bool:
        return trigger.next(now - timedelta(seconds=1)) == now

    for name in ("a", "b"):
        assert due(schedule[name].trigger, datetime(2026, 6, 16, 9, tzinfo=UTC))
        assert not due(schedule[name].trigger, datetime(2026, 6, 16, 11, tzinfo=UTC))


@pytest.mark.parametrize("text", ["*/0 * * * *", "1-5/0 * * * *", "5-5/0 * * * *"])
def test_sy_21_a_step_of_zero_is_refused(text: str) -> None:
    assert "has a step that is zero" in refusal(text).message


def test_sy_22_quotes_around_the_expression_are_named() -> None:
    error = refusal('"0 * * * *"')
    assert error.message == "the expression is wrapped in quotes"
    assert error.hint == "take the quotes away"


def test_every_case_of_the_group_has_its_test() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    own = {f"{group.upper()}-{number}" for group, number in re.findall(r"def test_(tz|sy)_(\d+)_", here)}
    assert len(CASES) == 46
    assert {case["id"] for case in CASES} == own | {case.id for case in REGULARS}
    assert not own & {case.id for case in REGULARS}
