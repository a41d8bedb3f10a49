"""What a schedule says is what its tasks mean."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from rota import Chain, DefinitionError, Schedule, Task
from rota._core.task import (
    CatchUp,
    CatchUpKind,
    Command,
    Crash,
    CrashKind,
    Function,
    LeasePolicy,
    Module,
    OutputPolicy,
    Overlap,
    OverlapKind,
    Servers,
)

BERLIN = "Europe/Berlin"


def job() -> None:
    """Does the work.

    And more than one line of it.
    """


def one_task(*steps: Callable[[Chain], object], timezone: str = "UTC") -> Task:
    schedule = Schedule("shop", timezone=timezone)
    chain = schedule.call(job)
    for step in steps:
        step(chain)
    (task,) = schedule.tasks
    return task


def due(task: Task, after: str, upto: str) -> list[str]:
    """The due instants in (after, upto], both read as UTC."""
    ends = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (after, upto)]
    return [instant.astimezone(UTC).isoformat()[:16] for instant in task.trigger.between(*ends)]


# -- the ways to define a task


def test_a_decorated_function_is_returned_as_it_is() -> None:
    schedule = Schedule("shop")

    def send_invoices() -> int:
        return 3

    assert schedule.daily(at="02:00").on_one_server()(send_invoices) is send_invoices
    assert schedule["send_invoices"].work == Function(send_invoices)


def test_a_coroutine_function_is_a_task_under_its_own_name() -> None:
    schedule = Schedule("shop")

    @schedule.every(minutes=5)
    async def poll() -> None:
        """Polls."""

    assert [task.name for task in schedule] == ["poll"]
    assert schedule["poll"].description == "Polls."


def test_work_may_be_given_inline_with_its_arguments() -> None:
    schedule = Schedule("shop")

    def charge(customer: str, *, cents: int) -> None: ...

    schedule.daily().do(charge, "acme", cents=100).name("charge:acme").grace(minutes=5)
    schedule.call(charge, "zenith", cents=5).name("charge:zenith").daily()

    assert schedule["charge:acme"].work == Function(charge, ("acme",), {"cents": 100})
    assert schedule["charge:acme"].grace == timedelta(minutes=5)
    assert schedule["charge:zenith"].work == Function(charge, ("zenith",), {"cents": 5})


def test_commands_and_modules_keep_what_they_were_given() -> None:
    schedule = Schedule("shop")
    schedule.command("pg_dump shop | gzip").name("a").daily()
    schedule.command(["pg_dump", "shop"], cwd=Path("/srv"), env={"PGHOST": "db"}).name("b").daily()
    schedule.module("shop.tidy", "--all").name("c").daily()

    assert [task.work for task in schedule] == [
        Command("pg_dump shop | gzip"),
        Command(("pg_dump", "shop"), cwd="/srv", env={"PGHOST": "db"}),
        Module("shop.tidy", ("--all",)),
    ]


class Sweeper:
    def sweep(self) -> None:
        """Sweeps."""

    def __call__(self, broom: str = "old") -> None: ...


@pytest.mark.parametrize(
    "work",
    [Sweeper().sweep, Sweeper(), functools.partial(job), lambda: None, print],
    ids=["method", "object", "partial", "lambda", "builtin"],
)
def test_any_callable_is_work_once_it_has_a_name(work: Callable[..., object]) -> None:
    schedule = Schedule("shop")
    schedule.call(work).name("sweep").daily()

    assert schedule["sweep"].work == Function(work)


def test_a_stated_name_stands_before_that_of_the_function() -> None:
    assert one_task(lambda chain: chain.daily().name("other")).name == "other"


def test_a_task_is_described_by_its_author_or_by_the_first_line_of_its_docstring() -> None:
    assert one_task(lambda chain: chain.daily()).description == "Does the work."
    assert one_task(lambda chain: chain.daily().describe("Works.")).description == "Works."


def test_a_task_knows_the_line_where_its_sentence_begins() -> None:
    schedule = Schedule("shop")
    line = sys._getframe().f_lineno + 1
    (
        schedule.call(job)
        .daily(at="02:00")
        .grace(minutes=5)
    )  # fmt: skip

    assert schedule["job"].source == f"core/test_schedule.py:{line + 1}"


def test_defaults_are_those_of_the_task() -> None:
    task = one_task(lambda chain: chain.hourly())

    assert task == Task("job", Function(job), task.trigger, description="Does the work.", source=task.source)


def test_a_schedule_is_a_collection_of_its_tasks() -> None:
    schedule = Schedule("shop", timezone=BERLIN, store="sqlite:///x")
    assert schedule
    schedule.command("ls").name("first").daily()
    schedule.command("ls").name("second").daily()

    assert (schedule.name, schedule.timezone, schedule.store) == ("shop", BERLIN, "sqlite:///x")
    assert [task.name for task in schedule] == ["first", "second"]
    assert len(schedule) == 2
    assert "first" in schedule
    assert "third" not in schedule
    with pytest.raises(KeyError):
        schedule["third"]


# -- when


WEEK = ("2025-12-31T23:59", "2026-01-07T23:59")  # a Thursday to a Wednesday
YEAR = ("2025-12-31T23:59", "2026-12-31T23:59")

SAYINGS: list[tuple[Callable[[Chain], object], tuple[str, str], list[str]]] = [
    (lambda c: c.every(hours=6), ("2026-01-01T00:00", "2026-01-01T15:00"), ["01T06:00", "01T12:00"]),
    (
        lambda c: c.every(timedelta(hours=8), offset=timedelta(minutes=7)),
        ("2026-01-01T00:00", "2026-01-01T23:00"),
        ["01T00:07", "01T08:07", "01T16:07"],
    ),
    (
        lambda c: c.every(minutes=90, anchor=datetime(2026, 1, 1, 0, 10, tzinfo=UTC)),
        ("2026-01-01T00:00", "2026-01-01T04:00"),
        ["01T00:10", "01T01:40", "01T03:10"],
    ),
    (lambda c: c.hourly(), ("2026-01-01T00:00", "2026-01-01T02:00"), ["01T01:00", "01T02:00"]),
    (lambda c: c.hourly(at=[45, 15]), ("2026-01-01T00:20", "2026-01-01T01:20"), ["01T00:45", "01T01:15"]),
    (lambda c: c.daily(), ("2026-01-01T00:00", "2026-01-03T00:00"), ["02T00:00", "03T00:00"]),
    (
        lambda c: c.daily(at=("14:30", "2:00")),
        ("2026-01-01T00:00", "2026-01-02T12:00"),
        ["01T02:00", "01T14:30", "02T02:00"],
    ),
    (lambda c: c.weekly(), WEEK, ["04T00:00"]),
    (lambda c: c.weekly(on="Monday", at="8:00"), WEEK, ["05T08:00"]),
    (lambda c: c.weekly(on=["thu", "mon"], at=["08:00", "08:30"]), WEEK,
     ["01T08:00", "01T08:30", "05T08:00", "05T08:30"]),
    (lambda c: c.daily().weekdays(), WEEK, ["01T00:00", "02T00:00", "05T00:00", "06T00:00", "07T00:00"]),
    (lambda c: c.daily().weekends(), WEEK, ["03T00:00", "04T00:00"]),
    (lambda c: c.daily().on_days("wed", "friday"), WEEK, ["02T00:00", "07T00:00"]),
    (lambda c: c.cron("0 5 * * 1", "0 5 * * *").on_days("mon"), WEEK, ["05T05:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("say", "window", "expected"), SAYINGS)
def test_a_time_verb_means_these_instants(
    say: Callable[[Chain], object], window: tuple[str, str], expected: list[str]
) -> None:
    assert [instant[8:] for instant in due(one_task(say), *window)] == expected


YEARLY: list[tuple[Callable[[Chain], object], str]] = [
    (lambda c: c.monthly(), "01-01 02-01 03-01 04-01 05-01 06-01 07-01 08-01 09-01 10-01 11-01 12-01"),
    (lambda c: c.monthly(on=31), "01-31 03-31 05-31 07-31 08-31 10-31 12-31"),
    (
        lambda c: c.monthly(on="last"),
        "01-31 02-28 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31",
    ),
    (lambda c: c.quarterly(on="first monday"), "01-05 04-06 07-06 10-05"),
    (lambda c: c.quarterly(on="2nd Tuesday"), "01-13 04-14 07-14 10-13"),
    (lambda c: c.quarterly(on="last friday"), "01-30 04-24 07-31 10-30"),
    (lambda c: c.quarterly(on="last weekday"), "01-30 04-30 07-31 10-30"),
    (lambda c: c.quarterly(on="first weekday"), "01-01 04-01 07-01 10-01"),
    (
        lambda c: c.quarterly(on=[15, 4, "fifth thursday"]),
        "01-04 01-15 01-29 04-04 04-15 04-30 07-04 07-15 07-30 10-04 10-15 10-29",
    ),
    (lambda c: c.quarterly(), "01-01 04-01 07-01 10-01"),
    (lambda c: c.yearly(), "01-01"),
    (lambda c: c.yearly(on="12-24"), "12-24"),
    (lambda c: c.yearly(on=(6, 1)), "06-01"),
]  # fmt: skip


@pytest.mark.parametrize(("say", "days"), YEARLY)
def test_a_calendar_verb_means_these_days_of_2026(say: Callable[[Chain], object], days: str) -> None:
    instants = due(one_task(say), *YEAR)
    assert [instant[5:10] for instant in instants] == days.split()
    assert {instant[11:] for instant in instants} == {"00:00"}


def test_once_takes_instants_and_text_in_the_zone_of_the_task() -> None:
    task = one_task(
        lambda c: c.once(at=["2026-12-24T18:00", "2026-06-01T12:00+00:00", datetime(2026, 3, 1, tzinfo=UTC)]),
        timezone=BERLIN,
    )

    assert due(task, *YEAR) == ["2026-03-01T00:00", "2026-06-01T12:00", "2026-12-24T17:00"]


def test_what_is_over_is_finished_and_not_wrong() -> None:
    assert (
        one_task(lambda c: c.once(at="2020-01-01T00:00")).trigger.next(datetime(2026, 1, 1, tzinfo=UTC))
        is None
    )
    ended = one_task(lambda c: c.daily().until("2020-01-01"))
    assert ended.trigger.next(datetime(2026, 1, 1, tzinfo=UTC)) is None


def test_a_date_means_the_whole_day_in_the_zone_of_the_task() -> None:
    task = one_task(lambda c: c.hourly().starting(date(2026, 6, 1)).until("2026-06-01"), timezone=BERLIN)

    instants = due(task, *YEAR)
    assert (instants[0], instants[-1], len(instants)) == ("2026-05-31T22:00", "2026-06-01T21:00", 24)


def test_what_is_rare_is_not_refused_as_never_due() -> None:
    rare = one_task(lambda c: c.yearly(on="02-29").on_days("sun").between("0:00", "1:00"))

    assert due(rare, "2026-01-01T00:00", "2061-01-01T00:00") == ["2032-02-29T00:00", "2060-02-29T00:00"]


@pytest.mark.parametrize("bound", ["starting", "until"])
def test_an_instant_on_the_very_bound_is_reason_enough_for_a_task(bound: str) -> None:
    noon = datetime(2026, 6, 16, 12, 0, tzinfo=UTC)
    task = one_task(lambda c: c.once(at=noon), lambda c: getattr(c, bound)(noon))

    assert due(task, *YEAR) == ["2026-06-16T12:00"]


def test_both_ends_of_starting_and_until_are_included() -> None:
    task = one_task(lambda c: c.hourly().starting("2026-06-01T10:00").until("2026-06-01T12:00"))

    assert [instant[11:] for instant in due(task, *YEAR)] == ["10:00", "11:00", "12:00"]


def test_a_window_over_midnight_and_its_opposite() -> None:
    """SY-18."""
    night = ("2026-01-01T21:44", "2026-01-02T03:15")
    inside = due(one_task(lambda c: c.every(minutes=15).between("22:00", "03:00")), *night)
    outside = due(one_task(lambda c: c.every(minutes=15).except_between("22:00", "03:00")), *night)

    assert (inside[0], inside[-1], len(inside)) == ("2026-01-01T22:00", "2026-01-02T03:00", 21)
    assert outside == ["2026-01-01T21:45", "2026-01-02T03:15"]


def test_all_of_several_windows_must_be_open() -> None:
    task = one_task(
        lambda c: (
            c.hourly().between("8:00", "17:00").between("12:00", "20:00").except_between("13:00", "14:00")
        )
    )

    assert [instant[11:] for instant in due(task, "2026-01-01T00:00", "2026-01-01T23:59")] == [
        "12:00", "15:00", "16:00", "17:00",
    ]  # fmt: skip


def test_the_order_of_settings_does_not_matter() -> None:
    """SY-19."""
    steps: list[Callable[[Chain], object]] = [
        lambda c: c.every(minutes=15),
        lambda c: c.between("10:00", "12:00"),
        lambda c: c.timezone("Europe/Rome"),
        lambda c: c.on_days("tue"),
        lambda c: c.starting("2026-06-16"),
    ]
    tasks = [one_task(*order) for order in permutations(steps)]

    assert all(task == tasks[0] for task in tasks)
    assert due(tasks[0], "2026-06-16T08:59", "2026-06-16T09:00") == ["2026-06-16T09:00"]
    assert due(tasks[0], "2026-06-16T10:00", "2026-06-16T11:00") == []


def test_a_window_is_no_part_of_what_a_trigger_is() -> None:
    plain = one_task(lambda c: c.daily(at="12:00"))
    within = one_task(lambda c: c.daily(at="12:00").between("9:00", "17:00").weekdays())

    assert plain.mark_key == within.mark_key


# -- policies


POLICIES: list[tuple[Callable[[Chain], object], dict[str, object]]] = [
    (lambda c: c.on_one_server(), {"servers": Servers.ONE, "servers_stated": True}),
    (lambda c: c.on_every_server(), {"servers": Servers.EVERY, "servers_stated": True}),
    (lambda c: c.without_overlapping(), {"overlap": Overlap(OverlapKind.SKIP)}),
    (lambda c: c.without_overlapping(key="db"), {"overlap": Overlap(OverlapKind.SKIP, key="db")}),
    (lambda c: c.overlap("allow"), {"overlap": Overlap()}),
    (lambda c: c.overlap("skip", limit=3), {"overlap": Overlap(OverlapKind.SKIP, limit=3)}),
    (
        lambda c: c.overlap("queue_one", key="db", wait=timedelta(minutes=5)),
        {"overlap": Overlap(OverlapKind.QUEUE_ONE, key="db", wait=timedelta(minutes=5))},
    ),
    (lambda c: c.overlap("queue_one"), {"overlap": Overlap(OverlapKind.QUEUE_ONE, wait=timedelta(hours=1))}),
    (lambda c: c.lease(seconds=10), {"lease": LeasePolicy(timedelta(seconds=10))}),
    (lambda c: c.lease(timedelta(minutes=5)), {"lease": LeasePolicy(timedelta(minutes=5))}),
    (
        lambda c: c.retry_when_lost(2, within=timedelta(hours=2)),
        {"crash": Crash(CrashKind.RETRY, 2, timedelta(hours=2))},
    ),
    (lambda c: c.catch_up("none"), {"catch_up": CatchUp()}),
    (
        lambda c: c.catch_up("latest", within=timedelta(hours=6)),
        {"catch_up": CatchUp(CatchUpKind.LATEST, timedelta(hours=6))},
    ),
    (
        lambda c: c.catch_up("all", within=timedelta(hours=6), most=12),
        {"catch_up": CatchUp(CatchUpKind.ALL, timedelta(hours=6), 12)},
    ),
    (lambda c: c.grace(hours=1, minutes=30), {"grace": timedelta(minutes=90)}),
    (lambda c: c.time_limit(minutes=20), {"time_limit": timedelta(minutes=20)}),
    (lambda c: c.output_to("-"), {"output": OutputPolicy(echo=True)}),
    (lambda c: c.output_to("logs/job.log"), {"output": OutputPolicy(path="logs/job.log")}),
    (
        lambda c: c.environments("production", "staging"),
        {"environments": frozenset({"production", "staging"})},
    ),
    (lambda c: c.formerly("old"), {"former_name": "old", "key": "old"}),
]


@pytest.mark.parametrize(("say", "expected"), POLICIES)
def test_a_policy_verb_sets_this_and_nothing_else(
    say: Callable[[Chain], object], expected: dict[str, object]
) -> None:
    task, plain = one_task(lambda c: c.daily(), say), one_task(lambda c: c.daily())

    assert {name: getattr(task, name) for name in expected} == expected
    others = set(Task.__slots__) - set(expected)
    assert [name for name in others if getattr(task, name) != getattr(plain, name) and name != "source"] == []


def test_conditions_add_up_in_the_order_they_were_stated() -> None:
    task = one_task(lambda c: c.when(job).daily().skip(False).when(True))

    assert [(each.name, each.condition, each.wanted) for each in task.filters] == [
        ("when", job, True),
        ("skip", False, False),
        ("when", True, True),
    ]


@pytest.mark.parametrize("name", ["uptime:shop", "Rechnungen für März", "日次", "a" * 200, "*.tmp", "x.y/z"])
def test_names_may_be_of_any_script(name: str) -> None:
    assert one_task(lambda c: c.daily().name(name)).name == name


def test_tasks_may_share_an_overlap_key() -> None:
    schedule = Schedule("shop")
    schedule.command("ls").name("a").hourly().overlap("skip", limit=2, key="disk")
    schedule.command("ls").name("b").hourly().overlap("queue_one", limit=2, key="disk")

    due = datetime(2026, 1, 1, tzinfo=UTC)
    assert schedule["a"].run_key(due) == schedule["b"].run_key(due)


def test_warnings_name_their_task_and_line() -> None:
    schedule = Schedule("shop")
    line = sys._getframe().f_lineno + 1
    schedule.call(job).cron("*/45 * * * *")
    schedule.command("ls").name("ls").monthly(on=31)
    schedule.command("ls").name("leap").yearly(on="02-29")
    schedule.command("ls").name("fine").monthly(on="last")

    first, second, third = schedule.warnings
    assert first.startswith(f"task 'job', core/test_schedule.py:{line}: ")
    assert second.startswith(f"task 'ls', core/test_schedule.py:{line + 1}: months without a day 31")
    assert third.startswith(f"task 'leap', core/test_schedule.py:{line + 2}: the 29th of February")


# -- groups


def test_tasks_of_a_group_have_its_settings_as_their_defaults() -> None:
    schedule = Schedule("shop")
    with schedule.every(minutes=5).environments("production").grace(minutes=1).when(job).group():
        schedule.command("a").name("a")
        schedule.command("b").name("b").hourly().grace(minutes=10).when(True)
    schedule.command("c").name("c").daily()

    a, b, c = schedule.tasks
    assert due(a, "2026-01-01T00:00", "2026-01-01T00:10") == ["2026-01-01T00:05", "2026-01-01T00:10"]
    assert due(b, "2026-01-01T00:00", "2026-01-01T01:10") == ["2026-01-01T01:00"]
    assert (a.grace, b.grace, c.grace) == (timedelta(minutes=1), timedelta(minutes=10), timedelta(minutes=2))
    assert a.environments == b.environments == {"production"}
    assert c.environments == frozenset()
    assert [each.condition for each in b.filters] == [job, True]
    assert c.filters == ()


def test_groups_nest_and_the_inner_one_speaks_last() -> None:
    schedule = Schedule("shop")
    with schedule.weekdays().timezone(BERLIN).between("6:00", "20:00").group():
        with schedule.daily(at="8:00").timezone("Asia/Tokyo").between("7:00", "9:00").group():
            schedule.command("a").name("inner")
        schedule.command("b").name("outer").daily(at="8:00")

    assert due(schedule["inner"], *WEEK)[0] == "2026-01-01T23:00"
    assert due(schedule["outer"], *WEEK)[0] == "2026-01-01T07:00"
    assert len(due(schedule["outer"], *WEEK)) == 5


def test_a_decorator_works_in_a_group_and_a_later_word_still_counts() -> None:
    schedule = Schedule("shop")
    with schedule.on_every_server().group():
        chain = schedule.hourly()

        @chain
        def tidy() -> None: ...

    chain.grace(minutes=9)

    assert schedule["tidy"].servers is Servers.EVERY
    assert schedule["tidy"].grace == timedelta(minutes=9)


def test_an_error_in_a_group_closes_it() -> None:
    schedule = Schedule("shop")
    with pytest.raises(DefinitionError), schedule.every(minutes=5).group(), schedule.weekends().group():
        schedule.command("a").name("a b ")
    schedule.command("c").name("c").daily()

    with pytest.raises(DefinitionError, match="no name"):  # the task that the error left unfinished
        _ = schedule.tasks


def test_the_time_of_a_group_does_not_outlive_an_exception() -> None:
    schedule = Schedule("shop")
    with pytest.raises(ZeroDivisionError), schedule.every(minutes=5).group():
        _ = 1 / 0
    schedule.command("c").name("c")

    with pytest.raises(DefinitionError, match=r"task 'c'.*never said when to run"):
        _ = schedule.tasks


def test_a_group_default_may_be_taken_back() -> None:
    schedule = Schedule("shop")
    with schedule.hourly().without_overlapping().on_one_server().group():
        schedule.command("a").name("a").overlap("allow").on_every_server()

    assert schedule["a"].allows_overlap
    assert schedule["a"].servers is Servers.EVERY


# -- purity


def test_defining_and_reading_touches_no_clock() -> None:
    def forbidden(*_: Any) -> Any:
        raise AssertionError("a clock was read")

    schedule = Schedule("shop", timezone=BERLIN)
    patched = pytest.MonkeyPatch()
    with patched.context() as patch:
        import time

        for name in ("time", "time_ns", "monotonic", "monotonic_ns"):
            patch.setattr(time, name, forbidden)
        schedule.call(job).daily(at="02:30").between("1:00", "3:00").starting("2026-01-01")
        assert len(schedule) == 1
