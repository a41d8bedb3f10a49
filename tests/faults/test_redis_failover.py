"""When another Redis takes over: what was lost is noticed, and the new primary is found by itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta

import pytest
import redis

from rota.stores.base import Claim, Lease, Look, Occurrence, Refusal, Refused, Request, Row, StoreUnavailable
from rota.stores.redis import RedisStore
from tests.faults.test_redis_faults import DAY, LIMIT, MINUTE, opened, recovered, refused
from tests.servers import until
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis, age, free_port, start_redis, start_replica, start_sentinel

pytestmark = pytest.mark.service


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes, last first, what a test opens."""
    with ExitStack() as opened_here:
        yield opened_here


def server(stack: ExitStack, start: Callable[..., Redis], *arguments: object) -> Redis:
    made = start(*arguments)
    stack.callback(made.remove)
    return made


def a_store(stack: ExitStack, url: str, options: str = f"?timeout={LIMIT}") -> RedisStore:
    store = opened(url, uuid.uuid4().hex, options)
    stack.callback(store.close)
    return store


def a_claim(now: datetime, token: str, task: str = "a") -> Claim:
    return Claim(Occurrence(task, now), 1, token, "s", now - MINUTE, now + DAY, MINUTE, now + DAY)


def promote(replica: Redis) -> None:
    replica.command_line("REPLICAOF", "NO", "ONE")


def demote(primary: Redis, to: Redis) -> None:
    primary.command_line("REPLICAOF", "127.0.0.1", str(to.port))


ON_DISK = ("--appendonly", "yes", "--appendfsync", "always")


def test_a_fail_over_of_a_durable_store_is_noticed(stack: ExitStack) -> None:
    """A disk that forgets nothing does not help where another server, with another disk, takes over."""
    primary = server(stack, start_redis, *ON_DISK)
    replica = server(stack, start_replica, primary)
    address = stack.enter_context(Proxy(primary.port))
    store = a_store(stack, f"redis://127.0.0.1:{address.port}/0", f"?durable=1&timeout={LIMIT}")
    age(store)
    before = store.look(Look({}, store.claim([]).now))
    until(lambda: replica.command_line("EXISTS", store.prefix + "epoch") == "1", 10, "the replica to follow")
    replica.command_line("REPLICAOF", "127.0.0.1", str(free_port()))  # it hears no more of the primary
    (row,) = store.claim([a_claim(before.now, "ours")]).items
    assert isinstance(row, Row)
    primary.kill()
    promote(replica)
    address.target = replica.port
    until(recovered(store), 10, "the replica to answer")
    (again,) = store.claim([a_claim(before.now, "theirs")]).items
    assert again == Refusal(Refused.STORE_LOST)
    after = store.look(Look({}, before.now))
    assert after.epoch is not None
    assert after.epoch > before.now
    replica.command_line("CONFIG", "SET", "appendonly", "yes")
    until(lambda: replica.info("persistence")["aof_rewrite_in_progress"] == 0, 10, "its file to be written")
    assert store.look(Look({}, before.now)).epoch == after.epoch


def test_an_address_that_moves_to_the_new_primary_is_followed(stack: ExitStack) -> None:
    """As when a name or a virtual address is given to the replica, while the old primary lives on as one."""
    old = server(stack, start_redis)
    new = server(stack, start_replica, old)
    address = stack.enter_context(Proxy(old.port))
    store = a_store(stack, f"redis://127.0.0.1:{address.port}/0")
    now = store.claim([]).now
    promote(new)
    demote(old, new)
    refused(lambda: store.look(Look({}, now)), "replica", "primary")
    address.target = new.port
    assert store.look(Look({}, now)).rows == []


def test_a_demoted_primary_is_left_for_the_one_that_sentinels_name(stack: ExitStack) -> None:
    primary = server(stack, start_redis)
    replica = server(stack, start_replica, primary)
    sentinel = server(stack, start_sentinel, primary)
    until(lambda: sentinel.info("sentinel")["master0"]["slaves"] == 1, 30, "the sentinel to see the replica")
    store = a_store(stack, f"redis+sentinel://127.0.0.1:{sentinel.port}/shop/0", "?timeout=2")
    age(store)
    now = store.claim([]).now
    store.claim([a_claim(now, "ours")])

    def agreed() -> bool:
        try:
            sentinel.command_line("SENTINEL", "FAILOVER", "shop")
        except redis.ResponseError as error:
            return "INPROG" in str(error)
        return True

    until(agreed, 30, "the sentinel to agree")
    until(lambda: replica.info("replication")["role"] == "master", 30, "the replica to be promoted")
    until(lambda: primary.info("replication")["role"] == "slave", 30, "the primary to be demoted")
    until(recovered(store), 30, "the store to find the new primary")
    (again,) = store.claim([a_claim(now, "theirs")]).items
    assert getattr(again, "token", "ours") == "ours"
    (lease,) = store.acquire([Request("pause:*", "p", "ann", MINUTE)]).items
    assert isinstance(lease, Lease)


@pytest.mark.parametrize("guarded", [False, True])
def test_sentinels_and_their_servers_may_ask_for_a_password(stack: ExitStack, guarded: bool) -> None:
    primary = server(stack, start_redis, "--requirepass", "s3cret")
    sentinel = server(stack, start_sentinel, primary, "shop", "s3cret", guarded)
    store = a_store(stack, f"redis+sentinel://:s3cret@127.0.0.1:{sentinel.port}/shop/0", "?timeout=2")
    until(recovered(store), 20, "the sentinel to know its primary")
    wrong = a_store(stack, f"redis+sentinel://:wr0ng@127.0.0.1:{sentinel.port}/shop/0", "?timeout=2")
    with pytest.raises(StoreUnavailable) as error:
        wrong.claim([])
    assert "wr0ng" not in str(error.value)


# -- waiting for replicas


def test_only_what_is_granted_or_ended_waits_for_replicas(stack: ExitStack) -> None:
    """And that is one round trip still. A look must not fail because a replica is away."""
    primary = server(stack, start_redis)
    replica = server(stack, start_replica, primary)
    address = stack.enter_context(Proxy(primary.port))
    store = a_store(stack, f"redis://127.0.0.1:{address.port}/0", f"?wait_replicas=1&timeout={LIMIT}")
    until(recovered(store), 10, "the replica to tell what it has")
    age(store)
    now = store.look(Look({}, store.claim([]).now)).now
    (lease,) = store.acquire([Request("k", "t", "s", MINUTE)]).items
    assert isinstance(lease, Lease)
    store.settle([])
    store.renew([lease], ttl=MINUTE)
    granting: list[Callable[[], object]] = [
        lambda: store.claim([a_claim(now, "t")]),
        lambda: store.settle([]),
        lambda: store.acquire([Request("k", "t", "s", MINUTE)]),
        lambda: store.renew([lease], ttl=MINUTE),
    ]
    for call in granting:
        before = address.trips
        call()
        assert address.trips - before == 1
    replica.stop()
    for call in granting:
        refused(call, "written on the primary, but only 0 of 1 replicas")
    assert [row.token for row in store.look(Look({}, now)).rows] == ["t"]
    assert store.advance({"m": now}).items == [now]
    assert store.release([lease]).items == [True]


# -- clusters


def a_cluster(stack: ExitStack) -> tuple[Redis, Redis]:
    """Two nodes; all slots are the first one's."""
    buses = [free_port(), free_port()]
    nodes = [
        server(stack, start_redis, "--cluster-enabled", "yes", "--cluster-port", f"{bus}") for bus in buses
    ]
    first, second = nodes
    first.command_line("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    second.command_line("CLUSTER", "MEET", "127.0.0.1", f"{first.port}", f"{buses[0]}")

    def ready() -> bool:
        said = [node.command_line("CLUSTER", "INFO") for node in nodes]
        return all("cluster_state:ok" in each and "cluster_known_nodes:2" in each for each in said)

    until(ready, 30, "the cluster to be ready")
    return first, second


def test_while_a_cluster_moves_the_keys_nothing_is_granted_and_then_they_are_found(stack: ExitStack) -> None:
    """In between each node has a part of them, and would take what it has not for free."""
    old, new = a_cluster(stack)
    store = a_store(stack, f"redis+cluster://127.0.0.1:{old.port}", "?timeout=2")
    age(store)
    now = store.claim([]).now
    (row,) = store.claim([a_claim(now, "ours")]).items
    assert isinstance(row, Row)
    ids = {node: node.command_line("CLUSTER", "MYID") for node in (old, new)}
    slot = old.command_line("CLUSTER", "KEYSLOT", store.prefix)
    new.command_line("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[old])
    old.command_line("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[new])
    with redis.Redis(port=old.port, decode_responses=True) as client:
        moving = client.keys(f"{store.prefix}*")
        for key in sorted(moving, key=lambda key: not key.endswith(":epoch")):
            with pytest.raises(StoreUnavailable) as error:
                store.claim([a_claim(now, "theirs")])
            assert "moved to another node" in str(error.value)
            client.execute_command("MIGRATE", "127.0.0.1", new.port, key, 0, 5000)
    for node in (new, old):
        node.command_line("CLUSTER", "SETSLOT", slot, "NODE", ids[new])
    until(recovered(store), 10, "the store to find its keys")
    (again,) = store.claim([a_claim(now, "theirs")]).items
    assert again == Refusal(Refused.STORE_LOST) or again == row
    assert [each.token for each in store.look(Look({}, now)).rows] == ["ours"]


def test_a_cluster_is_waited_for_like_a_primary(stack: ExitStack) -> None:
    only, _ = a_cluster(stack)
    store = a_store(stack, f"redis+cluster://127.0.0.1:{only.port}", "?timeout=1&wait_replicas=1")
    with pytest.raises(StoreUnavailable, match="only 0 of 1 replicas"):
        store.claim([])
    assert store.look(Look({}, datetime.now().astimezone() - timedelta(days=1))).rows == []
