"""What bounds the Redis store: its time limit on every client, what a script may do, what a server allows."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from rota._core.value import replace
from rota.stores import open_store
from rota.stores.base import (
    End,
    Look,
    Occurrence,
    Outcome,
    Refusal,
    Refused,
    Row,
    RowQuery,
    StoreUnavailable,
)
from rota.stores.redis import RedisStore
from tests.contract.test_redis import one_node
from tests.faults.test_redis_faults import DAY, LIMIT, SLACK, Site, opened, recovered, refused
from tests.servers import free_port, need, until
from tests.servers.redis import Redis, age, redis_server, start_redis, start_sentinel

pytestmark = pytest.mark.service

SECOND = timedelta(seconds=1)
CLIENT_LIMIT = 5.0
"""How long a call takes at most on a client of the application's."""


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site(redis_server())
    yield made
    made.close()


@pytest.fixture
def own() -> Iterator[Site]:
    made = Site(start_redis())
    yield made
    made.close()
    made.server.kill()
    made.server.remove()


def took(call: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        call()
    return time.monotonic() - began


# -- time


def test_an_answer_that_comes_in_drops_ends_at_the_time_limit(site: Site) -> None:
    """Each part comes soon enough, and the whole does not."""
    names = [f"task {n}" for n in range(4_000)]
    site.direct.settle([replace(site.an_end(name), detail="x" * 500) for name in names])
    asked = Look(dict.fromkeys(names, "m"), site.now - DAY)
    patient = opened(f"redis://127.0.0.1:{site.proxy.port}/0", site.namespace, "?timeout=5")
    assert len(patient.look(asked).rows) == 4_000
    patient.close()
    site.store.claim([])
    site.proxy.delay = LIMIT * 0.2
    began = time.monotonic()
    refused(lambda: site.store.look(asked), "no answer within 0.5 s")
    assert time.monotonic() - began < 3 * LIMIT
    site.proxy.delay = 0.0
    assert site.store.claim([]).items == []


def test_connecting_and_asking_share_one_time_limit(site: Site) -> None:
    """A new connection has several answers to wait for."""
    site.store.close()
    site.proxy.delay = LIMIT * 0.6
    refused(lambda: site.store.claim([]), "no answer within 0.5 s")


def test_a_client_without_limits_is_limited(own: Site) -> None:
    client = redis.Redis(port=own.server.port, socket_timeout=None, socket_connect_timeout=None)
    store = open_store(client, namespace=own.namespace)
    store.claim([])
    os.kill(own.server.pid, signal.SIGSTOP)
    try:
        assert took(lambda: store.claim([])) < CLIENT_LIMIT + SLACK
    finally:
        os.kill(own.server.pid, signal.SIGCONT)
    until(recovered(own.store), 10, "the server to answer")
    assert store.claim([]).items == []
    store.close()
    client.close()


def test_a_client_that_repeats_by_itself_is_not_waited_for() -> None:
    client = redis.Redis(port=free_port(), retry=Retry(ConstantBackoff(4), 3))
    store = open_store(client, namespace="shop")
    assert took(lambda: store.claim([])) < CLIENT_LIMIT
    store.close()
    client.close()


# -- clients of the application


def test_the_clients_of_clusters_and_sentinels_are_used_and_left_open(site: Site) -> None:
    sentinel = start_sentinel(redis_server())
    sentinels = Sentinel([("127.0.0.1", sentinel.port)])
    cluster = redis.RedisCluster(host="127.0.0.1", port=one_node().port, decode_responses=True)
    for client in (sentinels.master_for("shop"), cluster):
        store = open_store(client, namespace=site.namespace)
        assert isinstance(store, RedisStore)
        age(store)
        (row,) = store.claim([site.a_claim("ä", store.prefix)]).items
        assert isinstance(row, Row)
        assert store.look(Look({"ä": "m"}, site.now - DAY)).rows == [row]
        store.close()
        store.close()
        assert client.ping()
        client.close()
    for each in sentinels.sentinels:
        each.close()
    sentinel.remove()


# -- encrypted


def test_a_server_with_a_certificate_is_asked_by_tls(tmp_path: Path) -> None:
    key, certificate, port = tmp_path / "key", tmp_path / "certificate", free_port()
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate)]
    command = [need("openssl", "openssl"), "req", "-x509", *made, *names]
    subprocess.run(command, check=True, capture_output=True)
    tls = ["--tls-port", str(port), "--tls-auth-clients", "no", "--tls-ca-cert-file", str(certificate)]
    files = ["--tls-key-file", str(key), "--tls-cert-file", str(certificate)]
    server = start_redis(*tls, *files)
    url = f"rediss://127.0.0.1:{port}/0"
    trusting = opened(url, "shop", f"?ssl_ca_certs={certificate}&timeout=2")
    assert trusting.claim([]).items == []
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for _ in range(2):  # asked, and while the two are making themselves known
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="no answer within 2 s"):
                trusting.claim([])
            assert time.monotonic() - began < 2 + SLACK
    finally:
        os.kill(server.pid, signal.SIGCONT)
    until(recovered(trusting), 10, "the server to answer")
    doubting = opened(url, "shop", "?timeout=2")
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
        doubting.claim([])
    trusting.close()
    doubting.close()
    server.remove()


# -- what the server allows


def test_a_server_that_denies_info_is_told(own: Site) -> None:
    own.server.command_line("ACL", "SETUSER", "rota", "on", ">pw", "~*", "+@all", "-info", "-config")
    address = f"redis://rota:pw@127.0.0.1:{own.server.port}/0"
    store = opened(address, own.namespace)
    refused(lambda: store.claim([]), "INFO", "may not")
    assert any("INFO is not allowed" in words for words in store.concerns())
    own.server.command_line("ACL", "SETUSER", "rota", "+info")
    assert isinstance(store.claim([own.a_claim()]).items[0], Row)
    assert any("CONFIG GET is not allowed" in words for words in store.concerns())
    store.close()


def test_a_server_that_does_not_tell_who_it_is_is_told(own: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some services that only speak the protocol."""
    from rota.stores.redis import scripts

    monkeypatch.setattr(scripts, "CLAIM", scripts.CLAIM.replace("run_id:", "no_such_line:"))
    refused(lambda: own.store.claim([own.a_claim()]), "run_id")
    monkeypatch.undo()
    assert isinstance(own.store.claim([own.a_claim()]).items[0], Row)


def test_a_server_that_is_loading_its_data_is_told() -> None:
    server = start_redis("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
    with redis.Redis(port=server.port) as client:
        client.mset({f"{n}": "x" * 100 for n in range(6_000)})
        client.save()
    server.stop()
    process = subprocess.Popen(server.command, cwd=server.folder, stdout=subprocess.DEVNULL)
    store = opened(server.url, "shop", "?timeout=2")

    def loading() -> bool:
        try:
            store.claim([])
        except StoreUnavailable as error:
            return "still loading its data" in str(error)
        raise AssertionError("it was never seen loading")

    try:
        until(loading, 10, "the server to say that it is loading")
        until(recovered(store), 60, "the server to have loaded")
    finally:
        process.terminate()
        process.wait()
        store.close()
        server.remove()


def test_rows_that_were_evicted_are_a_loss_that_is_noticed(own: Site) -> None:
    """What an index names and is not there was taken: this memory is not what it was."""
    (row,) = own.store.claim([own.a_claim()]).items
    assert isinstance(row, Row)
    own.server.command_line("DEL", f"{own.store.prefix}rows")
    view = own.store.look(Look({"a": "m"}, own.now - DAY))
    assert view.rows == []
    assert view.epoch is not None
    assert view.epoch > own.now
    assert own.direct.claim([own.a_claim(token="theirs")]).items == [Refusal(Refused.STORE_LOST)]
    assert own.store.look(Look({"a": "m"}, own.now - DAY)).epoch == view.epoch
    own.store.settle([own.an_end()])
    own.server.command_line("DEL", f"{own.store.prefix}rows")
    assert own.store.prune(own.now + DAY) == 0
    assert own.store.rows(RowQuery()).items == []


# -- what a script may do


def longest_script(server: Redis, call: Callable[[], object]) -> float:
    """The milliseconds of the slowest command that the server ran meanwhile."""
    server.command_line("CONFIG", "SET", "slowlog-log-slower-than", "0")
    server.command_line("SLOWLOG", "RESET")
    call()
    with redis.Redis(port=server.port) as client:
        return max(entry["duration"] for entry in client.slowlog_get(1_000)) / 1_000


def test_a_long_history_blocks_the_server_for_moments_only(own: Site) -> None:
    """However little of it is wanted, and however little may be pruned."""
    count, past = 20_000, own.now - 10 * DAY
    for first in range(0, count, 1_000):
        own.store.settle(
            [
                End(Occurrence(f"task {n % 7}", past + n * SECOND), 1, "t", Outcome.SUCCEEDED, own.now + DAY)
                for n in range(first, first + 1_000)
            ]
        )
    store = opened(own.server.url, own.namespace, "?timeout=5")
    tasks = [f"task {n}" for n in range(7)]
    calls: list[Callable[[], object]] = [
        lambda: store.rows(RowQuery(outcome=Outcome.FAILED)),
        lambda: store.rows(RowQuery(tasks, outcome=Outcome.FAILED)),
        lambda: store.prune(own.now + DAY),
        lambda: store.prune(own.now + DAY, most=1),
    ]
    assert [longest_script(own.server, call) < 100 for call in calls] == [True] * 4
    found = store.rows(RowQuery(limit=count + 1)).items
    assert len({row.key for row in found}) == len(found) == count
    dues = [row.occurrence.due for row in found]
    assert dues == sorted(dues, reverse=True)
    own.server.command_line("CONFIG", "SET", "slowlog-log-slower-than", "10000")
    store.close()
