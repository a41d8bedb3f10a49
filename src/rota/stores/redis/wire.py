"""How the Redis store reaches its server: one script, one answer, within the time limit.

A script is sent by its digest; a server that does not know it yet (it was restarted, told to forget it, or
promoted) is sent the whole. Connections are rota's own, made from the settings of a client.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Protocol, TypeVar

from rota.stores.base import StoreUnavailable
from rota.stores.redis.timed import connection as connection_of
from rota.stores.redis.timed import left, within

T = TypeVar("T")

_PROMPTLY: Final = 0.2
"""The part of the time limit within which a new connection that failed is worth another attempt."""


_TOLD_BY: Final = 0.2
"""The seconds before the time limit at which WAIT is to end: servers notice that up to 0.1 s late."""


class Route(Protocol):
    """Which pool's settings lead to the server that has our keys; `ours`, not the application's."""

    ours: bool

    def pool(self, key: bytes) -> Any: ...
    def mislead(self) -> None: ...  # it led to the wrong server, or to none
    def close(self) -> None: ...


class Wire:
    """The way to the server. `where` is its address as it may be shown; no call takes longer than `limit`."""

    def __init__(self, route: Route, where: str, limit: float) -> None:
        self.where, self.limit = where, limit
        self._route = route
        self._idle: deque[Any] = deque()
        self._pid = os.getpid()

    def call(self, script: str, key: bytes, argument: bytes, replicas: int = 0) -> Any:
        """What the script answers. With `replicas`, only once so many of them have what it has written."""

        def ask(connection: Any) -> Any:
            whole, by_digest = (
                ("EVAL", script, 1, key, argument),
                ("EVALSHA", digest(script), 1, key, argument),
            )
            # A script that is not known would be waited for in vain, and for as long as there is time.
            risky = replicas and script not in connection.known_scripts
            answer = self._asked(connection, whole if risky else by_digest, replicas)
            if _says(answer, "NoScriptError", "NOSCRIPT"):
                answer = self._asked(connection, whole, replicas)
            connection.known_scripts.add(script)
            return answer

        return self._with_connection(key, ask)

    def command(self, key: bytes, *words: str) -> Any:
        """What the server that has this key answers to a command."""
        return self._with_connection(key, lambda connection: self._asked(connection, words, 0))

    def close(self) -> None:
        self._drop_idle()
        self._route.close()

    def _with_connection(self, key: bytes, ask: Callable[[Any], Any]) -> Any:
        """Whatever is asked may be asked again: the same question, with the same token."""
        began = time.monotonic()
        was_idle = bool(self._connections())
        with within(self.limit):
            try:
                return self._attempt(key, ask)
            except Exception as error:
                wrong = _is_misled(error)
                if not wrong and not _is_broken(error):
                    raise _unavailable(self.where, error, self.limit) from error
                self._drop_idle()  # those beside it lead to the same end
                self._route.mislead()
                late = time.monotonic() - began > _PROMPTLY * self.limit
                if late and not wrong and not was_idle:
                    raise _unavailable(self.where, error, self.limit) from error
            try:
                return self._attempt(key, ask)
            except Exception as error:
                if _is_misled(error) or _is_broken(error):
                    self._drop_idle()
                    self._route.mislead()
                raise _unavailable(self.where, error, self.limit) from error

    def _attempt(self, key: bytes, ask: Callable[[Any], T]) -> T:
        connection, sound = self._taken(key), False
        try:
            answer = ask(connection)
            sound = True
        finally:
            if sound:
                self._connections().append(connection)
            else:
                connection.disconnect()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _taken(self, key: bytes) -> Any:
        try:
            return self._connections().pop()
        except IndexError:
            connection = connection_of(self._route.pool(key), theirs=not self._route.ours)
            connection.connect()
            return connection

    def _connections(self) -> deque[Any]:
        """Those that wait to be used. A forked child has none: its parent's are not its own."""
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), deque()
        return self._idle

    def _drop_idle(self) -> None:
        idle = self._connections()
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread has taken it
                return
            connection.disconnect()

    def _asked(self, connection: Any, command: Sequence[object], replicas: int) -> Any:
        """The answer, or the error that the server answered."""
        commands = [command]
        if replicas:  # it ends before we do, so that the shortage can be told
            seconds = left(self.limit) or self.limit
            commands.append(("WAIT", replicas, max(1, int(1000 * (seconds - max(_TOLD_BY, seconds / 5))))))
        connection.send_packed_command(connection.pack_commands(commands))
        answers = [_answer(connection) for _ in commands]
        if replicas and not isinstance(answers[0], Exception):
            if isinstance(answers[1], Exception):
                return answers[1]
            if int(answers[1]) < replicas:
                return StoreUnavailable(
                    f"{self.where}: written on the primary, but only {int(answers[1])} of {replicas} replicas"
                    " have it in time; nothing is known to be safe"
                )
        return answers[0]


@cache
def digest(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response(disable_decoding=True)
    except Exception as error:
        if "ResponseError" in _kinds(error) and not _is_broken(error):
            return error
        raise


def _kinds(error: object) -> set[str]:
    """The names of its classes: redis-py and valkey-py name theirs alike."""
    return {kind.__name__ for kind in type(error).__mro__}


def _says(answer: object, kind: str, sign: str) -> bool:
    return isinstance(answer, Exception) and (type(answer).__name__ == kind or str(answer).startswith(sign))


def _is_broken(error: Exception) -> bool:
    """Whether the connection failed, and another one may do better."""
    kinds = _kinds(error)
    return bool(kinds & {"ConnectionError", "OSError"}) and not kinds & {
        "TimeoutError",
        "AuthenticationError",
        "BusyLoadingError",
    }


def _is_misled(error: Exception) -> bool:
    """Whether this server is not, or no longer, the one that has our keys and may write them."""
    return (
        _says(error, "MovedError", "MOVED ")
        or _says(error, "ClusterDownError", "CLUSTERDOWN")
        or _says(error, "ReadOnlyError", "READONLY")
    )


_IN_WORDS: Final = (
    (
        "NOINFO",
        (
            "INFO does not tell this user the run_id of the server, so what it forgets could not be noticed;"
            " the user may not call it (then allow +info), or this is no Redis or Valkey"
        ),
    ),
    ("WRONGPASS", "the password or the user is wrong"),
    ("NOAUTH", "it asks for a password, and none is given"),
    ("Authentication required", "it asks for a password, and none is given"),
    ("invalid username-password", "the password or the user is wrong"),
    ("invalid password", "the password is wrong"),
    ("READONLY", "it is a replica that may not be written: give rota the address of the primary"),
    ("read only replica", "it is a replica that may not be written: give rota the address of the primary"),
    ("OOM", "its memory is full (maxmemory with noeviction)"),
    ("used memory", "its memory is full (maxmemory with noeviction)"),
    ("LOADING", "it is still loading its data"),
    ("loading the dataset", "it is still loading its data"),
    ("NOREPLICAS", "it has fewer replicas than min-replicas-to-write demands"),
    ("MISCONF", "it cannot write to its disk (stop-writes-on-bgsave-error)"),
    ("BUSY", "another script blocks it"),
    ("NOPERM", "this user may not do that"),
    ("ACL failure", "this user may not do that"),
)


def _unavailable(where: str, error: Exception, limit: float) -> Exception:
    if isinstance(error, StoreUnavailable):
        return error
    text = str(error)
    if "TimeoutError" in _kinds(error):
        return StoreUnavailable(f"{where}: no answer within {limit:g} s")
    if _says(error, "AskError", "ASK "):
        return StoreUnavailable(
            f"{where}: its keys are being moved to another node of the cluster; nothing is granted meanwhile"
        )
    if "MasterNotFoundError" in _kinds(error):
        return StoreUnavailable(f"{where}: no sentinel that answers names a primary ({text})")
    for sign, words in _IN_WORDS:
        if sign in text:
            detail = f" ({text})" if sign in ("NOPERM", "ACL failure", "MISCONF") else ""
            return StoreUnavailable(f"{where}: {words}{detail}")
    return StoreUnavailable(f"{where}: {text or type(error).__name__}")
