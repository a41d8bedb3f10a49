"""Real reports from the field about several servers: group b of open.json, case by case.

Most are played here by the real runner, with hosts whose clocks are ours to set, on the store in memory. What
needs real processes or real servers is played elsewhere, and named.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pytest

from rota import DefinitionError, Outcome, Run, Schedule
from rota._core.leases import SHORTEST_LEASE, Request, renew_every
from rota._core.planner import plan, question
from rota._core.rows import Row, RowQuery
from rota._core.task import Task
from rota._engine import events as told
from rota._engine.clock import Clock
from rota._engine.events import Event, Events
from rota._engine.executor import Executor
from rota._engine.heartbeat import Heartbeat
from rota._engine.remarks import TOLERATED_OFFSET, clock_is_off
from rota._engine.runner import Runner
from rota._engine.server import namespace_of
from rota.stores import open_store
from rota.stores.base import Look, Store
from rota.stores.memory import MemoryStore
from rota.testing import StoreClock

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "open.json").read_text(encoding="utf-8"))
    if case["group"] == "b"
}

ELSEWHERE = {
    "LK-17": ("tests.faults.test_redis_faults", "test_an_evicting_maxmemory_policy_is_told"),
    "LK-19": (
        "tests.faults.test_frozen_server",
        "test_a_holder_that_is_cut_off_stops_and_another_takes_over",
    ),
    "LK-22": ("tests.faults.test_killed_server", "test_what_a_killed_run_held_is_free_after_one_lease"),
    "LK-25": ("tests.faults.test_frozen_server", "test_a_frozen_holder_wakes_up_and_finds_itself_lost"),
    "LK-26": ("tests.cli.test_run", "test_the_first_signal_lets_runs_end"),
    "LK-27": (
        "tests.faults.test_killed_server",
        "test_a_killed_run_is_found_lost_by_the_next_tick_after_its_lease",
    ),
    "LK-29": ("tests.faults.test_redis_faults", "test_a_half_open_connection_ends_at_the_time_limit"),
    "LK-30": ("tests.contract.test_postgresql", "TestPgBouncer"),
    "LK-34": ("tests.cli.test_run", "test_losing_the_race_is_one_calm_line"),
    "LK-38": (
        "tests.cli.test_check",
        "test_three_servers_on_one_store_are_told_from_three_with_a_store_each",
    ),
}
"""Cases whose test stands elsewhere: its module and its name."""

LATER = {"LK-37": "there are no hooks before and after a run yet"}

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


class HostClock(Clock):
    """The clock of a host that is `off` from the true time, which the test drives."""

    def __init__(self, true: StoreClock, off: timedelta = timedelta(0)) -> None:
        super().__init__()
        self.true, self.off = true, off

    def wall(self) -> datetime:
        return self.true.now + self.off

    def boot(self) -> float:
        return self.true.now.timestamp()

    def sleep(self, seconds: float) -> None:
        self.true.advance(timedelta(seconds=seconds))


class Site:
    """Several hosts over one store whose clock shows the true time."""

    def __init__(self, schedule: Schedule, start: datetime = NOON) -> None:
        self.true = StoreClock(start)
        self.store = MemoryStore(clock=self.true)
        self.schedule = schedule
        self.events: list[Event] = []
        self._runners: list[tuple[Runner, Executor]] = []

    def host(self, name: str, *, off: timedelta = timedelta(0), tasks: tuple[Task, ...] = ()) -> Runner:
        clock = HostClock(self.true, off)
        events, executor = Events(self.events.append), Executor(clock)
        runner = Runner(
            tasks or self.schedule.tasks,
            self.store,
            server=name,
            environment="production",
            clock=clock,
            executor=executor,
            heartbeat=Heartbeat(self.store, clock, told=lambda call, error: None),
            events=events,
        )
        self._runners.append((runner, executor))
        return runner

    def tick(self, *runners: Runner) -> None:
        for runner in runners:
            runner.tick()
            runner.carrier.finish()

    def rows(self) -> list[Row]:
        return list(self.store.rows(RowQuery(limit=10_000)).items)

    def close(self) -> None:
        for _, executor in self._runners:
            executor.close()


@contextmanager
def site(schedule: Schedule, start: datetime = NOON) -> Iterator[Site]:
    made = Site(schedule, start)
    yield made
    made.close()


class Counter:
    """A task's body that counts its runs by due instant."""

    def __init__(self) -> None:
        self.runs: list[datetime] = []
        self._lock = threading.Lock()

    def __call__(self, run: Run) -> None:
        with self._lock:
            self.runs.append(run.due)


def a_schedule(counter: Callable[[Run], None]) -> Schedule:
    schedule = Schedule("shop")
    schedule.call(counter).name("report").every(minutes=1)
    return schedule


def test_every_case_of_the_group_is_played() -> None:
    here = {
        name.removeprefix("test_").partition("_is_")[0] for name in globals() if name.startswith("test_lk")
    }
    played = {f"LK-{name.removeprefix('lk')}" for name in here}
    assert played | set(ELSEWHERE) | set(LATER) == set(CASES)


@pytest.mark.parametrize("case", ELSEWHERE)
def test_what_is_played_elsewhere_is_there(case: str) -> None:
    module, name = ELSEWHERE[case]
    assert hasattr(import_module(module), name)


def test_lk02_is_one_run_a_minute_although_it_is_short_and_the_clocks_are_apart() -> None:
    counter = Counter()
    with site(a_schedule(counter)) as shop:
        first, second = shop.host("a"), shop.host("b", off=-3 * SECOND)
        shop.tick(first, second)
        for minute in range(1, 11):
            shop.true.now = NOON + minute * MINUTE
            shop.tick(first)
            shop.true.now = NOON + minute * MINUTE + 3 * SECOND  # when b's clock says that it is due
            shop.tick(second)
        assert counter.runs == [NOON + minute * MINUTE for minute in range(1, 11)]
        assert {row.outcome for row in shop.rows()} == {Outcome.SUCCEEDED}


def test_lk04_is_no_early_run_and_the_fast_host_is_told() -> None:
    counter, seven = Counter(), NOON.replace(hour=7)
    schedule = Schedule("shop")
    schedule.call(counter).name("report").daily(at="07:00")
    with site(schedule, seven - timedelta(hours=1)) as shop:
        hosts = [shop.host("a"), shop.host("b"), shop.host("fast", off=10 * MINUTE)]
        shop.tick(*hosts)
        for minute in range(49, 62):
            shop.true.now = seven - timedelta(hours=1) + minute * MINUTE
            shop.tick(*reversed(hosts))
            assert counter.runs == ([seven] if minute >= 60 else [])
        fast = hosts[-1].ask._clock
        assert -fast.offset == 10 * MINUTE > TOLERATED_OFFSET
        assert "10 min ahead of the store's" in clock_is_off(fast.offset, shop.store.guarantees.grain)


def test_lk06_is_no_second_run_after_a_clock_was_set_back() -> None:
    counter = Counter()
    with site(a_schedule(counter), NOON - 2 * MINUTE) as shop:
        host = shop.host("a")
        clock = host.ask._clock
        assert isinstance(clock, HostClock)
        shop.tick(host)
        shop.true.now = NOON
        shop.tick(host)
        clock.off = -4 * MINUTE
        for seconds in range(0, 59, 10):
            shop.true.now = NOON + seconds * SECOND
            shop.tick(host)
        assert counter.runs == [NOON]


def test_lk07_is_one_run_recorded_under_its_due_instant() -> None:
    counter = Counter()
    with site(a_schedule(counter), NOON - SECOND) as shop:
        early, late = shop.host("a"), shop.host("b")
        shop.tick(early, late)
        shop.true.now = NOON + timedelta(milliseconds=990)
        shop.tick(early)
        shop.true.now = NOON + timedelta(milliseconds=1020)
        shop.tick(late)
        assert counter.runs == [NOON]
        assert [row.occurrence.due for row in shop.rows()] == [NOON]


def test_lk08_is_one_run_although_the_timer_fires_early() -> None:
    counter = Counter()
    with site(a_schedule(counter), NOON - SECOND) as shop:
        host = shop.host("a")
        shop.tick(host)
        shop.true.now = NOON - timedelta(milliseconds=2)
        shop.tick(host)
        shop.tick(host)
        assert counter.runs == [NOON]
        (row,) = shop.rows()
        assert row.since >= NOON
        view = shop.store.look(question(shop.schedule.tasks, shop.true.now))
        assert plan(shop.schedule.tasks, view).starts == ()


def same_identity(second: str) -> set[tuple[str, str]]:
    keys = set()
    for command in ("/srv/app/releases/120/report", second):
        schedule = Schedule("shop")
        schedule.command(command).name("report").every(minutes=1)
        (task,) = schedule.tasks
        keys.add((task.key, task.mark_key))
    return keys


def test_lk11_is_one_identity_in_every_release_directory() -> None:
    assert len(same_identity("/srv/app/releases/121/report")) == 1


def test_lk12_is_one_identity_whatever_the_arguments() -> None:
    assert len(same_identity("report --trace 8f2c")) == 1
    schedule = Schedule("shop")
    schedule.command("report --trace 8f2c").every(minutes=1)
    with pytest.raises(DefinitionError, match="name"):
        _ = schedule.tasks


def test_lk13_is_refused_at_load() -> None:
    def sync(region: str) -> None: ...

    schedule = Schedule("shop")
    schedule.call(sync, "eu").daily(at="02:00")
    schedule.call(sync, "us").daily(at="02:00")
    with pytest.raises(DefinitionError, match="name"):
        _ = schedule.tasks


def test_lk15_is_two_runs_where_two_environments_share_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = a_schedule(Counter())
    namespaces = []
    for environment in ("production", "staging"):
        monkeypatch.setenv("ROTA_ENV", environment)
        namespaces.append(namespace_of(schedule))
    assert namespaces == ["shop/production", "shop/staging"]
    stores: list[Store] = [open_store(f"sqlite:///{tmp_path}/rota.db", namespace=name) for name in namespaces]
    for store in stores:
        store.advance({"mark": store.look(Look({}, NOON)).now})
    assert [len(store.look(Look({"report": "mark"}, NOON)).marks) for store in stores] == [1, 1]
    assert all(name in repr(store) for name, store in zip(namespaces, stores, strict=True))
    for store in stores:
        store.close()


def test_lk23_is_a_release_that_touches_no_successor() -> None:
    schedule = Schedule("shop")
    schedule.call(print).name("report").every(minutes=1).without_overlapping()
    with site(schedule) as shop:
        first, second, third = (shop.host(name) for name in "abc")
        (task,) = schedule.tasks

        def ask(host: Runner, token: str) -> object:
            request = Request(task.run_key(NOON), token, token, MINUTE)
            return host.ask.acquire([request])[0][0]

        lease = ask(first, "a")
        shop.true.advance(61 * SECOND)
        successor = ask(second, "b")
        shop.true.advance(9 * SECOND)
        first.ask.release([lease])  # type: ignore[list-item]  # a refusal would fail here
        shop.true.advance(SECOND)
        assert getattr(ask(third, "c"), "by", None) == "b"
        assert list(shop.store.look(Look({}, NOON)).leases) == [successor]


def test_lk28_is_a_lease_of_four_renewals() -> None:
    assert SHORTEST_LEASE / renew_every(SHORTEST_LEASE) == 4
    schedule = Schedule("shop")
    with pytest.raises(DefinitionError, match="lease"):
        schedule.call(print).name("report").every(minutes=1).lease(seconds=5)


def test_lk35_is_the_first_claim_that_stands() -> None:
    with site(a_schedule(Counter())) as shop:
        first, second = shop.host("a"), shop.host("b")
        shop.tick(first, second)
        shop.true.now = NOON + MINUTE
        shop.tick(first)
        (row,) = shop.rows()
        shop.tick(second)
        assert shop.rows() == [row]
        assert row.server == "a"


def test_lk36_is_sixty_runs_an_hour_with_a_row_each_and_old_rows_go() -> None:
    counter = Counter()
    with site(a_schedule(counter)) as shop:
        first, second = shop.host("a"), shop.host("b")
        shop.tick(first, second)
        for minute in range(1, 61):
            shop.true.now = NOON + minute * MINUTE
            shop.tick(second, first)
        assert counter.runs == [NOON + minute * MINUTE for minute in range(1, 61)]
        assert len({row.occurrence for row in shop.rows()}) == 60
        shop.true.now += timedelta(days=1)
        assert shop.store.prune(shop.true.now) == 60
        ended = [event for event in shop.events if isinstance(event, told.Ended)]
        assert len(ended) == 60
