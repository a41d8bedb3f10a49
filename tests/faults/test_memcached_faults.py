"""What the world does to a memcached server: rota says so in time, in words, and starts nothing twice."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymemcache.exceptions import MemcacheServerError

from rota.stores import memcached, open_store
from rota.stores.base import (
    Answer,
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
    StoreUnavailable,
    View,
)
from rota.stores.memcached import MemcachedStore
from rota.stores.memcached.wire import Wire
from tests.servers import shared, until
from tests.servers.memcached import LONG_AGO, Memcached, age, memcached_server
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.service

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
LIMIT = 0.5
STORE_LOST = Refusal(Refused.STORE_LOST)
BOUND = 3.0
"""How long a call with the time limit may take at most; generous, for a busy machine."""

_opened: list[MemcachedStore] = []


@pytest.fixture(autouse=True)
def _close_what_was_opened() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


_own_server = shared(lambda: Memcached())


@pytest.fixture
def server() -> Memcached:
    """One to be stopped and flushed. It runs, and its clock has settled."""
    own = _own_server()
    if not own.runs:
        own.start()
    own.settle()
    return own


@contextmanager
def special(*options: str) -> Iterator[Memcached]:
    """One with options of its own."""
    server = Memcached(*options)
    try:
        server.settle()
        yield server
    finally:
        server.remove()


def opened(port: int, namespace: str = "", *, limit: float = LIMIT, old: bool = True) -> MemcachedStore:
    url = f"memcached://127.0.0.1:{port}?timeout={limit}"
    store = open_store(url, namespace=namespace or uuid.uuid4().hex)
    assert isinstance(store, MemcachedStore)
    _opened.append(store)
    if old:
        age(store)
    return store


def look(store: MemcachedStore, *tasks: str) -> View:
    return store.look(Look({task: f"mark:{task}" for task in tasks}, LONG_AGO))


def a_claim(now: datetime, token: str = "t", task: str = "a", **changes: Any) -> Claim:
    times = {"not_before": now - MINUTE, "not_after": now + DAY, "keep_until": now + DAY, **changes}
    return Claim(Occurrence(task, now), 1, token, token, start_within=MINUTE, **times)


def an_end(now: datetime, token: str = "t", task: str = "a", **changes: Any) -> End:
    return End(Occurrence(task, now), 1, token, Outcome.SUCCEEDED, now + DAY, **changes)


def a_lease(now: datetime, token: str = "t", key: str = "k") -> Lease:
    return Lease(key, token, token, now, now, 1)


def a_request(token: str = "t", key: str = "k", ttl: timedelta = MINUTE, **changes: Any) -> Request:
    return Request(key, token, token, ttl, **changes)


def refused(call: Callable[[], object], match: str, *, within: float = BOUND) -> StoreUnavailable:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=match) as error:
        call()
    assert time.monotonic() - began < within
    assert "memcached://127.0.0.1:" in str(error.value)
    return error.value


# what networks do


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Proxy, threading.Event]]:
    """A proxy that breaks the connection in place of the answer to the next write once the event is set."""
    write, armed = Wire.write, threading.Event()
    with Proxy(memcached_server().port) as proxy:

        def write_and_lose(wire: Wire, commands: Sequence[bytes], deadline: float) -> list[bool]:
            if armed.is_set():
                armed.clear()
                proxy.lose_reply()
            return write(wire, commands, deadline)

        monkeypatch.setattr(Wire, "write", write_and_lose)
        yield proxy, armed


def test_an_answer_that_is_lost_after_the_write_is_repaired_by_asking_again(
    losing: tuple[Proxy, threading.Event],
) -> None:
    """On a connection that was idle the driver asks again itself: the same claim, lease and end."""
    proxy, armed = losing
    store = opened(proxy.port, limit=5)
    other = opened(memcached_server().port, store.namespace)
    now = store.claim([]).now

    def lost(call: Callable[[], Any]) -> Any:
        armed.set()
        connections = proxy.connections
        answer = call()
        assert not armed.is_set()
        assert proxy.connections == connections + 1
        return answer

    row = lost(lambda: store.claim([a_claim(now)]).items[0])
    assert isinstance(row, Row)
    assert (row.token, row.is_open) == ("t", True)
    assert other.claim([a_claim(now, "u")]).items == [row]
    lease = lost(lambda: store.acquire([a_request()]).items[0])
    assert isinstance(lease, Lease)
    assert lease.token == "t"
    assert other.acquire([a_request("u")]).items == [Refusal(Refused.HELD, "t", lease.until)]
    end = lost(lambda: store.settle([an_end(now)]).items[0])
    assert (end.token, end.outcome, end.since) == ("t", Outcome.SUCCEEDED, row.since)
    assert other.settle([an_end(now, "u")]).items == [end]
    assert isinstance(lost(lambda: store.renew([lease], ttl=2 * MINUTE).items[0]), Lease)
    assert lost(lambda: store.advance({"m": now}).items) == [now]
    assert lost(lambda: store.release([lease]).items) == [False]
    assert isinstance(other.acquire([a_request("u")]).items[0], Lease)


def test_an_answer_that_is_lost_on_a_fresh_connection_is_told_and_asking_again_finds_the_write(
    losing: tuple[Proxy, threading.Event],
) -> None:
    proxy, armed = losing
    store = opened(proxy.port)
    now = store.claim([]).now

    def lost(call: Callable[[], Any]) -> Any:
        store.close()
        armed.set()
        refused(call, "reset|closed")
        assert not armed.is_set()
        return call()

    row = lost(lambda: store.claim([a_claim(now)]).items[0])
    lease = lost(lambda: store.acquire([a_request()]).items[0])
    end = lost(lambda: store.settle([an_end(now)]).items[0])
    assert [each.token for each in (row, lease, end)] == ["t"] * 3
    assert store.claim([a_claim(now, "u")]).items == [end]
    assert isinstance(store.acquire([a_request("u")]).items[0], Refusal)


def test_an_answer_slower_than_the_time_limit_is_given_up_and_the_store_goes_on() -> None:
    with Proxy(memcached_server().port) as proxy:
        store = opened(proxy.port)
        now = store.claim([]).now
        proxy.delay = 2 * LIMIT
        for _ in range(2):
            refused(lambda: store.claim([a_claim(now)]), "no answer within 0.5 s")
        proxy.delay = 0
        (row,) = store.claim([a_claim(now)]).items
        assert isinstance(row, Row)


@pytest.mark.parametrize("mode", ["blackhole", "drop_reply"])
def test_a_half_open_connection_is_given_up_at_the_time_limit(mode: Any) -> None:
    with Proxy(memcached_server().port) as proxy:
        store = opened(proxy.port)
        now = store.claim([]).now
        proxy.mode = mode
        calls: list[Callable[[], object]] = [
            lambda: look(store),
            lambda: store.claim([a_claim(now)]),
            lambda: store.settle([an_end(now)]),
            lambda: store.acquire([a_request()]),
            lambda: store.renew([a_lease(now)], ttl=MINUTE),
            lambda: store.release([a_lease(now)]),
            lambda: store.advance({"m": now}),
            lambda: store.prune(now),
        ]
        for call in calls:
            refused(call, "no answer within 0.5 s")
        proxy.mode = "ok"
        assert isinstance(store.claim([a_claim(now)]).items[0], Row)


def test_connections_that_a_firewall_forgot_cost_one_call_and_not_one_each() -> None:
    with Proxy(memcached_server().port) as proxy:
        store = opened(proxy.port)
        together = threading.Barrier(5)

        def work(wire: Wire, deadline: float) -> None:
            together.wait(10)

        threads = [threading.Thread(target=store._wires.use, args=(work,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert proxy.connections == 5
        proxy.mode = "blackhole"
        refused(lambda: store.claim([]), "no answer")
        proxy.mode = "ok"
        assert store.claim([]).items == []


def test_answers_that_trickle_do_not_outlast_the_time_limit() -> None:
    """Each byte comes in time, all of them never do: the limit is one for the call, not for each reading."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(b"STAT item_size_max 1048576\r\nEND\r\n")
                connection.recv(1 << 16)
                while not stop.is_set():
                    connection.sendall(b"STAT a ")
                    time.sleep(0.05)

        thread = threading.Thread(target=serve)
        thread.start()
        store = opened(listener.getsockname()[1], old=False)
        refused(lambda: store.claim([]), "no answer within 0.5 s")
        stop.set()
        thread.join()


def test_a_server_that_is_refused_at_the_start_may_come_later() -> None:
    with Proxy(memcached_server().port) as proxy:
        proxy.mode = "refuse"
        store = opened(proxy.port, old=False)
        refused(lambda: store.claim([]), "reset|closed")
        proxy.mode = "ok"
        assert store.claim([]).items == []
        proxy.mode = "refuse"
        proxy.reset()
        refused(lambda: store.claim([]), "reset|closed")
        proxy.mode = "ok"
        assert store.claim([]).items == []


def test_where_nobody_listens_it_is_said(server: Memcached) -> None:
    store = opened(server.port)
    server.stop()
    refused(lambda: store.claim([]), "nobody listens there; does memcached run")
    fresh = opened(server.port, old=False)
    refused(lambda: fresh.claim([]), "nobody listens there")
    server.start()
    for each in (store, fresh):
        assert each.claim([]).items == []


def test_a_host_that_is_not_known_is_said_to_be_so() -> None:
    store = open_store("memcached://no-such-host.invalid?timeout=5", namespace="shop")
    with pytest.raises(
        StoreUnavailable, match=r"memcached://no-such-host\.invalid:11211: the host is not known"
    ):
        store.claim([])


def test_of_the_addresses_of_a_host_the_one_that_answers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """localhost is ::1 first on many machines, and memcached listens on 127.0.0.1 only."""
    port = memcached_server().port
    places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]
    places.append((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)))
    real = socket.getaddrinfo

    def known(host: str, *arguments: Any, **options: Any) -> Any:
        return places if host == "both" else real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    store = open_store(f"memcached://both:{port}", namespace="shop")
    assert store.claim([]).items == []
    store.close()
    places.pop()
    with pytest.raises(StoreUnavailable, match="nobody listens there"):
        store.claim([])


def test_a_frozen_server_is_given_up_at_the_time_limit_and_taken_up_again(server: Memcached) -> None:
    store = opened(server.port)
    now = store.claim([]).now
    os.kill(server.pid, signal.SIGSTOP)
    try:
        refused(lambda: store.claim([a_claim(now)]), "no answer within 0.5 s")
        fresh = opened(server.port, store.namespace, old=False)
        refused(lambda: fresh.claim([a_claim(now, "u")]), "no answer within 0.5 s")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    tokens = {
        each.claim([a_claim(now, each_token)]).items[0] for each, each_token in ((store, "t"), (fresh, "u"))
    }
    assert len(tokens) == 1


def test_what_was_asked_of_a_frozen_server_is_not_decided_by_the_clock_of_before(server: Memcached) -> None:
    """A lease of then would end at once by the clock of now, and its holder would not know."""
    stores = [opened(server.port, limit=5) for _ in range(8)]
    before, began = [store.claim([]).now for store in stores][-1], time.monotonic()
    answers: list[Answer[Lease | Refusal]] = []
    threads = [
        threading.Thread(target=lambda store=store: answers.append(store.acquire([a_request()])))
        for store in stores
    ]
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for thread in threads:
            thread.start()
        threads[0].join(4)
        frozen = timedelta(seconds=time.monotonic() - began)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    for thread in threads:
        thread.join()
    assert len(answers) == len(stores)
    for answer in answers:
        (lease,) = answer.items
        assert isinstance(lease, Lease)
        assert lease.until == answer.now + MINUTE
        assert answer.now - before > frozen - timedelta(seconds=2)


def test_an_answer_that_took_long_may_be_of_before_and_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same, for sure: the first answer is late and old."""
    store, read, calls = opened(memcached_server().port), Wire.read, 0
    now = store.claim([]).now

    def frozen_at_first(wire: Wire, names: Sequence[str], deadline: float) -> Any:
        nonlocal calls
        calls += 1
        told, items = read(wire, names, deadline)
        if calls == 1:
            time.sleep(2 * memcached.PROMPT)
            for clock in ("time", "uptime"):
                told[clock] = f"{int(told[clock]) - 60}"
        return told, items

    monkeypatch.setattr(Wire, "read", frozen_at_first)
    answer = store.acquire([a_request()])
    assert answer.now >= now
    assert isinstance(answer.items[0], Lease)
    assert calls == 2


def test_parent_and_child_of_a_fork_do_not_share_connections() -> None:
    with Proxy(memcached_server().port) as proxy:
        store = opened(proxy.port, limit=5)
        now = store.claim([]).now
        assert isinstance(store.acquire([a_request("parent")]).items[0], Lease)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                (answer,) = store.acquire([a_request("child")]).items
                store.advance({"m": now})
                store.close()
                code = 0 if isinstance(answer, Refusal) else 2
            finally:
                os._exit(code)
        for _ in range(50):
            store.claim([])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert proxy.connections == 2
        assert store.look(Look({"a": "m"}, now)).marks == {"m": now}


# what servers do


def test_a_restarted_server_is_taken_up_unnoticed_and_what_was_before_is_store_lost(
    server: Memcached,
) -> None:
    store, other = opened(server.port, "shop"), opened(server.port, "shop")
    now = store.claim([]).now
    assert isinstance(store.claim([a_claim(now)]).items[0], Row)
    assert isinstance(store.acquire([a_request()]).items[0], Lease)
    server.restart()
    for each in (store, other):
        assert each.claim([a_claim(now, "u", not_before=now)]).items == [STORE_LOST]
        (answer,) = each.acquire([a_request("u")]).items
        assert isinstance(answer, Refusal)
        assert answer.reason is Refused.STORE_LOST
    view = look(store)
    assert view.epoch is not None
    assert view.quiet_until == view.epoch + timedelta(minutes=5)
    assert (list(view.rows), list(view.leases)) == ([], [])


def test_a_clock_that_begins_anew_brings_no_instant_back(server: Memcached) -> None:
    """After a start the server's clock may show what the one before it has shown already, for a second or
    more: a claim of then would not be before the epoch. So the epoch lies after that."""
    store = opened(server.port, "shop", limit=5)
    last = store.claim([]).now
    server.kill()
    server.start()
    view = look(store)
    assert view.epoch is not None
    epoch = view.epoch
    assert epoch >= last + timedelta(seconds=1)
    assert epoch - view.now >= timedelta(seconds=2)
    until(lambda: store.claim([]).now > epoch, 10, "the epoch to be over")
    assert look(store).epoch == epoch


def test_a_server_that_remembers_over_a_restart_has_a_new_epoch_all_the_same() -> None:
    """memcached -e keeps its items in a file; nobody knows how old they are."""
    file = Path(f"/dev/shm/rota-{uuid.uuid4().hex}")
    try:
        with special("-m", "64", "-e", f"{file}") as kept:
            store = opened(kept.port, "shop", limit=5)
            now = store.claim([]).now
            store.advance({"mark:a": now - MINUTE})
            store.claim([a_claim(now)])
            assert look(store).epoch == LONG_AGO
            os.kill(kept.pid, signal.SIGUSR1)
            until(lambda: not kept.runs, 10, "its orderly end")
            time.sleep(3)  # it takes nothing up when its new clock shows less than its old one did
            kept.start()
            view = look(store, "a")
            assert view.marks == {"mark:a": now - MINUTE}
            assert [row.token for row in view.rows] == ["t"]
            assert view.epoch is not None
            assert view.epoch > now
            assert store.claim([a_claim(now, task="b", not_before=now)]).items == [STORE_LOST]
    finally:
        for left in file.parent.glob(f"{file.name}*"):
            left.unlink()


def flush(server: Memcached) -> None:
    server.flush()


def restart(server: Memcached) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("forget", [flush, restart])
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_what_is_forgotten_between_any_two_calls_starts_nothing_twice(
    server: Memcached, forget: Callable[[Memcached], None], times: int
) -> None:
    """Two servers take turns at one occurrence of a task that may not overlap, call by call; whoever has its
    row and its lease starts, and the first goes on running whatever the store forgets."""
    calls = ["look", "look", "claim", "claim", "acquire", "acquire", "settle", "claim", "release", "acquire"]
    cuts = list(itertools.combinations(range(len(calls)), times))
    if times == 2:
        cuts = cuts[:: 3 if forget is flush else 15]
    started = []
    for cut in cuts:
        namespace = uuid.uuid4().hex
        stores = [opened(server.port, namespace, limit=5, old=number == 0) for number in range(2)]
        now = stores[0].claim([]).now
        claimed: set[str] = set()
        starts: list[str] = []
        for step, call in enumerate(calls):
            if step in cut:
                forget(server)
            name, store = "ab"[step % 2], stores[step % 2]
            if call == "look":
                look(store, "a")
            elif call == "claim":
                (row,) = store.claim([a_claim(now, name, not_before=now)]).items
                if isinstance(row, Row) and row.is_open and row.token == name:
                    claimed.add(name)
            elif call == "acquire":
                (lease,) = store.acquire([a_request(name, "run:a")]).items
                if isinstance(lease, Lease) and name in claimed:
                    starts.append(name)
            elif call == "settle" and name in starts:
                store.settle([an_end(now, name)])
            elif call == "release" and name in starts:
                store.release([a_lease(now, name, "run:a")])
        assert len(starts) <= 1, (cut, starts)
        if starts:
            started.append(cut)
        for store in stores:
            store.close()
    assert started == [cut for cut in cuts if min(cut) > 4]


def test_after_a_flush_a_newer_occurrence_does_not_meet_the_run_of_the_one_before(server: Memcached) -> None:
    """Its claim is granted, as nobody can have had it; the key of the task not, until every lease is over."""
    store = opened(server.port, limit=5)
    now = store.claim([]).now
    assert isinstance(store.acquire([a_request("before", "run:a")]).items[0], Lease)
    server.flush()
    epoch = look(store).epoch
    assert epoch is not None
    until(lambda: store.claim([]).now > epoch, 5, "the next second")
    due = store.claim([]).now
    (row,) = store.claim([a_claim(due, "after", not_before=due)]).items
    assert isinstance(row, Row)
    (answer,) = store.acquire([a_request("after", "run:a")]).items
    assert answer == Refusal(Refused.STORE_LOST, until=epoch + timedelta(minutes=5))
    assert now < due


class Race:
    """Two servers ask for the same occurrences and keys again and again; who was given what."""

    def __init__(self, port: int) -> None:
        self.stores = [opened(port, "race", limit=5, old=number == 0) for number in range(2)]
        self.began = self.stores[0].claim([]).now
        self.wins: dict[str, set[str]] = defaultdict(set)
        self.leases: dict[str, set[str]] = defaultdict(set)
        self.refusals: Counter[Refused] = Counter()
        self.epochs: set[datetime | None] = set()
        self.troubles: set[str] = set()

    def round(self, number: int) -> None:
        store, token = self.stores[number % 2], uuid.uuid4().hex
        try:
            view = look(store)
            self.epochs.add(view.epoch)
            asked = [
                a_claim(due, token, f"task {n}", not_before=due)
                for back in range(4)
                if (due := view.now - timedelta(seconds=back)) > self.began
                for n in range(20)
            ]
            for claim, row in zip(asked, store.claim(asked).items, strict=True):
                if isinstance(row, Refusal):
                    self.refusals[row.reason] += 1
                elif row.token == token:
                    self.wins[claim.occurrence.key].add(token)
            requests = [a_request(token, f"run:{n}") for n in range(20)]
            for lease in store.acquire(requests).items:
                if isinstance(lease, Lease):
                    self.leases[lease.key].add(token)
        except StoreUnavailable as error:
            self.troubles.add(str(error))

    def judge(self) -> None:
        assert [key for key, tokens in self.wins.items() if len(tokens) > 1] == []
        assert [key for key, tokens in self.leases.items() if len(tokens) > 1] == []
        assert {trouble for trouble in self.troubles if "out of memory" not in trouble} == set()
        if not (self.wins and self.leases and len(self.epochs) > 1):
            pytest.fail("nothing was given or nothing was lost: this shows nothing")


def test_a_flush_at_any_moment_of_a_call_starts_nothing_twice(server: Memcached) -> None:
    race, end = Race(server.port), time.monotonic() + 6

    def run(number: int) -> None:
        while time.monotonic() < end:
            race.round(number)

    server.flush()
    race = Race(server.port)
    for number in range(2):
        race.round(number)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        time.sleep(random.random())
        server.flush()
    for thread in threads:
        thread.join()
    race.judge()
    assert race.refusals[Refused.STORE_LOST] > 0


def test_eviction_under_memory_pressure_never_yields_a_second_grant() -> None:
    """A small server, and an application that fills it: sheets are lost one by one, and each loss is told."""
    with special("-m", "2", "-o", "no_lru_maintainer,no_lru_crawler") as small:
        race, client, began, written = Race(small.port), small.client(), time.monotonic(), 0

        def presses() -> bool:
            nonlocal written
            for number in range(2):
                race.round(number)
            for size in (60, 150, 300, 600, 1500):
                with suppress(MemcacheServerError):
                    foreign = {f"foreign-{written + n}": os.urandom(size) for n in range(1000)}
                    client.set_many(foreign, noreply=True)
                written += 1000
            return len(race.epochs) > 3 and time.monotonic() > began + 6

        until(presses, 60, "sheets to be lost, again and again")
        client.close()
        race.judge()
        assert race.refusals[Refused.STORE_LOST] > 0
        assert small.stat("evictions") > 0
        assert any("evicted" in concern for concern in race.stores[0].concerns())


def test_a_server_that_does_not_evict_says_when_it_is_full_and_loses_nothing() -> None:
    """memcached -M."""
    with special("-m", "2", "-M") as full:
        store, client = opened(full.port, limit=5), full.client()
        now = store.claim([]).now
        (row,) = store.claim([a_claim(now)]).items
        assert not any("-M is not set" in concern for concern in store.concerns())
        for size in (60, 150, 300, 600, 900, 1500, 3000, 9000):
            with suppress(MemcacheServerError):
                for n in range(100_000):
                    client.set(f"foreign-{size}-{n}", os.urandom(size))

        def grow() -> None:
            for n in range(3000):
                store.claim([a_claim(now, f"t{n} {uuid.uuid4()}", f"task {n}")])

        refused(grow, "out of memory", within=60)
        assert store.claim([a_claim(now, "another")]).items == [row]
        assert look(store).epoch == LONG_AGO
        client.flush_all()
        client.close()
        assert store.claim([a_claim(now, "another", not_before=now)]).items == [STORE_LOST]


def test_a_sheet_too_large_for_an_item_is_told_and_nothing_of_it_is_done() -> None:
    store = opened(memcached_server().port, limit=5)
    now = store.claim([]).now
    details = [os.urandom(40_000).hex() for _ in range(60)]
    ends = [an_end(now - n * MINUTE, task="large", detail=detail) for n, detail in enumerate(details)]
    stood = 0

    def grow() -> None:
        nonlocal stood
        for end in ends:
            store.settle([end])
            stood += 1

    refused(grow, r"a sheet has \d+ bytes, and an item may have 1048576 \(-I\)", within=30)
    assert stood > 20
    assert len(look(store, "large").rows) == stood
    few = an_end(now, task="other")
    assert store._sheet_of_task("other") != store._sheet_of_task("large")
    refused(lambda: store.settle([few, *ends[stood:]]), "an item may have 1048576")
    assert len(look(store, "large", "other").rows) == stood
    assert isinstance(store.settle([few]).items[0], Row)
    assert look(store).epoch == LONG_AGO


def test_a_server_without_compare_and_swap_is_refused() -> None:
    """memcached -C: every compare-and-swap would succeed."""
    with special("-m", "64", "-C") as without:
        store = opened(without.port, old=False)
        assert look(store).epoch is not None  # it has written its sheets, and reads none of them again
        for call in (lambda: look(store), lambda: store.claim([a_claim(LONG_AGO)])):
            refused(call, r"without compare-and-swap \(-C\)")


@pytest.mark.parametrize("value", ["hello", "[]", "[1, 2]", '{"a": 1}', "[1, 0, 0, 0, {}, [], {}]"])
def test_an_item_that_is_not_rotas_is_left_alone_and_told(value: str) -> None:
    store, client = opened(memcached_server().port), memcached_server().client()
    try:
        name = store._sheet_of_task("a")
        client.set(name, value)
        refused(lambda: store.claim([a_claim(LONG_AGO)]), f"the item {name} is not rota's")
        assert client.get(name) == value.encode()
    finally:
        client.close()


def test_a_sheet_of_a_newer_version_is_refused() -> None:
    store, client = opened(memcached_server().port), memcached_server().client()
    try:
        content = json.loads(client.get(store._sheet_of_task("a")))
        client.set(store._sheet_of_task("a"), json.dumps([content[0] + 1, *content[1:], "new"]))
        for call in (lambda: store.claim([a_claim(LONG_AGO)]), lambda: look(store)):
            refused(call, "newer rota .*upgrade rota on this server")
    finally:
        client.close()


# storms


@pytest.mark.parametrize("batch", [1, 7], ids=["one by one", "in batches"])
def test_each_occurrence_is_claimed_once_by_sixteen_threads(batch: int) -> None:
    store = opened(memcached_server().port, limit=5)
    now = store.claim([]).now
    occasions = [(f"task {task}", now - k * MINUTE) for task in range(4) for k in range(14)]
    wins: list[Occurrence] = []
    errors: list[BaseException] = []
    together = threading.Barrier(16)

    def race(number: int) -> None:
        mine = occasions[:]
        random.Random(number).shuffle(mine)
        together.wait(30)
        try:
            for at in range(0, len(mine), batch):
                claims = [
                    Claim(Occurrence(*each), 1, f"{number}", "", now - DAY, now + DAY, MINUTE, now + DAY)
                    for each in mine[at : at + batch]
                ]
                rows = store.claim(claims).items
                wins.extend(
                    row.occurrence for row in rows if isinstance(row, Row) and row.token == f"{number}"
                )
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(each.key for each in wins) == sorted(Occurrence(*each).key for each in occasions)


RACES = """
    import json, random, sys, time
    from datetime import datetime, timedelta
    from rota.stores import open_store
    from rota.stores.base import Claim, Lease, Occurrence, Request, Row
    url, namespace, number, now, ready = sys.argv[1:]
    now, day, minute = datetime.fromisoformat(now), timedelta(days=1), timedelta(minutes=1)
    store = open_store(url, namespace=namespace)
    mine = [Occurrence(f"task {task}", now - k * minute) for task in range(4) for k in range(15)]
    random.Random(number).shuffle(mine)
    store.claim([])
    time.sleep(max(0, float(ready) - time.time()))
    won, counted = [], 0
    for each in mine:
        (row,) = store.claim([Claim(each, 1, number, "", now - day, now + day, minute, now + day)]).items
        won += [row.occurrence.key] if isinstance(row, Row) and row.token == number else []
    places = []
    for k in range(5):
        (lease,) = store.acquire([Request(f"slots {k}", number, "", minute, slots=3)]).items
        places += [[k, lease.slot]] if isinstance(lease, Lease) else []
    store.close()
    print(json.dumps([won, places]))
"""


def test_each_occurrence_is_claimed_once_by_eight_processes() -> None:
    store = opened(memcached_server().port, limit=5)
    now, ready = store.claim([]).now, time.time() + 3
    source = "\n".join(line.removeprefix("    ") for line in RACES.splitlines())
    arguments = [memcached_server().url, store.namespace]
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-W",
                "error",
                "-c",
                source,
                *arguments,
                f"{number}",
                now.isoformat(),
                f"{ready}",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    try:
        answers = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
    won = [tuple(key) if isinstance(key, list) else key for answer in answers for key in answer[0]]
    occasions = [Occurrence(f"task {task}", now - k * MINUTE) for task in range(4) for k in range(15)]
    assert sorted(won) == sorted(each.key for each in occasions)
    assert len(look(store).rows) == len(occasions)
    places = sorted(tuple(place) for answer in answers for place in answer[1])
    assert places == [(k, slot) for k in range(5) for slot in range(3)]


def test_who_never_gets_a_turn_is_told_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(memcached_server().port)
    now, write = store.claim([]).now, Wire.write

    def others_first(wire: Wire, commands: Sequence[bytes], deadline: float) -> list[bool]:
        client = memcached_server().client()
        client.append(store._sheet_of_task("a"), " ")
        client.close()
        return write(wire, commands, deadline)

    monkeypatch.setattr(Wire, "write", others_first)
    refused(lambda: store.claim([a_claim(now)]), "others wrote the same sheet again and again for 0.5 s")
    monkeypatch.setattr(Wire, "write", write)
    assert isinstance(store.claim([a_claim(now)]).items[0], Row)


def test_a_claim_that_is_decided_anew_keeps_its_window_and_its_instant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sheet was written at once, the other only later, when the window of its claim is over."""
    store = opened(memcached_server().port, limit=5)
    now, write, calls = store.claim([]).now, Wire.write, 0
    tasks = [
        "a",
        next(f"b{n}" for n in range(99) if store._sheet_of_task(f"b{n}") != store._sheet_of_task("a")),
    ]

    def others_first(wire: Wire, commands: Sequence[bytes], deadline: float) -> list[bool]:
        nonlocal calls
        calls += 1
        if calls == 1:
            client = memcached_server().client()
            client.append(store._sheet_of_task(tasks[1]), " ")
            client.close()
            stored = write(wire, commands, deadline)
            until(lambda: seen.claim([]).now > now + timedelta(seconds=1), 5, "the end of the window")
            return stored
        return write(wire, commands, deadline)

    seen = opened(memcached_server().port, old=False)
    monkeypatch.setattr(Wire, "write", others_first)
    window = now + timedelta(seconds=1)
    answer = store.claim([a_claim(now, task=task, not_after=window) for task in tasks])
    row, late = answer.items
    assert isinstance(row, Row)
    assert row.since == answer.now
    assert late == Refusal(Refused.TOO_LATE)
    assert calls == 1


@contextmanager
def mutated(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """A known mistake, planted in the driver."""
    write, read = Wire.write, memcached.Sheet.read
    with monkeypatch.context() as planted:
        if name == "set instead of compare-and-swap":

            def just_set(wire: Wire, commands: Sequence[bytes], deadline: float) -> list[bool]:
                def plain(command: bytes) -> bytes:
                    line, _, value = command.partition(b"\r\n")
                    return b" ".join([b"set", *line.split()[1:5]]) + b"\r\n" + value

                return write(wire, [plain(command) for command in commands], deadline)

            planted.setattr(Wire, "write", just_set)
        elif name == "no epoch":
            claimed, acquired = memcached.claimed, memcached.acquired

            def claimed_anyway(*arguments: Any, **known: Any) -> Any:
                return claimed(*arguments, **{**known, "epoch": None})

            def acquired_anyway(*arguments: Any, **known: Any) -> Any:
                return acquired(*arguments, **{**known, "epoch": None})

            planted.setattr(memcached, "claimed", claimed_anyway)
            planted.setattr(memcached, "acquired", acquired_anyway)
        else:
            assert name == "no process"

            def read_any(sheet: Any, *arguments: Any) -> None:
                sheet.born = json.loads(arguments[2])[1]
                read(sheet, *arguments)

            planted.setattr(memcached.Sheet, "read", read_any)
        yield


def test_the_tests_catch_a_set_in_place_of_compare_and_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    with mutated(monkeypatch, "set instead of compare-and-swap"), pytest.raises(AssertionError):
        test_each_occurrence_is_claimed_once_by_sixteen_threads(1)


def test_the_tests_catch_a_store_that_does_not_ask_for_its_epoch(
    monkeypatch: pytest.MonkeyPatch, server: Memcached
) -> None:
    with mutated(monkeypatch, "no epoch"), pytest.raises(AssertionError):
        test_a_flush_at_any_moment_of_a_call_starts_nothing_twice(server)
    with mutated(monkeypatch, "no epoch"), pytest.raises(AssertionError):
        test_eviction_under_memory_pressure_never_yields_a_second_grant()


def test_the_tests_catch_a_store_that_does_not_ask_for_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mutated(monkeypatch, "no process"), pytest.raises(AssertionError):
        test_a_server_that_remembers_over_a_restart_has_a_new_epoch_all_the_same()
