"""Which of many triggers are due: the set answer and the one-shot answer are those of each trigger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota import DefinitionError
from rota._core import zones
from rota._core.due import DueIndex, due_between
from rota._core.triggers import Cron, Every, Once, Restricted, Trigger, Window

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Antarctica/Troll", "Pacific/Apia"]
TEXTS = [
    "* * * * *",
    "*/5 * * * *",
    "30 2 * * *",
    "0 0 * * *",
    "45 1 * * *",
    "0-59/20 1-3 * * *",
    "0 */2 * * *",
    "* 2 * * *",
    "0 12 * * MON-FRI",
    "0 0 L * *",
    "0 13 13 * 5",
    "0 0 29 2 *",
    "0 9 * * *",
    "15 30 2 * * *",
    "*/20 * * * * *",
    "30 15 1-3 * * *",
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def asked_one_by_one(triggers: list[Trigger], after: datetime, upto: datetime) -> list[int]:
    found = []
    for place, trigger in enumerate(triggers):
        instant = trigger.next(after)
        if instant is not None and instant <= upto:
            found.append(place)
    return found


def everything() -> list[Trigger]:
    """Every text in every zone, and everything that is not a plain line."""
    found: list[Trigger] = [Cron.parse(text, zone=zone) for zone in ZONES for text in TEXTS]
    for zone in ZONES:
        periods = [
            10 * SECOND,
            MINUTE,
            5 * MINUTE,
            45 * MINUTE,
            HOUR,
            7 * HOUR,
            8 * HOUR,
            DAY,
            7 * DAY,
            90 * SECOND,
        ]
        found += [Every(period, zone=zone) for period in periods]
        found += [
            Every(DAY, zone=zone, offset=2 * HOUR + 30 * MINUTE),
            Every(HOUR, zone=zone, offset=90 * SECOND),
        ]
        found.append(Cron.parse("30 2 * * *", "0 3 * * *", "* 5 * * *", zone=zone))
        window = Window.parse("02:00", "03:10")
        found += [Restricted(Cron.parse(text, zone=zone), zone, (window,)) for text in TEXTS[:8]]
        found.append(Restricted(Every(5 * MINUTE, zone=zone), "Asia/Tokyo", days=frozenset({1, 3})))
    found += [
        Every(HOUR, anchor=at("2026-01-01T00:00:00.5")),
        Once((at("2026-03-29T01:00"), at("2026-10-25T00:30"))),
    ]
    return found


EVERYTHING = everything()
INDEX = DueIndex(EVERYTHING)


def moments() -> Iterator[datetime]:
    """Where the clocks change in these zones, and where Apia lost its day."""
    for zone in ZONES:
        first, last = zones.seconds(at("2026-01-01")), zones.seconds(at("2027-01-01"))
        if zone == "Pacific/Apia":
            first, last = zones.seconds(at("2011-12-01")), zones.seconds(at("2012-02-01"))
        previous = None
        for stretch in zones.stretches(zone, first, last):
            if previous is not None and previous != stretch.offset:
                instant = zones.instant_of(stretch.start)
                assert instant is not None
                yield instant
            previous = stretch.offset


@pytest.mark.parametrize("change", list(moments()), ids=str)
def test_around_a_change_of_the_clock_every_minute_is_answered_as_each_trigger_would(
    change: datetime,
) -> None:
    for n in range(-20, 65, 1):
        # Just before the change itself the window begins with the first instant after it.
        for shift in timedelta(0), timedelta(microseconds=1), 17 * SECOND:
            after = change + n * MINUTE - shift
            upto = after + MINUTE
            expected = asked_one_by_one(EVERYTHING, after, upto) if n % 5 == 0 or abs(n) < 3 else None
            found = INDEX.between(after, upto)
            assert expected is None or found == expected
            if expected is not None and n % 10 == 0:
                assert due_between(EVERYTHING, after, upto) == expected


@settings(max_examples=40)
@given(
    st.sampled_from([*moments(), at("2026-06-15T12:00"), at("2028-02-29T00:00")]),
    st.timedeltas(-DAY, DAY),
    st.one_of(
        st.timedeltas(-MINUTE, 2 * MINUTE),
        st.timedeltas(timedelta(0), 4 * HOUR),
        st.timedeltas(4 * HOUR, 2 * DAY),
    ),
)
def test_any_window_is_answered_as_each_trigger_would(
    change: datetime, shift: timedelta, length: timedelta
) -> None:
    after = change + shift
    expected = asked_one_by_one(EVERYTHING, after, after + length)
    assert INDEX.between(after, after + length) == expected
    assert due_between(EVERYTHING, after, after + length) == expected


def test_the_window_is_open_at_its_start_and_closed_at_its_end() -> None:
    triggers = [Cron.parse("0 12 * * *")]
    noon, almost = at("2026-01-01T12:00"), at("2026-01-01T11:59:59.999999")
    for ask in DueIndex(triggers).between, lambda after, upto: due_between(triggers, after, upto):
        assert ask(almost, noon) == [0]
        assert ask(noon, noon + MINUTE) == []
        assert ask(noon - MINUTE, almost) == []
        assert ask(noon, noon) == []


def test_the_same_trigger_may_stand_at_several_places() -> None:
    trigger, foreign = Cron.parse("* * * * *"), Every(7 * SECOND)
    triggers: list[Trigger] = [foreign, trigger, foreign, trigger]
    after = at("2026-01-01")
    assert DueIndex(triggers).between(after, after + MINUTE) == [0, 1, 2, 3]
    assert due_between(triggers, after, after + MINUTE) == [0, 1, 2, 3]


def test_several_lines_that_meet_are_one_place() -> None:
    triggers = [Cron.parse("0 * * * *", "0 12 * * *", "*/30 * * * *")]
    assert DueIndex(triggers).between(at("2026-01-01T11:59"), at("2026-01-01T12:00")) == [0]


def test_no_triggers_are_never_due() -> None:
    assert DueIndex([]).between(at("2026-01-01"), at("2027-01-01")) == []
    assert due_between([], at("2026-01-01"), at("2027-01-01")) == []


class Broken:
    """A trigger of somebody else's that raises."""

    identity = "broken"

    def next(self, after: datetime) -> NoReturn:
        raise RuntimeError("no")

    previous = next

    def between(self, after: datetime, upto: datetime) -> Iterator[datetime]:
        raise RuntimeError("no")

    def describe(self) -> str:
        return "broken"


def test_a_trigger_that_raises_counts_as_due_and_leaves_the_others_alone() -> None:
    triggers: list[Trigger] = [
        Cron.parse("0 12 * * *"),
        Broken(),
        Cron.parse("0 13 * * *"),
        Restricted(Broken()),
    ]
    after, upto = at("2026-01-01T11:59"), at("2026-01-01T12:00")
    assert DueIndex(triggers).between(after, upto) == [0, 1, 3]
    assert due_between(triggers, after, upto) == [0, 1, 3]


def test_a_naive_window_is_refused() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - that is the point
    with pytest.raises(DefinitionError):
        DueIndex([]).between(naive, naive)
    with pytest.raises(DefinitionError):
        due_between([], naive, naive)
