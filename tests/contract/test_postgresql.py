"""The PostgreSQL store keeps the contract, also through PgBouncer and on what an application lends."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool

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
    StoreMisused,
    StoreUnavailable,
)
from rota.stores.sql import postgresql_calls, postgresql_statements
from rota.stores.sql.postgresql import PostgresStore, schema, wrap
from rota.testing import StoreContract
from tests.servers.postgresql import PgBouncer, PostgreSQL, Standby, pgbouncer_server, postgresql_server
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.service

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def fresh() -> str:
    return f"shop/{uuid.uuid4().hex}"


class TestPostgreSQL(StoreContract):
    clock = None
    namespace: str

    def url(self) -> str:
        return postgresql_server().url

    def open(self) -> Store:
        self.namespace = fresh()
        return self.open_again()

    def open_again(self) -> Store:
        return open_store(self.url(), namespace=self.namespace)


class TestPgBouncer(TestPostgreSQL):
    def url(self) -> str:
        return pgbouncer_server().url


class TestLent(TestPostgreSQL):
    """On a pool of the application's, whose connections are not in autocommit and have another encoding."""

    pool: ConnectionPool[psycopg.Connection[Any]]

    def open(self) -> Store:
        self.pool = ConnectionPool(
            self.url(), min_size=1, max_size=10, kwargs={"client_encoding": "LATIN1"}, open=True
        )
        return super().open()

    def open_again(self) -> Store:
        return open_store(self.pool, namespace=self.namespace)

    def teardown_method(self, method: object = None) -> None:
        super().teardown_method(method)
        self.pool.close()


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store(postgresql_server().url, namespace=fresh())
    yield opened
    opened.close()


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    """One of the test's own."""
    started = PostgreSQL("deadlock_timeout=20ms")
    yield started
    started.remove()


def claims_at(now: datetime, count: int, token: str = "t", task: str = "task") -> list[Claim]:
    return [
        Claim(Occurrence(f"{task} {n}", now), 1, token, "web", now - HOUR, now + HOUR, MINUTE, now + HOUR)
        for n in range(count)
    ]


# Round trips


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "through PgBouncer"])
def test_a_call_is_one_round_trip_however_long_its_list(pooled: bool) -> None:
    server = pgbouncer_server() if pooled else postgresql_server()
    makes_the_tables = open_store(postgresql_server().url, namespace=fresh())
    makes_the_tables.claim([])
    makes_the_tables.close()
    with Proxy(server.port) as proxy:
        store = open_store(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", namespace=fresh())
        now = store.claim([]).now
        claims = claims_at(now, 50)
        requests = [Request(f"k{n}", "t", "web", MINUTE) for n in range(50)]
        ends = [End(claim.occurrence, 1, "t", Outcome.SUCCEEDED, now, last=now) for claim in claims]
        question = Look({claim.occurrence.task: f"mark {n}" for n, claim in enumerate(claims)}, now - HOUR)
        leases: list[Lease] = []
        trips = {}
        calls: dict[str, Callable[[], object]] = {
            "claim": lambda: store.claim(claims),
            "claim again": lambda: store.claim(claims),
            "acquire": lambda: leases.extend(
                lease for lease in store.acquire(requests).items if isinstance(lease, Lease)
            ),
            "look": lambda: store.look(question),
            "renew": lambda: store.renew(leases, ttl=MINUTE),
            "settle": lambda: store.settle(ends),
            "release": lambda: store.release(leases),
            "advance": lambda: store.advance({f"mark {n}": now for n in range(50)}),
            "rows": lambda: store.rows(RowQuery()),
        }
        for name, call in calls.items():
            before = proxy.trips
            call()
            trips[name] = proxy.trips - before
        assert len(leases) == 50
        assert trips == dict.fromkeys(trips, 1)
        assert proxy.connections == 1
        store.close()


def test_opening_touches_nothing() -> None:
    with Proxy(postgresql_server().port) as proxy:
        store = open_store(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", namespace=fresh())
        assert f"postgresql://127.0.0.1:{proxy.port}/postgres" in repr(store)
        store.close()
        assert proxy.connections == 0


# Tables


def test_tables_are_created_once_by_many_servers_that_come_at_once() -> None:
    prefix, url = f"p{uuid.uuid4().hex[:12]}_", postgresql_server().url
    together, errors = threading.Barrier(12), list[BaseException]()

    def come() -> None:
        store = open_store(f"{url}?prefix={prefix}", namespace="shop")
        together.wait(20)
        try:
            store.look(Look({}, datetime.fromisoformat("2026-01-01T00:00:00+00:00")))
        except BaseException as error:
            errors.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=come) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert postgresql_server().ask(f"SELECT count(*) FROM {prefix}schema") == 1


def test_tables_that_others_have_created_from_the_printed_schema_are_used(server: PostgreSQL) -> None:
    assert schema_of("postgresql") == schema()
    server.do("CREATE DATABASE printed")
    url = server.url_of("printed")
    with psycopg.connect(url, autocommit=True) as sql:
        sql.execute(schema("my_").encode())
    store = open_store(f"{url}?create=false&prefix=my_", namespace="shop")
    assert store.claim(claims_at(store.claim([]).now, 3)).items != []
    store.close()
    bare = open_store(f"{url}?create=false", namespace="shop")
    with pytest.raises(StoreUnavailable, match="no tables of rota, and create=false"):
        bare.claim([])
    bare.close()


@pytest.mark.parametrize("distance", [1, -2])
def test_tables_of_a_version_that_is_not_ours_are_left_alone(distance: int, server: PostgreSQL) -> None:
    store = open_store(server.url, namespace="shop")
    now = store.claim([]).now
    server.do(f"UPDATE rota_schema SET version = version + {distance}")
    for opened in (store, open_store(server.url, namespace="shop")):
        calls: list[Callable[[], object]] = [
            partial(opened.claim, claims_at(now, 2)),
            partial(opened.acquire, [Request("k", "t", "web", MINUTE)]),
            partial(opened.advance, {"m": now}),
            partial(opened.look, Look({}, now)),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match=r"(newer|older) rota"):
                call()
        opened.close()
    for table in ("rota_row", "rota_lease", "rota_mark"):
        assert server.ask(f"SELECT count(*) FROM {table}") == 0


def test_tables_without_a_version_are_completed(server: PostgreSQL) -> None:
    store = open_store(server.url, namespace="shop")
    now = store.claim([]).now
    server.do("DELETE FROM rota_schema")
    assert store.look(Look({}, now)).rows == []
    server.do("DELETE FROM rota_schema")
    assert list(store.advance({"m": now}).items) == [now]
    store.close()


def test_applications_in_one_database_do_not_see_each_other() -> None:
    names = [fresh() for _ in range(2)]
    names += [names[0] + "%", names[0].upper(), names[0] + " "]
    shops = [open_store(postgresql_server().url, namespace=name) for name in names]
    now = shops[0].claim([]).now
    for name, shop in zip(names, shops, strict=True):
        assert [row.token for row in shop.claim(claims_at(now, 1, token=name)).items] == [name]  # type: ignore[union-attr]  # a refusal would fail here
        assert isinstance(shop.acquire([Request("k", name, "web", MINUTE)]).items[0], Lease)
    for name, shop in zip(names, shops, strict=True):
        assert shop.look(Look({}, now)).tokens_held == {name}
        shop.close()


# What cannot be held


@pytest.mark.parametrize(
    "text",
    ["a\0b", "half \ud83d of a pair", "".join(uuid.uuid4().hex for _ in range(300))],
    ids=["NUL", "surrogate", "long"],
)
def test_what_a_name_cannot_hold_is_misused(text: str, store: Store) -> None:
    now = store.claim([]).now
    with pytest.raises(StoreMisused):
        store.claim([Claim(Occurrence(text, now), 1, "t", "web", now - HOUR, now + HOUR, MINUTE, now)])
    with pytest.raises(StoreMisused):
        store.acquire([Request("ok", "t", "web", MINUTE), Request(text, "t", "web", MINUTE)])
    assert store.look(Look({}, now - HOUR)).leases == []


# Many at once


def race(url: str, namespace: str, *, rounds: int = 6, servers: int = 12) -> tuple[list[str], list[str]]:
    """Servers claim and settle the same occurrences, each in an order of its own: who won, and errors."""
    together, won, errors = threading.Barrier(servers), list[str](), list[str]()
    now = datetime.fromisoformat("2026-01-01T00:00:00+00:00")

    def serve(number: int) -> None:
        store, order = open_store(url, namespace=namespace), random.Random(number)
        store.claim([])
        for turn in range(rounds):
            claims = [
                Claim(Occurrence(f"{turn}-{n}", now), 1, f"{number}", "", now, now + 9999 * HOUR, MINUTE, now)
                for n in range(60)
            ]
            order.shuffle(claims)
            together.wait(60)
            try:
                rows = [row for row in store.claim(claims).items if isinstance(row, Row)]
                assert len(rows) == 60
                won.extend(row.occurrence.key for row in rows if row.token == f"{number}")
                together.wait(60)
                ends = [End(row.occurrence, 1, row.token, Outcome.LOST, now) for row in rows]
                assert all(row is not None and not row.is_open for row in store.settle(ends).items)
                store.advance({f"m{n}": now for n in random.Random(number).sample(range(60), 60)})
            except StoreUnavailable as error:
                errors.append(str(error))
                together.abort()
                break
            except threading.BrokenBarrierError:
                break
        store.close()

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(servers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, errors


def test_lists_in_any_order_never_wait_in_a_circle(
    server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_calls, "_IN_EACH_OTHERS_WAY", frozenset())
    won, errors = race(server.url, "shop")
    assert errors == []
    assert len(won) == len(set(won)) == 360


def test_that_race_shows_lists_that_are_not_sorted(
    server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same race with the ORDER BY left out is found to wait in a circle."""
    monkeypatch.setattr(postgresql_calls, "_IN_EACH_OTHERS_WAY", frozenset())
    unsorted = postgresql_statements.CLAIM.replace('ORDER BY a.task COLLATE "C", a.due, a.attempt', "")
    assert unsorted != postgresql_statements.CLAIM
    monkeypatch.setattr(postgresql_statements, "CLAIM", unsorted)
    _, errors = race(server.url, "shop", rounds=30)
    assert any("40P01" in error for error in errors)


@pytest.mark.parametrize("slots", [1, 3])
def test_no_more_places_are_given_than_there_are(slots: int, server: PostgreSQL) -> None:
    together, given = threading.Barrier(16), list[tuple[str, int]]()

    def serve(number: int) -> None:
        store, order = open_store(server.url, namespace="shop"), random.Random(number)
        store.claim([])
        keys = [f"k{n}" for n in range(20)]
        order.shuffle(keys)
        together.wait(60)
        for some in (keys[:10], keys[10:]):
            answers = store.acquire([Request(key, f"{number}", "", MINUTE, slots=slots) for key in some])
            given.extend((lease.key, lease.slot) for lease in answers.items if isinstance(lease, Lease))
        store.close()

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == sorted((f"k{n}", slot) for n in range(20) for slot in range(slots))


def test_that_race_shows_places_that_are_not_locked(
    server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_statements, "LOCK", "SELECT $1::int, $2::int[]")

    def races() -> None:
        for _ in range(20):
            server.do("DROP TABLE IF EXISTS rota_lease, rota_row, rota_mark, rota_schema")
            test_no_more_places_are_given_than_there_are(3, server)

    with pytest.raises(AssertionError):
        races()


# Pruning


def test_pruning_goes_in_slices_and_moves_each_mark(server: PostgreSQL) -> None:
    store = open_store(server.url, namespace="shop")
    now = store.claim([]).now
    past = now - 48 * HOUR
    for task in ("a", "b"):
        ends = [
            End(Occurrence(task, past + n * timedelta(seconds=1)), 1, "t", Outcome.SUCCEEDED, past)
            for n in range(1300)
        ]
        store.settle(ends)
    assert store.prune(now + HOUR) == 2600
    marks = store.look(Look({"a": "m", "b": "m"}, now)).marks
    assert set(marks.values()) == {past + 1299 * timedelta(seconds=1)}
    store.close()


def test_leases_are_forgotten_an_hour_after_they_lapsed(server: PostgreSQL) -> None:
    store = open_store(server.url, namespace="shop")
    store.acquire([Request("old", "t", "", MINUTE), Request("young", "t", "", MINUTE)])
    hour = 3_600_000_000
    server.do(
        f"UPDATE rota_lease SET until = until - {hour} - 61000000 WHERE name = 'old'",
        f"UPDATE rota_lease SET until = until - {hour} WHERE name = 'young'",
    )
    store.prune(datetime.fromisoformat("2026-01-01T00:00:00+00:00"))
    assert server.ask("SELECT string_agg(name, ',') FROM rota_lease") == "young"
    store.close()


# What an application has


@pytest.mark.parametrize("kind", ["pool", "opens", "lends", "engine"])
def test_what_an_application_has_is_used_and_left_as_it_was(kind: str) -> None:
    url, namespace = postgresql_server().url, fresh()
    opened: list[psycopg.Connection[Any]] = []

    def opens() -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(url))
        return opened[-1]

    pool = ConnectionPool(url, min_size=1, max_size=1, open=True)
    engine = sqlalchemy.create_engine(url.replace("postgresql", "postgresql+psycopg"), pool_size=1)

    @contextmanager
    def lends() -> Iterator[psycopg.Connection[Any]]:
        with pool.connection() as connection:
            yield connection

    client: Any = {"pool": pool, "opens": opens, "lends": lends, "engine": engine}[kind]
    of = wrap if kind in ("opens", "lends") else open_store
    store = of(client, namespace=namespace)
    now = store.claim([]).now
    other = open_store(url, namespace=namespace)
    for n in range(3):
        (row,) = store.claim(claims_at(now, 1, token=f"{n}")).items
        assert isinstance(row, Row)
        assert row.token == "0"
        assert list(other.look(Look({}, now - HOUR)).rows) == [row]
    store.close()
    if kind == "engine":
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "0"
    elif kind == "opens":
        assert len(opened) == 1
        assert opened[0].closed
        store.claim([])
        store.close()
    else:
        with pool.connection() as lent:
            assert not lent.autocommit
            assert lent.execute("SHOW statement_timeout").fetchone() == ("0",)
            assert lent.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
    pool.close()
    engine.dispose()
    other.close()


def test_a_connection_that_is_lent_in_a_transaction_is_misused() -> None:
    url = postgresql_server().url

    @contextmanager
    def lends() -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT 1")
            yield connection

    store = wrap(lends, namespace=fresh())
    with pytest.raises(StoreMisused, match="is in a transaction"):
        store.claim([])
    store.close()


def test_what_gives_no_connections_is_refused_with_what_does() -> None:
    url = postgresql_server().url
    with psycopg.connect(url) as connection, pytest.raises(DefinitionError, match="no source of connections"):
        open_store(connection, namespace="shop")
    with pytest.raises(DefinitionError, match="no source of connections"):
        open_store(AsyncConnectionPool(url, open=False), namespace="shop")


def test_a_role_that_defaults_to_serializable_changes_nothing(server: PostgreSQL) -> None:
    server.do(
        "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'",
        "ALTER ROLE postgres SET timezone = 'Australia/Lord_Howe'",
        "ALTER ROLE postgres SET datestyle = 'German'",
        "ALTER ROLE postgres SET standard_conforming_strings = off",
        "ALTER ROLE postgres SET enable_indexscan = off",
    )
    won, errors = race(server.url, "shop", rounds=3)
    assert errors == []
    assert len(won) == len(set(won)) == 180
    store = open_store(server.url, namespace="shop")
    name = "\\'\"{},NULL\\\\"
    now = store.claim([]).now
    (row,) = store.settle([End(Occurrence(name, now), 1, name, Outcome.FAILED, now, output="\\n")]).items
    assert row is not None
    assert (row.occurrence.task, row.token, row.output) == (name, name, "\\n")
    store.close()


# Addresses, and what is worth knowing


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:s3cret%zz@h/d", "postgresql://u:s3cret@h:port/d", "postgresql://h/d?nonsense=s3cret"],
)
def test_what_is_no_address_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(DefinitionError) as error:
        open_store(url, namespace="shop")
    assert "not a postgresql address" in str(error.value)
    if "@" in url:
        assert "s3cret" not in str(error.value)


def test_the_first_server_that_may_be_written_is_used(server: PostgreSQL) -> None:
    standby = Standby(server)
    hosts = f"127.0.0.1:{standby.port},127.0.0.1:{server.port}"
    store = open_store(
        f"postgres://postgres@{hosts}/postgres?target_session_attrs=read-write", namespace="shop"
    )
    assert store.claim([]).items == []
    assert isinstance(store, PostgresStore)
    assert hosts in repr(store)
    store.close()
    standby.remove()


def test_what_is_worth_knowing_of_a_server_is_told(server: PostgreSQL) -> None:
    def told(url: str) -> str:
        store = open_store(url, namespace="shop")
        assert isinstance(store, PostgresStore)
        try:
            return "; ".join(store.concerns())
        finally:
            store.close()

    assert told(server.url) == "fsync is off: a crash of its host may lose what was decided"
    bouncer = PgBouncer(server.port)
    assert "a pooler stands before the server" in told(bouncer.url)
    bouncer.remove()
    standby = Standby(server)
    assert "the server is a standby" in told(standby.url)
    assert "its standbys are asynchronous" in told(server.url)
    server.do("ALTER ROLE postgres SET synchronous_commit = off")
    assert "synchronous_commit is off" in told(server.url)
    standby.remove()


def test_the_driver_is_all_that_is_imported_besides_the_client() -> None:
    code = "import sys, rota.stores.sql.postgresql; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"psycopg", "rota.stores.base"} <= set(done.stdout.split())
    assert {"psycopg_pool", "sqlalchemy", "rota._engine"}.isdisjoint(done.stdout.split())
