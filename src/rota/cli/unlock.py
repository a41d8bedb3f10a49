"""Release the lease on a key, exactly as it was seen.

Its holder is shown first, and you are asked. If the holder still runs, it is told to stop at its
next renewal, and until then another run may go on beside it. A lease that has passed to someone
else in the meantime is left alone.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from rota._core.leases import PAUSE_PREFIX
from rota._core.zones import zone
from rota._engine import snapshot
from rota._engine.server import Server
from rota.cli import saying
from rota.cli.commands import CommandError
from rota.cli.finding import find
from rota.cli.parsing import app_option


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="as rota locks shows it")
    app_option(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: Namespace) -> int:
    if options.key.startswith(PAUSE_PREFIX):
        raise CommandError(f"{options.key} is a pause; rota resume ends it")
    schedule = find(options.app)
    server = Server(schedule)
    with server:
        seen = snapshot.take((), server.store, server.clock.estimate())
        found = [lease for lease in seen.leases if lease.key == options.key]
        if not found:
            keys = {lease.key for lease in seen.leases}
            raise CommandError(
                f"nobody holds {options.key!r}{saying.near(options.key, keys)}; rota locks shows all keys"
            )
        where = zone(schedule.timezone)
        for lease in found:
            note = f" for {saying.one_line(lease.note)}" if lease.note else ""
            print(
                f"{lease.key}: held by {saying.one_line(lease.owner)}{note}, "
                f"since {saying.instant(lease.since, where)}, until {saying.instant(lease.until, where)}"
            )
        if not (options.yes or _agreed()):
            print("nothing was changed")
            return 0
        released = server.store.release(found).items
    for lease, was_ours in zip(found, released, strict=True):
        what = "released" if was_ours else "not released: it had ended or passed on already"
        print(f"{lease.key}: {what} ({saying.one_line(lease.owner)})")
    return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise CommandError("there is nobody to ask; --yes releases it without asking")
    print("release it? a run that goes on may then meet another one [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
