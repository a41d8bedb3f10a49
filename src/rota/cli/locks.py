"""Show which leases are in force: who holds what, since when, and until when unless it is renewed.

A run holds one lease. Pauses are shown by `rota list`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from rota._core.zones import zone
from rota._engine import snapshot
from rota._engine.server import Server
from rota.cli import saying
from rota.cli.finding import find
from rota.cli.parsing import app_option, json_option


def arguments(parser: ArgumentParser) -> None:
    app_option(parser)
    json_option(parser, "instants in UTC")


def run(options: Namespace) -> int:
    schedule = find(options.app, silently=options.json)
    server = Server(schedule)
    with server:
        leases = snapshot.take((), server.store, server.clock.estimate()).leases
    leases = sorted(leases, key=lambda lease: (lease.key, lease.slot))
    if options.json:
        import json

        print(
            json.dumps(
                [
                    {
                        "key": lease.key,
                        "owner": lease.owner,
                        "since": saying.utc(lease.since),
                        "until": saying.utc(lease.until),
                        "note": lease.note,
                    }
                    for lease in leases
                ],
                indent=2,
            )
        )
        return 0
    if not leases:
        print("no lease is in force")
        return 0
    from rota.cli.tables import show

    where = zone(schedule.timezone)
    show(
        ["key", "owner", "since", "until", "note"],
        [
            [
                saying.one_line(lease.key),
                saying.one_line(lease.owner),
                saying.instant(lease.since, where),
                saying.instant(lease.until, where),
                saying.one_line(lease.note),
            ]
            for lease in leases
        ],
    )
    return 0
