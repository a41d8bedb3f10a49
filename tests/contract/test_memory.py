"""The store in memory keeps the contract, as itself and as the model of a store that can forget."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.stores.base import Look, Refused, Request, Store, StoreMisused
from rota.stores.memory import MemoryStore
from rota.testing import StoreClock, StoreContract, VolatileStoreContract


class TestMemory(StoreContract):
    clock = StoreClock()

    def open(self) -> Store:
        assert self.clock is not None
        return MemoryStore(clock=self.clock)


class TestVolatileMemory(VolatileStoreContract):
    clock = StoreClock()
    store: MemoryStore

    def open(self) -> Store:
        assert self.clock is not None
        store = MemoryStore(clock=self.clock, volatile=True)
        store.look(Look({}, self.clock.now))
        self.clock.advance(timedelta(days=2))
        return store

    def forget(self) -> None:
        self.store.flush()


class TestRestartedMemory(TestVolatileMemory):
    def forget(self) -> None:
        self.store.restart()


class TestMemoryWithTheHostsClock(StoreContract):
    def open(self) -> Store:
        return MemoryStore()


def test_a_restart_brings_the_snapshot_back_with_a_new_epoch() -> None:
    clock = StoreClock()
    store = MemoryStore(clock=clock, volatile=True)
    before = store.look(Look({}, clock.now)).epoch
    store.advance({"m": clock.now})
    snapshot = store.snapshot()
    clock.advance(timedelta(minutes=1))
    store.advance({"m": clock.now})
    store.restart(snapshot)
    for _ in range(2):
        view = store.look(Look({"a": "m"}, clock.now))
        assert view.marks["m"] == clock.now - timedelta(minutes=1)
        assert before is not None
        assert view.epoch == before + timedelta(minutes=1)
        store.advance({"m": clock.now})
        store.restart(snapshot)


def test_only_a_volatile_store_forgets() -> None:
    store = MemoryStore()
    for forget in (store.flush, store.restart, store.snapshot):
        with pytest.raises(StoreMisused, match="volatile"):
            forget()


def test_a_young_volatile_store_refuses_leases_from_its_first_call() -> None:
    store = MemoryStore(volatile=True)
    (refusal,) = store.acquire([Request("k", "t", "o", timedelta(seconds=30))]).items
    assert refusal.reason is Refused.STORE_LOST  # type: ignore[union-attr]  # a lease would fail here


def test_fences_of_keys_that_lapsed_long_ago_are_forgotten() -> None:
    clock = StoreClock()
    store = MemoryStore(clock=clock)
    for n in range(5000):
        store.acquire([Request(f"k{n}", "t", "o", timedelta(seconds=30))])
        clock.advance(timedelta(seconds=10))
    assert len(store._memory.fences) < 2000
