"""A whole server on a memory store: what one tick does with real threads, and what it writes down."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota import Schedule, StoreUnavailable
from rota._core.leases import Request
from rota._core.rows import Answer, Cause, End, Row, RowQuery, pause_key
from rota._core.runs import Outcome, SkipReason
from rota._engine import events as told
from rota._engine.events import Event, ListenerFailed
from rota._engine.server import Server
from rota.stores.memory import MemoryStore


class Reluctant(MemoryStore):
    """A memory store that gives no answer to the calls named in `silent`, before or after obeying."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: dict[str, int] = {}
        self.after_obeying = False

    def _answer(self, call: str) -> None:
        if self.silent.get(call, 0) > 0:
            self.silent[call] -= 1
            raise StoreUnavailable(f"{call}: no answer")

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        if not self.after_obeying:
            self._answer("settle")
        answer = super().settle(ends)
        if self.after_obeying:
            self._answer("settle")
        return answer


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("ROTA_SERVER", "web-1")


class Site:
    """A schedule on a memory store whose clock starts just before a full minute is due."""

    def __init__(self) -> None:
        self.store = Reluctant()
        self.schedule = Schedule("shop", store=self.store)
        self.events: list[Event] = []

    @contextmanager
    def server(self) -> Iterator[Server]:
        with Server(self.schedule, self.events.append) as server:
            yield server

    def rows(self, *tasks: str) -> Sequence[Row]:
        return self.store.rows(RowQuery(tasks=tasks)).items

    def make_due(self) -> None:
        """Let every task have been seen a second ago, so that what is due now has not been decided."""
        before = datetime.now(UTC) - timedelta(seconds=1.5)
        self.store.advance({task.mark_key: before for task in self.schedule.tasks}, first=True)

    def tick(self) -> None:
        """One tick for which every task is due, and the end of what it starts."""
        self.make_due()
        with self.server() as server:
            server.runner.tick()
            server.runner.carrier.finish()


@pytest.fixture
def site() -> Site:
    return Site()


def second(site: Site) -> object:
    return site.schedule.every(seconds=1)


def test_twenty_tasks_of_one_tick_go_on_at_once_and_one_that_fails_disturbs_no_other(site: Site) -> None:
    together = threading.Barrier(20)
    for number in range(20):

        def work(number: int = number) -> None:
            together.wait(20)
            if number == 7:
                raise ValueError("seven")
            if number == 8:
                raise SystemExit(8)

        site.schedule.call(work).name(f"task {number}").every(seconds=1)
    site.tick()
    outcomes = {row.occurrence.task: row.outcome for row in site.rows() if row.took is not None}
    assert len(outcomes) == 20
    assert {name for name, outcome in outcomes.items() if outcome is Outcome.FAILED} == {"task 7", "task 8"}


def test_a_row_tells_who_ran_it_how_long_and_what_it_printed(site: Site) -> None:
    site.schedule.call(print, "hello").name("greet").every(seconds=1)
    site.tick()
    row = next(row for row in site.rows() if row.outcome is Outcome.SUCCEEDED)
    assert (row.server, row.output, row.cause) == ("web-1", "hello\n", Cause.SCHEDULE)
    assert row.took is not None
    assert row.took < timedelta(seconds=5)


def test_a_filter_that_forbids_or_raises_is_told_by_name_and_nothing_is_run(site: Site) -> None:
    ran: list[str] = []

    def closed() -> bool:
        return False

    def broken() -> bool:
        raise KeyError("opening hours")

    site.schedule.call(ran.append, "a").name("a").every(seconds=1).when(closed)
    site.schedule.call(ran.append, "b").name("b").every(seconds=1).skip(broken)
    site.schedule.call(ran.append, "c").name("c").every(seconds=1).when(True).skip(lambda: None)
    site.tick()
    reasons = {row.occurrence.task: (row.reason, row.detail) for row in reversed(site.rows())}
    assert set(ran) == {"c"}
    assert reasons["a"][0] is SkipReason.FILTERED
    assert "closed" in reasons["a"][1]
    assert reasons["b"][0] is SkipReason.BROKEN
    assert "opening hours" in reasons["b"][1]


def pause(site: Site, task: str) -> None:
    site.store.acquire([Request(pause_key(task), "p", "ann", timedelta(days=1), note="deploy")])


@pytest.mark.parametrize("task", ["greet", "*"])
def test_a_paused_task_is_claimed_once_and_says_who_paused_it_and_why(site: Site, task: str) -> None:
    site.schedule.call(print).name("greet").every(seconds=1)
    pause(site, task)
    site.tick()
    (row, *_) = site.rows("greet")
    assert (row.reason, row.detail) == (SkipReason.PAUSED, "paused by ann: deploy")


def test_an_occurrence_that_meets_a_run_is_skipped_and_says_whose(site: Site) -> None:
    site.schedule.call(print).name("greet").every(seconds=1).without_overlapping()
    site.store.acquire([Request("run:greet", "other", "web-9", timedelta(seconds=60))])
    site.tick()
    (row, *_) = site.rows("greet")
    assert (row.reason, row.detail) == (SkipReason.OVERLAPPING, "web-9 still runs it")


def test_one_that_may_wait_stays_due_while_its_turn_is_held_and_starts_when_it_is_free(site: Site) -> None:
    site.schedule.call(print).name("greet").every(seconds=1).overlap("queue_one")
    (lease,) = site.store.acquire([Request("run:greet", "other", "web-9", timedelta(seconds=60))]).items
    site.tick()
    assert site.rows("greet") == []
    assert any(isinstance(event, told.Waits) and "web-9" in event.not_yet.why for event in site.events)
    site.store.release([lease])  # type: ignore[list-item]  # it was granted
    site.tick()
    assert Outcome.SUCCEEDED in {row.outcome for row in site.rows("greet")}


def test_every_lease_is_given_back_and_no_row_stays_open(site: Site) -> None:
    site.schedule.call(print).name("greet").every(seconds=1).without_overlapping()
    site.schedule.call(print).name("wait").every(seconds=1).overlap("queue_one").when(False)
    site.tick()
    assert not site.store.look(question_of(site)).leases
    assert not [row for row in site.rows() if row.is_open]


def question_of(site: Site) -> object:
    from rota._core.planner import question

    return question(site.schedule.tasks, datetime.now(UTC))


def test_a_call_by_hand_is_recorded_as_manual_and_takes_the_same_lock(site: Site) -> None:
    site.schedule.call(print, "hi").name("greet").yearly(on="01-01", at="00:00").without_overlapping()
    with site.server() as server:
        row = server.runner.call(site.schedule["greet"])
        assert row is not None
        assert (row.cause, row.outcome, row.output) == (Cause.MANUAL, Outcome.SUCCEEDED, "hi\n")
        site.store.acquire([Request("run:greet", "other", "web-9", timedelta(seconds=60))])
        refused = server.runner.call(site.schedule["greet"])
    assert refused is not None
    assert (refused.reason, refused.detail) == (SkipReason.OVERLAPPING, "web-9 still runs it")


def test_an_outcome_whose_answer_was_lost_is_settled_again_and_written_once(site: Site) -> None:
    site.schedule.call(print, "hi").name("greet").every(seconds=1)
    site.store.silent, site.store.after_obeying = {"settle": 2}, True
    site.tick()
    assert Outcome.SUCCEEDED in {row.outcome for row in site.rows("greet")}
    assert len([event for event in site.events if isinstance(event, told.StoreTrouble)]) == 2


def test_an_exception_may_say_anything_at_any_length(site: Site) -> None:
    def rude() -> None:
        raise ValueError("\udcff \0 " + "x" * 100_000)

    site.schedule.call(rude).name("rude").every(seconds=1)
    site.tick()
    (detail,) = {row.detail for row in site.rows("rude") if row.outcome is Outcome.FAILED}
    assert detail.startswith("ValueError: \\udcff \\0 xxx")
    assert len(detail) < 600


def test_a_process_that_ends_long_after_its_last_look_leaves_no_state(site: Site) -> None:
    site.schedule.call(print).name("greet").yearly(on="01-01", at="00:00")
    site.make_due()
    with site.server() as server:
        server.runner.tick()
        server.runner.looked_at -= 31
    assert Server(site.schedule).is_anything_due()


def test_a_listener_that_raises_is_told_and_stops_nothing(site: Site) -> None:
    def rude(event: Event) -> None:
        if not isinstance(event, ListenerFailed):
            raise OSError("the log is full")

    site.schedule.call(print).name("greet").every(seconds=1)
    site.make_due()
    with Server(site.schedule, rude, site.events.append) as server:
        server.runner.tick()
    assert Outcome.SUCCEEDED in {row.outcome for row in site.rows("greet")}
    assert any(
        isinstance(event, ListenerFailed) and "the log is full" in event.error for event in site.events
    )


def test_a_task_of_another_environment_is_not_held_at_all(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.schedule.call(print).name("greet").every(seconds=1).environments("production")
    monkeypatch.setenv("ROTA_ENV", "staging")
    site.tick()
    assert site.rows() == []


def test_a_task_of_every_server_is_run_by_each(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.schedule.call(print).name("clean").every(seconds=1).on_every_server()
    for name in ("web-1", "web-2"):
        monkeypatch.setenv("ROTA_SERVER", name)
        before = datetime.now(UTC) - timedelta(seconds=1.5)
        site.store.advance({task.on(name).mark_key: before for task in site.schedule.tasks}, first=True)
        with site.server() as server:
            server.runner.tick()
    ran = {row.occurrence.task for row in site.rows() if row.outcome is Outcome.SUCCEEDED}
    assert ran == {"clean@web-1", "clean@web-2"}


def test_no_more_runs_go_on_than_may_and_the_others_stay_due(site: Site) -> None:
    going_on, most = [0], [0]
    lock = threading.Lock()
    release, arrived = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        with lock:
            going_on[0] += 1
            most[0] = max(most[0], going_on[0])
        arrived.release()
        release.wait(10)
        with lock:
            going_on[0] -= 1

    for number in range(5):
        site.schedule.call(work).name(f"task {number}").every(minutes=1)
    before = datetime.now(UTC) - timedelta(seconds=61)
    site.store.advance({task.mark_key: before for task in site.schedule.tasks}, first=True)
    with Server(site.schedule, site.events.append, most=2) as server:
        tick = server.runner.tick()
        assert tick.left >= 3
        assert all(arrived.acquire(timeout=10) for _ in range(2))
        release.set()
        server.runner.carrier.finish()
        while server.runner.tick().left:
            server.runner.carrier.finish()
    assert most[0] == 2
    ran = {row.occurrence.task for row in site.rows() if row.outcome is Outcome.SUCCEEDED}
    assert ran == {f"task {number}" for number in range(5)}


def test_nothing_due_is_known_without_opening_the_store_after_an_hour_at_most(site: Site) -> None:
    site.schedule.call(print).name("greet").yearly(on="01-01", at="00:00")
    assert Server(site.schedule).is_anything_due()
    site.tick()
    assert not Server(site.schedule).is_anything_due()


def test_first_sight_is_told_once_and_starts_nothing(site: Site) -> None:
    site.schedule.call(print).name("greet").yearly(on="01-01", at="00:00")
    for _ in range(2):
        with site.server() as server:
            server.runner.tick()
    seen = [event for event in site.events if isinstance(event, told.FirstSeen)]
    assert [event.tasks for event in seen] == [("greet",)]
    assert site.rows() == []
