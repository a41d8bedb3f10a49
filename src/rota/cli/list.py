"""Show every task of the schedule.

When it is due in words, and when next in the time zone of the schedule; the policies that differ from the
defaults; how its last run ended; whether it runs or is paused; and where it is defined.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import tzinfo

from rota._core.rows import Row
from rota._core.zones import zone
from rota._engine import snapshot
from rota._engine.server import Server
from rota._engine.snapshot import Snapshot, TaskState
from rota.cli import saying
from rota.cli.finding import find
from rota.cli.header import header, store_of
from rota.cli.parsing import app_option, json_option


def arguments(parser: ArgumentParser) -> None:
    app_option(parser)
    json_option(parser)


def run(options: Namespace) -> int:
    schedule = find(options.app, silently=options.json)
    server = Server(schedule)
    with server:
        seen = snapshot.take(server.tasks, server.store, server.clock.estimate())
        if options.json:
            _print_json(server, seen)
        else:
            _print_table(server, seen)
    return 0


def _print_table(server: Server, seen: Snapshot) -> None:
    from rota.cli.tables import show

    where = zone(server.schedule.timezone)
    print(header(server))
    if "*" in seen.pauses:
        print(f"everything is paused {saying.pause(seen.pauses['*'], seen.now, where)}")
    for warning in server.schedule.warnings:
        print(f"warning: {warning}")
    columns = ["task", "when", "next due", "policies", "last", "state", "source"]
    if seen.tasks:
        show(columns, [_cells(each, seen, where) for each in seen.tasks])
    else:
        print("no tasks")


def _cells(each: TaskState, seen: Snapshot, where: tzinfo) -> list[str]:
    return [
        each.task.name,
        each.task.trigger.describe(),
        saying.instant(each.next_due, where) if each.next_due is not None else "never",
        ", ".join(saying.policies(each.task)),
        f"{saying.outcome(each.last)}, due {saying.instant(each.last.occurrence.due, where)}"
        if each.last
        else "",
        _state(each, seen, where),
        each.task.source,
    ]


def _state(each: TaskState, seen: Snapshot, where: tzinfo) -> str:
    parts = [f"running on {row.server} since {saying.instant(row.since, where)}" for row in each.running]
    if each.pause is not None:
        parts.append(f"paused {saying.pause(each.pause, seen.now, where)}")
    return "; ".join(parts)


def _print_json(server: Server, seen: Snapshot) -> None:
    import json

    schedule = server.schedule
    found = {
        "schedule": schedule.name,
        "environment": server.environment,
        "timezone": schedule.timezone,
        "store": store_of(server),
        "server": server.name,
        "now": saying.utc(seen.now),
        "paused": saying.pause_data(seen.pauses.get("*")),
        "warnings": schedule.warnings,
        "tasks": [
            {
                "name": each.task.name,
                "description": each.task.description,
                "when": each.task.trigger.describe(),
                "next_due": saying.utc(each.next_due),
                "policies": saying.policies(each.task),
                "last": _row_data(each.last),
                "running": [_row_data(row) for row in each.running],
                "paused": saying.pause_data(each.pause),
                "source": each.task.source,
            }
            for each in seen.tasks
        ],
    }
    print(json.dumps(found, indent=2))


def _row_data(row: Row | None) -> dict[str, object] | None:
    return None if row is None else saying.row_data(row, row.occurrence.task)
