"""A TCP proxy on loopback that does to a connection what networks do, and counts round trips.

    with Proxy(server.port) as proxy:
        client = connect(proxy.port)
        proxy.mode = "blackhole"

    ok          bytes go through, replies after `delay` seconds
    refuse      new connections are reset at once; those that are open go on
    blackhole   bytes of both directions are swallowed, and so are new connections
    drop_reply  requests go through, replies are swallowed: was it written or not?

`reset` breaks all open connections. `lose_reply` lets one request through, waits for its reply, and
breaks the connection in its place.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal

Mode = Literal["ok", "refuse", "blackhole", "drop_reply"]

_RESET = struct.pack("ii", 1, 0)
_CHUNK = 1 << 16


class _Link:
    """One connection through the proxy, and whether the server owes it an answer."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.asked = False
        self.broken = False

    def reset(self) -> None:
        """Break both ends. The reading threads are woken first, for a socket in use is not closed."""
        self.broken = True
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RD)
            end.close()


class Proxy:
    """Stands before the server on `target` (a port of loopback)."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.mode: Mode = "ok"
        self.delay = 0.0
        self.trips = 0
        """How often a client spoke after the server had (or first): round trips, handshakes included."""
        self.connections = 0
        self._lose = False
        self._lost = threading.Event()
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._closed = False
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reset(self) -> None:
        """Break every open connection."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.reset()

    def lose_reply(self) -> threading.Event:
        """Break the connection in place of the next reply. The event tells that it was done."""
        self._lost = threading.Event()
        self._lose = True
        return self._lost

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()
        for thread in self._threads:
            thread.join(5)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.mode == "refuse":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target), 5)
                server.settimeout(None)
            except OSError:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            with self._lock:
                self._links.add(link)
            self._start(lambda link=link: self._pump(link, link.client, link.server, reply=False))
            self._start(lambda link=link: self._pump(link, link.server, link.client, reply=True))

    def _pump(self, link: _Link, source: socket.socket, target: socket.socket, *, reply: bool) -> None:
        try:
            while data := source.recv(_CHUNK):
                if self.mode == "blackhole":
                    continue
                if reply:
                    link.asked = False
                    if self._lose:
                        self._lose = False
                        link.reset()
                        self._lost.set()
                        return
                    if self.mode == "drop_reply":
                        continue
                    if self.delay:
                        time.sleep(self.delay)
                elif not link.asked:
                    link.asked = True
                    with self._lock:
                        self.trips += 1
                target.sendall(data)
        except OSError:
            pass  # the other direction, or `reset`, has closed it
        finally:
            if not link.broken:
                with contextlib.suppress(OSError):
                    target.shutdown(socket.SHUT_WR)
            if reply:
                with self._lock:
                    self._links.discard(link)
                if not link.broken:
                    link.client.close()
                    link.server.close()
