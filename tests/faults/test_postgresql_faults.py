"""What the world does to a PostgreSQL server, and that rota says so in time, in words, and recovers."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

import psycopg
import pytest
import sqlalchemy
from psycopg_pool import ConnectionPool

from rota.stores import open_store
from rota.stores.base import (
    Answer,
    Claim,
    End,
    Lease,
    Look,
    Occurrence,
    Outcome,
    Refusal,
    Request,
    Row,
    RowQuery,
    Store,
    StoreUnavailable,
    View,
)
from rota.stores.sql.postgresql import PostgresStore
from tests.servers import until
from tests.servers.postgresql import PgBouncer, PostgreSQL, Standby, postgresql_server
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.service

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

_opened: list[Store] = []


def opened(url: str, namespace: str = "", options: str = "timeout=0.5") -> Store:
    """A store that is closed at the end of the test."""
    url = f"{url}{'&' if '?' in url else '?'}{options}"
    _opened.append(open_store(url, namespace=namespace or f"shop/{uuid.uuid4().hex}"))
    return _opened[-1]


@pytest.fixture(autouse=True)
def _close_what_was_opened() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    """One of the test's own."""
    started = PostgreSQL()
    yield started
    started.remove()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(postgresql_server().port) as before:
        yield before


def through(proxy: Proxy) -> str:
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"


def refused(call: Callable[[], object], match: str, *, within: float = 2.5) -> StoreUnavailable:
    """The default bound is far above the time limit of 0.5 s, for machines that are busy."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=match) as error:
        call()
    assert time.monotonic() - began < within
    return error.value


def a_claim(now: datetime, token: str = "t", task: str = "a") -> Claim:
    return Claim(Occurrence(task, now), 1, token, "web", now - HOUR, now + HOUR, MINUTE, now + HOUR)


def claimed(store: Store, now: datetime, token: str = "t", task: str = "a") -> Row:
    (row,) = store.claim([a_claim(now, token, task)]).items
    assert isinstance(row, Row)
    return row


def patiently(call: Callable[[], Any], seconds: float = 15) -> Any:
    """What a server does that asks again until it is answered."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


# Answers that do not come


@pytest.mark.parametrize("fresh", [False, True], ids=["on an idle connection", "on a fresh one"])
def test_an_answer_that_is_lost_after_the_commit_is_repaired_by_asking_again(
    fresh: bool, proxy: Proxy
) -> None:
    store = opened(through(proxy), options="timeout=5")
    other = opened(postgresql_server().url, store.namespace)  # type: ignore[attr-defined]  # it has one
    now = store.claim([]).now

    def lost(call: Callable[[], Answer[Any]]) -> Any:
        """The answer to the same call, after one that was lost."""
        event = proxy.lose_reply()
        try:
            answer = call()
        except StoreUnavailable:
            answer = call()
        assert event.is_set()
        return answer.items[0]

    for n in range(3):
        task = f"{n}"
        if fresh:
            store.close()
        row = lost(partial(store.claim, [a_claim(now, "mine", task)]))
        assert (row.token, row.is_open) == ("mine", True)
        assert claimed(other, now, "theirs", task) == row
        lease = lost(partial(store.acquire, [Request(task, "mine", "", MINUTE)]))
        assert isinstance(lease, Lease)
        assert isinstance(other.acquire([Request(task, "theirs", "", MINUTE)]).items[0], Refusal)
        assert lost(partial(store.renew, [lease], ttl=MINUTE)).fence == lease.fence
        end = End(row.occurrence, 1, "mine", Outcome.SUCCEEDED, now)
        assert lost(partial(store.settle, [end])).outcome is Outcome.SUCCEEDED
        assert lost(partial(store.advance, {f"m{task}": now})) == now
    assert len(other.rows(RowQuery()).items) == 3


def test_an_answer_that_is_slower_than_the_limit_is_not_waited_for(proxy: Proxy) -> None:
    store = opened(through(proxy))
    now = store.claim([]).now
    proxy.delay = 3.0
    refused(lambda: claimed(store, now), "no answer within 0.5 s")
    proxy.delay = 0.0
    assert claimed(store, now).token == "t"
    assert claimed(store, now, "another").token == "t"


@pytest.mark.parametrize("mode", ["blackhole", "drop_reply"])
def test_a_connection_that_is_half_open_is_given_up_at_the_limit(
    mode: Literal["blackhole", "drop_reply"], proxy: Proxy
) -> None:
    store = opened(through(proxy))
    now = store.claim([]).now
    proxy.mode = mode
    for _ in range(2):
        refused(lambda: claimed(store, now), "no answer")
    refused(lambda: store.look(Look({}, now)), "no answer")
    proxy.mode = "ok"
    assert claimed(store, now).is_open
    fresh = opened(through(proxy))
    proxy.mode = mode
    refused(lambda: fresh.claim([]), "no answer")


def test_a_host_that_does_not_answer_does_not_keep_us_from_the_next(proxy: Proxy) -> None:
    proxy.mode = "blackhole"
    hosts = f"127.0.0.1:{proxy.port},127.0.0.1:{postgresql_server().port}"
    store = opened(f"postgresql://postgres@{hosts}/postgres", options="timeout=2")
    assert store.claim([]).items == []


def test_a_server_that_refuses_is_said_to_do_so_at_the_start_and_later(proxy: Proxy) -> None:
    proxy.mode = "refuse"
    store = opened(through(proxy))
    refused(lambda: store.claim([]), f"postgresql://127.0.0.1:{proxy.port}/postgres: .*connection")
    proxy.mode = "ok"
    now = store.claim([]).now
    proxy.mode = "refuse"
    proxy.reset()
    refused(lambda: claimed(store, now), "connection")
    proxy.mode = "ok"
    assert claimed(store, now).is_open
    proxy.reset()
    assert claimed(store, now).is_open


def test_a_server_that_is_restarted_is_not_noticed_once_it_is_back(server: PostgreSQL) -> None:
    store = opened(server.url)
    now = store.claim([]).now
    row, lease = claimed(store, now), store.acquire([Request("k", "t", "", MINUTE)]).items[0]
    for stop in (server.stop, server.kill):
        stop()
        until(lambda: is_gone(store), 10, "the last of the server's processes to go")
        refused(lambda: store.claim([]), "refused")
        until(lambda: not server.runs, 10, "the server to be gone")
        patiently_started(server)
        assert claimed(store, now, "another") == row
        assert store.look(Look({}, now)).leases == [lease]
        server.restart()
        assert claimed(store, now, "another") == row


def is_gone(store: Store) -> bool:
    """Whether nobody answers: a killed server's children go on with what they hold until they notice."""
    try:
        store.claim([])
    except StoreUnavailable:
        return True
    return False


def patiently_started(server: PostgreSQL) -> None:
    """After a kill the children of the server need a moment to go."""
    deadline = time.monotonic() + 20
    while True:
        try:
            server.start()
            return
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize("idle", [1, 6], ids=["one connection", "six connections"])
def test_connections_that_the_server_has_ended_are_replaced(idle: int) -> None:
    store = opened(postgresql_server().url, options="application_name=ended&timeout=5")
    now = store.claim([]).now
    together = threading.Barrier(idle)

    def look() -> None:
        together.wait(10)
        for _ in range(5):
            store.look(Look({}, now))

    threads = [threading.Thread(target=look) for _ in range(idle)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ours = "FROM pg_stat_activity WHERE application_name = 'ended'"
    ended: int = postgresql_server().ask(f"SELECT count(pg_terminate_backend(pid)) {ours}")
    assert ended >= 1
    until(lambda: postgresql_server().ask(f"SELECT count(*) {ours}") == 0, 10, "the connections to end")
    for _ in range(idle):
        assert claimed(store, now).token == "t"


# Locks


@contextmanager
def held(server: PostgreSQL, statement: str) -> Iterator[None]:
    """Another session holds these locks meanwhile."""
    with psycopg.connect(server.url) as session:
        session.execute(statement.encode())
        yield
        session.rollback()


_TABLES = "LOCK TABLE rota_row, rota_lease, rota_mark IN ACCESS EXCLUSIVE MODE"
_SCHEMA = "LOCK TABLE rota_schema IN ACCESS EXCLUSIVE MODE"
_ROWS = "UPDATE rota_row SET token = token; UPDATE rota_lease SET token = token; UPDATE rota_mark SET at = at"


def a_copy(task: str) -> str:
    """Writes the row that stands once more, as that of another task."""
    return (
        f'INSERT INTO rota_row SELECT (jsonb_populate_record(r, \'{{"task": "{task}"}}\')).*'
        " FROM rota_row AS r"
    )


@pytest.mark.parametrize(
    ("lock", "calls"),
    [
        pytest.param(_TABLES, "claim settle acquire renew release advance look rows", id="tables"),
        pytest.param(_SCHEMA, "claim settle acquire renew release advance look rows", id="schema"),
        pytest.param(_ROWS, "settle acquire renew release advance", id="rows"),
        pytest.param(a_copy("new"), "claim", id="a row that is being written"),
    ],
)
def test_what_others_have_locked_is_given_up_at_the_limit_on_the_server_too(
    lock: str, calls: str, server: PostgreSQL
) -> None:
    store = opened(server.url, "shop")
    now = store.claim([]).now
    claimed(store, now)
    lease = store.acquire([Request("k", "t", "", MINUTE)]).items[0]
    assert isinstance(lease, Lease)
    store.advance({"m": now - HOUR})
    ways: dict[str, Callable[[], Answer[Any] | View]] = {
        "claim": lambda: store.claim([a_claim(now, task="new")]),
        "settle": lambda: store.settle([End(Occurrence("a", now), 1, "t", Outcome.SUCCEEDED, now)]),
        "acquire": lambda: store.acquire([Request("k", "t", "", MINUTE)]),
        "renew": lambda: store.renew([lease], ttl=MINUTE),
        "release": lambda: store.release([lease]),
        "advance": lambda: store.advance({"m": now}),
        "look": lambda: store.look(Look({}, now)),
        "rows": lambda: store.rows(RowQuery()),
    }
    with held(server, lock):
        for name in calls.split():
            refused(ways[name], "lock of another session|ended the call at the time limit|no answer within")
            until(lambda: server.ask(WAITING) == 0, 2, "the server to give up as well")
    for name in calls.split():
        ways[name]()
    standing = {row.occurrence.task: row.outcome for row in store.rows(RowQuery()).items}
    assert standing.get("a") == (Outcome.SUCCEEDED if "settle" in calls else None)
    assert ("new" in standing) == ("claim" in calls)


def test_a_call_that_waits_for_a_lock_is_ended_by_the_server_although_the_network_is_cut(
    server: PostgreSQL,
) -> None:
    with Proxy(server.port) as proxy:
        store = opened(through(proxy))
        now = store.claim([]).now
        with held(server, "LOCK TABLE rota_row IN ACCESS EXCLUSIVE MODE"):
            asking = threading.Thread(target=lambda: refused(lambda: claimed(store, now), "no answer"))
            asking.start()
            until(lambda: server.ask(WAITING) == 1, 5, "the call to wait", every=0.005)
            proxy.mode = "blackhole"
            asking.join()
            until(lambda: server.ask(WAITING) == 0, 2, "the server to give up as well")
        proxy.mode = "ok"
        assert store.rows(RowQuery()).items == []


def test_a_grant_after_a_wait_is_inside_its_window_at_the_instant_that_is_answered(
    server: PostgreSQL,
) -> None:
    """Whoever is first to write the row gives up; then it is ours, dated when we asked."""
    store = opened(server.url, "shop", "timeout=5")
    now = store.claim([]).now
    claimed(store, now)
    soon = now + timedelta(seconds=1)
    answers: list[Answer[Row | Refusal]] = []
    claim = Claim(Occurrence("b", now), 1, "mine", "", now, soon, MINUTE, soon)
    with held(server, a_copy("b")):
        asking = threading.Thread(target=lambda: answers.append(store.claim([claim])))
        asking.start()
        until(lambda: server.ask(WAITING) == 1, 5, "the claim to wait")
        until(lambda: store.look(Look({}, now)).now > soon, 5, "the window to pass")
    asking.join()
    (row,) = answers[0].items
    assert isinstance(row, Row)
    assert row.since == answers[0].now
    assert now <= row.since <= soon
    assert row.start_by == row.since + MINUTE


def test_a_lease_that_lapses_while_its_renewal_waits_is_not_renewed(server: PostgreSQL) -> None:
    """Somebody may have seen that nobody held it."""
    store = opened(server.url, "shop", "timeout=5")
    now = store.claim([]).now
    (lease,) = store.acquire([Request("k", "t", "", timedelta(milliseconds=700))]).items
    assert isinstance(lease, Lease)
    answers: list[object] = []
    with psycopg.connect(server.url) as session:
        assert isinstance(store, PostgresStore)
        statement, (ours, keys) = store._lock(["k"])
        assert ours is not None
        assert keys is not None
        session.execute(
            statement.replace("$1", "%s").replace("$2", "%s").encode(), (int(ours), keys.decode())
        )
        asking = threading.Thread(target=lambda: answers.extend(store.renew([lease], ttl=MINUTE).items))
        asking.start()
        until(lambda: server.ask(WAITING) == 1, 5, "the renewal to wait")
        until(lambda: not store.look(Look({}, now)).leases, 5, "the lease to lapse")
        session.rollback()
        asking.join()
    assert [type(answer) for answer in answers] == [Refusal]
    assert store.look(Look({}, now)).leases == []


def test_an_end_that_waits_for_another_end_leaves_it_as_it_is(server: PostgreSQL) -> None:
    store = opened(server.url, "shop", "timeout=5")
    now = store.claim([]).now
    claimed(store, now)
    answers: list[Row | None] = []
    end = End(Occurrence("a", now), 1, "t", Outcome.LOST, now)
    with psycopg.connect(server.url) as session:
        session.execute("UPDATE rota_row SET outcome = 'succeeded', ended = since + 1")
        asking = threading.Thread(target=lambda: answers.extend(store.settle([end]).items))
        asking.start()
        until(lambda: server.ask(WAITING) == 1, 5, "the end to wait")
        session.commit()
        asking.join()
    assert [row and row.outcome for row in answers] == [Outcome.SUCCEEDED]
    assert store.rows(RowQuery()).items == answers


def test_what_is_being_pruned_is_not_claimed_anew(server: PostgreSQL) -> None:
    store = opened(server.url, "shop", "timeout=5")
    now = store.claim([]).now
    claimed(store, now)
    (final,) = store.settle([End(Occurrence("a", now), 1, "t", Outcome.SUCCEEDED, now)]).items
    answers: list[Row | Refusal] = []
    done = threading.Event()

    def ask() -> None:
        answers.extend(store.claim([a_claim(now, "another")]).items)
        done.set()

    with psycopg.connect(server.url) as session:
        session.execute("DELETE FROM rota_row")
        session.execute("INSERT INTO rota_mark VALUES ('shop', 'pruned:a', 9000000000000000)")
        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: done.is_set() or server.ask(WAITING) == 1, 5, "the claim to answer or to wait")
        session.commit()
        asking.join()
    assert answers == [final]
    assert store.rows(RowQuery()).items == []


# PgBouncer


def test_a_server_that_is_restarted_behind_pgbouncer_is_not_noticed_once_it_is_back(
    server: PostgreSQL,
) -> None:
    bouncer = PgBouncer(server.port, "server_login_retry = 0.1")
    store = opened(bouncer.url, "shop", "timeout=2")
    now = store.claim([]).now
    row = claimed(store, now)
    server.stop()
    refused(lambda: store.claim([]), "postgresql://", within=5)
    server.start()
    assert patiently(lambda: claimed(store, now, "another")) == row
    server.restart()
    assert patiently(lambda: claimed(store, now, "another")) == row
    bouncer.restart()
    assert claimed(store, now, "another") == row
    bouncer.remove()


def test_what_waits_in_pgbouncer_is_given_up_at_the_limit(server: PostgreSQL) -> None:
    opened(server.url, "shop").claim([])
    bouncer = PgBouncer(server.port, "default_pool_size = 1", "reserve_pool_size = 0")
    store = opened(bouncer.url, "shop")
    store.claim([])
    with psycopg.connect(bouncer.url) as session:
        session.execute("SELECT 1")
        refused(lambda: store.claim([]), "no answer within 0.5 s")
    assert patiently(lambda: store.claim([])).items == []
    assert server.ask("SHOW statement_timeout") == "0"
    bouncer.remove()


# What the application lends


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_connections_that_died_in_a_pool_are_replaced(kind: str, server: PostgreSQL) -> None:
    pool = ConnectionPool(server.url, min_size=3, max_size=3, open=True)
    pool.wait()
    engine = sqlalchemy.create_engine(server.url.replace("postgresql", "postgresql+psycopg"))
    store = open_store(pool if kind == "pool" else engine, namespace="shop")
    _opened.append(store)
    now = store.claim([]).now
    row = claimed(store, now)
    server.restart()
    assert claimed(store, now, "another") == row
    with held(server, "LOCK TABLE rota_row IN ACCESS EXCLUSIVE MODE"):
        refused(lambda: claimed(store, now), "lock|time limit", within=9)
    assert claimed(store, now, "another") == row
    server.stop()
    refused(lambda: store.claim([]), "postgres|pool", within=9)
    server.start()
    assert patiently(lambda: claimed(store, now, "another")) == row
    pool.close()
    engine.dispose()


# What the server may not do, or cannot


def test_a_full_disk_is_told_and_nothing_is_half_written(server: PostgreSQL) -> None:
    """A trigger raises what the server raises then, at the third row of a list."""
    store = opened(server.url)
    now = store.claim([]).now
    server.do(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON rota_row FOR EACH ROW WHEN (NEW.task = 'c')"
        " EXECUTE FUNCTION full_disk()",
    )
    claims = [a_claim(now, task=task) for task in "abc"]
    refused(lambda: store.claim(claims), "the disk of the server is full")
    assert store.rows(RowQuery()).items == []
    server.do("DROP TRIGGER full_disk ON rota_row")
    assert all(isinstance(row, Row) for row in store.claim(claims).items)


def test_a_standby_is_said_to_be_one_and_goes_on_when_it_is_promoted(server: PostgreSQL) -> None:
    standby = Standby(server)
    store = opened(standby.url, "shop")
    refused(lambda: store.claim([]), "it may only be read: a standby")
    primary = opened(server.url, "shop")
    now = primary.claim([]).now
    row = claimed(primary, now)
    until(lambda: patiently(lambda: store.rows(RowQuery())).items == [row], 10, "the standby to follow")
    refused(lambda: claimed(store, now), "it may only be read: a standby, or .* name the primary")
    assert store.look(Look({}, now - HOUR)).rows == [row]
    server.stop()
    standby.promote()
    assert claimed(store, now, "another") == row
    standby.remove()


def test_a_failover_is_followed_where_both_servers_are_named(server: PostgreSQL) -> None:
    standby = Standby(server)
    hosts = f"127.0.0.1:{server.port},127.0.0.1:{standby.port}"
    url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
    store = opened(url, "shop", "timeout=5")
    now = store.claim([]).now
    row = claimed(store, now)
    until(
        lambda: server.ask("SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication"),
        10,
        "the standby to follow",
    )
    server.stop()
    refused(lambda: claimed(store, now), "refused", within=9)
    standby.promote()
    assert patiently(lambda: claimed(store, now, "another")) == row
    standby.remove()


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["ALTER ROLE app SET default_transaction_read_only = on"], "it may only be read"),
        (["REVOKE INSERT ON rota_row FROM app"], "this user may not do that: .*rota_row"),
        (["REVOKE ALL ON rota_schema FROM app"], "this user may not do that: .*rota_schema"),
        (["ALTER ROLE app CONNECTION LIMIT 0"], "too many connections"),
        (["ALTER TABLE rota_row DROP COLUMN output"], "not those of rota"),
    ],
    ids=["read only", "no insert", "no schema", "no connections", "no column"],
)
def test_what_the_user_may_not_do_is_said(statements: list[str], words: str, server: PostgreSQL) -> None:
    opened(server.url).claim([])
    server.do("CREATE ROLE app LOGIN", "GRANT ALL ON rota_row, rota_lease, rota_mark, rota_schema TO app")
    url = server.url.replace("postgres@", "app@")
    now = opened(url).claim([]).now
    server.do(*statements)
    store = opened(url)
    refused(lambda: claimed(store, now), words)


def test_who_may_not_create_tables_is_told_who_prints_them(server: PostgreSQL) -> None:
    server.do("CREATE ROLE app LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    store = opened(server.url.replace("postgres@", "app@"), "shop")
    refused(lambda: store.claim([]), "may not create the tables; `rota schema postgresql` prints them")
    opened(server.url, "shop").claim([])
    server.do("GRANT ALL ON rota_row, rota_lease, rota_mark, rota_schema TO app")
    assert store.claim([]).items == []


def test_a_wrong_password_is_not_shown(server: PostgreSQL) -> None:
    server.do("CREATE ROLE app LOGIN PASSWORD 'right'", "GRANT ALL ON SCHEMA public TO app")
    server.demand_passwords("app")
    store = opened(f"postgresql://app:s3cret@127.0.0.1:{server.port}/postgres")
    error = refused(lambda: store.claim([]), 'password authentication failed for user "app"')
    cause: BaseException | None = error
    while cause is not None:
        assert "s3cret" not in f"{cause!r} {cause}"
        cause = cause.__cause__ or cause.__context__
    assert "s3cret" not in repr(store)
    assert opened(f"postgresql://app:right@127.0.0.1:{server.port}/postgres").claim([]).items == []


def test_a_database_that_does_not_exist_is_named() -> None:
    store = opened(postgresql_server().url_of("nowhere"))
    refused(lambda: store.claim([]), 'database "nowhere" does not exist')


def test_parent_and_child_of_a_fork_both_go_on() -> None:
    store = opened(postgresql_server().url)
    now = store.claim([]).now
    row = claimed(store, now)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if claimed(store, now, "child") == row else 2
            store.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert claimed(store, now, "parent") == row
