"""Where the store has its connections from: a small pool of its own, or what the application lends.

Each way gives, for one call, a connection and whether it was opened for it: one that was idle may be dead.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pymysql

from rota.stores.base import StoreMisused, StoreUnavailable
from rota.stores.sql.connections import Connections
from rota.stores.sql.mysql_connection import Address, Deadline, Link, tls_of

Lend = Callable[[Deadline, bool], AbstractContextManager[tuple[Link, bool]]]
"""Asked with the deadline of the call, and whether the connection must be a new one."""


def own(address: Address, limit: float) -> tuple[Lend, Callable[[], None]]:
    """Connections of our own, and how to close them."""
    waiting = threading.local()
    tls: list[ssl.SSLContext | None] = []

    def connect() -> Link:
        if not tls:
            tls.append(tls_of(address))
        return Link.open(address, tls[0], waiting.deadline, limit)

    connections = Connections(connect)

    @contextmanager
    def lend(deadline: Deadline, fresh: bool) -> Iterator[tuple[Link, bool]]:
        waiting.deadline = deadline
        with connections.one(fresh=fresh) as (link, opened):
            yield link, opened

    return lend, connections.close


@contextmanager
def by_engine(engine: Any) -> Iterator[tuple[Link, bool]]:
    lent = engine.raw_connection()
    try:
        yield Link(lent.driver_connection), False
    except BaseException:
        lent.invalidate()
        raise
    finally:
        lent.close()


@contextmanager
def in_turn(connection: Any, lock: threading.Lock, deadline: Deadline) -> Iterator[tuple[Link, bool]]:
    if not lock.acquire(timeout=deadline.left_or_zero()):
        raise StoreUnavailable("the connection was kept busy by other threads")
    try:
        yield Link(connection), True
    except StoreMisused:
        raise
    except BaseException:
        if connection.open:
            with suppress(pymysql.Error):  # it is broken, and what it did is undone with it
                connection.rollback()
        raise
    finally:
        lock.release()


@contextmanager
def by_function(function: Callable[[], Any]) -> Iterator[tuple[Link, bool]]:
    lent = function()
    if not isinstance(lent, pymysql.Connection):
        with lent as connection:
            yield Link(connection), False
        return
    link = Link(lent)
    try:
        yield link, True
    finally:
        link.close()
