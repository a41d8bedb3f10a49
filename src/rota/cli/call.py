"""Run one task now, by hand, under the same locks as the schedule.

It is recorded as manual. What it prints is shown while it runs. Conditions, hours and pauses are
for the schedule: whoever calls by hand means it. If an earlier run goes on and the task does not
overlap, nothing is started, and who holds it is shown.

Ctrl-C or SIGTERM: the run is told to stop, a command is killed. The same again: it is left alone,
and recorded as lost when its lease has ended.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from rota._core.runs import Outcome, Result
from rota._core.task import Task
from rota._core.value import replace
from rota._engine.events import Ended, Event, Skipped, StoreTrouble
from rota._engine.server import Server
from rota.cli import saying
from rota.cli.commands import FAILED, FINE, STORE, USAGE, CommandError
from rota.cli.finding import find, known
from rota.cli.parsing import app_option
from rota.cli.stopping import Stopping

EXITS = {
    FINE: "it succeeded",
    FAILED: "it failed, or was refused because another run goes on",
    USAGE: "the command line or the schedule is wrong",
    STORE: "the store does not answer",
}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="the name of the task")
    app_option(parser)


def run(options: Namespace) -> int:
    schedule = find(options.app)
    task = known(schedule, options.task)
    heard = _Heard()
    server = Server(schedule, heard)
    if not task.runs_in(server.environment):
        allowed = ", ".join(sorted(task.environments))
        raise CommandError(
            f"task {task.name!r} does not exist in {server.environment}, only in {allowed} (ROTA_ENV)"
        )

    def stop(by: str) -> None:
        _say(f"{by}: {task.name} is told to stop; again to leave it alone")
        server.runner.carrier.stop(by)

    with server, Stopping(stop, _leave):
        server.call(_echoing(task))
    if heard.refusal is not None:
        raise CommandError(f"{task.name} was not started: {heard.refusal}", FAILED)
    if heard.result is None:
        raise CommandError(f"the store does not answer{heard.trouble}", STORE)
    return _report(task, heard.result)


def _report(task: Task, result: Result) -> int:
    took = f" in {saying.span(result.took)}" if result.took is not None else ""
    why = f": {saying.one_line(result.detail)}" if result.detail else ""
    _say(f"{task.name}: {result.outcome}{took}{why}")
    return FINE if result.outcome is Outcome.SUCCEEDED else FAILED


class _Heard:
    """How the run ended, or why there was none."""

    def __init__(self) -> None:
        self.result: Result | None = None
        self.refusal: str | None = None
        self.trouble = ""

    def __call__(self, event: Event) -> None:
        match event:
            case Ended():
                self.result = event.result
            case Skipped(row):
                self.refusal = row.detail
            case StoreTrouble():
                self.trouble = f": {event.error}"
            case _:
                pass


def _echoing(task: Task) -> Task:
    """The task with its output shown as well."""
    return replace(task, output=replace(task.output, echo=True))


def _say(line: str) -> None:
    print(f"rota: {line}", file=sys.stderr)


def _leave(by: str) -> None:
    _say(f"{by}: left alone")
    sys.stderr.flush()
    os._exit(FAILED)
