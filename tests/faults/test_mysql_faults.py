"""What the world does to a MySQL server, and that rota says so in time, in words, and recovers."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota.stores import open_store
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
    StoreUnavailable,
)
from rota.stores.sql.mysql import MySQLStore, wrap
from tests.servers import need, new_folder, until
from tests.servers.mariadb import MariaDB, mariadb_server
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.service

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
LIMIT = 0.5
SLACK = 1.5
"""How much later than its limit a call may end on a machine that does much else."""

_opened: list[Store] = []


def opened(url: str, options: str = f"timeout={LIMIT}", namespace: str = "") -> MySQLStore:
    """A store in a namespace of its own, closed at the end of the test."""
    store = open_store(
        f"{url}{'&' if '?' in url else '?'}{options}", namespace=namespace or f"shop/{uuid.uuid4().hex}"
    )
    assert isinstance(store, MySQLStore)
    _opened.append(store)
    return store


@pytest.fixture(autouse=True)
def _close_what_was_opened() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(mariadb_server().port) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Proxy) -> MySQLStore:
    """A store behind the proxy that has a connection already."""
    store = opened(mariadb_server().url_of(port=proxy.port))
    now_of(store)
    return store


@pytest.fixture
def server() -> Iterator[MariaDB]:
    """A server of the test's own."""
    server = MariaDB()
    yield server
    server.remove()


def now_of(store: Store) -> datetime:
    return store.rows(RowQuery(limit=0)).now


def a_claim(now: datetime, token: str = "t", task: str = "a", *, lasts: timedelta = MINUTE) -> Claim:
    return Claim(Occurrence(task, now), 1, token, "web-1", now - MINUTE, now + lasts, MINUTE, now + MINUTE)


def an_end(now: datetime, token: str = "t", **changes: Any) -> End:
    return End(Occurrence("a", now), 1, token, Outcome.SUCCEEDED, now, **changes)


def refused(call: Callable[[], object], match: str, *, limit: float = LIMIT) -> StoreUnavailable:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=match) as error:
        call()
    assert time.monotonic() - began < limit + SLACK
    return error.value


@contextmanager
def session(server: MariaDB, *statements: str, **options: Any) -> Iterator[Any]:
    """Another session meanwhile, after it has said this."""
    connection = server.connect(**{"database": "rota", **options})
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            yield cursor
    finally:
        connection.close()


# Answers that are lost, late, or never come


CALLS: dict[str, Callable[[Store, datetime], object]] = {
    "claim": lambda store, now: store.claim([a_claim(now)]).items[0],
    "acquire": lambda store, now: store.acquire([Request("k", "t", "", MINUTE)]).items[0],
    "settle": lambda store, now: store.settle([an_end(now)]).items[0],
}


def token_of(answer: object) -> str:
    assert isinstance(answer, Row | Lease)
    return answer.token


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_answer_that_is_lost_after_the_commit_is_had_by_asking_again(
    call: Callable[[Store, datetime], object], store: MySQLStore, proxy: Proxy
) -> None:
    """The driver asks again itself: the connection was idle, and could have been dead before."""
    now = now_of(store)
    lost = proxy.lose_reply()
    first = call(store, now)
    assert lost.is_set()
    assert token_of(first) == "t"
    again = call(store, now)
    assert token_of(again) == "t"
    if isinstance(first, Row):
        assert again == first
    assert len(store.rows(RowQuery()).items) == isinstance(first, Row)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_answer_that_never_comes_is_given_up_and_asking_again_with_the_token_is_the_same(
    call: Callable[[Store, datetime], object], store: MySQLStore, proxy: Proxy
) -> None:
    now = now_of(store)
    proxy.mode = "drop_reply"
    refused(lambda: call(store, now), "no answer within 0.5 s")
    proxy.mode = "ok"
    proxy.reset()
    written = now_of(store)
    answer = call(store, now)
    assert token_of(answer) == "t"
    assert isinstance(answer, Row | Lease)
    assert answer.since < written


def test_an_answer_slower_than_the_limit_is_given_up(store: MySQLStore, proxy: Proxy) -> None:
    now = now_of(store)
    proxy.delay = 2 * LIMIT
    refused(lambda: store.claim([a_claim(now)]), "no answer within 0.5 s")
    proxy.delay = 0
    assert token_of(store.claim([a_claim(now)]).items[0]) == "t"
    assert token_of(store.claim([a_claim(now, "t2")]).items[0]) == "t"


def test_an_answer_that_comes_in_drops_is_given_up_at_the_limit() -> None:
    """Each read of the socket is in time; all of them are not."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(struct.pack("<I", 200)[:3] + b"\0")
            while not ended.wait(LIMIT / 5):
                try:
                    connection.sendall(b"\n")
                except OSError:
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    store = opened(f"mysql://root@127.0.0.1:{listener.getsockname()[1]}/rota")
    refused(lambda: store.claim([]), "no answer within 0.5 s")
    ended.set()
    thread.join()
    listener.close()


def test_a_half_open_connection_is_given_up_and_not_used_again(store: MySQLStore, proxy: Proxy) -> None:
    proxy.mode = "blackhole"
    for _ in range(2):
        refused(lambda: store.rows(RowQuery()), "no answer within 0.5 s")
    proxy.mode = "ok"
    proxy.reset()
    assert store.rows(RowQuery()).items == []


def test_a_connection_that_died_while_it_was_idle_is_not_noticed(store: MySQLStore, proxy: Proxy) -> None:
    proxy.reset()
    assert store.rows(RowQuery()).items == []


def test_a_connection_that_is_refused_is_said_at_once(store: MySQLStore, proxy: Proxy) -> None:
    proxy.mode = "refuse"
    assert store.rows(RowQuery()).items == []
    proxy.reset()
    refused(lambda: store.rows(RowQuery()), "cannot be reached|was lost")
    proxy.mode = "ok"
    assert store.rows(RowQuery()).items == []


def test_a_server_that_is_not_there_at_the_start_may_come_later(server: MariaDB) -> None:
    store = opened(server.url, "timeout=2")
    server.stop()
    refused(lambda: store.claim([]), "cannot be reached: .*refused", limit=0)
    server.start()
    assert store.claim([]).items == []


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_what_was_decided_survives_a_server_that_ends(server: MariaDB, end: str) -> None:
    store = opened(server.url, "timeout=2")
    now = now_of(store)
    row = store.claim([a_claim(now)]).items[0]
    lease = store.acquire([Request("k", "t", "", MINUTE)]).items[0]
    if end == "kill":
        server.kill()
        refused(lambda: store.claim([a_claim(now)]), "cannot be reached", limit=2)
        server.start()
    else:
        server.restart()
    assert store.claim([a_claim(now, "t2")]).items == [row]
    assert store.look(Look({}, now)).leases == [lease]


def test_threads_that_wait_together_wait_no_longer_than_one(store: MySQLStore, proxy: Proxy) -> None:
    proxy.mode = "blackhole"
    began = time.monotonic()
    threads = [
        threading.Thread(target=lambda: refused(lambda: store.rows(RowQuery()), "0.5 s")) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < LIMIT + SLACK


# What a server says no with


def test_a_password_is_shown_nowhere(server: MariaDB) -> None:
    server.run("CREATE USER ann@localhost IDENTIFIED BY 'right'", "GRANT ALL ON rota.* TO ann@localhost")
    store = opened(f"mysql://ann:s3cret@127.0.0.1:{server.port}/rota")
    error = refused(lambda: store.claim([]), "refuses the user or the password")
    shown: list[str] = [repr(store), str(store)]
    cause: BaseException | None = error
    while cause is not None:
        shown += [str(cause), repr(cause)]
        cause = cause.__cause__ or cause.__context__
    assert [text for text in shown if "s3cret" in text] == []
    assert "ann@127.0.0.1" in str(error)
    right = opened(f"mysql://ann:right@127.0.0.1:{server.port}/rota")
    assert right.claim([]).items == []


def test_a_database_that_is_missing_is_named_and_may_come_later() -> None:
    name = f"d{uuid.uuid4().hex}"
    store = opened(mariadb_server().url_of(database=name), "timeout=2")
    refused(lambda: store.claim([]), f"/{name}: there is no such database", limit=2)
    mariadb_server().run(f"CREATE DATABASE {name}")
    assert store.claim([]).items == []
    mariadb_server().run(f"DROP DATABASE {name}")


def test_tables_that_are_dropped_are_made_again(server: MariaDB) -> None:
    store = opened(server.url, "timeout=3")
    now = now_of(store)
    assert store.advance({"m": now}).items == [now]
    server.run("DROP DATABASE rota")
    refused(lambda: store.advance({"m": now}), "there is no such database|Unknown database", limit=3)
    server.run("CREATE DATABASE rota")
    assert store.advance({"m": now - MINUTE}).items == [now - MINUTE]


def test_a_user_who_may_not_create_is_told_so_and_one_who_may_not_write_too(server: MariaDB) -> None:
    server.run(
        "CREATE USER ann@localhost",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON rota.* TO ann@localhost",
        "CREATE USER bob@localhost",
        "GRANT SELECT ON rota.* TO bob@localhost",
    )
    ann, bob = (opened(server.url_of(name), "timeout=2", "shop") for name in ("ann", "bob"))
    refused(lambda: ann.claim([]), "lacks a right: .*CREATE where the tables are missing", limit=2)
    now = now_of(opened(server.url, "timeout=3"))
    assert ann.advance({"m": now}).items == [now]
    assert bob.look(Look({"a": "m"}, now)).marks == {"m": now}
    refused(lambda: bob.advance({"m": now}), "lacks a right", limit=2)


def test_a_server_that_is_read_only_is_told_and_read(server: MariaDB) -> None:
    server.run("CREATE USER ann@localhost", "GRANT ALL ON rota.* TO ann@localhost")
    store = opened(server.url_of("ann"), "timeout=3")
    now = now_of(store)
    row = store.claim([a_claim(now)]).items[0]
    server.run("SET GLOBAL read_only = 1")
    for call in CALLS.values():
        refused(partial(call, store, now), "read-only", limit=3)
    assert store.look(Look({"a": "m"}, now - MINUTE)).rows == [row]
    assert [words for words in store.concerns() if "read-only" in words]
    server.run("SET GLOBAL read_only = 0")
    assert token_of(store.settle([an_end(now)]).items[0]) == "t"


def test_too_many_connections_are_told_and_waited_for_by_the_caller(server: MariaDB) -> None:
    server.run("CREATE USER ann@localhost", "GRANT ALL ON rota.* TO ann@localhost")
    server.run("SET GLOBAL max_connections = 10")
    store = opened(server.url_of("ann"), "timeout=3")
    others: list[Any] = []
    while len(others) < 10:
        others.append(server.connect(user="ann"))
    refused(lambda: store.claim([]), "too many connections", limit=3)
    for other in others:
        other.close()
    until(lambda: len(server.run("SHOW PROCESSLIST")) < 8, 5, "the connections to end")
    assert store.claim([]).items == []


def ids_of(server: MariaDB) -> list[int]:
    return [
        row[0]
        for row in server.run(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = 'rota' AND ID <> CONNECTION_ID()"
        )
    ]


def test_connections_that_are_killed_are_opened_again(server: MariaDB) -> None:
    store = opened(server.url, "timeout=3")
    now = now_of(store)
    for _ in range(2):
        (id_,) = ids_of(server)
        server.run(f"KILL {id_}")
        assert token_of(store.claim([a_claim(now)]).items[0]) == "t"


def test_a_connection_that_is_killed_in_a_call_leaves_nothing_behind(server: MariaDB) -> None:
    """The call is asked again; what it had written was undone."""
    store = opened(server.url, "timeout=4")
    now_of(store)
    answers: list[Any] = []
    with session(server, "BEGIN") as cursor:
        app = store.namespace.encode().hex()
        cursor.execute(f"INSERT INTO rota_lease SELECT x'{app}', 'k', 0, NULL, '', 0, 0, 0, 0, ''")
        waits = threading.Thread(
            target=lambda: answers.append(store.acquire([Request("k", "t", "", MINUTE)]))
        )
        waits.start()
        until(lambda: waiting(server), 3, "the call to wait for the lock")
        (own,) = [id_ for id_ in ids_of(server) if id_ != cursor.connection.thread_id()]
        server.run(f"KILL {own}")
        cursor.execute("ROLLBACK")
        waits.join(5)
    assert token_of(answers[0].items[0]) == "t"


# Locks


def waiting(server: MariaDB) -> bool:
    ((_, count),) = server.run("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
    return int(count) > 0


def hexed(store: MySQLStore) -> str:
    return f"x'{store.namespace.encode().hex()}'"


def test_a_row_that_others_lock_is_given_up_at_the_limit_and_had_when_it_is_free() -> None:
    server = mariadb_server()
    store = opened(server.url)
    now = now_of(store)
    store.claim([a_claim(now)])
    with session(server, "BEGIN", f"SELECT 1 FROM rota_row WHERE app = {hexed(store)} FOR UPDATE"):
        refused(lambda: store.settle([an_end(now)]), "no answer within 0.5 s|locked by others")
        assert [row.outcome for row in store.look(Look({}, now)).rows] == [None]
        # A server does not see that nobody waits any longer: it must give up by itself.
        until(lambda: not waiting(server), 4, "the server to give up")
    (row,) = store.settle([an_end(now)]).items
    assert row is not None
    assert row.outcome is Outcome.SUCCEEDED


def test_a_lock_that_is_given_back_in_time_is_waited_for() -> None:
    server = mariadb_server()
    store = opened(server.url, "timeout=5")
    now = now_of(store)
    store.claim([a_claim(now)])
    answers: list[Any] = []
    with session(server, "BEGIN", f"SELECT 1 FROM rota_row WHERE app = {hexed(store)} FOR UPDATE") as other:
        waits = threading.Thread(target=lambda: answers.append(store.settle([an_end(now)])))
        waits.start()
        until(lambda: waiting(server), 3, "the call to wait for the lock")
        other.execute("ROLLBACK")
        waits.join(5)
    assert answers[0].items[0].outcome is Outcome.SUCCEEDED


def test_a_wait_that_the_server_ends_is_begun_again_and_leaves_no_half() -> None:
    """Error 1205 undoes one statement, not the transaction: what it had written is undone before."""
    server = mariadb_server()
    lent = server.connect(database="rota")
    with lent.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
    store = wrap(lent, namespace=f"shop/{uuid.uuid4().hex}")
    now = now_of(store)
    store.claim([a_claim(now, "first", "b")])
    answers: list[Any] = []
    with session(server, "BEGIN", f"SELECT 1 FROM rota_row WHERE app = {hexed(store)} FOR UPDATE") as other:
        claims = [a_claim(now, "t", task) for task in ("a", "b")]
        waits = threading.Thread(target=lambda: answers.append(store.claim(claims)))
        waits.start()
        waits.join(1.5)
        assert waits.is_alive()
        other.execute("ROLLBACK")
        waits.join(5)
    lent.close()
    assert [token_of(answer) for answer in answers[0].items] == ["t", "first"]


def test_tables_that_others_lock_are_given_up_and_nobody_waits_at_the_server_any_longer() -> None:
    server = MariaDB()
    try:
        store = opened(server.url)
        until(lambda: can(lambda: now_of(store)), 10, "the tables to be made")
        now = now_of(store)
        with session(server, "LOCK TABLES rota_row WRITE, rota_lease WRITE, rota_mark WRITE"):
            for call in CALLS.values():
                refused(partial(call, store, now), "no answer within 0.5 s|locked")
            refused(lambda: store.look(Look({}, now)), "no answer within 0.5 s|locked")
            until(lambda: len(ids_of(server)) == 1, 4, "the sessions to end")
        assert token_of(store.claim([a_claim(now)]).items[0]) == "t"
    finally:
        server.remove()


def can(call: Callable[[], object]) -> bool:
    try:
        call()
    except StoreUnavailable:
        return False
    return True


def test_a_deadlock_with_another_session_is_repaired() -> None:
    """The other session holds k1 and wants k0, which the call holds when it wants k1: one must give in."""
    server = mariadb_server()
    store = opened(server.url, "timeout=5")
    store.acquire([Request(key, "before", "", MINUTE) for key in ("k0", "k1")])
    store.release([Lease(key, "before", "", now_of(store), now_of(store), 0) for key in ("k0", "k1")])
    where = f"FROM rota_lease WHERE app = {hexed(store)} AND name"
    before = deadlocks(server)
    answers: list[Any] = []
    # Of two, InnoDB undoes the lighter one: the other session is made heavy.
    heavy = f"INSERT INTO rota_mark SELECT {hexed(store)}, CONCAT('heavy', seq), 0 FROM seq_1_to_500"
    with session(server, "BEGIN", heavy, f"SELECT 1 {where} = 'k1' FOR UPDATE") as other:
        requests = [Request(key, "t", "", MINUTE) for key in ("k0", "k1")]
        waits = threading.Thread(target=lambda: answers.append(store.acquire(requests)))
        waits.start()
        until(lambda: waiting(server), 3, "the call to wait for the lock")
        other.execute(f"SELECT 1 {where} = 'k0' FOR UPDATE")
        other.execute("ROLLBACK")
        waits.join(5)
    assert deadlocks(server) == before + 1
    assert [token_of(answer) for answer in answers[0].items] == ["t", "t"]
    assert len(store.look(Look({}, now_of(store))).leases) == 2


def deadlocks(server: MariaDB) -> int:
    ((_, count),) = server.run("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
    return int(count)


def test_an_error_within_a_packet_undoes_what_stood_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(mariadb_server().url, "timeout=3")
    now = now_of(store)
    statements = store._say.claim
    monkeypatch.setattr(
        store._say, "claim", lambda claims, call: [*statements(claims, call)[:-1], "SELECT nothing", "COMMIT"]
    )
    refused(lambda: store.claim([a_claim(now)]), "Unknown column 'nothing'", limit=3)
    assert store.rows(RowQuery()).items == []
    monkeypatch.undo()
    assert token_of(store.claim([a_claim(now, "t2")]).items[0]) == "t2"


# How a server is set


@pytest.mark.parametrize(
    "mode", ["", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "ORACLE", "ANSI,TRADITIONAL,EMPTY_STRING_IS_NULL"]
)
def test_the_sql_mode_of_the_server_changes_nothing(server: MariaDB, mode: str) -> None:
    server.run(f"SET GLOBAL sql_mode = '{mode}'")
    store = opened(server.url, "timeout=4")
    now = now_of(store)
    ugly = "\\'; DROP TABLE rota_row; -- \\\" % _ \0 \x1a ä 🎼\\"
    claim = a_claim(now, ugly, ugly)
    assert token_of(store.claim([claim]).items[0]) == ugly
    end = End(Occurrence(ugly, now), 1, ugly, Outcome.FAILED, now, detail=ugly, output=ugly)
    (row,) = store.settle([end]).items
    assert row is not None
    assert (row.detail, row.output) == (ugly, ugly)
    (lease,) = store.acquire([Request(ugly, ugly, ugly, MINUTE, note="")]).items
    assert isinstance(lease, Lease)
    assert store.look(Look({ugly: ugly}, now - MINUTE)).leases == [lease]
    assert store.rows(RowQuery([ugly])).items == [row]


@pytest.mark.parametrize("zone", ["+05:30", "-11:00", "local time in the hour that comes twice"])
def test_the_clock_of_the_store_knows_no_zone(server: MariaDB, zone: str) -> None:
    """A zone is loaded whose clocks have just been put back, so that its local time is ambiguous now."""
    if zone.startswith("local"):
        here, before = int(time.time()), 1_000_000
        server.run(
            "INSERT INTO mysql.time_zone VALUES (900, 'N')",
            "INSERT INTO mysql.time_zone_name VALUES ('twice', 900)",
            f"INSERT INTO mysql.time_zone_transition VALUES (900, {before}, 0), (900, {here - 60}, 1)",
            "INSERT INTO mysql.time_zone_transition_type VALUES (900, 0, 7200, 1, 'A')",
            "INSERT INTO mysql.time_zone_transition_type VALUES (900, 1, 3600, 0, 'B')",
        )
        zone = "twice"
    server.run(f"SET GLOBAL time_zone = '{zone}'")
    store = opened(server.url, "timeout=4")
    now_of(store)
    before_, now, after = datetime.now(UTC), now_of(store), datetime.now(UTC)
    assert before_ <= now <= after
    (row,) = store.claim([a_claim(now)]).items
    (lease,) = store.acquire([Request("k", "t", "", MINUTE)]).items
    assert isinstance(row, Row)
    assert isinstance(lease, Lease)
    assert now <= row.since <= lease.since <= datetime.now(UTC)
    if zone == "twice":
        ((wrong,),) = server.run("SELECT ABS(UNIX_TIMESTAMP(NOW()) - UNIX_TIMESTAMP()) > 3000")
        assert wrong, "the zone was to make UNIX_TIMESTAMP of a local time wrong"


def test_what_weakens_the_store_is_told(server: MariaDB) -> None:
    store = opened(server.url, "timeout=4")
    now_of(store)
    assert store.concerns() == []
    server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    server.run("ALTER TABLE rota.rota_schema ENGINE = Aria")
    told = " ".join(store.concerns())
    assert "innodb_flush_log_at_trx_commit is not 1" in told
    assert "the table rota_schema is kept by Aria" in told


def test_a_binary_log_is_told_of_and_one_of_statements_refuses_to_write() -> None:
    server = MariaDB("--log-bin=log", "--binlog-format=STATEMENT", "--server-id=1")
    try:
        store = opened(server.url, "timeout=4")
        now = now_of(store)
        refused(
            lambda: store.claim([a_claim(now)]),
            "binlog_format is STATEMENT: rota needs ROW or MIXED",
            limit=4,
        )
        told = " ".join(store.concerns())
        assert "replicas, if there are any, are fed asynchronously" in told
        assert "binlog_format is STATEMENT" in told
        server.run("SET GLOBAL binlog_format = 'MIXED'")
        store.close()
        assert token_of(store.claim([a_claim(now)]).items[0]) == "t"
    finally:
        server.remove()


# Forks, and encryption


def test_parent_and_child_of_a_fork_both_go_on(store: MySQLStore, proxy: Proxy) -> None:
    now = now_of(store)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert token_of(store.claim([a_claim(now, "child")]).items[0]) == "child"
            store.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    connections = proxy.connections
    assert token_of(store.claim([a_claim(now, "parent")]).items[0]) == "child"
    assert proxy.connections == connections


@pytest.fixture(scope="module")
def certificates() -> Iterator[Path]:
    folder = new_folder("certificates")
    program = need("openssl", "openssl")
    for name in ("server", "other"):
        command = [program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"]
        command += [f"/CN={name}", "-addext", "subjectAltName=DNS:localhost"]
        command += ["-keyout", f"{folder / name}.key", "-out", f"{folder / name}.pem"]
        subprocess.run(command, check=True, capture_output=True)
        (folder / f"{name}.key").chmod(0o644)
    yield folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def test_an_encrypted_connection_is_checked_and_kept_within_the_limit(certificates: Path) -> None:
    server = MariaDB(f"--ssl-cert={certificates / 'server.pem'}", f"--ssl-key={certificates / 'server.key'}")
    try:
        server.run(
            "CREATE USER ann@localhost IDENTIFIED BY 'x' REQUIRE SSL", "GRANT ALL ON rota.* TO ann@localhost"
        )
        with Proxy(server.port) as proxy:
            here = f"mysql://ann:x@localhost:{proxy.port}/rota"
            refused(lambda: opened(here, "timeout=3").claim([]), "refuses the user", limit=3)
            for options in ("ssl=true", f"ssl_ca={certificates / 'other.pem'}"):
                wrong = opened(here, f"timeout=3&{options}")
                refused(partial(wrong.claim, []), "certificate", limit=3)
            store = opened(here, f"timeout=3&ssl=true&ssl_ca={certificates / 'server.pem'}")
            now_of(store)
            elsewhere = here.replace("localhost", "127.0.0.1")
            refused(
                lambda: opened(elsewhere, f"timeout=3&ssl=true&ssl_ca={certificates / 'server.pem'}").claim(
                    []
                ),
                "certificate",
                limit=3,
            )
            assert opened(elsewhere, f"timeout=3&ssl_ca={certificates / 'server.pem'}").claim([]).items == []
            proxy.mode = "blackhole"
            refused(lambda: store.claim([]), "no answer within 3 s", limit=3)
            proxy.mode = "ok"
            proxy.reset()
            assert store.claim([]).items == []
    finally:
        server.remove()
