"""One SQLite file as a process uses it: a connection with a lock round it, within a time limit.

There is one connection, not one a thread: SQLite has one writer at a time anyway, a lock hands over at
once where SQLite's own waiting sleeps in steps, and short-lived threads (one for each run) would each open
the file. A connection does not survive a fork: it is closed before and opened again on both sides, for
SQLite's locks belong to a process and the copy would believe in them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import quote

from rota.stores.base import StoreMisused, StoreUnavailable

_TOLERANCE: Final = 0.01
_PAUSE: Final = 0.01
_STEPS_BETWEEN_LOOKS: Final = 20_000
_IN_VAIN: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class SQLiteFile:
    """The file at `path`. `prepare` is given each new connection, to find or create its tables.

    Everything that goes wrong is StoreUnavailable, in words a person can act upon.
    """

    def __init__(
        self, path: str, *, limit: float, create: bool, prepare: Callable[[sqlite3.Connection], None]
    ) -> None:
        self.path = path
        self.limit = limit
        self.create = create
        self._prepare = prepare
        self._lock = threading.Lock()
        self._sql: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._process = os.getpid()
        self._waits = limit
        self._deadline = 0.0
        self._paused = False
        _files.add(self)

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    @contextmanager
    def transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """One transaction within the time limit. Whatever SQLite says, the caller hears our words."""
        deadline = time.monotonic() + self.limit
        if not self._lock.acquire(timeout=self.limit):
            raise StoreUnavailable(f"{self.path}: kept busy by other threads for {self.limit:g} s")
        try:
            self._deadline = deadline
            sql = self._connected()
            sql.execute(begin)
            yield sql
            sql.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up(error)
            raise StoreUnavailable(f"{self.path}: {self._explained(error)}") from error
        except (UnicodeEncodeError, OverflowError) as error:
            self._give_up(error)
            raise StoreMisused(f"{self.path}: {error}") from error
        except BaseException as error:
            self._give_up(error)
            raise
        finally:
            self._lock.release()

    def switch_to_wal(self, sql: sqlite3.Connection) -> None:
        """Let readers and the writer pass each other; this stays with the file."""
        while True:
            try:
                ((mode,),) = sql.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:  # SQLite does not wait here: whoever is first has it
                if _code(error) not in _IN_VAIN or time.monotonic() > self._deadline:
                    raise
                time.sleep(_PAUSE)
        if mode != "wal":
            raise StoreUnavailable(f"{self.path}: this file system cannot hold a write-ahead log")

    def _give_up(self, error: BaseException) -> None:
        """Undo the transaction. After more than waiting in vain the connection is not used again."""
        sql = self._sql
        if sql is not None and sql.in_transaction:
            with suppress(sqlite3.Error):
                sql.execute("ROLLBACK")
        if _code(error) not in _IN_VAIN:
            self._disconnect()

    def _connected(self) -> sqlite3.Connection:
        """The connection, to the file that has this name now, waiting no longer than is left."""
        if self._sql is not None and self._process != os.getpid():
            _abandoned.append(self._sql)
            self._sql = None
        if self._sql is not None and self._file != _identity(self.path):
            self._disconnect()
        if self._sql is None:
            self._sql = self._connect()
        left = max(0.0, self._deadline - time.monotonic())
        if abs(left - self._waits) > _TOLERANCE:
            self._sql.execute(f"PRAGMA busy_timeout = {int(left * 1000)}")
            self._waits = left
        return self._sql

    def _connect(self) -> sqlite3.Connection:
        uri = f"file:{quote(self.path)}?mode={'rwc' if self.create else 'rw'}"
        sql = sqlite3.connect(
            uri, uri=True, timeout=self.limit, isolation_level=None, check_same_thread=False
        )
        try:
            sql.set_progress_handler(lambda: time.monotonic() > self._deadline, _STEPS_BETWEEN_LOOKS)
            sql.execute("PRAGMA synchronous = FULL")
            self._prepare(sql)
        except BaseException:
            sql.close()
            raise
        self._process, self._file, self._waits = os.getpid(), _identity(self.path), self.limit
        return sql

    def _disconnect(self) -> None:
        sql, self._sql = self._sql, None
        if sql is not None:
            if self._process == os.getpid():
                with suppress(sqlite3.Error):
                    sql.close()
            else:
                _abandoned.append(sql)

    def _explained(self, error: sqlite3.Error) -> str:
        folder = os.path.dirname(self.path)
        match _code(error):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return f"locked by another process for longer than {self.limit:g} s"
            case sqlite3.SQLITE_INTERRUPT:
                return f"the call took longer than {self.limit:g} s"
            case sqlite3.SQLITE_READONLY:
                return "it may not be written by this user"
            case sqlite3.SQLITE_NOTADB:
                return "it is not an SQLite database"
            case sqlite3.SQLITE_FULL:
                return "the disk is full"
            case sqlite3.SQLITE_CANTOPEN if not os.path.isdir(folder):
                return f"the folder {folder} does not exist"
            case sqlite3.SQLITE_CANTOPEN:
                return "it cannot be opened: does it exist, and may this user write it and its folder?"
            case _:
                return str(error)

    def _before_fork(self) -> None:
        """Leave nothing to the child that it would have to share."""
        self._paused = self._lock.acquire(timeout=self.limit)
        if self._paused:
            self._disconnect()

    def _after_fork(self, *, child: bool) -> None:
        if self._paused:
            self._lock.release()
        elif child:
            self._lock = threading.Lock()


def _code(error: BaseException) -> int:
    """SQLite's primary result code; 0 where it is not SQLite's error."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _identity(path: str) -> tuple[int, int] | None:
    """Which file it is: a deleted file goes on under no name, where nobody else would look."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_files: weakref.WeakSet[SQLiteFile] = weakref.WeakSet()
_forking: list[SQLiteFile] = []
_abandoned: list[sqlite3.Connection] = []
"""Connections of a parent process: they are neither used nor closed, for both would touch its locks."""


def _before_fork() -> None:
    _forking[:] = _files
    for file in _forking:
        file._before_fork()


def _after_fork(*, child: bool) -> None:
    for file in _forking:
        file._after_fork(child=child)
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(child=False),
        after_in_child=lambda: _after_fork(child=True),
    )
