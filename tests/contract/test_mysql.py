"""The MySQL store keeps the contract, on a real MariaDB, which stands for both."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pymysql
import pytest
import sqlalchemy
from pymysql.constants import SERVER_STATUS

from rota._core.errors import DefinitionError
from rota.stores import open_store, schema_of
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
    Store,
    StoreMisused,
    StoreUnavailable,
    instant,
)
from rota.stores.sql import mysql_statements
from rota.stores.sql.mysql import MySQLStore, wrap
from rota.testing import StoreContract
from rota.testing._tools import at_once
from tests.servers.mariadb import mariadb_server
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.service

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class TestMySQL(StoreContract):
    clock = None
    namespace: str

    def open(self) -> Store:
        self.namespace = f"shop/{uuid.uuid4().hex}"
        return self.open_again()

    def open_again(self) -> Store:
        return open_store(mariadb_server().url, namespace=self.namespace)


class TestMySQLOnTheApplicationsEngine(TestMySQL):
    """With a session as applications have it: not strict, no autocommit, a zone, another charset."""

    def open_again(self) -> Store:
        url = mariadb_server().url.replace("mysql://", "mysql+pymysql://") + "?charset=latin1"
        engine = sqlalchemy.create_engine(url, pool_size=10, connect_args={"ssl_disabled": True})
        self.engines.append(engine)

        @sqlalchemy.event.listens_for(engine, "connect")
        def _(connection: Any, record: object) -> None:
            with connection.cursor() as cursor:
                cursor.execute("SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'")
                cursor.execute("SET time_zone = '+05:30', tx_isolation = 'SERIALIZABLE'")

        return open_store(engine, namespace=self.namespace)

    def setup_method(self, method: object = None) -> None:
        self.engines: list[sqlalchemy.Engine] = []
        super().setup_method(method)

    def teardown_method(self, method: object = None) -> None:
        super().teardown_method(method)
        for engine in self.engines:
            engine.dispose()


@pytest.fixture
def store() -> Iterator[MySQLStore]:
    opened = open_store(mariadb_server().url, namespace=f"shop/{uuid.uuid4().hex}")
    assert isinstance(opened, MySQLStore)
    yield opened
    opened.close()


@pytest.fixture
def now(store: MySQLStore) -> datetime:
    return store.rows(RowQuery(limit=0)).now


def a_claim(now: datetime, task: str = "a", token: str = "t", **window: datetime) -> Claim:
    given: dict[str, Any] = {"not_before": now - MINUTE, "not_after": now + MINUTE, **window}
    return Claim(
        Occurrence(task, now), 1, token, "web-1", start_within=MINUTE, keep_until=now + MINUTE, **given
    )


def an_end(now: datetime, task: str = "a", token: str = "t", **changes: Any) -> End:
    return End(Occurrence(task, now), 1, token, Outcome.SUCCEEDED, now, **changes)


def test_each_call_takes_one_round_trip_and_a_look_two() -> None:
    with Proxy(mariadb_server().port) as proxy:
        url = mariadb_server().url_of(port=proxy.port)
        store = open_store(url, namespace=f"shop/{uuid.uuid4().hex}")
        now = store.rows(RowQuery()).now
        tasks = [f"task {n}" for n in range(50)]
        leases: list[Lease] = []

        def trips(call: Callable[[], object]) -> int:
            before = proxy.trips
            call()
            return proxy.trips - before

        def acquire() -> None:
            for answer in store.acquire([Request(task, "t", "", MINUTE) for task in tasks]).items:
                assert isinstance(answer, Lease)
                leases.append(answer)

        assert [
            trips(lambda: store.look(Look({task: f"mark {task}" for task in tasks}, now))),
            trips(lambda: store.claim([a_claim(now, task) for task in tasks])),
            trips(acquire),
            trips(lambda: store.renew(leases, ttl=MINUTE)),
            trips(lambda: store.release(leases)),
            trips(lambda: store.settle([an_end(now, task) for task in tasks])),
            trips(lambda: store.advance(dict.fromkeys(tasks, now))),
            trips(lambda: store.rows(RowQuery())),
        ] == [2, 1, 1, 1, 1, 1, 1, 1]
        store.close()


def test_a_thousand_items_go_in_one_call_of_each_kind(store: MySQLStore, now: datetime) -> None:
    tasks = [f"task {n}" for n in range(1000)]
    rows = store.claim([a_claim(now, task) for task in tasks]).items
    assert [row.occurrence.task for row in rows if isinstance(row, Row)] == tasks
    leases = [
        lease
        for lease in store.acquire([Request(task, "t", "", MINUTE) for task in tasks]).items
        if isinstance(lease, Lease)
    ]
    assert [lease.key for lease in leases] == tasks
    assert all(isinstance(lease, Lease) for lease in store.renew(leases, ttl=MINUTE).items)
    view = store.look(Look(dict.fromkeys(tasks, "no mark"), now - MINUTE))
    assert (len(view.rows), len(view.leases)) == (1000, 1000)
    marks = {task: now - n * SECOND for n, task in enumerate(tasks)}
    assert store.advance(marks).items == list(marks.values())
    view = store.look(Look({task: task for task in tasks}, now - MINUTE))
    assert (len(view.rows), view.marks) == (1000, marks)
    assert store.release(leases).items == [True] * 1000
    assert len(store.settle([an_end(now, task) for task in tasks]).items) == 1000
    assert store.prune(now + MINUTE, most=0) == 0


def test_more_rows_than_fit_into_a_step_are_pruned_in_several(store: MySQLStore, now: datetime) -> None:
    past = now - timedelta(days=1)
    ends = [End(Occurrence("a", past + n * SECOND), 1, "t", Outcome.SUCCEEDED, past) for n in range(2500)]
    store.settle(ends)
    assert store.prune(now + MINUTE) == 2500
    assert store.rows(RowQuery()).items == []


def test_output_of_more_than_a_packet_is_written_at_one_instant(store: MySQLStore, now: datetime) -> None:
    """max_allowed_packet is 16 MB."""
    ends = [an_end(now, f"task {n}", output=f"{n}" + "ä" * (256 << 10)) for n in range(30)]
    answer = store.settle(ends)
    assert [row.output for row in answer.items if row] == [end.output for end in ends]
    assert {row.ended for row in answer.items if row} == {answer.now}


@pytest.mark.parametrize(
    ("name", "longest"), [("task", 1024), ("token", 255), ("server", 1024), ("key", 2048), ("owner", 1024)]
)
def test_what_would_be_cut_off_is_misused(store: MySQLStore, now: datetime, name: str, longest: int) -> None:
    def ask(text: str) -> object:
        if name in ("key", "owner"):
            key, owner = (text, "o") if name == "key" else ("k", text)
            return store.acquire([Request(key, "t", owner, SECOND)]).items[0]
        task, token, server = (text if name == each else each for each in ("task", "token", "server"))
        end = End(Occurrence(task, now), 1, token, Outcome.SUCCEEDED, now, server=server)
        return store.settle([end]).items[0]

    fits = "ä" * ((longest - 1) // 2) + "x"
    assert fits in repr(ask(fits))
    with pytest.raises(StoreMisused, match=f"allowed: up to {longest}"):
        ask(fits + "xx")
    with pytest.raises(StoreMisused, match="no text that can be stored"):
        ask("\ud800")


def test_a_namespace_that_is_too_long_is_refused_when_it_is_opened() -> None:
    with pytest.raises(DefinitionError, match="255 bytes"):
        open_store("mysql://host/shop", namespace="x" * 256)


def test_applications_and_environments_in_one_database_do_not_see_each_other() -> None:
    name = uuid.uuid4().hex
    shops = [
        open_store(mariadb_server().url, namespace=f"{name}{rest}")
        for rest in ("", "/test", "%", "/TEST", " ", "_")
    ]
    for place, shop in enumerate(shops):
        now = shop.rows(RowQuery()).now
        (row,) = shop.claim([a_claim(now, token=f"{place}")]).items
        assert isinstance(row, Row)
        (lease,) = shop.acquire([Request("k", f"{place}", "", MINUTE)]).items
        assert isinstance(lease, Lease)
        shop.advance({"m": now - place * SECOND})
    for place, shop in enumerate(shops):
        view = shop.look(Look({"a": "no mark"}, now - MINUTE))
        assert [row.token for row in shop.rows(RowQuery()).items] == [f"{place}"]
        assert ([row.token for row in view.rows], set(view.tokens_held)) == ([f"{place}"], {f"{place}"})
        shop.close()


def test_a_prefix_keeps_tables_apart_and_tables_are_not_made_where_that_is_forbidden() -> None:
    server, prefix = mariadb_server(), f"p{uuid.uuid4().hex[:10]}_"
    forbidden = open_store(f"{server.url}?prefix={prefix}&create=false", namespace="shop")
    with pytest.raises(StoreUnavailable, match="no tables of rota, and create=false"):
        forbidden.claim([])
    made = open_store(f"{server.url}?prefix={prefix}", namespace="shop")
    made.advance({"m": made.claim([]).now})
    assert len(forbidden.look(Look({"a": "m"}, made.claim([]).now)).marks) == 1
    names = {name for (name,) in server.run("USE rota", f"SHOW TABLES LIKE '{prefix}%'")}
    assert names == {f"{prefix}{name}" for name in ("row", "lease", "mark", "schema")}
    for store in (made, forbidden):
        store.close()


def test_what_is_printed_makes_the_tables() -> None:
    server, database = mariadb_server(), f"d{uuid.uuid4().hex}"
    server.run(f"CREATE DATABASE {database}")
    statements = [each for each in schema_of("mysql").split(";\n") if each]
    server.run(f"USE {database}", *statements)
    store = open_store(f"{server.url_of(database=database)}?create=false", namespace="shop")
    assert store.rows(RowQuery()).items == []
    store.close()
    server.run(f"DROP DATABASE {database}")


def test_tables_of_another_version_are_refused_before_anything_is_written() -> None:
    server, database = mariadb_server(), f"d{uuid.uuid4().hex}"
    server.run(f"CREATE DATABASE {database}")
    store = open_store(server.url_of(database=database), namespace="shop")
    now = store.rows(RowQuery()).now
    server.run(f"UPDATE {database}.rota_schema SET version = 2")
    for call in (
        lambda: store.claim([a_claim(now)]),
        lambda: store.settle([an_end(now)]),
        lambda: store.acquire([Request("k", "t", "", MINUTE)]),
        lambda: store.advance({"m": now}),
        lambda: store.look(Look({"a": "m"}, now)),
    ):
        with pytest.raises(StoreUnavailable, match=r"newer rota .*upgrade rota on this server"):
            call()
    server.run(f"UPDATE {database}.rota_schema SET version = 1")
    assert store.rows(RowQuery()).items == []
    assert store.look(Look({"a": "m"}, now - MINUTE)).marks == {}
    store.close()
    server.run(f"DROP DATABASE {database}")


# in a race


def races(work: Callable[[MySQLStore, int], None], count: int = 12) -> None:
    namespace = f"shop/{uuid.uuid4().hex}"
    stores = [open_store(mariadb_server().url, namespace=namespace) for _ in range(count)]
    try:
        for store in stores:
            store.rows(RowQuery())
        at_once(count, lambda number: work(stores[number], number))  # type: ignore[arg-type]  # MySQLStore each
    finally:
        for store in stores:
            store.close()


def deadlocks() -> int:
    ((_, count),) = mariadb_server().run("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
    return int(count)


def claims_in_batches(rounds: int) -> tuple[int, int]:
    """How many claims twelve servers won in batches that overlap, each in its own order; and deadlocks."""
    before, won = deadlocks(), []
    now = instant(0) + timedelta(days=20_000)

    def server(store: MySQLStore, number: int) -> None:
        order = random.Random(number)
        for round_ in range(rounds):
            tasks = [f"{round_}:{n}" for n in range(40)]
            order.shuffle(tasks)
            window = {"not_before": now, "not_after": now + timedelta(days=10_000)}
            claims = [a_claim(now, task, f"{number}", **window) for task in tasks]
            for answer in store.claim(claims).items:
                assert isinstance(answer, Row)
                if answer.token == f"{number}":
                    won.append(answer.occurrence.task)

    races(server)
    assert len(won) == len(set(won))
    return len(won), deadlocks() - before


def test_batches_that_overlap_do_not_deadlock() -> None:
    assert claims_in_batches(5) == (200, 0)


def test_batches_in_any_order_would_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: without the order of the keys the store has to be saved by asking again."""
    monkeypatch.setattr(mysql_statements, "sorted", lambda items, key=None: list(items), raising=False)
    won, met = claims_in_batches(5)
    assert won == 200
    assert met > 0


def test_places_are_given_once_in_a_race_of_batches() -> None:
    given: list[tuple[str, int]] = []

    def server(store: MySQLStore, number: int) -> None:
        keys = [f"k{n}" for n in range(20)]
        random.Random(number).shuffle(keys)
        answer = store.acquire([Request(key, f"{number}", "", MINUTE, slots=3) for key in keys])
        given.extend((lease.key, lease.slot) for lease in answer.items if isinstance(lease, Lease))

    races(server)
    assert sorted(given) == sorted((f"k{n}", slot) for n in range(20) for slot in range(3))


def test_a_key_that_changes_hands_in_a_race_has_one_holder_and_growing_fences() -> None:
    held: list[Lease] = []
    inside = threading.Semaphore(1)

    def server(store: MySQLStore, number: int) -> None:
        done = 0
        while done < 5:
            (answer,) = store.acquire([Request("k", f"{number}:{done}", "", MINUTE)]).items
            if isinstance(answer, Lease):
                assert inside.acquire(blocking=False)
                held.append(answer)
                inside.release()
                assert store.release([answer]).items == [True]
                done += 1
            else:
                time.sleep(random.uniform(0, 0.005))

    races(server, 8)
    fences = [lease.fence for lease in held]
    assert len(held) == 40
    assert fences == sorted(set(fences))


def test_what_was_waited_for_is_decided_by_the_instant_it_was_had(store: MySQLStore, now: datetime) -> None:
    """A lock that is held beyond not_after grants nothing any more."""
    store.acquire([Request("k", "t", "", SECOND)])
    (lease,) = store.acquire([Request("k", "t", "", SECOND)]).items
    assert isinstance(lease, Lease)
    holding = mariadb_server().connect(autocommit=False, database="rota")
    with holding.cursor() as cursor:
        app = store.namespace.encode().hex()
        cursor.execute(f"SELECT 1 FROM rota_lease WHERE app = x'{app}' FOR UPDATE")
    answers: list[Any] = []
    asked = store.rows(RowQuery(limit=0)).now
    late = Request("k", "t2", "", MINUTE, not_after=asked + timedelta(milliseconds=300))
    waiting = threading.Thread(target=lambda: answers.append(store.acquire([late])))
    waiting.start()
    waiting.join(0.6)
    assert waiting.is_alive()
    holding.rollback()
    waiting.join(5)
    holding.close()
    assert answers[0].items == [Refusal(Refused.TOO_LATE)]
    assert answers[0].now > asked + timedelta(milliseconds=300)


def test_what_is_shown_after_its_window_is_given_back(store: MySQLStore) -> None:
    """The commit may take its time: a look in between has judged without the lease."""
    statements = store._say.acquire

    def slow(requests: Any) -> list[str]:
        said = statements(requests)
        place = said.index(mysql_statements.COMMIT)
        return [*said[:place], "DO SLEEP(0.4)", *said[place:]]

    store._say.acquire = slow  # type: ignore[method-assign]  # the server is to be slow at that place
    now = store.rows(RowQuery(limit=0)).now
    request = Request("k", "t", "", MINUTE, not_after=now + timedelta(milliseconds=300))
    assert store.acquire([request]).items == [Refusal(Refused.TOO_LATE)]
    assert store.look(Look({}, now)).leases == []
    in_time = Request("k", "t", "", MINUTE, not_after=now + MINUTE)
    assert isinstance(store.acquire([in_time]).items[0], Lease)


def test_a_token_that_asks_again_after_its_lease_lapsed_begins_a_new_holding(store: MySQLStore) -> None:
    first, *_ = store.acquire([Request("k", "t", "web-1", timedelta(milliseconds=100))]).items
    assert isinstance(first, Lease)
    time.sleep(0.15)
    answer = store.acquire([Request("k", "t", "web-2", MINUTE)])
    (again,) = answer.items
    assert isinstance(again, Lease)
    assert (again.owner, again.since) == ("web-2", answer.now)
    assert again.fence > first.fence


# on what the application has


def test_a_connection_of_the_application_is_left_as_it_was_found() -> None:
    lent: Any = mariadb_server().connect(database="rota", autocommit=False, read_timeout=7)
    watched = (
        "SELECT @@autocommit, @@sql_mode, @@tx_isolation, @@time_zone, @@innodb_lock_wait_timeout,"
        " @@lock_wait_timeout, @@character_set_connection"
    )

    def session() -> object:
        with lent.cursor() as cursor:
            cursor.execute(watched)
            found = cursor.fetchone()
        return found, lent._read_timeout, lent.get_autocommit()

    before = session()
    store = wrap(lent, namespace=f"shop/{uuid.uuid4().hex}")
    now = store.rows(RowQuery()).now
    store.claim([a_claim(now)])
    store.look(Look({"a": "m"}, now))
    assert not lent.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
    store.close()
    assert session() == before
    with pytest.raises(pymysql.err.ProgrammingError), lent.cursor() as cursor:
        cursor.execute("SELECT 1; SELECT 2")
    with lent.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM rota_row")
    with pytest.raises(StoreMisused, match="within a transaction"):
        store.claim([a_claim(now)])
    lent.rollback()
    assert len(store.claim([a_claim(now, "b")]).items) == 1
    lent.close()


def test_a_connection_of_the_application_serves_one_thread_after_another() -> None:
    lent = mariadb_server().connect(database="rota")
    store = open_store(lent, namespace=f"shop/{uuid.uuid4().hex}")
    at_once(8, lambda number: store.acquire([Request("k", f"{number}", "", MINUTE)]))
    assert len(store.look(Look({}, store.claim([]).now)).leases) == 1
    lent.close()


@pytest.mark.parametrize("lends", [False, True], ids=["opens", "lends"])
def test_a_function_opens_a_connection_or_lends_one(lends: bool) -> None:
    opened: list[pymysql.Connection[Any]] = []

    def connect() -> pymysql.Connection[Any]:
        opened.append(mariadb_server().connect(database="rota"))
        return opened[-1]

    @contextmanager
    def lend() -> Iterator[pymysql.Connection[Any]]:
        yield opened[0] if opened else connect()

    store = wrap(lend if lends else connect, namespace=f"shop/{uuid.uuid4().hex}")
    for _ in range(2):
        store.advance({"m": store.claim([]).now})
    assert [connection.open for connection in opened] == ([True] if lends else [False] * 4)
    for connection in opened:
        if connection.open:
            connection.close()


def test_an_engine_of_another_driver_is_refused() -> None:
    class Dialect:
        driver = "mysqldb"

    class Engine:
        dialect = Dialect()
        raw_connection = None

    with pytest.raises(DefinitionError, match="mysqldb"):
        wrap(Engine(), namespace="shop")


@pytest.mark.parametrize(
    "url", ["mysql://host", "mysql://host/", "mysql:shop", "mysql://host:x/shop", "mariadb:///"]
)
def test_what_names_no_database_is_refused(url: str) -> None:
    with pytest.raises(DefinitionError, match="address"):
        open_store(url, namespace="shop")


def test_a_unix_socket_is_an_option() -> None:
    store = open_store(f"mariadb://root@/rota?unix_socket={mariadb_server().socket}", namespace="shop")
    assert store.claim([]).items == []
    store.close()
