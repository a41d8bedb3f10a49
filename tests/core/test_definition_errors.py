"""Every mistake in a schedule is refused where it is written, with what was found and what is allowed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from rota import Chain, DefinitionError, Schedule

HERE = "core/test_definition_errors.py"
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the mistake
NOON = datetime(2026, 6, 16, 12, 0, tzinfo=UTC)


def job() -> None:
    """The work of these tests."""


def needs_month(month: int, *, year: int) -> None: ...


def generator() -> Any:
    yield


def open_schedule() -> Schedule:
    return Schedule("shop", timezone="Europe/Berlin")


class Case(NamedTuple):
    says: Callable[[Any], object]
    parts: tuple[str, ...]


def line_of(case: Case) -> str:
    return f"{HERE}:{case.says.__code__.co_firstlineno}"


TIME = 'allowed: "HH:MM" from "00:00" to "23:59"'
DAY = "allowed: sunday, monday, tuesday"
DAY_OF_MONTH = 'allowed: a number from 1 to 31, "last"'
NAME = "allowed: up to 200 printable characters"

A_WORD_ON_A_TASK = [
    # times of day
    Case(lambda task: task.daily(at="9am"), ("not a time of day", "at='9am'", TIME)),
    Case(lambda task: task.daily(at="noon"), ("at='noon'", TIME)),
    Case(lambda task: task.daily(at=""), ("at=''", TIME)),
    Case(lambda task: task.daily(at="24:00"), ("at='24:00'", TIME)),
    Case(lambda task: task.daily(at="25:61"), ("at='25:61'", TIME)),
    Case(lambda task: task.daily(at="13"), ("at='13'", TIME)),
    Case(lambda task: task.daily(at="13:08:10"), ("at='13:08:10'", TIME)),
    Case(lambda task: task.daily(at="7:5 pm"), ("at='7:5 pm'", TIME)),
    Case(lambda task: task.daily(at=" 7:50"), ("at=' 7:50'", TIME)),
    Case(lambda task: task.daily(at="٠٧:٥٠"), ("at=", TIME)),
    Case(lambda task: task.daily(at="07:50\n"), (r"at='07:50\n'", TIME)),
    Case(lambda task: task.daily(at=7), ("at=7", TIME)),
    Case(lambda task: task.daily(at=("02:00", 14)), ("at=14", TIME)),
    Case(lambda task: task.daily(at=[]), ("no time of day", "at=[]", "allowed: ")),
    Case(lambda task: task.weekly(at="8"), ("at='8'", TIME)),
    Case(lambda task: task.monthly(at="8"), ("at='8'", TIME)),
    Case(lambda task: task.quarterly(at="8"), ("at='8'", TIME)),
    Case(lambda task: task.yearly(at="8"), ("at='8'", TIME)),
    Case(lambda task: task.between("8", "17:00"), ("start='8'", TIME)),
    Case(lambda task: task.between("8:00", "24:00"), ("end='24:00'", TIME)),
    Case(lambda task: task.except_between("8:00", None), ("end=None", TIME)),
    # periods, minutes, days
    Case(lambda task: task.every(), ("longer than zero", "allowed: one timedelta, or numbers of weeks")),
    Case(lambda task: task.every(minutes=0), ("longer than zero", "allowed: one timedelta")),
    Case(lambda task: task.every(minutes=-5), ("minutes=-5", "allowed: one timedelta")),
    Case(lambda task: task.every(minutes="5"), ("not a number", "minutes='5'", "allowed: ")),
    Case(lambda task: task.every(days=float("inf")), ("too long", "days=inf", "allowed: ")),
    Case(lambda task: task.every(5), ("not a length of time", "period=5", "allowed: one timedelta")),
    Case(lambda task: task.every(timedelta(hours=1), minutes=5), ("given twice", "allowed: one timedelta")),
    Case(
        lambda task: task.every(seconds=0.5),
        ("cannot be a pace", "period='0:00:00.500000'", "allowed: one second or more"),
    ),
    Case(
        lambda task: task.every(hours=1, offset=timedelta(hours=1)),
        ("offset=", "allowed: a timedelta of whole seconds from 0"),
    ),
    Case(
        lambda task: task.every(hours=1, offset=15),
        ("offset=15", "allowed: a timedelta of whole seconds from 0"),
    ),
    Case(lambda task: task.every(hours=1, anchor=NAIVE), ("anchor=", "aware")),
    Case(
        lambda t: t.every(hours=1, anchor=NOON, offset=timedelta(0)),
        ("said twice", "either offset or anchor"),
    ),
    Case(lambda task: task.hourly(at=60), ("at=60", "allowed: a whole number from 0 to 59")),
    Case(lambda task: task.hourly(at="*/10"), ("at='*/10'", "allowed: a whole number from 0 to 59")),
    Case(lambda task: task.hourly(at=True), ("at=True", "allowed: a whole number from 0 to 59")),
    Case(lambda task: task.hourly(at=[]), ("no minute", "allowed: a minute from 0 to 59")),
    Case(lambda task: task.weekly(on="tues"), ("on='tues'", DAY)),
    Case(lambda task: task.weekly(on=1), ("on=1", DAY)),
    Case(lambda task: task.weekly(on=()), ("no day", "on=()", "allowed: at least one day")),
    Case(lambda task: task.on_days("mon-fri"), ("days='mon-fri'", DAY)),
    Case(lambda task: task.on_days(), ("no day", "allowed: at least one day")),
    Case(lambda task: task.monthly(on=0), ("on=0", DAY_OF_MONTH)),
    Case(lambda task: task.monthly(on=32), ("on=32", DAY_OF_MONTH)),
    Case(lambda task: task.monthly(on=True), ("on=True", DAY_OF_MONTH)),
    Case(lambda task: task.monthly(on="15"), ("on='15'", DAY_OF_MONTH)),
    Case(lambda task: task.monthly(on="sixth monday"), ("on='sixth monday'", DAY_OF_MONTH)),
    Case(lambda task: task.monthly(on=[]), ("on=[]", DAY_OF_MONTH)),
    Case(lambda task: task.quarterly(on="first"), ("on='first'", DAY_OF_MONTH)),
    Case(lambda task: task.yearly(on="02-30"), ("on='02-30'", 'allowed: "MM-DD"')),
    Case(lambda task: task.yearly(on="24.12."), ("on='24.12.'", 'allowed: "MM-DD"')),
    Case(lambda task: task.yearly(on=(13, 1)), ("on=(13, 1)", 'allowed: "MM-DD"')),
    Case(lambda task: task.yearly(on=1224), ("on=1224", 'allowed: "MM-DD"')),
    # cron lines
    Case(lambda task: task.cron(), ("no cron line", "allowed: one line or several")),
    Case(lambda task: task.cron(5), ("cron=5", "allowed: a text")),
    Case(lambda task: task.cron("61 * * * *"), ("61", "allowed: ")),
    Case(lambda task: task.cron("0 0 * * *", "0 24 * * *"), ("24", "allowed: ")),
    Case(lambda task: task.cron("0 0 30 2 *"), ("no such date", "cron='0 0 30 2 *'", "allowed: ")),
    Case(lambda task: task.cron("* * * *"), ("* * * *", "allowed: ")),
    # points in time
    Case(lambda task: task.once(at=NAIVE), ("at=", "aware", "another instant on every server")),
    Case(lambda task: task.once(at="tomorrow"), ("at='tomorrow'", "allowed: an aware datetime")),
    Case(lambda task: task.once(at="2026-12-24"), ("at='2026-12-24'", "allowed: an aware datetime")),
    Case(lambda task: task.once(at=date(2026, 12, 24)), ("at=datetime.date", "allowed: an aware datetime")),
    Case(lambda task: task.once(at=[]), ("no instant", "allowed: ")),
    Case(lambda task: task.starting("soon"), ("starting='soon'", "allowed: a date")),
    Case(lambda task: task.until(NAIVE), ("until=", "allowed: a date")),
    Case(lambda task: task.until(7), ("until=7", "allowed: a date")),
    Case(lambda task: task.timezone("Europe/Berln"), ("Europe/Berln", "Europe/Berlin")),
    # conditions
    Case(
        lambda task: task.when("false"),
        ("'false'", "allowed: a function or coroutine function without parameters", "compare it"),
    ),
    Case(
        lambda task: task.skip("0"), ("'0'", "allowed: a function or coroutine function without parameters")
    ),
    Case(lambda task: task.when(needs_month), ("not a condition", "nothing for month, year")),
    Case(lambda task: task.environments(), ("environments=''", NAME)),
    Case(lambda task: task.environments(["production"]), ("environments=['production']", NAME)),
    # names
    Case(lambda task: task.name(""), ("cannot be a name", "name=''", NAME)),
    Case(lambda task: task.name(" backup"), ("name=' backup'", NAME)),
    Case(lambda task: task.name("backup@web1"), ("name='backup@web1'", NAME)),
    Case(lambda task: task.name("back\nup"), (r"name='back\nup'", NAME)),
    Case(lambda task: task.name("*"), ("name='*'", NAME)),
    Case(lambda task: task.name("x" * 201), ("name='xxx", NAME)),
    Case(lambda task: task.name(7), ("name=7", NAME)),
    Case(lambda task: task.formerly(""), ("formerly=''", NAME)),
    Case(lambda task: task.describe("  "), ("describe='  '", "allowed: a sentence")),
    # policies
    Case(lambda task: task.without_overlapping(key="a@b"), ("key='a@b'", NAME)),
    Case(lambda task: task.overlap("queue"), ("kind='queue'", "allowed: 'allow', 'skip', 'queue_one'")),
    Case(lambda task: task.overlap("allow", limit=2), ("limit=2", 'allowed: limit with "skip"')),
    Case(lambda task: task.overlap("allow", key="db"), ("key='db'", 'allowed: key with "skip"')),
    Case(lambda task: task.overlap("skip", limit=0), ("limit=0", "allowed: a whole number of 1 or more")),
    Case(lambda task: task.overlap("skip", wait=timedelta(1)), ("wait=", 'allowed: wait with "queue_one"')),
    Case(
        lambda task: task.overlap("queue_one", wait=timedelta(0)), ("wait=", "longer than zero", "allowed: ")
    ),
    Case(lambda task: task.lease(seconds=9), ("length='0:00:09'", "allowed: 10 seconds to 5 minutes")),
    Case(lambda task: task.lease(minutes=6), ("length='0:06:00'", "allowed: 10 seconds to 5 minutes")),
    Case(lambda task: task.lease(timedelta(days=1)), ("length=", "allowed: 10 seconds to 5 minutes")),
    Case(lambda task: task.retry_when_lost(0), ("times=0", "allowed: a whole number from 1")),
    Case(lambda task: task.retry_when_lost(2, within=3), ("within=3", "allowed: ")),
    Case(lambda task: task.catch_up("some"), ("kind='some'", "allowed: 'none', 'latest', 'all'")),
    Case(lambda task: task.catch_up("latest"), ("within=None", "allowed: a timedelta")),
    Case(
        lambda task: task.catch_up("none", within=timedelta(1)), ("within=", 'allowed: within with "latest"')
    ),
    Case(
        lambda task: task.catch_up("latest", within=timedelta(1), most=2),
        ("most=2", 'allowed: most with "all"'),
    ),
    Case(lambda task: task.catch_up("all", within=timedelta(1)), ("most=None", "allowed: a whole number")),
    Case(
        lambda task: task.catch_up("all", within=timedelta(1), most=0), ("most=0", "allowed: a whole number")
    ),
    Case(lambda task: task.grace(minutes=-1), ("minutes=-1", "allowed: one timedelta")),
    Case(lambda task: task.time_limit(), ("longer than zero", "allowed: one timedelta")),
    Case(lambda task: task.output_to(""), ("target=''", "allowed: the path of a file")),
    # the work
    Case(lambda task: task.do(job), ("do() would undo call()", "allowed: ", "group()")),
    Case(lambda task: task(job), ("would undo call()", "allowed: ")),
]

A_WORD_ON_A_SCHEDULE = [
    Case(lambda schedule: schedule.daily(at="9am"), ("at='9am'", TIME)),
    Case(lambda schedule: schedule.call(job()), ("cannot be called", "function=None", "allowed: a function")),
    Case(lambda schedule: schedule.call(generator), ("runs none of it", "function=", "allowed: a function")),
    Case(
        lambda schedule: schedule.call(needs_month), ("nothing for month, year", "allowed: ", "call(fn, ...)")
    ),
    Case(lambda schedule: schedule.call(needs_month, 1, 2, year=3), ("takes 1 positional", "allowed: ")),
    Case(lambda schedule: schedule.call(job, color="red"), ("no parameter color", "allowed: ")),
    Case(lambda schedule: schedule.hourly()(needs_month), ("nothing for month, year", "allowed: ")),
    Case(lambda schedule: schedule.command(""), ("command=''", "allowed: a text for the shell")),
    Case(lambda schedule: schedule.command([]), ("command=[]", "allowed: a text for the shell")),
    Case(lambda schedule: schedule.command(["ls", 1]), ("command=['ls', 1]", "allowed: a text")),
    Case(lambda schedule: schedule.command("ls", cwd=""), ("cwd=''", "allowed: a folder")),
    Case(lambda schedule: schedule.command("ls", env={"A": 1}), ("env='A'", "allowed: names and values")),
    Case(lambda schedule: schedule.module("shop/tidy"), ("module='shop/tidy'", "allowed: a dotted name")),
    Case(lambda schedule: schedule.module("shop.tidy", 3), ("args=3", "allowed: texts")),
    Case(lambda schedule: Schedule(""), ("name=''", "allowed: printable characters")),
    Case(lambda schedule: Schedule("a\nb"), (r"name='a\nb'", "allowed: printable characters")),
    Case(lambda schedule: Schedule("shop", timezone="Mars"), ("Mars", "allowed: ")),
    Case(lambda schedule: schedule.call(job).group(), ("call() belongs to one task", "allowed: group() on")),
    Case(lambda schedule: schedule.daily().name("a").group(), ("name() belongs to one task", "allowed: ")),
]


@pytest.mark.parametrize("case", A_WORD_ON_A_TASK, ids=line_of)
def test_a_verb_refuses_what_it_cannot_mean(case: Case) -> None:
    task = open_schedule().call(job)

    with pytest.raises(DefinitionError) as refused:
        case.says(task)

    message = str(refused.value)
    assert message.startswith(f"task 'job', {line_of(case)}: ")
    for part in case.parts:
        assert part in message


@pytest.mark.parametrize("case", A_WORD_ON_A_SCHEDULE, ids=line_of)
def test_a_schedule_refuses_a_first_word_that_it_cannot_mean(case: Case) -> None:
    with pytest.raises(DefinitionError) as refused:
        case.says(open_schedule())

    message = str(refused.value)
    assert f"{line_of(case)}: " in message
    for part in case.parts:
        assert part in message


UNDOING = [
    Case(lambda task: task.daily().hourly(), ("hourly() would undo daily()",)),
    Case(lambda task: task.every(minutes=5).cron("0 0 * * *"), ("cron() would undo every()",)),
    Case(lambda task: task.daily(at="02:00").daily(at="03:00"), ("daily() would undo daily()",)),
    Case(lambda task: task.name("a").name("b"), ("name() would undo name()",)),
    Case(lambda task: task.formerly("a").formerly("b"), ("formerly() would undo formerly()",)),
    Case(lambda task: task.describe("a").describe("b"), ("describe() would undo describe()",)),
    Case(lambda task: task.timezone("UTC").timezone("Asia/Tokyo"), ("timezone() would undo timezone()",)),
    Case(lambda task: task.grace(minutes=1).grace(minutes=2), ("grace() would undo grace()",)),
    Case(
        lambda task: task.on_one_server().on_every_server(), ("on_every_server() would undo on_one_server()",)
    ),
    Case(lambda task: task.weekdays().weekends(), ("weekends() would undo weekdays()",)),
    Case(
        lambda task: task.on_days("mon").on_days("tue"),
        ("on_days() would undo on_days()", "takes several days"),
    ),
    Case(
        lambda task: task.environments("a").environments("b"), ("environments() would undo environments()",)
    ),
    Case(
        lambda task: task.without_overlapping().overlap("allow"),
        ("overlap() would undo without_overlapping()",),
    ),
    Case(lambda task: task.lease(seconds=20).lease(seconds=30), ("lease() would undo lease()",)),
    Case(lambda task: task.retry_when_lost(1).retry_when_lost(2), ("retry_when_lost() would undo",)),
    Case(lambda t: t.catch_up("none").catch_up("latest", within=timedelta(1)), ("catch_up() would undo",)),
    Case(
        lambda task: task.time_limit(hours=1).time_limit(hours=2), ("time_limit() would undo time_limit()",)
    ),
    Case(lambda task: task.output_to("-").output_to("x"), ("output_to() would undo output_to()",)),
    Case(lambda task: task.starting("2026-01-01").starting("2027-01-01"), ("starting() would undo",)),
    Case(lambda task: task.until("2026-01-01").until("2027-01-01"), ("until() would undo until()",)),
]


@pytest.mark.parametrize("case", UNDOING, ids=line_of)
def test_a_later_word_that_would_undo_an_earlier_one_is_refused_with_both_lines(case: Case) -> None:
    with pytest.raises(DefinitionError) as refused:
        case.says(open_schedule().command("ls"))

    message = str(refused.value)
    assert message.count(line_of(case)) == 2
    for part in (*case.parts, "allowed: ", " once"):
        assert part in message


@pytest.mark.parametrize(
    ("word", "way_out"),
    [
        ("expires_after", "time_limit()"),
        ("retry", "retry_when_lost()"),
        ("splay", "every(offset=...)"),
        ("even_if_store_is_down", "catch_up()"),
        ("even_when_paused", "a pause holds for every task"),
        ("isolated", "a process of their own"),
        ("in_background", "do not wait for each other"),
    ],
)
@pytest.mark.parametrize("begin", [Schedule.hourly, lambda schedule: schedule], ids=["chain", "schedule"])
def test_a_policy_that_is_not_available_yet_is_refused_and_never_passed_over(
    word: str, way_out: str, begin: Callable[[Schedule], Any]
) -> None:
    with pytest.raises(DefinitionError) as refused:
        getattr(begin(open_schedule()), word)

    message = str(refused.value)
    assert f"{word} is not available yet; " in message
    assert way_out in message
    assert f"{HERE}:" in message


def test_cancel_previous_is_not_available_yet() -> None:
    chain: Any = open_schedule().call(job)

    with pytest.raises(DefinitionError, match=r"task 'job'.*cancel_previous is not available yet.*queue_one"):
        chain.overlap("cancel_previous")


def test_a_word_that_nobody_knows_is_an_ordinary_attribute_error() -> None:
    chain: Any = open_schedule().hourly()

    with pytest.raises(AttributeError, match=r"Chain.*dailyAt"):
        chain.dailyAt("02:00")


# -- what is found when the schedule is read


def reading(define: Callable[[Schedule], object]) -> DefinitionError:
    schedule = open_schedule()
    define(schedule)
    with pytest.raises(DefinitionError) as refused:
        _ = schedule.tasks
    return refused.value


AT_LOAD = [
    Case(lambda s: s.daily(at="02:00"), ("nothing to run", "allowed: a function under the line")),
    Case(lambda s: s.call(job), ("task 'job'", "never said when to run", "allowed: one of every, hourly")),
    Case(
        lambda s: s.command("pg_dump shop").daily(),
        ("no name", "work='pg_dump shop'", 'allowed: name("...")'),
    ),
    Case(lambda s: s.module("shop.tidy").daily(), ("no name", "python -m shop.tidy", "allowed: name")),
    Case(lambda s: s.call(lambda: None).daily(), ("no name", "<lambda>", "allowed: name")),
    Case(lambda s: s.call(functools.partial(job)).daily(), ("no name", "partial", "allowed: name")),
    Case(lambda s: s.call([].clear).daily(), ("no name", "clear", "allowed: name")),
    Case(lambda s: s.call(open_schedule().hourly).daily(), ("no name", "hourly", "allowed: name")),
    Case(
        lambda s: s.call(job).daily().formerly("job"),
        ("task 'job'", "formerly='job'", "allowed: the name before"),
    ),
    Case(lambda s: s.call(job).daily().until(date.max), ("too far away", "until='9999-12-31'", "allowed: ")),
    Case(lambda s: s.environments("production").group(), ("never entered", "allowed: with")),
    Case(
        lambda s: s.call(job).weekly(on="monday").weekends(),
        ("never be due", "weekends() of", "allowed: times"),
    ),
    Case(lambda s: s.call(job).daily(at="08:00").between("9:00", "17:00"), ("never be due", "between() of")),
    Case(
        lambda s: s.call(job).hourly().between("9:00", "10:00").between("12:00", "13:00"), ("never be due",)
    ),
    Case(lambda s: s.call(job).once(at=NOON).until("2026-01-01"), ("never be due", "until() of")),
    Case(lambda s: s.call(job).once(at=NOON).starting("2027-01-01"), ("never be due", "starting() of")),
    Case(lambda s: s.call(job).once(at=NOON).on_days("mon"), ("never be due", "on_days() of")),
    Case(lambda s: s.call(job).daily().starting("2026-02-01").until("2026-01-31"), ("lies before", "until=")),
    Case(lambda s: s.call(job).yearly().starting("2026-01-02").until("2026-12-31"), ("never be due",)),
    Case(
        lambda s: s.call(job).once(at="2026-03-29T02:30"),
        ("skip this time", "at='2026-03-29 02:30:00'", "offset"),
    ),
    Case(
        lambda s: s.call(job).once(at="2026-10-25T02:30"),
        ("this time twice", "at='2026-10-25 02:30:00'", "offset"),
    ),
    Case(
        lambda s: s.call(job).hourly().overlap("queue_one").catch_up("all", within=timedelta(1), most=3),
        ("task 'job'", "keeps the newest", "catch_up='all'", "allowed: "),
    ),
]


@pytest.mark.parametrize("case", AT_LOAD, ids=line_of)
def test_what_is_missing_or_contradicts_itself_is_refused_at_load(case: Case) -> None:
    message = str(reading(case.says))

    assert f"{line_of(case)}: " in message
    for part in case.parts:
        assert part in message


def test_two_tasks_of_one_name_are_refused_with_both_places() -> None:
    def define(schedule: Schedule) -> None:
        schedule.call(job).daily()
        schedule.command("ls").name("job").hourly()

    error = reading(define)

    first = define.__code__.co_firstlineno + 1
    assert str(error).startswith(
        f"task 'job', {HERE}:{first + 1}: a task of this name stands at {HERE}:{first} "
    )
    assert "allowed: one task of a name" in str(error)


def test_a_function_scheduled_twice_needs_two_names() -> None:
    def define(schedule: Schedule) -> None:
        @schedule.daily(at="02:00")
        @schedule.hourly(at=30)
        def tidy() -> None: ...

    assert "task 'tidy'" in str(reading(define))
    assert 'give each its own with name("...")' in str(reading(define))


def test_a_former_name_is_not_shared() -> None:
    def takes_the_name_of_another(schedule: Schedule) -> None:
        schedule.call(job).daily()
        schedule.command("ls").name("list").formerly("job").hourly()

    def takes_the_past_of_another(schedule: Schedule) -> None:
        schedule.command("ls").name("one").formerly("old").hourly()
        schedule.command("ls").name("two").formerly("old").hourly()

    for define, owner in ((takes_the_name_of_another, "job"), (takes_the_past_of_another, "one")):
        message = str(reading(define))
        assert (
            f"this name belongs to task '{owner}' of {HERE}:{define.__code__.co_firstlineno + 1}" in message
        )
        assert "allowed: a name that no other task has or had" in message


def test_tasks_with_one_overlap_key_have_one_limit() -> None:
    def define(schedule: Schedule) -> None:
        schedule.command("ls").name("one").hourly().overlap("skip", limit=2, key="disk")
        schedule.command("ls").name("two").hourly().without_overlapping(key="disk")

    message = str(reading(define))
    assert "task 'two'" in message
    assert "task 'one' of" in message
    assert "limit=1); allowed: limit=2" in message


def test_all_problems_are_told_at_once_each_on_its_line() -> None:
    def define(schedule: Schedule) -> None:
        schedule.daily()
        schedule.command("ls").daily()
        schedule.command("ls")
        schedule.call(job).daily()
        schedule.command("ls").name("job").daily()

    error = reading(define)

    lines = str(error).splitlines()
    first = define.__code__.co_firstlineno + 1
    assert lines[0] == "5 problems in schedule 'shop':"
    assert [line.split(":")[1] for line in lines[1:]] == [str(first + n) for n in (0, 1, 2, 2, 4)]
    assert "task 'job'" in lines[5]
    assert len(error.problems) == 5


def test_a_schedule_that_was_refused_is_refused_again() -> None:
    schedule = open_schedule()
    schedule.daily()

    for _ in range(2):
        with pytest.raises(DefinitionError, match="nothing to run"):
            _ = schedule.tasks


@pytest.mark.parametrize(
    "add",
    [lambda s, _: s.daily(), lambda s, _: s.call(job), lambda _, chain: chain.grace(minutes=5)],
    ids=["time", "work", "more about a task"],
)
def test_nothing_is_added_once_the_schedule_was_read(add: Callable[[Schedule, Chain], object]) -> None:
    schedule = open_schedule()
    chain = schedule.call(job).daily()
    assert len(schedule) == 1

    with pytest.raises(
        DefinitionError, match=r"test_definition_errors.*has been read already; allowed: .*before"
    ):
        add(schedule, chain)

    assert len(schedule.tasks) == 1


def test_settings_of_a_group_do_not_change_once_it_is_made() -> None:
    chain = open_schedule().daily()
    with chain.group():
        pass

    with pytest.raises(
        DefinitionError, match=r"grace\(\) comes too late.*allowed: grace\(\) before group\(\)"
    ):
        chain.grace(minutes=1)
    with pytest.raises(DefinitionError, match="called already"):
        chain.group()


def test_a_value_of_the_environment_never_shows_in_an_error() -> None:
    with pytest.raises(DefinitionError) as refused:
        open_schedule().command("ls", env={"PASSWORD": b"hunter2"})  # type: ignore[dict-item]  # the mistake

    assert "hunter2" not in str(refused.value)
