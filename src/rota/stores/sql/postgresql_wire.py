"""What is said to a PostgreSQL server: one transaction a call, sent in one piece and answered in one piece.

A call is a pipeline of BEGIN, its limits, its statements and COMMIT, so it is one round trip, leaves nothing
behind in the session, and passes through a pooler that hands out connections by the transaction. The server
is told the time limit within the transaction: it ends a statement that waits for a lock even if the network
to the one who asked is cut. The client never waits longer than its deadline for anything.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from psycopg import OperationalError, pq

from rota.stores.base import StoreError, StoreMisused, StoreUnavailable

Statement: TypeAlias = tuple[bytes, Sequence[bytes | None]]
Table: TypeAlias = list[tuple[Any, ...]]

READ_COMMITTED: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"
SNAPSHOT: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_LIMITS: Final = b"SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)"
_UNICODE: Final = b"SELECT set_config('client_encoding', 'UTF8', true)"
_INTEGERS: Final = frozenset({20, 21, 23})
_BOOLEAN: Final = 16
_SERVER_GIVES_UP_AT: Final = 0.9
_SELECTOR: Final = getattr(selectors, "PollSelector", selectors.SelectSelector)
_SQLSTATE: Final = pq.DiagnosticField.SQLSTATE
_MESSAGE: Final = pq.DiagnosticField.MESSAGE_PRIMARY
_BROKEN: Final = (OperationalError, OSError)


class Failed(Exception):
    """The server refused a statement: its SQLSTATE, its words, and what it answered to those before."""

    def __init__(self, state: str, message: str, answered: list[Table]) -> None:
        super().__init__(f"{message} ({state})")
        self.state, self.message, self.answered = state, message, answered


class Lost(Exception):
    """The connection was lost, or could not be made: whether the call was carried out is not known."""


class Late(Exception):
    """The deadline has passed."""


def fly(
    connection: pq.abc.PGconn, begin: bytes, statements: Sequence[Statement], deadline: float
) -> list[Table]:
    """What each of the statements answered, all of them in one transaction and one round trip."""
    limit = b"%d" % max(1, int((deadline - time.monotonic()) * 1000 * _SERVER_GIVES_UP_AT))
    said: list[Statement] = [(begin, ()), (_LIMITS, (limit,)), *statements, (b"COMMIT", ())]
    if connection.parameter_status(b"client_encoding") != b"UTF8":
        said.insert(1, (_UNICODE, ()))
    try:
        connection.enter_pipeline_mode()
        for statement, values in said:
            connection.send_query_params(statement, values)
        connection.pipeline_sync()
        _flush(connection, deadline)
        tables = [_answer(connection, deadline) for _ in said]
        _next(connection, deadline)
        connection.exit_pipeline_mode()
    except _BROKEN as error:
        raise Lost(_words(connection, error)) from error
    before = len(said) - len(statements) - 1
    try:
        return _checked(tables)[before:-1]
    except Failed as error:
        error.answered = error.answered[before:]
        if connection.status == pq.ConnStatus.BAD or error.state.startswith(_GONE):
            raise Lost(_WORDS.get(error.state, error.message)) from error
        raise


def roll_back(connection: pq.abc.PGconn, deadline: float) -> None:
    """Leave a transaction that has failed."""
    try:
        connection.send_query(b"ROLLBACK")
        _flush(connection, deadline)
        while _next(connection, deadline) is not None:
            continue
    except _BROKEN as error:
        raise Lost(_words(connection, error)) from error


def connect(hosts: Sequence[bytes], deadline: float) -> pq.abc.PGconn:
    """A connection to the first of the hosts that lets us in, each a connection string of its own.

    What is left of the time is shared among those that are left, so a host that does not answer does not
    keep us from the next.
    """
    errors: list[str] = []
    for place, host in enumerate(hosts):
        now = time.monotonic()
        connection = pq.PGconn.connect_start(host)
        try:
            _connect(connection, now + (deadline - now) / (len(hosts) - place))
            return connection
        except Late:
            errors.append("no answer in time")
            connection.finish()
        except Lost as error:
            errors.append(str(error))
            connection.finish()
        except BaseException:
            connection.finish()
            raise
    raise Lost("; ".join(dict.fromkeys(errors)))


def _connect(connection: pq.abc.PGconn, deadline: float) -> None:
    while connection.status != pq.ConnStatus.BAD:
        match connection.connect_poll():
            case pq.PollingStatus.OK:
                connection.nonblocking = 1
                return
            case pq.PollingStatus.READING:
                _wait(connection, selectors.EVENT_READ, deadline)
            case pq.PollingStatus.WRITING:
                _wait(connection, selectors.EVENT_WRITE, deadline)
            case _:
                break
    raise Lost(_words(connection))


def _flush(connection: pq.abc.PGconn, deadline: float) -> None:
    while connection.flush():
        ready = _wait(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, deadline)
        if ready & selectors.EVENT_READ:
            connection.consume_input()


def _answer(connection: pq.abc.PGconn, deadline: float) -> pq.abc.PGresult:
    """The result of the next statement; a None comes after it."""
    result = _next(connection, deadline)
    if result is None:
        raise Lost(_words(connection))
    _next(connection, deadline)
    return result


def _next(connection: pq.abc.PGconn, deadline: float) -> pq.abc.PGresult | None:
    while connection.is_busy():
        _wait(connection, selectors.EVENT_READ, deadline)
        connection.consume_input()
    return connection.get_result()


def _wait(connection: pq.abc.PGconn, events: int, deadline: float) -> int:
    """Which of the events has come."""
    with _SELECTOR() as selector:
        selector.register(connection.socket, events)
        ready = selector.select(max(0.0, deadline - time.monotonic()))
    if not ready:
        raise Late
    return int(ready[0][1])


def _checked(results: Sequence[pq.abc.PGresult]) -> list[Table]:
    tables: list[Table] = []
    for result in results:
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            state, message = (
                (result.error_field(field) or b"").decode(errors="replace") for field in (_SQLSTATE, _MESSAGE)
            )
            raise Failed(state, message, tables)
        tables.append(_table(result))
    return tables


def _table(result: pq.abc.PGresult) -> Table:
    columns = [_column(result, column) for column in range(result.nfields)]
    return list(zip(*columns, strict=True))


def _column(result: pq.abc.PGresult, column: int) -> list[Any]:
    kind, get = result.ftype(column), result.get_value
    values = [get(row, column) for row in range(result.ntuples)]
    if kind in _INTEGERS:
        return [None if value is None else int(value) for value in values]
    if kind == _BOOLEAN:
        return [None if value is None else value == b"t" for value in values]
    return [None if value is None else value.decode() for value in values]


def _words(connection: pq.abc.PGconn, error: BaseException | None = None) -> str:
    """What libpq says of a connection, in one line. It never says a password."""
    said = connection.error_message.decode(errors="replace") or f"{error or 'the connection was closed'}"
    return "; ".join(line.strip() for line in said.splitlines() if line.strip())


def texts(values: Iterable[str | None]) -> bytes:
    """The literal of an array of texts."""
    return text("{" + ",".join(map(_quoted, values)) + "}")


def number(value: int) -> bytes:
    """An integer as a parameter."""
    return b"%d" % value


def numbers(values: Iterable[int | None]) -> bytes:
    """The literal of an array of integers."""
    return b"{%s}" % ",".join("NULL" if value is None else str(value) for value in values).encode()


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def text(value: str) -> bytes:
    """A text as a parameter. The server has no character NUL, and no half of a surrogate pair."""
    if "\0" in value:
        raise StoreMisused("PostgreSQL cannot hold the character NUL in a text")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise StoreMisused(f"PostgreSQL cannot hold that text: {error}") from error


_WORDS: Final[Mapping[str, str]] = {
    "57014": "the server ended the call at the time limit",
    "55P03": "kept waiting by a lock of another session until the time limit",
    "40001": "other sessions were in the way each time it was tried",
    "40P01": "other sessions were in the way each time it was tried",
    "25006": "it may only be read: a standby, or default_transaction_read_only is on; name the primary",
    "53100": "the disk of the server is full",
    "53200": "the server is out of memory",
    "42501": "this user may not do that",
    "42P01": "its tables are incomplete",
    "42703": "its tables are not those of rota",
    "42704": "rota_schema says no version: its tables are incomplete",
    "57P01": "the server was shut down, or ended this connection",
}

_GONE: Final = ("08", "57P")
"""The server, or the pooler before it, has ended the connection."""

_MISUSED: Final = frozenset({"54000", "22003", "22021", "22P05"})
"""A name that is longer than an index allows, a number or a text that no column can hold."""


def explained(where: str, error: Failed | Lost | Late, limit: float) -> StoreError:
    """The same in words a person can act upon."""
    if isinstance(error, Late):
        return StoreUnavailable(f"{where}: no answer within {limit:g} s")
    if isinstance(error, Lost):
        return StoreUnavailable(f"{where}: {error}")
    if error.state in _MISUSED:
        return StoreMisused(f"{where}: {error}")
    said = _WORDS.get(error.state)
    return StoreUnavailable(f"{where}: {said}: {error}" if said else f"{where}: {error}")
