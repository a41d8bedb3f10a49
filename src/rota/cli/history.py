"""Show what was decided and how it ended, newest first.

Of one task, or of all. Whatever was not started is here too, with its reason. A task that is no
longer in the schedule is found by the name it had.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from datetime import tzinfo

from rota._core.rows import Row, RowQuery
from rota._core.zones import zone
from rota._engine.server import Server
from rota.cli import saying
from rota.cli.commands import CommandError
from rota.cli.finding import find, known
from rota.cli.parsing import app_option, json_option, number


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", metavar="TASK", help="only this task")
    app_option(parser)
    parser.add_argument("-n", type=number, default=20, metavar="N", help="how many; 20 unless told otherwise")
    parser.add_argument("--output", action="store_true", help="show what each run printed")
    json_option(parser)


def run(options: Namespace) -> int:
    schedule = find(options.app, silently=options.json)
    server = Server(schedule)
    held = {task.name: task.on(server.name).key for task in schedule.tasks}
    names = {key: name for name, key in held.items()}
    with server:
        if not server.store.guarantees.lists_rows:
            raise CommandError("this store keeps no history")
        asked: str | None = options.task
        wanted = () if asked is None else (held.get(asked, asked),)
        rows = server.store.rows(RowQuery(tasks=wanted, limit=options.n)).items
    if options.task and not rows:
        known(schedule, options.task)
    if options.json:
        import json

        print(json.dumps([saying.row_data(row, _name(row, names)) for row in rows], indent=2))
    elif not rows:
        print("nothing has been decided yet")
    elif options.output:
        _print_outputs(rows, names, zone(schedule.timezone))
    else:
        _print_table(rows, names, zone(schedule.timezone))
    return 0


def _print_table(rows: Sequence[Row], names: Mapping[str, str], where: tzinfo) -> None:
    from rota.cli.tables import show

    show(
        ["task", "due", "attempt", "outcome", "server", "took", "detail"],
        [
            [
                saying.one_line(_name(row, names)),
                saying.instant(row.occurrence.due, where),
                str(row.attempt),
                saying.outcome(row),
                saying.one_line(row.server),
                saying.span(row.took) if row.took is not None else "",
                saying.detail(row),
            ]
            for row in rows
        ],
    )


def _print_outputs(rows: Sequence[Row], names: Mapping[str, str], where: tzinfo) -> None:
    for row in rows:
        attempt = f", attempt {row.attempt}" if row.attempt > 1 else ""
        took = f" in {saying.span(row.took)}" if row.took is not None else ""
        why = f": {saying.detail(row)}" if saying.detail(row) else ""
        due = saying.instant(row.occurrence.due, where)
        print(f"{_name(row, names)}, due {due}{attempt}: {saying.outcome(row)}{took} on {row.server}{why}")
        for line in row.output.splitlines():
            print(f"  | {line}")


def _name(row: Row, names: Mapping[str, str]) -> str:
    return names.get(row.occurrence.task, row.occurrence.task)
