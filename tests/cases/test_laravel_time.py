"""Laravel's scheduler as an oracle: the rows of oracle/laravel.md that concern time, with rota's answer.

laravel.json holds every row of its tables 3.1 to 3.9: what is given, what Laravel does, and how the row
is covered: `cron` (rota agrees), `differs: reason` (rota answers otherwise on purpose) or `not-time:
reason` (another part's business). The other keys are rota's answers, and what is checked here; the
fluent methods that make the expressions are in test_laravel_fluent.py.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rota import DefinitionError
from rota._core import zones
from rota._core.cron import CronExpression
from rota._core.triggers import Cron, Restricted, Window, parse_time

Row = dict[str, Any]
ROWS: list[Row] = json.loads(Path(__file__).with_name("laravel.json").read_text(encoding="utf-8"))
FAR = timedelta(days=365 * 12)
MINUTE = timedelta(minutes=1)


def having(key: str) -> Any:
    rows = [row for row in ROWS if key in row]
    return pytest.mark.parametrize("row", rows, ids=[f"row {row['row']}" for row in rows])


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_every_row_is_there_and_says_how_it_is_covered() -> None:
    assert [row["row"] for row in ROWS] == list(range(1, 309))
    answers = {"expressions", "refused", "same", "warned", "times", "due", "window", "next", "between"}
    for row in ROWS:
        how, _, reason = row["covered"].partition(": ")
        assert how in ("cron", "differs", "not-time"), row
        assert (how == "cron") is not bool(reason), row
        assert how != "cron" or answers & row.keys(), row


@having("expressions")
def test_the_line_is_accepted(row: Row) -> None:
    for text in row["expressions"]:
        assert CronExpression.parse(text).explain()


@having("refused")
def test_the_line_is_refused(row: Row) -> None:
    for text in row["refused"]:
        with pytest.raises(DefinitionError):
            CronExpression.parse(text)


@having("warned")
def test_the_line_is_warned_of(row: Row) -> None:
    for text in row["warned"]:
        assert CronExpression.parse(text).warnings


@having("same")
def test_both_lines_have_the_same_times(row: Row) -> None:
    start = at("2026-01-01T00:00Z")
    for text, other in row["same"]:
        one, two = (islice(Cron.parse(line).between(start, start + FAR), 50) for line in (text, other))
        assert list(one) == list(two)


@having("times")
def test_the_time_of_day_is_read_or_refused(row: Row) -> None:
    for text, minute in row["times"]:
        if minute is None:
            with pytest.raises(DefinitionError):
                parse_time(text)
        else:
            assert parse_time(text) == minute


@having("due")
def test_the_line_is_due_or_not(row: Row) -> None:
    for text, zone, instant, due in row["due"]:
        wall = zones.wall_of(zone, at(instant))
        assert CronExpression.parse(text).matches(wall) is due


@having("window")
def test_the_window_is_open_or_closed_and_its_opposite_the_other(row: Row) -> None:
    for start, end, zone, instant, inside in row["window"]:
        minute = at(instant).replace(second=0, microsecond=0)
        for window, wanted in (
            (Window.parse(start, end), inside),
            (Window.parse(start, end, inside=False), not inside),
        ):
            trigger = Restricted(Cron.parse("* * * * * *", zone=zone), zone, (window,))
            found = list(trigger.between(at(instant) - timedelta(seconds=1), at(instant)))
            assert found == ([at(instant)] if wanted else []), (start, end, instant)
            assert bool(list(trigger.between(minute - timedelta(seconds=1), minute))) is wanted


@having("next")
def test_the_next_instants_are(row: Row) -> None:
    for text, zone, after, expected in row["next"]:
        found = islice(Cron.parse(text, zone=zone).between(at(after), at(after) + FAR), len(expected))
        assert list(found) == [at(instant) for instant in expected], (text, zone)


@having("between")
def test_the_instants_of_the_night_are(row: Row) -> None:
    for text, zone, after, upto, expected in row["between"]:
        found = Cron.parse(text, zone=zone).between(at(after), at(upto))
        assert list(found) == [at(instant) for instant in expected], (text, zone)
