"""What networks, operators and replicas do to Redis: nothing starts twice, nothing hangs, all is told."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
import redis

from rota.stores import open_store
from rota.stores.base import (
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
    StoreMisused,
    StoreUnavailable,
    pruned_mark,
)
from rota.stores.redis import RedisStore, scripts
from rota.testing import StoreContract
from tests.contract.test_redis import TestRedis as OnRedis
from tests.contract.test_redis import TestRedisThatIsFlushed as OnFlushedRedis
from tests.servers import until
from tests.servers.proxy import Proxy
from tests.servers.redis import (
    Redis,
    age,
    redis_server,
    start_redis,
    start_replica,
    start_sentinel,
    start_valkey,
)

pytestmark = pytest.mark.service

LIMIT = 0.5
SLACK = 2.0
"""What a loaded machine may add to a time limit."""

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def opened(url: str, namespace: str, options: str = f"?timeout={LIMIT}") -> RedisStore:
    store = open_store(url + options, namespace=namespace)
    assert isinstance(store, RedisStore)
    return store


class Site:
    """A store with a proxy before its server, and what is asked of it."""

    def __init__(self, server: Redis) -> None:
        self.server = server
        self.namespace = uuid.uuid4().hex
        self.proxy = Proxy(server.port)
        self.store = opened(server.url.replace(f":{server.port}", f":{self.proxy.port}"), self.namespace)
        self.direct = opened(server.url, self.namespace)
        age(self.direct)
        self.now = self.store.claim([]).now

    def close(self) -> None:
        self.store.close()
        self.direct.close()
        self.proxy.close()

    def a_claim(self, task: str = "a", token: str = "mine", *, due: datetime | None = None) -> Claim:
        now = self.now
        return Claim(Occurrence(task, due or now), 1, token, "web-1", now - DAY, now + DAY, MINUTE, now + DAY)

    def an_end(self, task: str = "a", token: str = "mine") -> End:
        return End(Occurrence(task, self.now), 1, token, Outcome.SUCCEEDED, self.now + DAY)

    def a_request(self, key: str = "k", token: str = "mine") -> Request:
        return Request(key, token, "web-1", MINUTE)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site(redis_server())
    yield made
    made.close()


@pytest.fixture
def own() -> Iterator[Site]:
    """The same on a server that the test may do anything to."""
    server = start_redis("--enable-debug-command", "local")
    made = Site(server)
    yield made
    made.close()
    server.kill()
    server.remove()


def refused(call: Callable[[], object], *words: str) -> None:
    """It gives up within the time limit, and says why."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as error:
        call()
    assert time.monotonic() - began < LIMIT + SLACK
    assert [word for word in words if word not in str(error.value)] == []


def recovered(store: RedisStore) -> Callable[[], bool]:
    def answers() -> bool:
        try:
            store.claim([])
        except StoreUnavailable:
            return False
        return True

    return answers


# -- the network


def test_each_call_is_one_round_trip(site: Site) -> None:
    store, names = site.store, [f"task {n}" for n in range(50)]
    leases = [
        lease for lease in store.acquire([site.a_request(n) for n in names]).items if isinstance(lease, Lease)
    ]
    calls: list[Callable[[], object]] = [
        lambda: store.look(Look(dict.fromkeys(names, "m"), site.now)),
        lambda: store.claim([site.a_claim(name) for name in names]),
        lambda: store.settle([site.an_end(name) for name in names]),
        lambda: store.acquire([site.a_request(name, "other") for name in names]),
        lambda: store.renew(leases, ttl=MINUTE),
        lambda: store.release(leases),
        lambda: store.advance(dict.fromkeys(names, site.now)),
    ]
    for call in calls:  # the first time, the server learns the scripts
        call()
    for call in calls:
        before = site.proxy.trips
        call()
        assert site.proxy.trips - before == 1


def test_an_answer_that_was_lost_is_repaired_by_asking_again(site: Site) -> None:
    for ask in (
        lambda: site.store.claim([site.a_claim()]),
        lambda: site.store.acquire([site.a_request()]),
        lambda: site.store.settle([site.an_end()]),
    ):
        lost = site.proxy.lose_reply()
        first = ask().items[0]
        assert lost.is_set()
        again = ask().items[0]
        assert isinstance(first, Row | Lease)
        assert isinstance(again, Row | Lease)
        assert (first.token, first.since) == (again.token, again.since)
        assert first.token == "mine"
    (row,) = site.direct.rows(RowQuery()).items
    assert (row.token, row.outcome) == ("mine", Outcome.SUCCEEDED)
    assert site.direct.look(Look({}, site.now)).tokens_held == {"mine"}


def test_an_answer_that_never_comes_ends_at_the_time_limit_and_may_have_been_obeyed(site: Site) -> None:
    site.proxy.mode = "drop_reply"
    refused(lambda: site.store.claim([site.a_claim()]), "no answer within 0.5 s")
    (row,) = site.direct.claim([site.a_claim(token="theirs")]).items
    site.proxy.mode = "ok"
    assert site.store.claim([site.a_claim()]).items == [row]
    assert isinstance(row, Row)
    assert row.token == "mine"


def test_an_answer_slower_than_the_limit_is_none(site: Site) -> None:
    site.proxy.delay = 1.0
    refused(lambda: site.store.claim([]), "no answer within 0.5 s")
    site.proxy.delay = 0.0
    assert site.store.claim([site.a_claim()]).items


def test_a_half_open_connection_ends_at_the_time_limit(site: Site) -> None:
    site.proxy.mode = "blackhole"
    refused(lambda: site.store.claim([site.a_claim()]), "no answer within 0.5 s")
    site.proxy.mode = "ok"
    (row,) = site.store.claim([site.a_claim()]).items
    assert isinstance(row, Row)


def test_a_connection_that_was_reset_is_opened_anew(site: Site) -> None:
    for _ in range(3):
        site.proxy.reset()
        assert site.store.claim([]).items == []


def test_a_server_that_refuses_is_told_and_taken_up_again(site: Site) -> None:
    site.proxy.mode = "refuse"
    site.proxy.reset()
    refused(lambda: site.store.claim([]), f"redis://127.0.0.1:{site.proxy.port}")
    site.proxy.mode = "ok"
    assert site.store.claim([]).items == []


def test_a_server_that_is_not_there_at_the_start_may_come_later() -> None:
    server = start_redis()
    store = opened(server.url, "shop")
    server.stop()
    refused(lambda: store.claim([]), "Connection refused")
    server.start()
    assert store.claim([]).items == []
    store.close()
    server.remove()


# -- the server


def test_a_frozen_server_ends_at_the_time_limit(own: Site) -> None:
    os.kill(own.server.pid, signal.SIGSTOP)
    try:
        refused(lambda: own.store.claim([own.a_claim()]), "no answer within 0.5 s")
    finally:
        os.kill(own.server.pid, signal.SIGCONT)
    until(recovered(own.store), 10, "the server to answer")
    (row,) = own.store.claim([own.a_claim(token="again")]).items
    assert isinstance(row, Row)


def test_scripts_that_the_server_was_told_to_forget_are_sent_again(site: Site) -> None:
    site.server.command_line("SCRIPT", "FLUSH")
    assert site.store.claim([site.a_claim()]).items
    site.server.command_line("SCRIPT", "FLUSH")
    assert isinstance(site.store.acquire([site.a_request()]).items[0], Lease)


@pytest.mark.parametrize("how", ["flush", "restart", "kill"])
def test_after_a_loss_between_two_calls_nothing_is_granted_twice(own: Site, how: str) -> None:
    first, second = own.store, own.direct
    (row,) = first.claim([own.a_claim()]).items
    (lease,) = first.acquire([own.a_request()]).items
    assert isinstance(row, Row)
    assert isinstance(lease, Lease)
    if how == "flush":
        own.server.command_line("FLUSHALL")
    else:
        (own.server.kill if how == "kill" else own.server.stop)()
        own.server.start()
    (again,) = second.claim([own.a_claim(token="theirs")]).items
    (met,) = second.acquire([own.a_request(token="theirs")]).items
    assert again == Refusal(Refused.STORE_LOST)
    assert isinstance(met, Refusal)
    assert met.reason is Refused.STORE_LOST
    assert first.renew([lease], ttl=MINUTE).items == [Refusal(Refused.TOO_LATE)]
    view = first.look(Look({}, own.now))
    assert view.epoch is not None
    assert view.quiet_until == met.until == view.epoch + timedelta(minutes=5)
    pause = Request("pause:*", "p", "ann", DAY)
    assert isinstance(first.acquire([pause]).items[0], Lease)
    # What the first still has to say is written down all the same: it ran.
    (end,) = first.settle([own.an_end()]).items
    assert end is not None
    assert end.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("start", [start_redis, start_valkey])
def test_a_restart_with_its_disk_keeps_what_it_knew_and_begins_a_new_epoch(
    start: Callable[..., Redis], end: str
) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "always")
    for durable in (False, True):
        store = opened(server.url, f"shop/{durable}", f"?durable={str(durable).lower()}")
        before = store.look(Look({}, store.claim([]).now))
        assert before.epoch is not None
        now = before.now
        claim = Claim(
            Occurrence("a", now), 1, "t", "s", before.epoch + MINUTE / 600, now + DAY, MINUTE, now + DAY
        )
        until(lambda: isinstance(store.claim([claim]).items[0], Row), 5, "the claim")  # noqa: B023 - called here
        getattr(server, end)()
        server.start()
        after = store.look(Look({"a": "m"}, now - DAY))
        assert [row.token for row in after.rows] == ["t"]
        assert (after.epoch == before.epoch) is durable
        store.close()
    server.remove()


def test_full_memory_is_told_and_nothing_is_half_written(own: Site) -> None:
    own.server.command_line("CONFIG", "SET", "maxmemory", "1")
    refused(lambda: own.store.claim([own.a_claim()]), "its memory is full")
    own.server.command_line("CONFIG", "SET", "maxmemory", "0")
    assert own.direct.look(Look({"a": "m"}, own.now - DAY)).rows == []
    assert isinstance(own.store.claim([own.a_claim()]).items[0], Row)


def test_a_wrong_password_is_told_and_not_shown() -> None:
    server = start_redis()
    server.command_line("CONFIG", "SET", "requirepass", "s3cret")
    for userinfo, words in (("", "asks for a password"), (":wr0ng@", "password")):
        store = opened(f"redis://{userinfo}127.0.0.1:{server.port}/0", "shop")
        with pytest.raises(StoreUnavailable) as error:
            store.claim([])
        assert words in str(error.value)
        assert "wr0ng" not in f"{error.value} {store!r}"
        store.close()
    store = opened(f"redis://:s3cret@127.0.0.1:{server.port}/0", "shop")
    assert store.claim([]).items == []
    assert "s3cret" not in repr(store)
    store.close()
    server.remove()


# -- what an operator should know


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_an_evicting_maxmemory_policy_is_told(own: Site, policy: str) -> None:
    own.server.command_line("CONFIG", "SET", "maxmemory-policy", policy)
    own.server.command_line("CONFIG", "SET", "maxmemory", "1gb")
    assert any(f"maxmemory-policy is {policy}" in words for words in own.store.concerns())
    own.server.command_line("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert not any("maxmemory-policy" in words for words in own.store.concerns())


def test_what_it_writes_to_disk_is_told(own: Site) -> None:
    assert any("writes nothing to disk" in words for words in own.store.concerns())
    durable = opened(own.server.url, "shop", "?durable=true")
    assert any("appendonly is not yes" in words for words in durable.concerns())
    own.server.command_line("CONFIG", "SET", "appendonly", "yes")
    own.server.command_line("CONFIG", "SET", "appendfsync", "always")
    assert durable.concerns() == own.store.concerns() == []
    durable.close()


# -- replicas


def test_a_replica_is_refused_in_clear_words() -> None:
    primary = start_redis()
    replica = start_replica(primary)
    store = opened(replica.url, "shop")
    refused(lambda: store.claim([]), "replica", "primary")
    assert any("it is a replica" in words for words in store.concerns())
    store.close()
    replica.remove()
    primary.remove()


def test_a_grant_counts_only_once_enough_replicas_have_it() -> None:
    primary = start_redis()
    replica = start_replica(primary)
    store = opened(primary.url, "shop", f"?wait_replicas=1&timeout={LIMIT}")
    until(recovered(store), 10, "the replica to tell what it has")
    now = store.look(Look({}, store.claim([]).now)).now
    until(lambda: store.claim([]).now > now, 5, "a moment after the epoch")
    ask = Claim(Occurrence("a", now), 1, "t", "s", now + MINUTE / 6000, now + DAY, MINUTE, now + DAY)
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        for _ in range(2):  # also when it stands already, and nothing is left to write
            refused(lambda: store.claim([ask]), "only 0 of 1 replicas have it")
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    until(recovered(store), 20, "the replica to follow")
    (row,) = store.claim([ask]).items
    assert isinstance(row, Row)
    store.close()
    replica.remove()
    primary.remove()


@pytest.mark.parametrize("waits", [False, True])
def test_after_a_fail_over_what_may_be_lost_is_refused_and_told(waits: bool) -> None:
    primary = start_redis()
    replica = start_replica(primary)
    sentinel = start_sentinel(primary)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/shop/0"
    until(lambda: sentinel.info("sentinel")["master0"]["slaves"] == 1, 30, "the sentinel to see the replica")
    store = opened(url, "shop", f"?timeout=2&wait_replicas={int(waits)}")
    age(store)
    now = store.claim([]).now
    ask = Claim(Occurrence("a", now), 1, "t", "s", now - MINUTE, now + DAY, MINUTE, now + DAY)
    assert isinstance(store.claim([ask]).items[0], Row)
    until(lambda: replica.command_line("HLEN", f"{store.prefix}rows") == "1", 20, "the replica to have it")
    if not waits:
        os.kill(replica.pid, signal.SIGSTOP)  # what is granted now, the replica never hears of
        other = Claim(Occurrence("b", now), 1, "t", "s", now - MINUTE, now + DAY, MINUTE, now + DAY)
        assert isinstance(store.claim([other]).items[0], Row)
    primary.kill()
    if not waits:
        os.kill(replica.pid, signal.SIGCONT)
    new = opened(url, "shop", "?timeout=2")
    until(recovered(new), 60, "the replica to be promoted")
    view = new.look(Look({"a": "m", "b": "m"}, now - DAY))
    assert view.epoch is not None
    assert view.epoch > now
    assert "a" in {row.occurrence.task for row in view.rows}
    for task in ("a", "b"):
        again = Claim(Occurrence(task, now), 1, "theirs", "s", now - MINUTE, now + DAY, MINUTE, now + DAY)
        (answer,) = new.claim([again]).items
        assert getattr(answer, "token", "t") == "t"
        assert isinstance(answer, Row) or answer == Refusal(Refused.STORE_LOST)
    store.close()
    new.close()
    for server in (sentinel, replica, primary):
        server.remove()


# -- records, keys and clients


def test_a_record_of_a_newer_version_is_refused_and_of_the_one_before_is_read(site: Site) -> None:
    (row,) = site.store.claim([site.a_claim()]).items
    assert isinstance(row, Row)
    kept = f"{site.store.prefix}rows"
    with redis.Redis(port=site.server.port, decode_responses=True) as client:
        ((field, text),) = client.hgetall(kept).items()
        client.hset(kept, field, text.replace('["1"', '["0"', 1))
        assert site.store.look(Look({"a": "m"}, site.now - DAY)).rows == [row]
        client.hset(kept, field, text.replace('["1"', '["3"', 1))
        refused(lambda: site.store.look(Look({"a": "m"}, site.now - DAY)), "newer rota", "version 3")
        client.hset(kept, field, "nonsense")
        with pytest.raises(StoreUnavailable):
            site.store.look(Look({"a": "m"}, site.now - DAY))


def test_what_cannot_be_sent_is_misused(site: Site) -> None:
    with pytest.raises(StoreMisused):
        site.store.claim([site.a_claim("\ud800")])


def test_namespaces_with_braces_stay_apart(site: Site) -> None:
    stores = [opened(site.server.url, f"{site.namespace}{end}") for end in ("", "}", "{", "}x", "%7D", ":")]
    for store in stores:
        age(store)
        store.advance({"m": site.now})
        assert isinstance(store.claim([site.a_claim(token=store.namespace)]).items[0], Row)
    for store in stores:
        assert [row.token for row in store.rows(RowQuery()).items] == [store.namespace]
        store.close()


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("library", ["redis", "valkey"])
def test_a_client_of_the_application_is_used_and_left_open(site: Site, library: str, decode: bool) -> None:
    module = pytest.importorskip(library)
    kind = module.Redis if library == "redis" else module.Valkey
    client = kind(port=site.server.port, decode_responses=decode)
    store = open_store(client, namespace=site.namespace)
    (row,) = store.claim([site.a_claim("ä")]).items
    assert isinstance(row, Row)
    assert store.look(Look({"ä": "m"}, site.now - DAY)).rows == [row]
    store.close()
    assert client.ping()
    client.close()


def test_prune_goes_on_until_nothing_is_left(site: Site) -> None:
    past = site.now - 10 * DAY
    ends = [
        End(Occurrence("a", past + n * MINUTE), 1, "t", Outcome.SUCCEEDED, past + n * MINUTE, output="x")
        for n in range(1_203)
    ]
    site.store.settle(ends)
    assert site.store.prune(site.now + DAY) == 1_203
    assert site.store.look(Look({"a": "m"}, past)).marks == {pruned_mark("a"): past + 1_202 * MINUTE}
    with redis.Redis(port=site.server.port) as client:
        left = {key.decode().removeprefix(site.store.prefix) for key in client.keys(f"{site.store.prefix}*")}
    assert left == {"epoch", "marks"}


def test_a_fork_leaves_both_sides_a_store(site: Site) -> None:
    site.store.claim([])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            (row,) = site.store.claim([site.a_claim("child")]).items
            code = 0 if isinstance(row, Row) else 2
        finally:
            os._exit(code)
    assert isinstance(site.store.claim([site.a_claim("parent")]).items[0], Row)
    assert os.waitpid(child, 0)[1] == 0
    assert len(site.store.look(Look({}, site.now)).rows) == 2


# -- known mistakes, each caught by a test of the contract


MUTANTS = {
    "the epoch is not compared": (
        "elseif before <= epoch then",
        "elseif false then",
        "test_after_it_has_forgotten_claims_from_before_are_store_lost",
    ),
    "anybody releases": (
        "if lease[2] == token then\n      call('HDEL'",
        "if true then\n      call('HDEL'",
        "test_only_the_token_releases",
    ),
    "the fence begins anew": (
        "math.max(fence + 1, now)",
        "now - 1",
        "test_the_fence_grows_with_every_new_holding",
    ),
    "a claim overwrites": (
        "if texts[i] then\n    flags[i] = 'r'",
        "if false then\n    flags[i] = 'r'",
        "test_a_row_that_stands_is_answered_as_it_is",
    ),
    "numbers lose digits": (
        "string.format('%.0f', number)",
        "string.format('%.12g', number)",
        "test_the_answer_carries_the_instant_of_its_decisions",
    ),
    "an hour of the host decides": (
        "local time = call('TIME')",
        "local time = call('TIME')\ntime[1] = tostring(tonumber(time[1]) + 7200)",
        "test_host_clocks_decide_nothing",
    ),
    "open rows are not told": (
        "if not shown[everywhere] then wanted",
        "if false then wanted",
        "test_a_look_shows_every_open_row_also_of_tasks_that_were_not_asked_about",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_contract_catches_a_planted_mistake(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, caught_by = MUTANTS[name]
    suite: StoreContract = OnFlushedRedis() if "epoch" in name else OnRedis()
    suite.setup_method()
    planted = 0
    for script in ("LOOK", "CLAIM", "SETTLE", "ACQUIRE", "RENEW", "RELEASE", "ADVANCE"):
        text = getattr(scripts, script)
        planted += right in text
        monkeypatch.setattr(scripts, script, text.replace(right, wrong))
    assert planted
    try:
        with pytest.raises((AssertionError, ValueError)):
            getattr(suite, caught_by)()
    finally:
        suite.teardown_method()
