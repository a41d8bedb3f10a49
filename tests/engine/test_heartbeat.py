"""The heartbeat: one call renews everything, refusal ends trust at once, silence ends it in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from rota import StoreError, StoreUnavailable
from rota._core.leases import Lease, Request
from rota._core.rows import Answer, Refusal
from rota._engine.clock import Clock, Signal
from rota._engine.heartbeat import Heartbeat, Held
from rota.stores.memory import MemoryStore

TTL = timedelta(seconds=20)


class Counting(MemoryStore):
    """Counts renewals, and gives no answer while `silent`."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals: list[list[str]] = []
        self.silent = False
        self.renewed = threading.Event()

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        self.renewals.append([lease.key for lease in leases])
        self.renewed.set()
        if self.silent:
            raise StoreUnavailable("no answer")
        return super().renew(leases, ttl=ttl)


class HandClock(Clock):
    """A clock whose boot time is moved by hand; waiting moves it by as much as it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0

    def boot(self) -> float:
        return self.seconds

    def wait(self, signal: Signal, seconds: float | None) -> bool:
        if not signal.is_set() and seconds is not None:
            self.seconds += seconds
        return signal.is_set()


class Desk:
    def __init__(self) -> None:
        self.store, self.clock = Counting(), HandClock()
        self.told: list[tuple[str, StoreError]] = []
        self.heartbeat = Heartbeat(
            self.store, self.clock, told=lambda call, error: self.told.append((call, error))
        )

    def hold(self, key: str, ttl: timedelta = TTL) -> Held:
        (lease,) = self.store.acquire([Request(key, f"token of {key}", "web-1", ttl)]).items
        assert isinstance(lease, Lease)
        return self.heartbeat.hold(lease, ttl, sent=self.clock.boot())


@pytest.fixture
def desk() -> Iterator[Desk]:
    return Desk()


def test_one_call_renews_every_lease_of_a_length(desk: Desk) -> None:
    for key in "abc":
        desk.hold(key)
    desk.hold("long", timedelta(seconds=60))
    desk.heartbeat.beat()
    assert sorted(map(sorted, desk.store.renewals)) == [["a", "b", "c"], ["long"]]


def test_a_renewal_is_due_after_a_quarter_of_the_shortest_lease(desk: Desk) -> None:
    assert desk.heartbeat.seconds_to_beat() is None
    desk.hold("long", timedelta(seconds=60))
    assert desk.heartbeat.seconds_to_beat() == 15
    desk.hold("short")
    assert desk.heartbeat.seconds_to_beat() == 5


def test_leases_that_keep_coming_do_not_put_a_renewal_off(desk: Desk) -> None:
    desk.hold("first")
    desk.clock.seconds += 4
    desk.hold("second")
    assert desk.heartbeat.seconds_to_beat() == 1


def test_a_renewal_prolongs_trust(desk: Desk) -> None:
    held = desk.hold("a")
    desk.clock.seconds += 15
    desk.heartbeat.beat()
    desk.clock.seconds += 15
    assert not held.is_lost


def test_without_an_answer_trust_runs_out_a_margin_before_the_lease_and_never_returns(desk: Desk) -> None:
    held = desk.hold("a")
    desk.store.silent = True
    desk.heartbeat.beat()
    assert desk.told[0][0] == "renew"
    desk.clock.seconds += 17.9
    assert not held.is_lost
    desk.clock.seconds += 0.2
    assert held.is_lost
    desk.store.silent = False
    desk.heartbeat.beat()
    desk.clock.seconds -= 10
    assert held.is_lost


def test_a_refused_renewal_ends_trust_at_once(desk: Desk) -> None:
    held = desk.hold("a")
    desk.store.release([held.lease])
    desk.store.acquire([Request("a", "another", "web-2", TTL)])
    desk.heartbeat.beat()
    assert held.is_lost


def test_an_answer_that_comes_after_trust_has_ended_does_not_bring_it_back(desk: Desk) -> None:
    held = desk.hold("a")
    renew = desk.store.renew

    def slow(leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        answer = renew(leases, ttl=ttl)
        desk.clock.seconds += 19
        return answer

    desk.store.renew = slow  # type: ignore[method-assign]  # this one answer is slow
    desk.heartbeat.beat()
    assert held.is_lost


def test_a_dropped_or_lost_lease_is_renewed_no_more(desk: Desk) -> None:
    dropped, lost = desk.hold("a"), desk.hold("b")
    desk.heartbeat.drop(dropped)
    lost.lose()
    desk.heartbeat.beat()
    assert desk.store.renewals == []
    assert desk.heartbeat.seconds_to_beat() is None


def test_after_silence_the_next_try_comes_sooner_than_a_quarter_lease(desk: Desk) -> None:
    desk.hold("a")
    desk.clock.seconds += 5
    desk.store.silent = True
    desk.heartbeat.beat()
    assert desk.heartbeat.seconds_to_beat() == pytest.approx(1.25)


def test_its_thread_renews_until_it_is_stopped() -> None:
    store, clock = Counting(), Clock()
    heartbeat = Heartbeat(store, clock, told=lambda call, error: None)
    thread = threading.Thread(target=heartbeat.run)
    thread.start()
    (lease,) = store.acquire([Request("a", "t", "web-1", timedelta(seconds=0.4))]).items
    assert isinstance(lease, Lease)
    heartbeat.hold(lease, timedelta(seconds=0.4), sent=clock.boot())
    for _ in range(10):
        store.renewed.clear()
        assert store.renewed.wait(10)
    assert len(store.renewals) >= 10
    heartbeat.stop()
    thread.join(10)
    assert not thread.is_alive()
