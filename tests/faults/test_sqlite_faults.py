"""What the world does to an SQLite file, and that rota says so in time, in words, and recovers."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from rota.stores import open_store
from rota.stores.base import End, Lease, Look, Occurrence, Outcome, Request, RowQuery, Store, StoreUnavailable
from rota.stores.sql.sqlite import SCHEMA_VERSION, SQLiteStore

DUE = datetime(2026, 3, 29, tzinfo=UTC)
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rota.db"


_opened: list[Store] = []


def opened(path: Path, options: str = "?timeout=0.5") -> Store:
    """A store that is closed at the end of the test, if the test has not done it."""
    _opened.append(open_store(f"sqlite:///{path}{options}", namespace="shop"))
    return _opened[-1]


@pytest.fixture(autouse=True)
def _close_what_was_opened() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def python(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process. It prints "ready" when the test may go on."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


LOCKS = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The file is locked by another process meanwhile."""
    process = python(LOCKS, path)
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def refused(call: Callable[[], object], match: str, *, within: float = 3) -> StoreUnavailable:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=match) as error:
        call()
    assert time.monotonic() - began < within
    return error.value


def in_a_fork(work: Callable[[], None]) -> int:
    """The exit code of a child that does the work and ends."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def test_a_file_that_others_lock_is_given_up_at_the_time_limit_and_taken_up_again(path: Path) -> None:
    store = opened(path)
    store.advance({"m": DUE})
    with locked(path):
        began = time.monotonic()
        error = refused(lambda: store.claim([]), "locked by another process for longer than 0.5 s")
        assert time.monotonic() - began >= 0.4
        assert isinstance(error.__cause__, sqlite3.OperationalError)
        assert store.look(Look({"a": "m"}, DUE)).marks == {"m": DUE}
    assert store.advance({"m": DUE}).items == [DUE]
    store.close()


def test_threads_that_wait_for_a_locked_file_wait_no_longer_together_than_one(path: Path) -> None:
    store = opened(path)
    store.claim([])
    with locked(path):
        began = time.monotonic()
        threads = [
            threading.Thread(target=lambda: refused(lambda: store.claim([]), "0.5 s")) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < 2
    store.claim([])
    store.close()


def test_a_new_file_that_others_lock_is_given_up_at_the_time_limit(path: Path) -> None:
    with locked(path):
        store = opened(path)
        refused(lambda: store.claim([]), "locked by another process")
    store.claim([])
    store.close()


def test_a_folder_that_is_missing_is_named_and_may_come_later(path: Path) -> None:
    store = opened(path.parent / "later" / "rota.db")
    refused(lambda: store.claim([]), r"the folder .*/later does not exist")
    (path.parent / "later").mkdir()
    store.claim([])
    store.close()


def test_what_is_no_database_is_said_to_be_none(path: Path) -> None:
    path.write_bytes(b"these are the minutes of the meeting\n" * 100)
    refused(lambda: opened(path).claim([]), "it is not an SQLite database")
    assert path.read_bytes().startswith(b"these are")


def test_a_folder_in_its_place_is_said_to_be_unusable(path: Path) -> None:
    path.mkdir()
    refused(lambda: opened(path).claim([]), "cannot be opened")


def test_without_create_nothing_is_created(path: Path) -> None:
    refused(lambda: opened(path, "?create=false").claim([]), "cannot be opened: does it exist")
    assert not path.exists()
    sqlite3.connect(path).close()
    refused(lambda: opened(path, "?create=false").claim([]), "no tables of rota, and create=false")
    opened(path).claim([])
    opened(path, "?create=false").claim([])


def test_tables_of_a_newer_version_are_refused(path: Path) -> None:
    running = opened(path)
    running.claim([])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE rota_schema SET version = ?", (SCHEMA_VERSION + 1,))
    connection.close()
    for store in (opened(path), running):
        refused(partial(store.claim, []), "newer rota .*upgrade rota on this server")


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        pytest.param(0o444, 0o777, id="file"),
        pytest.param(0o666, 0o555, id="folder"),
        pytest.param(0o444, 0o555, id="both"),
    ],
)
def test_what_may_only_be_read_is_said_to_be_so(file: int, folder: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rota.db"
        store = opened(path)
        store.claim([])
        store.close()
        path.chmod(file)
        path.parent.chmod(folder)

        def work() -> None:
            if os.getuid() == 0:
                os.setuid(NOBODY)
            refused(lambda: opened(path).advance({"m": DUE}), "this user")

        try:
            assert in_a_fork(work) == 0
        finally:
            path.parent.chmod(0o755)


FILLS_THE_DISK = """
    import resource, sys
    from datetime import UTC, datetime
    from rota.stores.base import End, Occurrence, Outcome, StoreUnavailable
    from rota.stores.sql.sqlite import SQLiteStore
    print("ready", flush=True)
    due, store = datetime(2026, 3, 29, tzinfo=UTC), SQLiteStore(sys.argv[1])
    end = lambda n, output: End(Occurrence("a", due), n, "t", Outcome.SUCCEEDED, due, output=output)
    store.settle([end(1, "")])
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))
    for n in range(2, 4):
        try:
            store.settle([end(n, "x" * 1_000_000)])
        except StoreUnavailable as error:
            print(type(error.__cause__).__name__, error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.settle([end(4, "x" * 1_000_000)])
"""


def test_a_full_disk_is_told_and_what_was_written_stays(path: Path) -> None:
    process = python(FILLS_THE_DISK, path)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert said.count("OperationalError") == 2
    store = SQLiteStore(path)
    assert [row.attempt for row in store.rows(RowQuery()).items] == [4, 1]
    store.close()


DIES_WITHIN_A_TRANSACTION = """
    import os, signal, sys
    from datetime import UTC, datetime
    from rota.stores.base import End, Occurrence, Outcome
    from rota.stores.sql.sqlite import SQLiteStore
    class Dying(SQLiteStore):
        def _put(self, connection, rows):
            super()._put(connection, rows)
            if rows[0].attempt == 2:
                print("ready", flush=True)
                sys.stdin.read()
    due, store = datetime(2026, 3, 29, tzinfo=UTC), Dying(sys.argv[1], "shop")
    for attempt in (1, 2):
        store.settle([End(Occurrence("a", due), attempt, "t", Outcome.SUCCEEDED, due)])
"""


def test_a_process_that_is_killed_within_a_transaction_leaves_a_usable_store(path: Path) -> None:
    process = python(DIES_WITHIN_A_TRANSACTION, path)
    store = opened(path)
    assert [row.attempt for row in store.rows(RowQuery()).items] == [1]
    refused(lambda: store.claim([]), "locked")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    end = End(Occurrence("a", DUE), 3, "t", Outcome.SUCCEEDED, DUE)
    store.settle([end])
    assert [row.attempt for row in store.rows(RowQuery()).items] == [3, 1]
    store.close()


def test_a_file_that_was_deleted_is_not_written_any_longer(path: Path) -> None:
    store = opened(path)
    store.advance({"m": DUE})
    for file in path.parent.iterdir():
        file.unlink()
    other = opened(path)
    assert other.look(Look({"a": "m"}, DUE)).marks == {}
    other.advance({"m": DUE - timedelta(days=1)})
    assert store.look(Look({"a": "m"}, DUE)).marks == {"m": DUE - timedelta(days=1)}
    store.close()
    other.close()


def test_parent_and_child_of_a_fork_both_go_on(path: Path) -> None:
    store = opened(path)
    (lease,) = store.acquire([Request("k", "parent", "", timedelta(minutes=1))]).items
    assert isinstance(lease, Lease)

    def work() -> None:
        (answer,) = store.acquire([Request("k", "child", "", timedelta(minutes=1))]).items
        assert not isinstance(answer, Lease)
        assert store.release([lease]).items == [True]
        store.advance({"m": DUE})
        store.close()

    assert in_a_fork(work) == 0
    assert store.look(Look({"a": "m"}, DUE)).marks == {"m": DUE}
    assert store.release([lease]).items == [False]
    store.close()


def test_a_child_goes_on_when_its_parent_closes_the_file_as_the_last(path: Path) -> None:
    """The parent would take the log away under the child if both believed in one connection."""
    store = opened(path)
    store.claim([])
    closed_read, closed_write = os.pipe()

    def work() -> None:
        store.advance({"before": DUE})
        os.read(closed_read, 1)
        store.advance({"after": DUE})

    def close() -> None:
        store.close()
        os.write(closed_write, b".")

    closing = threading.Timer(0.3, close)
    closing.start()
    assert in_a_fork(work) == 0
    closing.join()
    os.close(closed_read)
    os.close(closed_write)
    marks = opened(path).look(Look({"a": "before", "b": "after"}, DUE)).marks
    assert set(marks) == {"before", "after"}


def test_a_fork_while_other_threads_use_the_store_leaves_the_child_a_free_store(path: Path) -> None:
    store = opened(path, "")
    end = threading.Event()

    def busy() -> None:
        while not end.is_set():
            store.advance({"m": DUE})

    def work() -> None:
        store.advance({"n": DUE})

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert [in_a_fork(work) for _ in range(5)] == [0] * 5
    finally:
        end.set()
        for thread in threads:
            thread.join()
    store.close()


def test_an_end_is_written_once_although_the_answer_was_lost(path: Path) -> None:
    """The call is repeated after StoreUnavailable: the same end, the same row."""
    store = opened(path)
    end = End(Occurrence("a", DUE), 1, "t", Outcome.SUCCEEDED, DUE)
    with locked(path):
        refused(lambda: store.settle([end]), "locked")
    (first,) = store.settle([end]).items
    assert store.settle([end]).items == [first]
    store.close()
