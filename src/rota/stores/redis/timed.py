"""Connections that end with the call: whatever redis-py or valkey-py do on them, they do within its limit.

The client libraries limit each read and each attempt, so that an answer in many parts, a handshake and their
own repetitions add up. Here one deadline holds for all that a thread does until it has its answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

_thread: Final = threading.local()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What this thread does here ends after so many seconds, or when what it is part of ends."""
    before = getattr(_thread, "deadline", None)
    mine = time.monotonic() + seconds
    _thread.deadline = mine if before is None else min(before, mine)
    try:
        yield
    finally:
        _thread.deadline = before


def left(most: float | None = None) -> float | None:
    """The seconds that are left, `most` of them; None if nothing limits us, TimeoutError if none are."""
    deadline = getattr(_thread, "deadline", None)
    if deadline is None:
        return most
    seconds: float = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds if most is None else min(seconds, most)


def connection(pool: Any, *, theirs: bool) -> Any:
    """A connection of our own to where those of this pool go. It repeats nothing by itself.

    `theirs`: the limits of the pool are the application's, and hold where they are shorter than ours.
    """
    said = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if name not in ("cache_enabled", "client_cache") and not name.startswith(("maint_", "orig_"))
    }
    said |= {"retry": None, "retry_on_timeout": False, "retry_on_error": []}
    said |= {"protocol": 2, "health_check_interval": 0}
    if not theirs:
        said.pop("socket_timeout", None)
        said.pop("socket_connect_timeout", None)
    made = timed(pool.connection_class)(**said)
    made.known_scripts = set()
    return made


@cache
def timed(kind: type) -> type:
    """That class of connections, held to the deadline of the thread."""
    return type(f"Timed{kind.__name__}", (_Timed, kind), {})


class _Timed:
    """Mixed into a class of connections. The limits that it was given hold where they are shorter."""

    _sock: Any = None
    _given: float | None = None
    _given_to_connect: float | None = None

    @property
    def socket_connect_timeout(self) -> float | None:
        return left(self._given_to_connect)

    @socket_connect_timeout.setter
    def socket_connect_timeout(self, seconds: float | None) -> None:
        self._given_to_connect = seconds

    @property
    def socket_timeout(self) -> float | None:
        return left(self._given) if self._sock is None else self._given

    @socket_timeout.setter
    def socket_timeout(self, seconds: float | None) -> None:
        self._given = seconds

    # redis-py sets these two; its names with an underscore are those of the values themselves.
    _socket_timeout = socket_timeout
    _socket_connect_timeout = socket_connect_timeout

    def _connect(self) -> _TimedSocket:
        return _TimedSocket(super()._connect(), self._given)  # type: ignore[misc]  # of the class it is mixed into


class _TimedSocket:
    """A socket whose every step ends at the deadline of the thread that takes it."""

    def __init__(self, plain: Any, most: float | None) -> None:
        self._plain, self._most = plain, most

    def settimeout(self, seconds: float | None) -> None:
        self._most = seconds

    def recv(self, *arguments: Any) -> bytes:
        self._plain.settimeout(left(self._most))
        received: bytes = self._plain.recv(*arguments)
        return received

    def recv_into(self, *arguments: Any) -> int:
        self._plain.settimeout(left(self._most))
        count: int = self._plain.recv_into(*arguments)
        return count

    def sendall(self, *arguments: Any) -> None:
        self._plain.settimeout(left(self._most))
        self._plain.sendall(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)
