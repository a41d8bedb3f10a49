"""Start what is due now, once.

cron, a systemd timer or a Kubernetes CronJob calls this every minute on every server; for each due
instant one of them starts the task. If nothing is due the store is not even asked. It ends when
the runs that it started have ended; with tasks that are due within the minute it stays until the
next one has taken over.

SIGTERM or Ctrl-C: nothing new is started, and what runs may end. The same again: the runs are
told to stop, commands are killed. Losing the race to another server is not an error.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from rota._core.zones import zone
from rota._engine.server import Server
from rota.cli import saying
from rota.cli.commands import FAILED, FINE, STORE, USAGE, CommandError
from rota.cli.finding import find
from rota.cli.parsing import app_option

if TYPE_CHECKING:
    from rota._core.schedule import Schedule
    from rota.stores.base import Store

EXITS = {
    FINE: "what was started succeeded, or nothing was to be started here",
    FAILED: "a task that was started here failed, timed out, was cancelled or lost, or was broken",
    USAGE: "the command line or the schedule is wrong",
    STORE: "the store does not answer",
}


def arguments(parser: ArgumentParser) -> None:
    app_option(parser)
    parser.add_argument(
        "--exit-zero", action="store_true", help="a failed task makes 0 and not 1; 2 and 3 stay as they are"
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="say nothing unless something happens")


def run(options: Namespace) -> int:
    schedule = find(options.app)
    server = Server(schedule)
    if not options.quiet:
        for warning in schedule.warnings:
            print(f"warning: {warning}")
    if server.is_anything_due():
        return _tick(schedule, options)
    said = ""
    if not options.quiet:
        said = saying.nothing_due(server.tasks, server.clock.estimate(), zone(schedule.timezone))
        print(said)
    if options.is_process and not schedule.warnings:
        server.leave_note(said)
    return FINE


def _tick(schedule: Schedule, options: Namespace) -> int:
    """Open the store and do what there is to do. What this needs is not imported before."""
    from rota._engine.remarks import clock_is_off
    from rota.cli.messages import Messages
    from rota.cli.stopping import Stopping

    messages = Messages(schedule, quiet=options.quiet)
    server = Server(schedule, messages)

    def drain(by: str) -> None:
        messages.say(
            f"{by}: nothing new is started; {_waiting(len(server.runner.carrier.runs))}; again to stop them"
        )
        server.runner.drain()

    def stop(by: str) -> None:
        messages.say(f"{by}: runs are told to stop")
        server.runner.carrier.stop(by)

    with server, Stopping(drain, stop):
        messages.note(_holds_here_only(server, server.store))
        answered = server.run()
        if answered:
            messages.note(clock_is_off(server.clock.offset, server.store.guarantees.grain))
    if not answered:
        raise CommandError(f"the store does not answer{messages.trouble}", STORE)
    messages.summary(server.tasks, server.clock.estimate())
    return FAILED if messages.anything_failed and not options.exit_zero else FINE


def _waiting(runs: int) -> str:
    return "no run goes on" if not runs else f"waiting for {runs} run{'s' if runs > 1 else ''}"


def _holds_here_only(server: Server, store: Store) -> str:
    """What on_one_server() is worth where the store does not reach beyond this host; "" where it does."""
    from rota._engine.remarks import promised_too_far, some

    shared = store.guarantees.shared
    names = promised_too_far(server.tasks, shared)
    if not names:
        return ""
    return (
        f"on_one_server() of {some(names, 3)} holds on this {shared} only: its servers share this store and"
        " no others do"
    )
