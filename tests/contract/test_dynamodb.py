"""The DynamoDB store keeps the contract, on dynalite; and what is its own."""

from __future__ import annotations

import functools
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from rota._core.errors import DefinitionError
from rota.stores import open_store, schema_of
from rota.stores.base import (
    Claim,
    End,
    Lease,
    Look,
    Occurrence,
    Outcome,
    Request,
    Row,
    RowQuery,
    Store,
    microseconds,
    pruned_mark,
)
from rota.stores.dynamodb import DynamoDBStore, open_dynamodb, wrap
from rota.stores.dynamodb import table as tables
from rota.stores.dynamodb.clock import ServerClock
from rota.stores.dynamodb.opening import worries
from rota.stores.dynamodb.partition import Partition
from rota.stores.dynamodb.wire import AT_A_TIME, Call, Reply, Wire
from rota.testing import StoreClock, StoreContract
from tests.servers.dynalite import REGION, TABLE, Meddler, client_of, dynalite_server, endpoint_of, url_of
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.service

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
ITEMS = 50


class TestDynamoDB(StoreContract):
    """By the clock of the server, which shows seconds."""

    clock = None
    name: str

    def open(self) -> Store:
        self.name = f"shop/{uuid.uuid4().hex}"
        return self.open_again()

    def open_again(self) -> Store:
        return open_store(dynalite_server().url, namespace=self.name)


class Driven(ServerClock):
    """The clock of the server in the hands of a test."""

    def __init__(self, clock: StoreClock) -> None:
        super().__init__()
        self.clock = clock

    def hear(self, header: str, sent: int, received: int) -> int:
        return microseconds(self.clock.now)

    def now(self, at: int) -> datetime:
        return self.clock()

    def was_behind(self, now: datetime, at: int) -> bool:
        return False


@functools.cache
def its_client() -> Any:
    """One for all stores whose clock is driven: to make one takes longer than some tests wait."""
    return client_of(dynalite_server().port)


@pytest.fixture(scope="module", autouse=True)
def _close_the_client() -> Iterator[None]:
    yield
    if its_client.cache_info().currsize:
        its_client().close()


class TestDynamoDBWithADrivenClock(StoreContract):
    """With the clock in the hands of the test, so that every edge is seen."""

    clock = StoreClock()
    name: str

    def open(self) -> Store:
        self.name = f"shop/{uuid.uuid4().hex}"
        return self.open_again()

    def open_again(self) -> Store:
        assert self.clock is not None
        clock, limit = Driven(self.clock), 5 * SECOND
        wire = Wire(lambda _: its_client(), TABLE, "dynalite", limit=limit, clock=clock, ours=False)
        return DynamoDBStore(wire, self.name)

    @property
    def grain(self) -> timedelta:
        return timedelta(microseconds=1)


_opened: list[Store] = []


@pytest.fixture(autouse=True)
def _close_what_was_opened() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def opened(url: str | None = None, namespace: str | None = None) -> Store:
    """A store that is closed at the end of the test, in a namespace of its own."""
    name = uuid.uuid4().hex if namespace is None else namespace
    _opened.append(open_store(url or dynalite_server().url, namespace=name))
    return _opened[-1]


def now_of(store: Store) -> datetime:
    return store.claim([]).now


def a_claim(now: datetime, task: str = "a", **changes: Any) -> Claim:
    given = {"due": now, "attempt": 1, "token": f"token of {task}", **changes}
    occurrence = Occurrence(task, given["due"])
    return Claim(
        occurrence, given["attempt"], given["token"], "s", now - DAY, now + DAY, MINUTE, now - 2 * DAY
    )


def an_end(claim: Claim, **changes: Any) -> End:
    given = {"outcome": Outcome.SUCCEEDED, "keep_until": claim.keep_until, **changes}
    return End(claim.occurrence, claim.attempt, claim.token, **given)


# Round trips


def requests_of(proxy: Proxy, call: Callable[[], object]) -> int:
    before = proxy.trips
    call()
    return proxy.trips - before


def test_a_call_makes_one_request_for_each_item_25_at_a_time() -> None:
    with Proxy(dynalite_server().port) as proxy:
        store = opened(url_of(proxy.port))
        now = now_of(store)
        claims = [a_claim(now, f"task {n}") for n in range(ITEMS)]
        requests = [Request(f"k{n}", f"t{n}", "s", MINUTE) for n in range(ITEMS)]
        leases: list[Lease] = []
        assert requests_of(proxy, lambda: store.claim(claims)) == ITEMS + 1  # and the pruned marks
        assert requests_of(proxy, lambda: store.acquire(requests)) == ITEMS
        assert requests_of(proxy, lambda: leases.extend(store.acquire(requests).items)) == ITEMS  # type: ignore[arg-type]  # none is refused
        assert requests_of(proxy, lambda: store.renew(leases, ttl=2 * MINUTE)) == ITEMS
        assert requests_of(proxy, lambda: store.settle([an_end(claim) for claim in claims])) == ITEMS
        assert requests_of(proxy, lambda: store.release(leases)) == ITEMS
        assert requests_of(proxy, lambda: store.advance({f"m{n}": now for n in range(ITEMS)})) == ITEMS
        # Who comes second asks and then reads, up to a hundred items at a time.
        assert requests_of(proxy, lambda: store.claim(claims)) == ITEMS + 2
        assert proxy.connections <= AT_A_TIME


def test_what_stands_of_a_long_list_is_read_not_written_again() -> None:
    """Who comes second, or asks again as its time was up, makes a request for a hundred items."""
    with Proxy(dynalite_server().port) as proxy:
        store = opened(url_of(proxy.port))
        now = now_of(store)
        claims = [a_claim(now, f"task {n}") for n in range(150)]
        ends = [an_end(claim) for claim in claims]
        rows = store.claim(claims[:140]).items
        assert requests_of(proxy, lambda: store.claim(claims)) == 2 + 10 + 1
        assert store.claim(claims).items[:140] == rows
        assert requests_of(proxy, lambda: store.claim(claims)) == 2
        final = store.settle(ends).items
        assert requests_of(proxy, lambda: store.settle(ends)) == 3  # and the pruned marks
        assert store.settle(ends).items == final
        assert {row.outcome for row in final if row is not None} == {Outcome.SUCCEEDED}
        requests = [Request(f"k{n}", "t", "s", MINUTE) for n in range(120)]
        leases = store.acquire(requests).items
        rivals = [Request(f"k{n}", "u", "s", MINUTE) for n in range(120)]
        assert requests_of(proxy, lambda: opened(url_of(proxy.port), store.namespace).acquire(rivals)) == 3
        assert set(store.look(Look({}, now)).leases) == set(leases)


@pytest.mark.parametrize("n", [1, 25])
def test_up_to_25_items_take_one_trip(n: int) -> None:
    with Proxy(dynalite_server().port) as proxy:
        store = opened(url_of(proxy.port))
        now = now_of(store)
        claims = [a_claim(now, f"task {k}") for k in range(n)]
        store.acquire([Request(f"warm {k}", "t", "s", MINUTE) for k in range(AT_A_TIME)])
        proxy.delay = 0.5
        began = datetime.now(UTC)
        rows = store.claim(claims).items
        assert timedelta(seconds=0.5) <= datetime.now(UTC) - began < timedelta(seconds=1)
        assert len({row.token for row in rows if isinstance(row, Row)}) == n
        proxy.delay = 0


def test_a_look_reads_marks_and_open_rows_then_rows_then_leases() -> None:
    with Meddler(dynalite_server().port) as meddler:
        store = opened(meddler.url)
        now = now_of(store)
        store.advance({f"mark {n}": now - (DAY if n < 3 else SECOND) for n in range(10)})
        meddler.seen.clear()
        store.look(Look({f"task {n}": f"mark {n}" for n in range(10)}, now - DAY))
        asked = [(operation, arguments.get("IndexName")) for operation, arguments in meddler.seen]
        assert sorted(asked[:2], key=str) == [("BatchGetItem", None), ("Query", "state")]
        # One for each task whose mark is old, one for all others together.
        assert sorted(asked[2:-1], key=str) == [("Query", "due"), *[("Query", None)] * 3]
        assert asked[-1] == ("Query", "state")


def test_everything_is_read_consistently() -> None:
    with Meddler(dynalite_server().port) as meddler:
        assert reads_consistently(meddler)


def reads_consistently(meddler: Meddler) -> bool:
    store = opened(meddler.url)
    now = now_of(store)
    claims = [a_claim(now, task) for task in ("a", "b")]
    store.claim(claims)
    store.claim(claims)
    store.settle([an_end(claims[0], output="o")])
    store.settle([an_end(claims[0])])
    store.advance({"m": now})
    store.advance({"m": now})
    store.look(Look({"a": "m", "b": "n"}, now - DAY))
    for query in (RowQuery(), RowQuery(["a"]), RowQuery(open_only=True)):
        store.rows(query)
    store.prune(now - DAY, most=1)
    reads = [
        arguments["RequestItems"][TABLE] if operation == "BatchGetItem" else arguments
        for operation, arguments in meddler.seen
        if operation in ("Query", "BatchGetItem")
    ]
    assert len(reads) > 10
    return all(read.get("ConsistentRead") is True for read in reads)


# What stands in the table


def test_applications_and_environments_in_one_table_do_not_see_each_other() -> None:
    base = uuid.uuid4().hex
    names = [base, f"{base}/test", f"{base}%", base.upper(), f"{base} ", f"{base}ä", f"{base}a\u0308", ""]
    stores = [opened(namespace=name) for name in names]
    at = now_of(stores[0]) - DAY
    for name, store in zip(names, stores, strict=True):
        now = now_of(store)
        (row,) = store.claim([a_claim(now, due=at, token=f"token {name}", task=base)]).items
        assert isinstance(row, Row)
        assert row.token == f"token {name}"
        store.advance({base: at - DAY})
    for name, store in zip(names, stores, strict=True):
        assert [row.token for row in store.rows(RowQuery([base])).items] == [f"token {name}"]
        assert len(store.look(Look({base: base}, at - 2 * DAY)).rows) == 1


def test_long_and_strange_names_are_kept_apart() -> None:
    store = opened()
    now = now_of(store)
    names = ["x" * 3000, "x" * 3001, "a#b", "a", "%a", "a\x00b", "a\nb", "a\n", "ä" * 1000, ""]
    rows = store.claim([a_claim(now, name) for name in names]).items
    assert [row.token for row in rows if isinstance(row, Row)] == [f"token of {name}" for name in names]
    for name in names:
        assert [row.occurrence.task for row in store.rows(RowQuery([name])).items] == [name]


def test_rows_before_1970_and_long_after_stand_in_order() -> None:
    store = opened()
    now = now_of(store)
    dues = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, tzinfo=UTC),
        now,
        datetime(9999, 1, 1, tzinfo=UTC),
    ]
    store.claim([a_claim(now, due=due) for due in dues])
    for query in (RowQuery(), RowQuery(["a"])):
        assert [row.occurrence.due for row in store.rows(query).items] == dues[::-1]


def test_a_history_of_many_pages_is_read_until_the_limit() -> None:
    store = opened()
    now = now_of(store)
    ends = [
        an_end(a_claim(now, f"{n % 2}", due=now - n * SECOND), output="ö" * 60_000, keep_until=now - DAY)
        for n in range(25)
    ]
    store.settle(ends)
    for query, count in (
        (RowQuery(), 25),
        (RowQuery(limit=7), 7),
        (RowQuery(["1"]), 12),
        (RowQuery(["1"], limit=3), 3),
    ):
        rows = store.rows(query).items
        assert len(rows) == count
        assert [row.occurrence.due for row in rows] == sorted(
            (row.occurrence.due for row in rows), reverse=True
        )
        assert {len(row.output) for row in rows} == {60_000}
    assert store.prune(now_of(store) + DAY) == 25


def test_a_record_of_a_newer_rota_is_refused_and_not_written_over() -> None:
    name = uuid.uuid4().hex
    store, client = opened(namespace=name), client_of(dynalite_server().port)
    now = now_of(store)
    claim = a_claim(now)
    store.claim([claim])
    (lease,) = store.acquire([Request("k", "t", "s", SECOND / 10)]).items
    assert isinstance(lease, Lease)
    store.advance({"m": now - DAY})
    keys = (tables.row_key(claim.occurrence, 1), tables.lease_key("k"), tables.mark_key("m"))
    for sk in keys:
        client.update_item(
            TableName=TABLE,
            Key={"pk": {"S": tables.partition(name)}, "sk": {"S": sk}},
            UpdateExpression="SET v = :v, rev = :r",
            ExpressionAttributeValues={":v": {"N": "2"}, ":r": {"S": "newer"}},
        )
    client.close()
    calls: list[Callable[[], object]] = [
        lambda: store.claim([claim]),
        lambda: store.settle([an_end(claim)]),
        lambda: store.acquire([Request("k", "t2", "s", SECOND)]),
        lambda: store.renew([lease], ttl=SECOND),
        lambda: store.advance({"m": now}),
        lambda: store.look(Look({}, now)),
    ]
    for call in calls:
        with pytest.raises(Exception, match="written by a newer rota"):
            call()


def test_keys_that_lapsed_an_hour_ago_are_forgotten() -> None:
    clock, name = StoreClock(), uuid.uuid4().hex
    client = client_of(dynalite_server().port)
    wire = Wire(lambda _: client, TABLE, "dynalite", limit=5 * SECOND, clock=Driven(clock))
    store = DynamoDBStore(wire, name)
    _opened.append(store)
    held = [store.acquire([Request(f"k{n}", "t", "s", MINUTE)]).items[0] for n in range(3)]
    store.release([lease for lease in held[:1] if isinstance(lease, Lease)])

    def keys() -> int:
        found = client.query(
            TableName=TABLE,
            KeyConditionExpression="pk = :p",
            ExpressionAttributeValues={":p": {"S": tables.partition(name)}},
        )
        return len(found["Items"])

    for passed, left in ((timedelta(minutes=59), 3), (timedelta(minutes=1), 2), (MINUTE, 0)):
        clock.advance(passed)
        store.prune(clock.now)
        assert keys() == left


# Opening


def test_what_its_url_may_say() -> None:
    endpoint = "http://127.0.0.1:1"
    store = open_dynamodb(f"dynamodb://{REGION}/orders.rota", namespace="shop", endpoint_url=endpoint)
    assert repr(store) == f"DynamoDBStore('dynamodb://{REGION}/orders.rota at 127.0.0.1:1', 'shop')"
    assert (
        repr(open_store("dynamodb://eu-west-1", namespace=""))
        == "DynamoDBStore('dynamodb://eu-west-1/rota', '')"
    )
    for url in (
        "dynamodb:///rota",
        "dynamodb://eu-west-1/a b",
        "dynamodb://eu-west-1/ro",
        "dynamodb://key:secret@eu-west-1/rota",
        "dynamodb://eu-west-1/rota?endpoint_url=127.0.0.1:8000",
        "dynamodb://eu-west-1/rota?endpoint_url=http://key:secret@host",
        "dynamodb://eu-west-1/rota?prefix=a_",
    ):
        with pytest.raises(DefinitionError) as error:
            open_store(url, namespace="")
        assert "secret" not in str(error.value)


def test_nothing_is_opened_before_the_first_call() -> None:
    with Proxy(dynalite_server().port) as proxy:
        store = opened(url_of(proxy.port))
        assert proxy.connections == 0
        store.claim([])
        assert proxy.connections == 1


def test_a_closed_store_opens_itself_again_and_leaves_no_thread_behind() -> None:
    def threads() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.startswith("rota-dynamodb")]

    for store in _opened:
        store.close()
    store = opened()
    for _ in range(2):
        now = now_of(store)
        store.claim([a_claim(now, f"task {n}") for n in range(30)])
        assert 0 < len(threads()) <= AT_A_TIME
        store.close()
        assert threads() == []
        store.close()


def a_table(port: int) -> Any:
    return boto3.resource("dynamodb", region_name=REGION, endpoint_url=endpoint_of(port)).Table(TABLE)


@pytest.mark.parametrize("kind", ["client of botocore", "client of boto3", "Table"])
def test_it_works_on_the_applications_own_client_and_leaves_it_open(kind: str) -> None:
    port, name = dynalite_server().port, uuid.uuid4().hex
    own: Any
    if kind == "client of botocore":
        own = client_of(port)
    elif kind == "client of boto3":
        own = boto3.client("dynamodb", region_name=REGION, endpoint_url=endpoint_of(port))
    else:
        own = a_table(port)
    store, other = opened(own, name), opened(namespace=name)
    now = now_of(store)
    claims = [a_claim(now, f"task {n}") for n in range(3)]
    store.claim(claims)
    store.settle([an_end(claims[0], output="out")])
    store.acquire([Request("k", "t", "s", MINUTE)])
    store.advance({"m": now - DAY})
    view = store.look(Look({"task 0": "m"}, now))
    assert (len(view.rows), len(view.leases), view.marks) == (3, 1, {"m": now - DAY})
    assert [row.output for row in store.rows(RowQuery(["task 0"])).items] == ["out"]
    assert set(other.look(Look({"task 0": "m"}, now)).rows) == set(view.rows)
    store.close()
    assert (own.meta.client if kind == "Table" else own).list_tables()["TableNames"] == [TABLE]
    (own.meta.client if kind == "Table" else own).close()


def test_a_client_of_another_service_is_refused() -> None:
    client = boto3.client("sqs", region_name=REGION)
    with pytest.raises(DefinitionError, match="of sqs"):
        wrap(client, namespace="shop")
    client.close()


def test_the_schema_is_what_the_store_creates() -> None:
    store, client = opened(), client_of(dynalite_server().port)
    store.claim([])
    printed = json.loads(schema_of("dynamodb"))
    there = client.describe_table(TableName=TABLE)["Table"]
    client.close()
    for part in ("KeySchema", "TableName"):
        assert there[part] == printed[part]
    assert {index["IndexName"]: index["Projection"] for index in there["LocalSecondaryIndexes"]} == {
        index["IndexName"]: index["Projection"] for index in printed["LocalSecondaryIndexes"]
    }


def test_a_table_as_rota_makes_it_gives_no_concern() -> None:
    store = opened()
    assert isinstance(store, DynamoDBStore)
    assert store.concerns() == []


def test_what_an_operator_must_know_of_a_table_is_said() -> None:
    fine = {
        "TableName": "rota",
        "LocalSecondaryIndexes": [{"IndexName": "state"}, {"IndexName": "due"}],
        "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
    }
    nothing = timedelta(0)
    few = {
        "BillingModeSummary": {},
        "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 50},
    }
    replicas = {"Replicas": [{"RegionName": "us-east-1"}]}
    cases: list[tuple[dict[str, Any], timedelta, str]] = [
        ({"LocalSecondaryIndexes": []}, nothing, "not a table of rota"),
        (replicas, nothing, "copies in us-east-1: the last writer wins"),
        (few, nothing, "only 5 provisioned units"),
        ({"TableClassSummary": {"TableClass": "STANDARD_INFREQUENT_ACCESS"}}, nothing, "infrequent access"),
        ({}, timedelta(minutes=2), "0:02:00 ahead of"),
        ({}, timedelta(hours=-1), "1:00:00 behind"),
    ]
    assert list(worries(fine, timedelta(seconds=59))) == []
    assert list(worries(fine | replicas | {"MultiRegionConsistency": "STRONG"}, nothing)) == []
    for changes, offset, words in cases:
        (said,) = worries(fine | changes, offset)
        assert words in said


# Known mistakes, planted one by one: the test named must catch each.


def fails(suite: type[StoreContract], test: str) -> bool:
    run = suite()
    try:
        run.setup_method()
        getattr(run, test)()
    except AssertionError:
        return True
    finally:
        run.teardown_method()
    return False


def test_a_put_without_its_condition_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: Partition, call: Call, row: Row) -> Reply:
        key = self.key(tables.row_key(row.occurrence, row.attempt))
        always = "attribute_exists(#pk) OR attribute_not_exists(#pk)"
        return call.write("put_item", key, always, item=tables.item_of(row))

    caught_by = "test_one_occurrence_is_claimed_once_by_threads_at_the_same_moment"
    assert not fails(TestDynamoDB, caught_by)
    monkeypatch.setattr(Partition, "put", put)
    assert fails(TestDynamoDB, caught_by)


def test_a_lease_written_without_its_condition_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Call.write

    def write(self: Call, operation: str, key: Any, only_if: str, **rest: Any) -> Reply:
        if key["sk"].startswith("lease#") and ":before" not in only_if:
            rest["change"] = rest["change"]
            only_if = f"attribute_exists(#pk) OR attribute_not_exists(#pk) OR {only_if}"
        return right(self, operation, key, only_if, **rest)

    caught_by = "test_one_key_is_given_to_one_of_eight_threads"
    assert not fails(TestDynamoDB, caught_by)
    monkeypatch.setattr(Call, "write", write)
    assert fails(TestDynamoDB, caught_by)


def test_an_inconsistent_read_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Wire.send

    def send(self: Wire, operation: str, arguments: Any, deadline: float) -> Reply:
        if operation == "query":
            arguments = {**arguments, "ConsistentRead": False}
        return right(self, operation, arguments, deadline)

    monkeypatch.setattr(Wire, "send", send)
    with Meddler(dynalite_server().port) as meddler:
        assert not reads_consistently(meddler)


def test_a_mark_that_does_not_move_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    caught_by = "test_pruning_moves_the_pruned_mark_to_the_last_instant_removed"
    assert not fails(TestDynamoDB, caught_by)
    monkeypatch.setattr(Partition, "move", lambda self, call, marks, first=False: dict(marks))
    assert fails(TestDynamoDB, caught_by)


def test_a_host_clock_in_place_of_the_servers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def follows_the_server() -> bool:
        with Meddler(dynalite_server().port) as meddler:
            meddler.shift = timedelta(hours=1)
            now = now_of(opened(meddler.url))
            return abs(now - datetime.now(UTC) - meddler.shift) < 2 * SECOND

    assert follows_the_server()
    monkeypatch.setattr(ServerClock, "now", lambda self, at: datetime.now(UTC))
    monkeypatch.setattr(
        ServerClock, "was_behind", lambda self, now, at: False
    )  # would have caught it as well
    assert not follows_the_server()


def test_the_pruned_mark_is_asked_beside_the_writes() -> None:
    """A row that a claim has written at or before the mark is taken back."""
    store = opened()
    now = now_of(store)
    store.advance({pruned_mark("a"): now - MINUTE})
    store.claim([a_claim(now, due=now - MINUTE), a_claim(now, "b")])
    assert [row.occurrence.task for row in store.rows(RowQuery()).items] == ["b"]
