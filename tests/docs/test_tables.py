"""What the tables of the docs claim, asked of the code."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from rota import Chain
from rota._core.fluent.policies import NOT_YET
from rota._core.triggers import Cron
from tests.docs.blocks import ROOT

BERLIN = ZoneInfo("Europe/Berlin")


def table_rows(page: str) -> list[list[str]]:
    """The cells of every table row of a page under docs/."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


NIGHTS = [row[:3] for row in table_rows("explanation/time.md") if re.match(r"\d{4}-", row[1])]


@pytest.mark.parametrize(("line", "night", "due"), NIGHTS)
def test_the_nights_with_a_shift_are_as_the_docs_say(line: str, night: str, due: str) -> None:
    start = datetime.fromisoformat(f"{night} 00:30").replace(tzinfo=BERLIN)
    end = datetime.fromisoformat(f"{night} 04:00").replace(tzinfo=BERLIN)
    instants = Cron.parse(line.strip("`"), zone="Europe/Berlin").between(
        start.astimezone(UTC), end.astimezone(UTC)
    )
    assert [f"{instant.astimezone(UTC):%H:%M}" for instant in instants] == due.split(", ")


def test_the_nights_with_a_shift_have_their_table() -> None:
    assert len(NIGHTS) == 5


def test_either_day_is_enough_unless_one_field_begins_with_a_star() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    either = [due.date() for due in Cron.parse("0 0 13 * 5").between(start, start + timedelta(days=60))]
    assert all(day.day == 13 or day.isoweekday() == 5 for day in either)
    assert any(day.day == 13 and day.isoweekday() != 5 for day in either)
    both = [due.date() for due in Cron.parse("0 0 */2 * 5").between(start, start + timedelta(days=60))]
    assert both
    assert all(day.day % 2 == 1 and day.isoweekday() == 5 for day in both)


def test_every_verb_on_the_page_of_policies_exists() -> None:
    text = (ROOT / "docs/reference/policies.md").read_text(encoding="utf-8")
    verbs = set(re.findall(r"`\.(\w+)\(", text))
    assert {verb for verb in verbs if not callable(getattr(Chain, verb, None))} == set()


def test_the_page_of_policies_marks_exactly_what_is_refused_so_far() -> None:
    marked = [row for row in table_rows("reference/policies.md") if row[0].startswith("◦")]
    words = [word for row in marked for word in re.findall(r"`(\w+)`", row[1])[:1]]
    assert sorted(words) == sorted(NOT_YET)
