"""Connections to one memcached server, and what is said on them.

pymemcache opens them and asks for the settings. It cannot send different commands in one piece, so that is
done here, on its socket, where each operation has what is left of the time of the whole call.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError, MemcacheServerError

from rota.stores.base import StoreUnavailable

T = TypeVar("T")

Item: TypeAlias = tuple[int, int, bytes]
"""The flags of an item, its number for compare-and-swap, and its value."""

_KEPT: Final = 8
_KEYS_IN_A_COMMAND: Final = 16
_DEFAULT_ITEM_SIZE: Final = 1 << 20


class Wire:
    """One connection. What is sent on it in one piece is answered in one piece: that is a round trip."""

    def __init__(self, client: Client) -> None:
        self.process = os.getpid()
        self.settings: Mapping[Any, Any] = client.stats("settings")
        assert client.sock is not None
        self._client, self._socket = client, client.sock
        self._received, self._at = bytearray(), 0

    @property
    def item_size(self) -> int:
        """How large an item may be."""
        return int(self.settings.get(b"item_size_max", _DEFAULT_ITEM_SIZE))

    def close(self) -> None:
        self._client.close()

    def read(self, names: Sequence[str], deadline: float) -> tuple[dict[str, str], dict[str, Item]]:
        """What the server tells of itself, and after that the items, read in the order of `names`."""
        asked = [names[at : at + _KEYS_IN_A_COMMAND] for at in range(0, len(names), _KEYS_IN_A_COMMAND)]
        self._send(
            "".join(["stats\r\n", *(f"gets {' '.join(some)}\r\n" for some in asked)]).encode(), deadline
        )
        told = {}
        while (words := self._words(deadline)) != ["END"]:
            told[words[1]] = words[-1]
        items: dict[str, Item] = {}
        for _ in asked:
            while (words := self._words(deadline)) != ["END"]:
                _, name, flags, size, number = words
                items[name] = int(flags), int(number), self._bytes(int(size), deadline)
        return told, items

    def write(self, commands: Sequence[bytes], deadline: float) -> list[bool]:
        """Which of the commands stored their item."""
        self._send(b"".join(commands), deadline)
        return [self._words(deadline) == ["STORED"] for _ in commands]

    def _send(self, request: bytes, deadline: float) -> None:
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(request)

    def _words(self, deadline: float) -> list[str]:
        """The next line of the answer."""
        while (end := self._received.find(b"\r\n", self._at)) < 0:
            self._receive(deadline)
        line = self._received[self._at : end].decode("ascii", "replace")
        self._at = end + 2
        if line.startswith(("ERROR", "CLIENT_ERROR", "SERVER_ERROR")):
            raise MemcacheServerError(f"it answers {line}")
        return line.split()

    def _bytes(self, size: int, deadline: float) -> bytes:
        """So many bytes of the answer; an end of line follows them."""
        while len(self._received) < self._at + size + 2:
            self._receive(deadline)
        value = bytes(self._received[self._at : self._at + size])
        self._at += size + 2
        return value

    def _receive(self, deadline: float) -> None:
        del self._received[: self._at]
        self._at = 0
        self._socket.settimeout(_left(deadline))
        received = self._socket.recv(1 << 18)
        if not received:
            raise ConnectionResetError("the connection was closed")
        self._received += received


class Wires:
    """Connections to the server at `address`, kept open between calls: one for each call at a time.

    `client` is the application's: what it says of keep-alive and TLS holds for ours too.
    """

    def __init__(self, address: tuple[str, int] | str, *, limit: float, client: Any = None) -> None:
        self.address, self.limit = address, limit
        self.where = f"memcached://{_netloc(address)}"
        self._client = client
        self._idle: deque[Wire] = deque()

    def use(self, work: Callable[[Wire, float], T]) -> T:
        """The work, with a deadline; done once more on a fresh connection if its own was idle and has died.

        The numbers of compare-and-swap begin anew with each server process, so the work takes none from one
        connection to another.
        """
        deadline = time.monotonic() + self.limit
        try:
            wire = self._taken()
            if wire is not None:
                with suppress(ConnectionError):
                    return self._with(wire, work, deadline)
            return self._with(self._connected(deadline), work, deadline)
        except TimeoutError as error:
            raise StoreUnavailable(f"{self.where}: no answer within {self.limit:g} s") from error
        except ConnectionRefusedError as error:
            raise StoreUnavailable(f"{self.where}: nobody listens there; does memcached run?") from error
        except socket.gaierror as error:
            raise StoreUnavailable(f"{self.where}: the host is not known ({error.strerror})") from error
        except (OSError, MemcacheError) as error:
            said = str(error) or "the connection was closed"
            raise StoreUnavailable(f"{self.where}: {said}") from error

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back and there are enough."""
        while (wire := self._taken()) is not None:
            wire.close()

    def _with(self, wire: Wire, work: Callable[[Wire, float], T], deadline: float) -> T:
        try:
            answer = work(wire, deadline)
        except BaseException:
            wire.close()
            self.close()  # what was idle beside it has most likely died with it
            raise
        if len(self._idle) < _KEPT:
            self._idle.append(wire)
        else:
            wire.close()
        return answer

    def _taken(self) -> Wire | None:
        """An idle connection. Those of a parent process are closed: that ends the child's end only."""
        with suppress(IndexError):
            while True:
                wire = self._idle.pop()
                if wire.process == os.getpid():
                    return wire
                wire.close()
        return None

    def _connected(self, deadline: float) -> Wire:
        """A new connection; of the addresses of the host, the first that answers (pymemcache tries one)."""
        addresses: list[Any] = [self.address]
        if self._client is None and isinstance(self.address, tuple):
            host, port = self.address
            addresses = [place[:2] for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        while True:
            half = _left(deadline) / 2
            client = Client(
                addresses.pop(0),
                connect_timeout=half,
                timeout=half,
                no_delay=True,
                socket_keepalive=getattr(self._client, "socket_keepalive", None),
                tls_context=getattr(self._client, "tls_context", None),
            )
            try:
                return Wire(client)
            except BaseException as error:
                client.close()
                if not (addresses and isinstance(error, OSError)):
                    raise


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _netloc(address: tuple[str, int] | str) -> str:
    if isinstance(address, str):
        return address
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
