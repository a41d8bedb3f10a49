"""A connection to MySQL or MariaDB: several statements a packet, and one deadline for all of it.

PyMySQL's time-outs are for one operation of a socket, and an answer has many. Here the socket itself
keeps the deadline of the call, whatever is read from it and in however many pieces.
"""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pymysql
from pymysql.constants import CLIENT, COMMAND, SERVER_STATUS
from pymysql.cursors import Cursor

from rota.stores.base import StoreMisused

Rows = Sequence[tuple[Any, ...]]

CONFLICTS: Final = frozenset({1020, 1205, 1213, 1412})
"""Changed since it was read, lock wait, deadlock (on Galera: lost to another node), table just created."""

NO_SUCH_TABLE: Final = 1146
ANOTHER_VERSION: Final = 1242

_WITHIN: Final = "the connection that the application lends is within a transaction"
_TRANSACTION_IN_PROGRESS: Final = 1568
_GOODBYE: Final = 0.1
_LOST: Final = frozenset({0, 1053, 1077, 1079, 1317, 1927, 2006, 2013, 2014, 2055})
_WRONG: Final = frozenset({1264, 1406})
_WORDS: Final = {
    1040: "too many connections: max_connections of the server is used up",
    1044: "this user may not use the database",
    1045: "it refuses the user or the password",
    1049: "there is no such database",
    1129: "it has blocked this host: FLUSH HOSTS lets it in again",
    1142: "this user lacks a right: SELECT, INSERT, UPDATE, DELETE, and CREATE where the tables are missing",
    1153: "the call is larger than max_allowed_packet of the server",
    1205: "locked by others for too long",
    1213: "it met others again and again (deadlock)",
    1226: "this user has used up what it may (max_user_connections)",
    1290: "it is read-only (a replica, or a primary that is being replaced)",
    1665: "its binlog_format is STATEMENT: rota needs ROW or MIXED",
    1698: "it refuses the user",
    1792: "it is read-only",
    1836: "it is read-only (a replica, or a primary that is being replaced)",
    3159: "it demands TLS: ?ssl=true",
}


class Address(NamedTuple):
    """Where the database is, and who asks."""

    host: str
    port: int
    user: str
    password: str
    database: str
    unix_socket: str = ""
    ssl: bool = False
    ssl_ca: str = ""

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __str__(self) -> str:
        place = self.unix_socket or f"{self.host}:{self.port}"
        return (
            f"mysql://{self.user}@{place}/{self.database}"
            if self.user
            else f"mysql://{place}/{self.database}"
        )


class Deadline:
    """When a call has to be over, on the monotonic clock."""

    def __init__(self, at: float) -> None:
        self.at = at

    def left(self) -> float:
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit of the call is over")
        return left

    def left_or_zero(self) -> float:
        return max(0.0, self.at - time.monotonic())


class _Socket(socket.socket):
    deadline = Deadline(math.inf)

    def recv_into(self, buffer: Any, nbytes: Any = 0, flags: int = 0) -> int:
        _wait_no_longer(self, self.deadline)
        return super().recv_into(buffer, nbytes or 0, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        _wait_no_longer(self, self.deadline)
        super().sendall(data, flags)


class _TLSSocket(ssl.SSLSocket):
    deadline = Deadline(math.inf)

    def do_handshake(self, block: bool = False) -> None:
        _wait_no_longer(self, self.deadline)
        super().do_handshake(block)

    def recv_into(self, buffer: Any, nbytes: Any = 0, flags: int = 0) -> int:
        _wait_no_longer(self, self.deadline)
        return super().recv_into(buffer, nbytes or 0, flags)

    def send(self, data: Any, flags: int = 0) -> int:
        _wait_no_longer(self, self.deadline)
        return super().send(data, flags)


class _TLSContext(ssl.SSLContext):
    """Hands the deadline of a socket on to its encrypted one."""

    sslsocket_class = _TLSSocket

    def wrap_socket(self, sock: socket.socket, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        deadline = sock.deadline if isinstance(sock, _Socket) else _Socket.deadline
        wrapped = super().wrap_socket(sock, *arguments, **{**options, "do_handshake_on_connect": False})
        try:
            if isinstance(wrapped, _TLSSocket):
                wrapped.deadline = deadline
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


def _wait_no_longer(sock: socket.socket, deadline: Deadline) -> None:
    if deadline.at != math.inf:
        sock.settimeout(deadline.left())


class Link:
    """A connection, ours or lent by the application."""

    def __init__(self, connection: Any, deadline: Deadline | None = None) -> None:
        self._connection = connection
        self._deadline = deadline
        self._first: tuple[str, ...] = ()

    @classmethod
    def open(cls, address: Address, tls: ssl.SSLContext | None, deadline: Deadline, limit: float) -> Link:
        """A connection of our own. What is ours to set is said in front of the first packet."""
        own = Deadline(deadline.at)
        connection = pymysql.Connection(
            user=address.user or None,
            password=address.password,
            host=address.host,
            port=address.port,
            database=address.database,
            charset="utf8mb4",
            client_flag=CLIENT.MULTI_STATEMENTS,
            program_name="rota",
            autocommit=True,
            ssl=tls,
            ssl_disabled=tls is None,
            defer_connect=True,
        )
        connection.connect(_connected(address, own))
        link = cls(connection, own)
        whole = max(1, math.ceil(limit))
        # A server does not notice that nobody waits any longer: it must give up by itself.
        link._first = (
            (
                "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', SESSION"
                " sql_safe_updates = 0,"
                f" SESSION innodb_lock_wait_timeout = {whole}, SESSION lock_wait_timeout = {whole},"
                " SESSION sql_select_limit = 18446744073709551615"
            ),
        )
        return link

    def ask(self, statements: Sequence[str], deadline: Deadline) -> list[Rows]:
        """What those statements answer that answer rows, in one round trip. After an error nothing that
        follows was done, and a transaction may be open."""
        if self._deadline is not None:
            self._deadline.at = deadline.at
            deadline.left()
            packet = ";\n".join((*self._first, *statements))
            answers = self._results(packet, deadline)
            self._first = ()
            return answers
        return self._ask_lent(";\n".join(statements), deadline)

    def rollback(self, deadline: Deadline) -> None:
        if self._deadline is not None:
            self._deadline.at = deadline.at
        self._connection.rollback()

    def close(self) -> None:
        if self._deadline is not None:
            self._deadline.at = time.monotonic() + _GOODBYE
        with suppress(pymysql.Error, OSError):  # it was broken, and is closed all the same
            self._connection.close()

    def _results(self, packet: str, deadline: Deadline) -> list[Rows]:
        answers: list[Rows] = []
        cursor = self._connection.cursor(Cursor)
        cursor.execute(packet)
        while True:
            if cursor.description:
                answers.append(cursor.fetchall())
            if self._deadline is None:
                self._limit_lent(deadline.left())
            if not cursor.nextset():
                return answers

    def _ask_lent(self, packet: str, deadline: Deadline) -> list[Rows]:
        """The same on a connection of the application, which is left as it was found."""
        lent = self._connection
        if lent.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            raise StoreMisused(_WITHIN)
        limits = lent._read_timeout, lent._write_timeout
        several = bool(lent.client_flag & CLIENT.MULTI_STATEMENTS)
        try:
            self._limit_lent(deadline.left())
            if not several:
                self._allow_several(True)
            try:
                return self._results(packet, deadline)
            except pymysql.MySQLError as error:
                if code_of(error) == _TRANSACTION_IN_PROGRESS:
                    raise StoreMisused(_WITHIN) from error
                raise
            finally:
                if not several and lent.open:
                    self._allow_several(False)
        finally:
            lent._read_timeout, lent._write_timeout = limits

    def _limit_lent(self, left: float) -> None:
        # PyMySQL has no public name for it once the connection is made.
        self._connection._read_timeout = self._connection._write_timeout = left

    def _allow_several(self, allowed: bool) -> None:
        self._connection._execute_command(COMMAND.COM_SET_OPTION, b"\0\0" if allowed else b"\1\0")
        self._connection._read_packet()


def _connected(address: Address, deadline: Deadline) -> socket.socket:
    if address.unix_socket:
        places: list[Any] = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", address.unix_socket)]
    else:
        places = list(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM))
    for place in places:
        sock = _Socket(*place[:3])
        sock.deadline = deadline
        try:
            sock.settimeout(deadline.left())
            sock.connect(place[4])
            if not address.unix_socket:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock
        except OSError:
            sock.close()
            if place is places[-1]:
                raise
        except BaseException:
            sock.close()
            raise
    raise OSError(f"{address.host} has no address")


def tls_of(address: Address) -> ssl.SSLContext | None:
    """How to encrypt, or None. It takes long to make: one serves all connections."""
    if not (address.ssl or address.ssl_ca):
        return None
    context = _TLSContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = address.ssl
    if address.ssl_ca:
        context.load_verify_locations(address.ssl_ca)
    else:
        context.load_default_certs()
    return context


def code_of(error: BaseException) -> int:
    """The server's or the client library's number of the error; -1 where it has none."""
    arguments = error.args
    return arguments[0] if arguments and isinstance(arguments[0], int) else -1


def is_lost(error: BaseException) -> bool:
    """Whether it tells of the connection and not of what was asked."""
    return isinstance(error, OSError) or (isinstance(error, pymysql.MySQLError) and code_of(error) in _LOST)


def is_wrong(error: BaseException) -> bool:
    """Whether a value was refused that no column can hold."""
    return isinstance(error, pymysql.MySQLError) and code_of(error) in _WRONG


def explained(error: BaseException, *, over: bool, limit: float) -> str:
    """The error in words that a person can act upon. None of it holds a password."""
    code = code_of(error)
    if over and (is_lost(error) or code == 2003):
        return f"no answer within {limit:g} s"
    if isinstance(error, pymysql.MySQLError):
        if code == 2003:
            return f"it cannot be reached: {getattr(error, 'original_exception', error)}"
        if code in _WORDS:
            return f"{_WORDS[code]} (error {code})"
        if code in _LOST:
            return f"the connection was lost (error {code})"
        return f"{error.args[-1] if error.args else error} (error {code})"
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return "this user's password needs TLS (?ssl=true) or: pip install 'PyMySQL[rsa]'"
    return f"it cannot be reached: {error}"
