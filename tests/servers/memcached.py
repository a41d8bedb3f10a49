"""A memcached server of the tests' own."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from pymemcache.client.base import Client

from rota.stores.base import microseconds
from rota.stores.memcached import MemcachedStore
from rota.stores.memcached.wire import Wire
from tests.servers import Process, free_port, need, new_folder, shared, until

LONG_AGO = datetime(2001, 9, 9, tzinfo=UTC)


class Memcached(Process):
    """memcached with 64 MB, unless `options` say otherwise."""

    def __init__(self, *options: str) -> None:
        program = need("memcached", "memcached")
        user = ("-u", "memcache") if os.getuid() == 0 else ()
        port = free_port()
        command = [program, *user, "-l", "127.0.0.1", "-p", f"{port}", "-U", "0", *(options or ("-m", "64"))]
        super().__init__(command, port=port, folder=new_folder("memcached"))

    @property
    def url(self) -> str:
        return f"memcached://127.0.0.1:{self.port}"

    def client(self) -> Client:
        return Client(("127.0.0.1", self.port), connect_timeout=5, timeout=5, default_noreply=False)

    def stat(self, name: str) -> int:
        client = self.client()
        try:
            return int(client.stats()[name.encode()])
        finally:
            client.close()

    def flush(self) -> None:
        """Lose everything, and go on."""
        client = self.client()
        client.flush_all()
        client.close()

    def settle(self) -> None:
        """Wait until its clock is past all that a process before it may have shown."""
        until(lambda: self.stat("uptime") >= 6, 10, "the clock to settle", every=0.1)


def start() -> Memcached:
    server = Memcached()
    server.settle()
    return server


memcached_server = shared(start)


def age(store: MemcachedStore, *, epoch: datetime = LONG_AGO) -> None:
    """As if the store had begun to remember long ago: a young one refuses leases for five minutes."""

    def work(wire: Wire, deadline: float) -> None:
        now, sheets = store._read(wire, [*store._row_sheets, *store._lease_sheets], deadline)
        for sheet in sheets.values():
            sheet.epoch, sheet.changed = microseconds(epoch), True
        assert store._write(wire, list(sheets.values()), now, deadline) == set()

    store._wires.use(work)
