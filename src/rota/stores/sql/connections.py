"""Connections kept open between calls, for drivers of servers that speak SQL: one for each call at a time.

A connection that fails is closed and not used again. One that was idle may have died unnoticed (the server
was restarted, a firewall forgot it), so a call that fails on such a one is asked once more on a new one:
every call of a store may be repeated with the same token.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, TypeVar

C = TypeVar("C")

_KEPT: Final = 8


class Connections(Generic[C]):
    """Opens with `connect`, keeps up to eight idle ones, closes the rest with their own `close`.

    They do not survive a fork: the child opens its own, and neither uses nor closes its parent's.
    """

    def __init__(self, connect: Callable[[], C]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[C] = []
        self._process = os.getpid()

    @contextmanager
    def one(self, *, fresh: bool = False) -> Iterator[tuple[C, bool]]:
        """A connection for one call, and whether it was opened for it. With `fresh` it always is."""
        connection = None if fresh else self.take()
        opened = connection is None
        if connection is None:
            connection = self._connect()
        try:
            yield connection, opened
        except BaseException:
            _close(connection)
            raise
        self.give_back(connection)

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back and there are enough."""
        while (connection := self.take()) is not None:
            _close(connection)

    def take(self) -> C | None:
        """An idle connection, which is the caller's until it is given back."""
        with self._lock:
            if self._process != os.getpid():
                _abandoned.extend(self._idle)
                self._idle, self._process = [], os.getpid()
            return self._idle.pop() if self._idle else None

    def give_back(self, connection: C) -> None:
        """Keep the connection for later calls, or close it where there are enough."""
        with self._lock:
            if len(self._idle) < _KEPT and self._process == os.getpid():
                self._idle.append(connection)
                return
        _close(connection)


_abandoned: list[Any] = []
"""Connections of a parent process: to close them would say goodbye in its name."""


def _close(connection: Any) -> None:
    with suppress(Exception):  # it may be broken already, and then there is nothing to close
        connection.close()
