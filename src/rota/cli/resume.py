"""End a pause, of one task or of the whole schedule.

What was due meanwhile stays skipped(paused); tasks start again with what is due from now on.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from rota._core.leases import EVERYTHING
from rota._core.zones import zone
from rota._engine import snapshot
from rota._engine.server import Server
from rota.cli import saying
from rota.cli.finding import find, known
from rota.cli.parsing import app_option


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", metavar="TASK", help="only this task; otherwise the pause of all")
    app_option(parser)


def run(options: Namespace) -> int:
    schedule = find(options.app)
    task = known(schedule, options.task) if options.task else None
    server = Server(schedule)
    what = "everything" if task is None else task.name
    key = EVERYTHING if task is None else task.on(server.name).key
    where = zone(schedule.timezone)
    with server:
        seen = snapshot.take((), server.store, server.clock.estimate())
        pause = seen.pauses.get(key)
        released = pause is not None and server.store.release([pause]).items[0]
    if pause is None:
        print(f"{what} was not paused" + (" as a whole" if task is None else ""))
    elif released:
        print(f"{what} goes on; it was paused {saying.pause(pause, seen.now, where)}")
    else:
        print(f"{what}: that pause had ended already")
    if task is not None and (general := seen.pauses.get(EVERYTHING)):
        print(f"note: everything is paused {saying.pause(general, seen.now, where)}; rota resume ends that")
    return 0
