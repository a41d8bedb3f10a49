"""The memcached store keeps the contract, on a real server."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient

from rota._core.errors import DefinitionError
from rota.stores import memcached, open_store
from rota.stores.base import (
    LONGEST_LEASE,
    Claim,
    End,
    Lease,
    Look,
    Occurrence,
    Outcome,
    Refusal,
    Refused,
    Request,
    Row,
    RowQuery,
    Store,
    microseconds,
)
from rota.stores.memcached import SHEETS, MemcachedStore
from rota.stores.memcached.sheets import Sheet
from rota.testing import StoreClock, VolatileStoreContract
from tests.servers import shared, until
from tests.servers.memcached import Memcached, age, memcached_server, start
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.service

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

own_server = shared(lambda purpose: start())  # for those who flush it or stop it


class TestMemcached(VolatileStoreContract):
    """With the clock in the hands of the test, so that every edge is seen; forgets by a flush."""

    clock = StoreClock()
    store: MemcachedStore
    server: Memcached
    name: str

    def open(self) -> Store:
        self.server, self.name = self.served(), uuid.uuid4().hex
        store = self.open_again()
        self.grow_old(store)
        return store

    def open_again(self) -> MemcachedStore:
        return MemcachedStore(
            ("127.0.0.1", self.server.port), self.name, clock=self.clock, longest_lease=self.longest_lease
        )

    def served(self) -> Memcached:
        return own_server("flushed")

    def grow_old(self, store: MemcachedStore) -> None:
        """Until the epoch of the first look is long past."""
        assert self.clock is not None
        store.look(Look({}, self.clock.now))
        self.clock.advance(2 * DAY)

    def forget(self) -> None:
        self.server.flush()


class TestMemcachedWithItsOwnClock(TestMemcached):
    """By the clock of the server, which shows seconds."""

    clock = None  # type: ignore[assignment]  # the subclass has no clock to drive

    def setup_method(self, method: Any = None) -> None:
        waits_for_its_end = "longest_lease_after" in method.__name__
        self.longest_lease = 5 * SECOND if waits_for_its_end else LONGEST_LEASE
        super().setup_method(method)

    @property
    def short(self) -> timedelta:
        return 2 * SECOND

    @property
    def tick(self) -> timedelta:
        return SECOND

    def pass_time(self, by: timedelta) -> None:
        """Until that much has passed by the clock of the server."""
        then = self.now() + by
        until(lambda: self.now() >= then, by.total_seconds() + 5, "the server's clock")

    def grow_old(self, store: MemcachedStore) -> None:
        age(store)


class TestRestartedMemcached(TestMemcached):
    """Forgets by a restart. Its clock is the test's: no need to wait until the server's has settled."""

    @pytest.fixture(autouse=True)
    def _settled_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memcached, "SETTLED", timedelta(0))

    def served(self) -> Memcached:
        return own_server("restarted")

    def forget(self) -> None:
        self.server.restart()


_opened: list[MemcachedStore] = []


@pytest.fixture(autouse=True)
def _close_what_was_opened() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def opened(port: int, *, namespace: str = "", old: bool = True, options: str = "") -> MemcachedStore:
    """A store that is closed at the end of the test; long after its epoch, if it is to be old."""
    store = open_store(f"memcached://127.0.0.1:{port}{options}", namespace=namespace or uuid.uuid4().hex)
    assert isinstance(store, MemcachedStore)
    _opened.append(store)
    if old:
        age(store)
    return store


def claims(store: Store, count: int, *, token: str = "t", **changes: Any) -> list[Claim]:
    now = store.claim([]).now
    times = {"not_before": now - DAY, "not_after": now + DAY, "keep_until": now + DAY, **changes}
    return [
        Claim(Occurrence(f"task {n}", now), 1, token, "web-1", start_within=MINUTE, **times)
        for n in range(count)
    ]


def counted(proxy: Proxy, call: Callable[[], object]) -> int:
    """How many round trips the call takes."""
    before = proxy.trips
    call()
    return proxy.trips - before


def test_a_call_takes_two_round_trips_and_one_where_nothing_is_to_be_written() -> None:
    with Proxy(memcached_server().port) as proxy:
        store = opened(proxy.port)
        now = store.claim([]).now
        fifty = claims(store, 50)
        ends = [
            End(each.occurrence, 1, "t", Outcome.SUCCEEDED, each.keep_until, server="web-1") for each in fifty
        ]
        requests = [Request(f"k{n}", "t", "web-1", MINUTE) for n in range(50)]
        others = [Request(f"k{n}", "u", "web-2", MINUTE) for n in range(50)]
        marks = {f"mark {n}": now for n in range(50)}
        look = Look({f"task {n}": f"mark {n}" for n in range(50)}, now)

        assert counted(proxy, lambda: store.look(look)) == 1
        assert counted(proxy, lambda: store.claim(fifty)) == 2
        assert counted(proxy, lambda: store.claim(fifty)) == 1
        assert counted(proxy, lambda: store.acquire(requests)) == 2
        leases = [lease for lease in store.look(look).leases if isinstance(lease, Lease)]
        assert len(leases) == 50
        assert counted(proxy, lambda: store.acquire(others)) == 1
        assert counted(proxy, lambda: store.renew(leases, ttl=2 * MINUTE)) == 2
        assert counted(proxy, lambda: store.advance(marks)) == 2
        assert counted(proxy, lambda: store.advance(marks)) == 1
        assert counted(proxy, lambda: store.settle(ends)) == 2
        assert counted(proxy, lambda: store.settle(ends)) == 1
        assert counted(proxy, lambda: store.release(leases)) == 2
        assert counted(proxy, lambda: store.release(leases)) == 1
        assert counted(proxy, lambda: store.rows(RowQuery())) == 1
        assert counted(proxy, lambda: store.prune(now)) == 1
        assert proxy.connections == 1


def test_a_new_server_costs_a_look_one_more_round_trip() -> None:
    with Proxy(memcached_server().port) as proxy:
        store = opened(proxy.port, old=False)
        store.claim([])
        assert counted(proxy, lambda: store.look(Look({}, store.claim([]).now))) == 3  # one is for now
        assert counted(proxy, lambda: store.look(Look({}, store.claim([]).now))) == 2


def test_namespaces_on_one_server_do_not_see_each_other() -> None:
    prefix = uuid.uuid4().hex
    names = [f"{prefix} {name}" for name in ("shop", "shop/test", "shop%", "SHOP", "shöp\n", "shop" * 100)]
    stores = [opened(memcached_server().port, namespace=name) for name in names]
    for store in stores:
        (row,) = store.claim(claims(store, 1, token=store.namespace)).items
        assert isinstance(row, Row)
        assert row.token == store.namespace
    for store in stores:
        assert [row.token for row in store.look(Look({}, store.claim([]).now)).rows] == [store.namespace]


def test_the_keys_of_items_are_plain_and_short_whatever_the_namespace() -> None:
    store = MemcachedStore(("h", 1), "ä b\r\nset x \ud800" * 100)
    keys = [*store._row_sheets, *store._lease_sheets]
    assert len(set(keys)) == 2 * SHEETS
    assert all(key.isascii() and key.isprintable() and " " not in key and len(key) < 60 for key in keys)


def test_an_item_never_expires_by_itself() -> None:
    """What memcached takes for ever (0), for a date (more than 30 days) and rounds to seconds is not used:
    that a pause lasts 400 days and a lease a microsecond is said inside the sheet."""
    store = opened(memcached_server().port)
    now = store.claim([]).now
    pause = Request("pause:*", "t", "web-1", 400 * DAY)
    moment = Request("k", "t", "web-1", timedelta(microseconds=1))
    (held, gone) = store.acquire([pause, moment]).items
    assert isinstance(held, Lease)
    assert isinstance(gone, Lease)
    assert held.until - held.since == 400 * DAY
    assert gone.until - gone.since == timedelta(microseconds=1)
    until(lambda: store.claim([]).now > now, 5, "the next second")
    assert [lease.key for lease in store.look(Look({}, now)).leases] == ["pause:*"]
    client = memcached_server().client()
    try:
        sheets = [*store._row_sheets, *store._lease_sheets]
        times_to_live = [client.raw_command(f"mg {key} t") for key in sheets]
    finally:
        client.close()
    assert set(times_to_live) == {b"HD t-1"}


def test_rows_leave_their_sheet_when_they_need_not_be_kept_and_are_decided_still() -> None:
    clock = StoreClock()
    store = MemcachedStore(("127.0.0.1", memcached_server().port), uuid.uuid4().hex, clock=clock)
    _opened.append(store)
    store.look(Look({}, clock.now))
    clock.advance(DAY)
    due, hour = clock.now, timedelta(hours=1)

    def end(n: int, *, keep: timedelta) -> End:
        occurrence = Occurrence("a", due + n * MINUTE)
        return End(occurrence, 1, "t", Outcome.SUCCEEDED, occurrence.due + keep)

    def kept() -> list[int]:
        clock.advance(timedelta(microseconds=1))
        store.advance({"pruned:a": due - DAY, "m of the same sheet": due - DAY})
        rows = store._wires.use(lambda wire, deadline: store._read(wire, [sheet], deadline)[1][sheet].rows)
        return sorted((row[1] - microseconds(due)) // 60_000_000 for row in rows.values())

    sheet = store._sheet_of_task("a")
    store.settle([end(0, keep=timedelta(0)), end(1, keep=hour), end(2, keep=timedelta(0))])
    claim = Claim(Occurrence("a", due + 9 * MINUTE), 1, "t", "", due, due + DAY, MINUTE, due)
    store.claim([claim])
    assert kept() == [0, 1, 2, 9]
    clock.advance(timedelta(minutes=9))
    store.settle([end(3, keep=hour)])
    assert kept() == [0, 1, 2, 3, 9]
    clock.advance(timedelta(minutes=5))
    store.settle([end(4, keep=hour)])
    assert kept() == [1, 3, 4, 9]
    again = [end(n, keep=hour) for n in range(3)]
    first, second, third = store.settle(again).items
    assert (first, third) == (None, None)
    assert second is not None
    refused = [Claim(each.occurrence, 1, "u", "", due, due + DAY, MINUTE, due) for each in again]
    assert store.claim(refused).items == [Refusal(Refused.TOO_LATE), second, Refusal(Refused.TOO_LATE)]
    clock.advance(DAY)
    store.settle([end(60, keep=hour)])
    assert kept() == [9, 60]


def test_what_lapsed_leaves_its_sheet_and_its_fence_an_hour_later() -> None:
    clock = StoreClock()
    store = MemcachedStore(("127.0.0.1", memcached_server().port), uuid.uuid4().hex, clock=clock)
    _opened.append(store)
    store.look(Look({}, clock.now))
    clock.advance(DAY)

    def sheets() -> list[Sheet]:
        names = store._lease_sheets
        return list(store._wires.use(lambda wire, deadline: store._read(wire, names, deadline)[1]).values())

    store.acquire([Request(f"k{n}", "t", "o", MINUTE) for n in range(100)])
    assert sum(len(sheet.leases) for sheet in sheets()) == 100
    clock.advance(2 * MINUTE)
    store.acquire([Request(f"l{n}", "t", "o", MINUTE) for n in range(100)])
    assert sum(len(sheet.leases) for sheet in sheets()) == 100
    assert sum(len(sheet.fences) for sheet in sheets()) == 200
    clock.advance(timedelta(minutes=60))
    store.acquire([Request(f"m{n}", "t", "o", MINUTE) for n in range(100)])
    assert sum(len(sheet.fences) for sheet in sheets()) == 200


def test_it_says_what_an_operator_should_see_to() -> None:
    store = opened(memcached_server().port)
    said = " / ".join(store.concerns())
    assert "keeps no history" in said
    assert "-M is not set" in said
    assert "1048576 bytes (-I)" in said
    assert "evicted" not in said
    assert "MB of memory" not in said


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("memcached://cache", ("cache", 11211)),
        ("memcached://cache:1234/", ("cache", 1234)),
        ("memcached://[::1]:1234", ("::1", 1234)),
        ("memcached://[::1]", ("::1", 11211)),
    ],
)
def test_a_url_names_one_server(url: str, address: tuple[str, int]) -> None:
    store = open_store(url, namespace="shop")
    assert isinstance(store, MemcachedStore)
    assert store._wires.address == address


@pytest.mark.parametrize(
    "url",
    [
        "memcached:",
        "memcached://",
        "memcached:///tmp/socket",
        "memcached://cache/0",
        "memcached://user:s3cret@cache",
        "memcached://cache:0",
        "memcached://cache:99999",
        "memcached://::1",
    ],
)
def test_a_url_that_names_no_server_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(DefinitionError, match="memcached://host:11211") as error:
        open_store(url, namespace="shop")
    assert "s3cret" not in f"{error.value} {error.value!r}"


def test_a_list_of_servers_is_refused() -> None:
    with pytest.raises(DefinitionError, match="one memcached server only") as error:
        open_store("memcached://user:s3cret@a,b:11211", namespace="shop")
    assert "s3cret" not in f"{error.value} {error.value!r}"
    with pytest.raises(DefinitionError, match=r"one memcached server only.*a client of 2 servers"):
        open_store(HashClient(["a", "b"]), namespace="shop")


@contextmanager
def closing(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize(
    "kind", [Client, PooledClient, lambda server: HashClient([server])], ids=["plain", "pooled", "hashed"]
)
def test_a_client_of_the_applications_names_the_server_and_stays_its_own(kind: Any) -> None:
    with closing(kind(("127.0.0.1", memcached_server().port))) as client:
        client.set("mine", "1", noreply=False)
        store = open_store(client, namespace=uuid.uuid4().hex)
        assert isinstance(store, MemcachedStore)
        store.look(Look({}, store.claim([]).now))
        store.close()
        assert client.get("mine") == b"1"


def test_the_store_keeps_no_more_connections_than_calls_at_once() -> None:
    with Proxy(memcached_server().port) as proxy:
        store = opened(proxy.port)
        for _ in range(20):
            store.claim(claims(store, 3))
        assert proxy.connections == 1
        store.close()
        store.close()
        assert store.rows(RowQuery()).items == []
        assert proxy.connections == 2


def test_pymemcache_is_imported_by_its_driver_only() -> None:
    source = "import sys, rota.stores; print('pymemcache' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", source], text=True) == "False\n"
