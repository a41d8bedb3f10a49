"""Say whether this server, its store and the other servers are set up as the schedule demands.

It signs in on the store under this host's name, as every tick does, and shows who else is there: run it
on each server with --expect-servers N to see that all of them share one store. Errors make it fail,
warnings do not.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from rota._core.zones import zone
from rota._engine.server import Server
from rota.cli import saying
from rota.cli.commands import FAILED, FINE
from rota.cli.finding import find
from rota.cli.parsing import app_option, json_option, number

if TYPE_CHECKING:
    from datetime import tzinfo

    from rota._engine.checking import Facts, Finding

EXITS = {FINE: "nothing is wrong, warnings aside", FAILED: "something is wrong"}


def arguments(parser: ArgumentParser) -> None:
    app_option(parser)
    parser.add_argument(
        "--expect-servers",
        type=number,
        metavar="N",
        help="fail unless so many servers signed in on this store lately",
    )
    json_option(parser)


def run(options: Namespace) -> int:
    from rota._engine.checking import Level, findings, survey

    schedule = find(options.app, silently=options.json)
    server = Server(schedule)
    with server:
        facts = survey(server, expected=options.expect_servers)
    found = findings(facts)
    if options.json:
        import json

        print(json.dumps(_data(facts, found), indent=2))
    else:
        _print(facts, found, zone(schedule.timezone))
    return FAILED if any(each.level is Level.ERROR for each in found) else FINE


def _print(facts: Facts, found: list[Finding], where: tzinfo) -> None:
    from rota.cli.tables import show

    print(f"{facts.namespace} on {facts.me.name}, store {facts.store}")
    guarantees = facts.guarantees
    print(
        f"  shared by the {guarantees.shared}; {'durable' if guarantees.durable else 'not durable'};"
        f" clock: {guarantees.clock}; a look takes {facts.round_trip.total_seconds() * 1000:.1f} ms"
    )
    print()
    show(
        ["server", "last tick", "seen", "schedule", "rota", "time zone"],
        [
            [
                saying.one_line(each.me.name) + (" (this one)" if each.me.id == facts.me.id else ""),
                "" if each.ticked is None else saying.instant(each.ticked, where),
                saying.instant(each.seen, where),
                f"{each.me.fingerprint}, {each.me.tasks} tasks",
                each.me.version,
                each.me.timezone,
            ]
            for each in facts.servers
        ],
    )
    print()
    for each in found:
        print(f"{each.level}: {each.about}: {saying.one_line(each.words)}")


def _data(facts: Facts, found: list[Finding]) -> dict[str, object]:
    guarantees = facts.guarantees
    return {
        "server": facts.me.name,
        "environment": facts.environment,
        "namespace": facts.namespace,
        "store": facts.store,
        "now": saying.utc(facts.now),
        "round_trip": facts.round_trip.total_seconds(),
        "offset": facts.offset.total_seconds(),
        "guarantees": {
            "shared": guarantees.shared,
            "durable": guarantees.durable,
            "clock": guarantees.clock,
            "grain": guarantees.grain.total_seconds(),
            "fenced": guarantees.fenced,
            "lists_rows": guarantees.lists_rows,
            "epoch": guarantees.epoch,
        },
        "servers": [
            {
                "name": each.me.name,
                "id": each.me.id,
                "this": each.me.id == facts.me.id,
                "since": saying.utc(each.since),
                "seen": saying.utc(each.seen),
                "ticked": saying.utc(each.ticked),
                "fingerprint": each.me.fingerprint,
                "tasks": each.me.tasks,
                "rota": each.me.version,
                "timezone": each.me.timezone,
            }
            for each in facts.servers
        ],
        "findings": [{"level": each.level, "about": each.about, "words": each.words} for each in found],
    }
