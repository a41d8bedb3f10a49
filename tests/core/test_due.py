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
from rota._core.due import FORESIGHT, DueIndex, due_between, next_due, worth_asking
from rota._core.task import Crash, CrashKind, Function, Overlap, OverlapKind, Task
from rota._core.triggers import Cron, Every, Once, Restricted, Trigger, Window
from rota._core.value import replace

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


# -- drawn triggers

CHANGES = [*moments(), at("2026-06-15T12:00"), at("2028-02-29T00:00")]
zone_names = st.sampled_from(ZONES)
spans = st.one_of(
    st.integers(1, 119).map(lambda count: count * SECOND),
    st.integers(1, 3000).map(lambda count: count * MINUTE),
    st.integers(1, 9).map(lambda count: count * DAY),
)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    step = st.integers(1, high - low + 1).map(lambda step: f"*/{step}")
    ranges = st.tuples(value, value).map(lambda ends: f"{ends[0]}-{ends[1]}")
    return st.one_of(st.just("*"), step, value.map(str), ranges, ranges)


@st.composite
def lines(draw: st.DrawFn) -> str:
    parts = [draw(field(0, 59)), draw(field(0, 23)), draw(st.sampled_from(["*", "*", "13", "L", "28-3"]))]
    parts += [draw(st.sampled_from(["*", "*", "1-6"])), draw(st.sampled_from(["*", "*", "MON-FRI", "0"]))]
    return " ".join([*draw(st.sampled_from([[], [], ["*/20"], ["30"]])), *parts])


@st.composite
def triggers(draw: st.DrawFn) -> Trigger:
    zone, near = draw(zone_names), draw(st.sampled_from(CHANGES))
    offset = draw(st.sampled_from([timedelta(0), MINUTE, 90 * SECOND, 2 * HOUR + 30 * MINUTE]))
    kind = draw(st.sampled_from(["cron", "cron", "every", "anchored", "once"]))
    trigger: Trigger
    if kind == "cron":
        trigger = Cron.parse(*draw(st.lists(lines(), min_size=1, max_size=3)), zone=zone)
    elif kind == "once":
        shifts = draw(st.lists(st.timedeltas(-DAY, DAY), min_size=1, max_size=3))
        trigger = Once(tuple(near + shift for shift in shifts))
    else:
        anchor = near + draw(st.timedeltas(-DAY, DAY)) if kind == "anchored" else None
        trigger = Every(draw(spans), zone, offset, anchor)
    if draw(st.booleans()):
        window = Window(draw(st.integers(0, 1439)), draw(st.integers(0, 1440)), draw(st.booleans()))
        days = draw(st.sampled_from([None, None, frozenset({0}), frozenset({1, 2, 3})]))
        bounds = draw(st.sampled_from([(None, None), (near, None), (None, near)]))
        windows = draw(st.sampled_from([(), (window,), (window, Window(60, 239))]))
        trigger = Restricted(trigger, draw(st.sampled_from([zone, "UTC"])), windows, days, *bounds)
    return trigger


@settings(max_examples=60)
@given(
    st.lists(triggers(), min_size=1, max_size=12),
    st.sampled_from(CHANGES),
    st.timedeltas(-6 * HOUR, 6 * HOUR),
    st.one_of(st.timedeltas(timedelta(0), 3 * MINUTE), st.timedeltas(timedelta(0), 9 * HOUR)),
)
def test_drawn_triggers_are_due_exactly_where_each_says_so_itself(
    drawn: list[Trigger], change: datetime, shift: timedelta, length: timedelta
) -> None:
    for after in (change + shift, change - length, change):
        expected = asked_one_by_one(drawn, after, after + length)
        assert due_between(drawn, after, after + length) == expected
        assert DueIndex(drawn).between(after, after + length) == expected


# -- tasks


def task_of(trigger: Trigger, **policies: object) -> Task:
    return replace(Task("task", Function(print), trigger), **policies)


def test_the_next_due_instant_is_that_of_the_first_task_and_a_broken_one_has_none() -> None:
    tasks = [task_of(Cron.parse(text)) for text in ("0 12 * * *", "0 11 * * *")]
    noon = at("2026-01-01T12:00")
    assert next_due(tasks, at("2026-01-01T10:00")) == noon - HOUR
    assert next_due([*tasks, task_of(Broken())], noon - HOUR) == noon
    assert next_due(tasks, noon) == noon + 23 * HOUR
    assert next_due([task_of(Broken())], noon) is None
    assert next_due([task_of(Once((noon,)))], noon) is None
    assert next_due([], noon) is None


def test_the_store_is_asked_where_something_is_due_between_look_back_and_foresight() -> None:
    task, noon, instant = (
        task_of(Once((at("2026-01-01T12:00"),))),
        at("2026-01-01T12:00"),
        timedelta.resolution,
    )
    assert not worth_asking([task], noon - FORESIGHT - instant)
    assert worth_asking([task], noon - FORESIGHT)
    assert worth_asking([task], noon + task.look_back - instant)
    assert not worth_asking([task], noon + task.look_back)
    assert not worth_asking([], noon)
    assert worth_asking([task_of(Broken())], noon)


def test_each_task_has_its_own_look_back() -> None:
    noon = at("2026-01-01T12:00")
    patient = task_of(Once((noon,)), grace=HOUR)
    tasks = [task_of(Once((noon,))), patient]
    assert worth_asking(tasks, noon + HOUR - SECOND)
    assert not worth_asking(tasks[:1], noon + HOUR - SECOND)
    assert not worth_asking(tasks, noon + HOUR)


@pytest.mark.parametrize(
    "policies",
    [
        {"overlap": Overlap(OverlapKind.QUEUE_ONE)},
        {"crash": Crash(CrashKind.RETRY, 1, HOUR)},
    ],
    ids=["it may wait", "it may be retried"],
)
def test_what_only_the_store_can_know_is_always_worth_a_question(policies: dict[str, object]) -> None:
    noon = at("2026-01-01T12:00")
    assert worth_asking([task_of(Once((noon,)), **policies)], noon + 100 * DAY)
