"""Show when tasks are due next, in the time zone of the schedule.

Of one task, or of all that this server holds, in one list. The store is not asked.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice

from rota._core.task import Task
from rota._core.zones import zone
from rota._engine.server import Server
from rota.cli import saying
from rota.cli.finding import find, known
from rota.cli.parsing import app_option, number

READS_NO_STORE = True


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", metavar="TASK", help="only this task")
    app_option(parser)
    parser.add_argument("-n", type=number, default=5, metavar="N", help="how many; 5 unless told otherwise")


def run(options: Namespace) -> int:
    schedule = find(options.app)
    server = Server(schedule)
    tasks: Sequence[Task] = [known(schedule, options.task)] if options.task else server.tasks
    where, now = zone(schedule.timezone), server.clock.estimate()
    found = [*islice(merge(*(_occurrences(task, now) for task in tasks)), options.n)]
    for due, name in found:
        print(f"{saying.instant(due, where)}  {name}")
    if not found:
        print("nothing is ever due")
    return 0


def _occurrences(task: Task, after: datetime) -> Iterator[tuple[datetime, str]]:
    while (due := task.trigger.next(after)) is not None:
        yield due, task.name
        after = due
