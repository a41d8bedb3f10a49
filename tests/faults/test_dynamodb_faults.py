"""What happens to a DynamoDB store on the way and at the other end, and that rota says so and recovers."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from rota._core.value import replace
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
    SkipReason,
    StoreUnavailable,
    View,
    pruned_mark,
)
from rota.stores.dynamodb import DynamoDBStore, wrap
from rota.stores.dynamodb.wire import Wire
from tests.servers.dynalite import REGION, TABLE, Dynalite, Meddler, client_of, dynalite_server, url_of
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.service

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LIMIT = 0.5
BOUND = 3.0

_opened: list[DynamoDBStore] = []


@pytest.fixture(autouse=True)
def _close_what_was_opened() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


@pytest.fixture
def server() -> Iterator[Dynalite]:
    """One of the test's own, which remembers what it holds."""
    server = Dynalite(keeps=True)
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def meddler() -> Iterator[Meddler]:
    with Meddler(dynalite_server().port) as meddler:
        yield meddler


def opened(
    port: int, namespace: str = "", *, limit: float = 5, options: str = "", table: str = TABLE
) -> DynamoDBStore:
    url = f"{url_of(port, table)}&timeout={limit}{options}"
    store = open_store(url, namespace=namespace or uuid.uuid4().hex)
    assert isinstance(store, DynamoDBStore)
    _opened.append(store)
    return store


def now_of(store: DynamoDBStore) -> datetime:
    """When it is, told by a store that is ready: to make a client takes longer than a small limit allows."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return store.claim([]).now
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise


def look(store: DynamoDBStore, *tasks: str) -> View:
    return store.look(Look({task: f"mark:{task}" for task in tasks}, datetime(2000, 1, 1, tzinfo=UTC)))


def a_claim(now: datetime, token: str = "t", task: str = "a", **changes: Any) -> Claim:
    times = {"not_before": now - MINUTE, "not_after": now + DAY, "keep_until": now + DAY, **changes}
    return Claim(Occurrence(task, now), 1, token, token, start_within=MINUTE, **times)


def an_end(now: datetime, token: str = "t", task: str = "a", **changes: Any) -> End:
    given = {"outcome": Outcome.SUCCEEDED, "keep_until": now + DAY, **changes}
    return End(Occurrence(task, now), 1, token, **given)


def a_request(token: str = "t", key: str = "k", ttl: timedelta = MINUTE, **changes: Any) -> Request:
    return Request(key, token, token, ttl, **changes)


def a_lease(now: datetime, token: str = "t", key: str = "k") -> Lease:
    return Lease(key, token, token, now, now + MINUTE, 1)


def refused(call: Callable[[], object], match: str, *, within: float = BOUND) -> StoreUnavailable:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=match) as error:
        call()
    assert time.monotonic() - began < within
    assert f"dynamodb://{REGION}/" in str(error.value)
    assert "rota-tests" not in str(error.value)
    return error.value


def each_call(store: DynamoDBStore, now: datetime) -> list[Callable[[], object]]:
    return [
        lambda: look(store, "a"),
        lambda: store.claim([a_claim(now)]),
        lambda: store.settle([an_end(now)]),
        lambda: store.acquire([a_request()]),
        lambda: store.renew([a_lease(now)], ttl=MINUTE),
        lambda: store.release([a_lease(now)]),
        lambda: store.advance({"m": now}),
        lambda: store.rows(RowQuery()),
        lambda: store.prune(now),
    ]


# What networks do


def test_an_answer_that_is_lost_after_the_write_is_repaired_by_asking_again() -> None:
    """The driver asks again itself, on a new connection: the same claim, lease and end."""
    with Proxy(dynalite_server().port) as proxy:
        store = opened(proxy.port)
        other = opened(dynalite_server().port, store.namespace)
        now = now_of(store)

        def lost(call: Callable[[], Any]) -> Any:
            was_lost = proxy.lose_reply()
            answer = call()
            assert was_lost.is_set()
            return answer

        (lease,) = lost(lambda: store.acquire([a_request()])).items
        assert (lease.token, lease.key) == ("t", "k")
        assert other.acquire([a_request("u")]).items == [Refusal(Refused.HELD, "t", lease.until)]
        (renewed,) = lost(lambda: store.renew([lease], ttl=2 * MINUTE)).items
        assert list(look(other).leases) == [renewed]
        assert lost(lambda: store.release([renewed])).items == [True]
        assert isinstance(other.acquire([a_request("u")]).items[0], Lease)
        for n in range(5):  # the write or the read of the mark beside it
            (row,) = lost(lambda n=n: store.claim([a_claim(now, task=f"{n}")])).items
            assert (row.token, row.is_open) == ("t", True)
            assert other.claim([a_claim(now, "u", f"{n}")]).items == [row]
            (end,) = lost(lambda n=n: store.settle([an_end(now, task=f"{n}")])).items
            assert (end.token, end.outcome, end.since) == ("t", Outcome.SUCCEEDED, row.since)
            assert other.settle([an_end(now, "u", f"{n}")]).items == [end]
        assert lost(lambda: store.advance({"m": now})).items == [now]


def test_an_answer_that_is_lost_for_good_is_told_and_asking_again_finds_the_write() -> None:
    with Proxy(dynalite_server().port) as proxy:
        store = opened(proxy.port, limit=LIMIT)
        now = now_of(store)

        def lost(call: Callable[[], Any]) -> Any:
            proxy.mode = "drop_reply"
            refused(call, "no answer within")
            proxy.mode = "ok"
            proxy.reset()
            return call().items[0]

        row = lost(lambda: store.claim([a_claim(now)]))
        lease = lost(lambda: store.acquire([a_request()]))
        end = lost(lambda: store.settle([an_end(now)]))
        assert [each.token for each in (row, lease, end)] == ["t"] * 3
        assert row.is_open
        assert store.claim([a_claim(now, "u")]).items == [end]
        assert isinstance(store.acquire([a_request("u")]).items[0], Refusal)


def test_an_answer_slower_than_the_time_limit_is_given_up_and_the_store_goes_on() -> None:
    with Proxy(dynalite_server().port) as proxy:
        store = opened(proxy.port, limit=LIMIT)
        now = now_of(store)
        proxy.delay = 2 * LIMIT
        for _ in range(2):
            refused(lambda: store.claim([a_claim(now)]), "no answer within")
        proxy.delay = 0
        (row,) = store.claim([a_claim(now)]).items
        assert isinstance(row, Row)


@pytest.mark.parametrize("mode", ["blackhole", "drop_reply"])
def test_a_half_open_connection_is_given_up_at_the_time_limit(mode: Any) -> None:
    with Proxy(dynalite_server().port) as proxy:
        store = opened(proxy.port, limit=LIMIT)
        now = now_of(store)
        proxy.mode = mode
        for call in each_call(store, now):
            refused(call, "no answer within")
        proxy.mode = "ok"
        proxy.reset()
        store.claim([a_claim(now)])
        assert [row.token for row in look(store, "a").rows] == ["t"]


class Forgetful(Proxy):
    """A firewall that forgets connections: no answer comes on them, and no reset."""

    forgotten: frozenset[threading.Thread] = frozenset()

    @property
    def mode(self) -> Any:
        return "blackhole" if threading.current_thread() in self.forgotten else "ok"

    @mode.setter
    def mode(self, mode: Any) -> None:
        assert mode == "ok"

    def forget(self) -> None:
        """Those that are open now; new ones go through."""
        self.forgotten = frozenset(self._threads[1:])


def test_idle_connections_that_have_died_unnoticed_are_not_seen() -> None:
    """The first that is used tells, and then none of them is."""
    with Forgetful(dynalite_server().port) as proxy:
        store = opened(proxy.port, limit=2)
        now = now_of(store)
        store.claim([a_claim(now, task=f"{n}") for n in range(20)])
        connections = proxy.connections
        assert connections > 5
        proxy.forget()
        (row,) = store.claim([a_claim(now)]).items
        assert isinstance(row, Row)
        assert proxy.connections > connections
        began = time.monotonic()
        store.claim([a_claim(now, task=f"next {n}") for n in range(20)])
        assert time.monotonic() - began < 0.7


def test_a_call_ends_in_time_on_an_application_s_own_client_that_would_wait_for_a_minute() -> None:
    with Proxy(dynalite_server().port) as proxy:
        own = client_of(proxy.port)
        store = wrap(own, namespace=uuid.uuid4().hex, timeout=SECOND)
        _opened.append(store)
        now = now_of(store)
        proxy.mode = "blackhole"
        refused(lambda: store.claim([a_claim(now)]), "no answer within 1 s")
        proxy.mode = "ok"
        proxy.reset()
        assert isinstance(store.claim([a_claim(now)]).items[0], Row)
        own.close()


def test_a_server_that_refuses_connections_is_told_at_the_start_and_in_mid_run(server: Dynalite) -> None:
    with Proxy(server.port) as proxy:
        proxy.mode = "refuse"
        store = opened(proxy.port, limit=2)
        refused(lambda: store.claim([]), "cut off|nothing answers")
        proxy.mode = "ok"
        now = now_of(store)
        proxy.mode = "refuse"
        proxy.reset()
        for call in each_call(store, now):
            refused(call, "cut off|nothing answers")
        proxy.mode = "ok"
        store.claim([a_claim(now)])
        assert len(look(store).rows) == 1


def test_a_restart_of_the_server_is_not_seen_once_it_is_back(server: Dynalite) -> None:
    store = opened(server.port)
    now = now_of(store)
    (row,) = store.claim([a_claim(now)]).items
    (lease,) = store.acquire([a_request()]).items
    assert isinstance(lease, Lease)
    server.restart()
    assert store.claim([a_claim(now, "u")]).items == [row]
    assert isinstance(store.renew([lease], ttl=2 * MINUTE).items[0], Lease)
    server.stop()
    refused(lambda: store.claim([]), "nothing answers there|cut off")
    server.start()
    assert store.settle([an_end(now)]).items[0] is not None
    view = look(store, "a")
    assert [row.outcome for row in view.rows] == [Outcome.SUCCEEDED]
    assert view.tokens_held == {"t"}


def test_a_frozen_server_is_given_up_at_the_time_limit(server: Dynalite) -> None:
    store = opened(server.port, limit=LIMIT)
    now = now_of(store)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for call in each_call(store, now):
            refused(call, "no answer within")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    (row,) = store.claim([a_claim(now)]).items
    assert isinstance(row, Row)
    assert row.token == "t"


def test_threads_that_wait_for_a_frozen_server_wait_no_longer_together_than_one() -> None:
    with Proxy(dynalite_server().port) as proxy:
        store = opened(proxy.port, limit=LIMIT)
        now = now_of(store)
        proxy.mode = "blackhole"
        done: list[StoreUnavailable] = []

        def server(number: int) -> None:
            claims = [a_claim(now, f"{number}", f"{n}") for n in range(20)]
            done.append(refused(lambda: store.claim(claims), "no answer within"))

        began = time.monotonic()
        threads = [threading.Thread(target=server, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < 2
        assert len(done) == 8


def test_after_a_fork_both_go_on_with_connections_of_their_own() -> None:
    store = opened(dynalite_server().port)
    now = now_of(store)
    store.claim([a_claim(now)])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            (row,) = store.claim([a_claim(now, "child")]).items
            store.claim([a_claim(now, "child", "b")])
            store.close()
            code = 0 if isinstance(row, Row) and row.token == "t" else 2
        finally:
            os._exit(code)
    for n in range(20):
        store.claim([a_claim(now, task=f"{n}")])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(look(store).rows) == 22


# What DynamoDB says


def for_a_while(code: str, *, times: int, only: str = "") -> Callable[[str, Any], str | None]:
    """Answer this code so many times, to one operation or all."""
    left = [times]

    def answer(operation: str, arguments: Any) -> str | None:
        if left[0] and only in ("", operation):
            left[0] -= 1
            return code
        return None

    return answer


@pytest.mark.parametrize(
    "code", ["ProvisionedThroughputExceededException", "ThrottlingException", "InternalServerError"]
)
def test_what_is_put_off_is_asked_again_until_it_is_done(meddler: Meddler, code: str) -> None:
    store = opened(meddler.port)
    now = now_of(store)
    for call in each_call(store, now):
        meddler.before = for_a_while(code, times=3)
        call()
    view = look(store, "a")
    assert [row.outcome for row in view.rows] == [Outcome.SUCCEEDED]


def test_what_is_put_off_for_longer_than_the_time_limit_is_told(meddler: Meddler) -> None:
    store = opened(meddler.port, limit=LIMIT)
    now = now_of(store)
    meddler.before = for_a_while("ProvisionedThroughputExceededException", times=1_000_000)
    for call in each_call(store, now):
        refused(call, "more is asked than the table may do|no answer within")
    meddler.before = for_a_while("", times=0)
    store.claim([a_claim(now)])
    assert len(look(store).rows) == 1


def test_a_write_that_was_done_and_then_said_to_be_put_off_is_ours(meddler: Meddler) -> None:
    store = opened(meddler.port)
    other = opened(dynalite_server().port, store.namespace)
    now = now_of(store)
    put_off = "ProvisionedThroughputExceededException"
    meddler.after = for_a_while(put_off, times=1, only="PutItem")
    (row,) = store.claim([a_claim(now)]).items
    assert isinstance(row, Row)
    assert row.token == "t"
    assert other.claim([a_claim(now, "u")]).items == [row]
    for call in (
        lambda: store.acquire([a_request()]),
        lambda: store.renew([a_lease(now)], ttl=2 * MINUTE),
        lambda: store.settle([an_end(now)]),
        lambda: store.advance({"m": now}),
        lambda: store.release([a_lease(now)]),
    ):
        meddler.after = for_a_while(put_off, times=1, only="UpdateItem")
        (answer,) = call().items
        assert not isinstance(answer, Refusal)
        assert answer is not False
    assert look(other).leases == []


def test_a_host_whose_clock_is_far_off_is_told_by_how_much(meddler: Meddler) -> None:
    """AWS refuses a signature that is more than five minutes old or new."""
    store = opened(meddler.port)
    for shift, words in ((HOUR, ".*behind"), (-2 * HOUR, "2:00:0. .ahead")):
        meddler.shift = shift
        meddler.before = for_a_while("InvalidSignatureException", times=100)
        refused(lambda: store.claim([]), f"the clock of this host is off by {words}.*set the clock right")
    meddler.shift, meddler.before = timedelta(0), for_a_while("InvalidSignatureException", times=100)
    refused(lambda: store.claim([]), "the secret key does not belong to this access key")
    meddler.before = for_a_while("", times=0)
    store.claim([])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("UnrecognizedClientException", "AWS does not know these credentials"),
        ("ExpiredTokenException", "the credentials have expired"),
        ("AccessDeniedException", "these credentials do not allow GetItem"),
        ("SomethingNew", "SomethingNew: as told"),
    ],
)
def test_what_is_wrong_with_the_credentials_is_said(meddler: Meddler, code: str, words: str) -> None:
    store = opened(meddler.port)
    meddler.before = for_a_while(code, times=1)
    refused(lambda: store.claim([]), words)
    store.claim([])


def test_without_credentials_it_is_said_where_they_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    port = dynalite_server().port
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    store = opened(port)
    refused(lambda: store.claim([]), "no complete credentials were found", within=5)


def test_a_region_that_does_not_exist_is_told() -> None:
    store = open_store("dynamodb://eu-nowhere-9/rota?timeout=2", namespace="shop")
    assert isinstance(store, DynamoDBStore)
    _opened.append(store)
    with pytest.raises(StoreUnavailable, match=r"is it the right region|no answer"):
        store.claim([])


def test_a_missing_table_is_created_or_told() -> None:
    table = f"t{uuid.uuid4().hex}"
    port = dynalite_server().port
    told = opened(port, table=table, options="&create=false")
    refused(lambda: told.claim([]), f"{table} at .*: there is no such table, and create=false")
    client = client_of(port)
    with pytest.raises(ClientError):
        client.describe_table(TableName=table)
    store = opened(port, table=table)
    store.claim([])
    told.claim([])
    client.delete_table(TableName=table)
    client.close()


def test_a_table_that_is_long_in_the_making_is_waited_for_as_long_as_the_limit_allows() -> None:
    server = Dynalite(ms=1500)
    try:
        short, long = opened(server.port, limit=LIMIT), opened(server.port, limit=5)
        refused(lambda: short.claim([]), "the table is still being created: ask again soon|no answer within")
        now = now_of(long)
        assert isinstance(short.claim([a_claim(now)]).items[0], Row)
    finally:
        server.remove()


def test_a_table_that_is_not_rotas_is_told() -> None:
    table, port = f"t{uuid.uuid4().hex}", dynalite_server().port
    client = client_of(port)
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    store = opened(port, table=table)
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1})
    refused(lambda: store.claim([]), "this is not a table of rota .*rota schema dynamodb")
    refused(lambda: look(store), "this is not a table of rota")
    assert "not a table of rota" in store.concerns()[0]
    client.delete_table(TableName=table)
    client.close()


def test_no_secret_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    with Meddler(dynalite_server().port) as meddler:
        store = opened(meddler.port)
        meddler.before = for_a_while("UnrecognizedClientException", times=1)
        error = refused(lambda: store.claim([]), "credentials")
        for shown in (error, error.__cause__, store):
            assert "hunter2" not in repr(shown) + str(shown)


# What its clock does


def shifted_from(operation: str, meddler: Meddler, by: timedelta) -> Callable[[str, Any], str | None]:
    """From the first answer to such an operation on, the clock is that much further."""

    def answer(name: str, arguments: Any) -> None:
        if name == operation:
            meddler.shift = by

    return answer


def test_a_grant_that_is_dated_after_its_window_does_not_count(meddler: Meddler) -> None:
    store = opened(meddler.port)
    now = now_of(store)
    held = store.acquire([a_request(key="mine")]).items
    meddler.after = shifted_from("PutItem", meddler, 5 * SECOND)
    late, fine = store.claim(
        [a_claim(now, not_after=now + 3 * SECOND), a_claim(now, task="b", not_after=now + HOUR)]
    ).items
    assert late == Refusal(Refused.TOO_LATE)
    assert isinstance(fine, Row)
    assert [row.occurrence.task for row in store.rows(RowQuery()).items] == ["b"]
    meddler.after = shifted_from("UpdateItem", meddler, 10 * SECOND)
    late_lease, late_again = store.acquire(
        [
            a_request(not_after=now + 8 * SECOND),
            a_request(key="mine", not_after=now + 8 * SECOND, ttl=2 * MINUTE),
        ]
    ).items
    assert (late_lease, late_again) == (Refusal(Refused.TOO_LATE),) * 2
    assert look(store).leases == held


def test_a_write_that_arrives_after_its_window_does_not_count(meddler: Meddler) -> None:
    """It was sent in time, but was long on its way."""
    store = opened(meddler.port)
    now = now_of(store)

    def slowly(operation: str, arguments: Any) -> None:
        if operation in ("PutItem", "UpdateItem"):
            time.sleep(1.5)

    meddler.before = slowly
    soon = now_of(store) + SECOND * 0.4
    assert store.claim([a_claim(now, not_after=soon)]).items == [Refusal(Refused.TOO_LATE)]
    soon = now_of(store) + SECOND * 0.4
    assert store.acquire([a_request(not_after=soon)]).items == [Refusal(Refused.TOO_LATE)]
    meddler.before = for_a_while("", times=0)
    view = look(store, "a")
    assert (list(view.rows), list(view.leases)) == ([], [])
    assert isinstance(store.claim([a_claim(now)]).items[0], Row)
    assert isinstance(store.acquire([a_request("u")]).items[0], Lease)


def test_a_clock_that_jumps_forward_in_a_call_makes_no_lease_end_too_soon(meddler: Meddler) -> None:
    """Its holder trusts in it from when it was asked for, so it must not count from an instant before."""
    store = opened(meddler.port)
    now = now_of(store)
    for n, ask in enumerate(
        (
            lambda: store.acquire([a_request()]),
            lambda: store.renew([a_lease(now)], ttl=2 * MINUTE),
            lambda: store.acquire([a_request(ttl=3 * MINUTE)]),
        )
    ):
        jump = (n + 1) * 5 * SECOND
        meddler.after = shifted_from("UpdateItem", meddler, jump)
        answer = ask()
        (lease,) = answer.items
        assert isinstance(lease, Lease)
        assert answer.now > now + jump - SECOND
        assert lease.until == answer.now + (n + 1) * MINUTE
    meddler.after = shifted_from("PutItem", meddler, 3 * HOUR)
    rows = store.claim([a_claim(now)])
    (row,) = rows.items
    assert isinstance(row, Row)
    assert row.since == rows.now > now + 3 * HOUR - SECOND
    meddler.after = shifted_from("UpdateItem", meddler, 4 * HOUR)
    assert store.renew([lease], ttl=MINUTE).items == [Refusal(Refused.TOO_LATE)]


def test_a_clock_that_never_stops_jumping_is_told(meddler: Meddler) -> None:
    store = opened(meddler.port)

    def ever_further(operation: str, arguments: Any) -> None:
        meddler.shift += HOUR

    meddler.after = ever_further
    refused(lambda: store.acquire([a_request(ttl=SECOND)]), "jumps")


def test_a_clock_that_steps_back_is_followed(meddler: Meddler) -> None:
    store = opened(meddler.port)
    meddler.shift = HOUR
    ahead = now_of(store)
    meddler.shift = timedelta(0)
    assert timedelta(minutes=59) < ahead - now_of(store) < timedelta(minutes=61)


def test_answers_that_take_longer_than_a_second_cannot_tell_the_time() -> None:
    with Proxy(dynalite_server().port) as proxy:
        own = client_of(proxy.port)
        store = wrap(own, namespace=uuid.uuid4().hex)
        _opened.append(store)
        proxy.delay = 2.1
        refused(lambda: store.acquire([a_request()]), "longer than a second to answer", within=8)
        proxy.delay = 0
        assert isinstance(store.acquire([a_request()]).items[0], Lease)
        own.close()


def test_nothing_is_early_or_taken_over_by_a_clock_that_is_ahead_of_the_host(meddler: Meddler) -> None:
    meddler.shift = HOUR
    store = opened(meddler.port)
    other = opened(meddler.port, store.namespace)
    now = now_of(store)
    assert now > datetime.now(UTC) + timedelta(minutes=59)
    (early,) = store.claim([a_claim(now, not_before=now + 2 * SECOND)]).items
    assert early == Refusal(Refused.EARLY, until=now + 2 * SECOND)
    (lease,) = store.acquire([a_request(ttl=2 * SECOND)]).items
    assert isinstance(lease, Lease)
    while isinstance(other.acquire([a_request("u")]).items[0], Refusal):
        time.sleep(0.05)
    assert datetime.now(UTC) + HOUR >= lease.until


# What is written in two steps


def test_a_prune_that_breaks_off_has_moved_the_mark_first(meddler: Meddler) -> None:
    store = opened(meddler.port, limit=LIMIT)
    now = now_of(store)
    store.settle([an_end(now - DAY, keep_until=now - DAY)])
    meddler.before = for_a_while("InternalServerError", times=1000, only="DeleteItem")
    refused(lambda: store.prune(now + DAY), "put us off|no answer")
    view = look(store, "a")
    assert view.marks == {pruned_mark("a"): now - DAY}
    assert len(store.rows(RowQuery()).items) == 1
    meddler.before = for_a_while("", times=0)
    assert store.prune(now + DAY) == 1


def test_an_end_whose_mark_did_not_move_moves_it_when_it_is_asked_again(meddler: Meddler) -> None:
    store = opened(meddler.port, limit=LIMIT)
    now = now_of(store)
    missed = an_end(
        now - DAY, outcome=Outcome.SKIPPED, reason=SkipReason.MISSED, count=200, last=now - MINUTE
    )
    meddler.before = for_a_while("InternalServerError", times=1000, only="UpdateItem")
    refused(lambda: store.settle([missed]), "put us off|no answer")
    (row,) = store.rows(RowQuery()).items
    assert (row.count, look(store, "a").marks) == (200, {})
    meddler.before = for_a_while("", times=0)
    assert store.settle([replace(missed, token="another")]).items == [row]
    assert look(store, "a").marks == {pruned_mark("a"): now - MINUTE}


def test_keys_that_are_not_read_at_once_are_read_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may leave keys unread, where it would become too large or the table is asked too much."""
    right = Wire._decoded

    def leaves_half(self: Wire, body: Any) -> Any:
        keys = body.get("Responses", {}).get(TABLE, [])
        if len(keys) > 1:
            half = keys[len(keys) // 2 :]
            unread = [{name: item[name] for name in ("pk", "sk")} for item in half]
            body = {
                **body,
                "Responses": {TABLE: keys[: len(keys) // 2]},
                "UnprocessedKeys": {TABLE: {"Keys": unread}},
            }
        return right(self, body)

    store = opened(dynalite_server().port)
    now = now_of(store)
    rows = store.claim([a_claim(now, task=f"{n}") for n in range(10)]).items
    monkeypatch.setattr(Wire, "_decoded", leaves_half)
    assert store.claim([a_claim(now, "u", f"{n}") for n in range(10)]).items == rows
