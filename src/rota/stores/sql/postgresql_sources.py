"""Where the PostgreSQL store has its connections from: an address, or what the application has already.

What the application lends (a pool, a function, an engine) is used for one transaction of our own and given
back as it came: neither its autocommit nor its settings are touched.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Protocol

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from rota.stores.base import DefinitionError, StoreMisused
from rota.stores.sql.connections import Connections
from rota.stores.sql.postgresql_wire import Failed, Late, Lost, connect, roll_back

Lend = Callable[[float], AbstractContextManager[Any]]

_ROLL_BACK_WITHIN: Final = 1.0
_OURS: Final[Mapping[str, str]] = {"client_encoding": "UTF8", "fallback_application_name": "rota"}


class Source(Protocol):
    """Gives a connection for one call, and tells whether it was opened for it. `where` is for people."""

    where: str

    def one(self, *, fresh: bool, deadline: float) -> AbstractContextManager[tuple[pq.abc.PGconn, bool]]: ...

    def close(self) -> None: ...


class Own:
    """Connections of our own to the server, or the servers, that the address names."""

    def __init__(self, address: str) -> None:
        self.where, self._hosts = _read(address)
        self._until = threading.local()
        self._connections: Connections[_Closing] = Connections(
            lambda: _Closing(connect(self._hosts, self._until.deadline))
        )

    @contextmanager
    def one(self, *, fresh: bool, deadline: float) -> Iterator[tuple[pq.abc.PGconn, bool]]:
        self._until.deadline = deadline
        with self._connections.one(fresh=fresh) as (connection, opened):
            yield connection.pgconn, opened

    def close(self) -> None:
        self._connections.close()


class _Closing:
    """A connection of libpq that is closed like others are."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self.pgconn = pgconn

    def close(self) -> None:
        self.pgconn.finish()


class Lent:
    """Connections that `lend` gives for a call, and takes back."""

    def __init__(self, where: str, lend: Lend, close: Callable[[], None] = lambda: None) -> None:
        self.where, self._lend, self.close = where, lend, close

    @contextmanager
    def one(self, *, fresh: bool, deadline: float) -> Iterator[tuple[pq.abc.PGconn, bool]]:
        """One that was idle may have died; then it is closed, and asking again brings the next."""
        del fresh
        done = False
        try:
            with self._lend(max(0.0, deadline - time.monotonic())) as connection:
                pgconn = connection.pgconn
                self._check(pgconn)
                try:
                    yield pgconn, False
                except BaseException as error:
                    done = True
                    _undo(connection, error)
                    raise
                done = True
        except (StoreMisused, Failed, Lost, Late):
            raise
        except Exception as error:
            if done and not isinstance(error, psycopg.Error):
                raise
            raise Lost(f"{type(error).__name__}: {error}") from error

    def _check(self, pgconn: pq.abc.PGconn) -> None:
        if pgconn.transaction_status == pq.TransactionStatus.UNKNOWN:
            raise Lost("the connection that was lent is closed")
        if (pgconn.transaction_status, pgconn.pipeline_status) != (
            pq.TransactionStatus.IDLE,
            pq.PipelineStatus.OFF,
        ):
            raise StoreMisused(
                f"{self.where}: the connection that was lent is in a transaction; what is decided must be"
                " committed at once"
            )


def _undo(connection: Any, error: BaseException) -> None:
    """Give a connection back as it came, or closed where that cannot be."""
    if isinstance(error, Failed):
        with suppress(Lost, Late):
            roll_back(connection.pgconn, time.monotonic() + _ROLL_BACK_WITHIN)
            return
    connection.close()


def source_of(client: Any) -> Source:
    """The source that a client of the application's is; DefinitionError where it is none."""
    name = f"{type(client).__module__}.{type(client).__qualname__}"
    packages = [kind.__module__.partition(".")[0] for kind in type(client).__mro__]
    if "sqlalchemy" in packages and hasattr(client, "raw_connection"):
        if client.dialect.name != "postgresql" or client.dialect.driver != "psycopg":
            raise _not_one("an engine of another driver", str(client.dialect.name))
        return Lent(client.url.render_as_string(hide_password=True), lambda left: _raw(client))
    if "psycopg_pool" in packages and hasattr(client, "getconn") and not hasattr(client, "__aenter__"):
        return Lent(f"the pool {client.name}", lambda left: client.connection(timeout=left))
    if callable(client) and not isinstance(client, psycopg.BaseConnection):
        return _made_by(client)
    raise _not_one("no source of connections", name)


def _not_one(what: str, found: str) -> DefinitionError:
    allowed = (
        "a URL, a ConnectionPool of psycopg_pool, an engine of postgresql+psycopg, a function that opens"
    )
    return DefinitionError(what, argument="store", found=found, allowed=f"{allowed} or lends a connection")


@contextmanager
def _raw(engine: Any) -> Iterator[Any]:
    """A connection from the pool of an SQLAlchemy engine."""
    raw = engine.raw_connection()
    try:
        yield raw.driver_connection
    finally:
        if raw.driver_connection.closed:
            raw.invalidate()
        raw.close()


def _made_by(function: Callable[[], Any]) -> Lent:
    """What a function opens is ours: kept for later calls, and closed. What it lends is given back."""
    kept: Connections[Any] = Connections(function)

    @contextmanager
    def lend(left: float) -> Iterator[Any]:
        del left
        made = kept.take() or function()
        if not hasattr(made, "pgconn"):
            with made as connection:
                yield connection
            return
        try:
            yield made
        except BaseException:
            made.close()
            raise
        kept.give_back(made)

    return Lent("postgresql", lend, kept.close)


def _conninfo(said: Mapping[str, Any]) -> bytes:
    return make_conninfo("", **said).encode()


def _read(address: str) -> tuple[str, list[bytes]]:
    """How the address may be shown, and the connection string of each of its hosts."""
    try:
        options = pq.Conninfo.parse(address.encode())
    except psycopg.Error:
        raise ValueError("not an address of PostgreSQL") from None  # what libpq says would quote a password
    said = {option.keyword.decode(): option.val.decode() for option in options if option.val is not None}
    places: dict[str, list[str]] = {
        name: said.pop(name).split(",") for name in ("host", "hostaddr", "port") if name in said
    }
    count = max((len(values) for values in places.values()), default=1)
    if not all(port == "" or port.isdecimal() for port in places.get("port", ())):
        raise ValueError("a port is a number")
    if any(len(values) not in (1, count) for values in places.values()):
        raise ValueError("as many ports as hosts")
    hosts = []
    for place in range(count):
        here = {name: values[place if len(values) > 1 else 0] for name, values in places.items()}
        here = {name: value for name, value in here.items() if value}
        hosts.append(_conninfo({**_OURS, **said, **here}))
    names = places.get("host") or places.get("hostaddr") or [""]
    ports = places.get("port") or [""]
    shown = ",".join(
        name + (f":{port}" if (port := ports[place if len(ports) > 1 else 0]) else "")
        for place, name in enumerate(names)
    )
    return f"postgresql://{shown}/{said.get('dbname', '')}", hosts
