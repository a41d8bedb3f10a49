"""Start nothing more, of one task or of the whole schedule, on every server.

What is due meanwhile is recorded as skipped(paused), with your name and reason, and is not caught
up later. What runs already is left to end. It holds until `rota resume`, or for the time given.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import timedelta

from rota._core.leases import EVERYTHING, Lease, Request
from rota._core.rows import pause_key
from rota._core.task import Servers
from rota._core.zones import zone
from rota._engine.runner import new_token
from rota._engine.server import Server
from rota.cli import saying
from rota.cli.commands import FAILED, FINE, CommandError
from rota.cli.finding import find, known
from rota.cli.parsing import app_option

EXITS = {FINE: "it is paused", FAILED: "it had been paused already, and that pause stands"}

_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PART = re.compile(r"([0-9]+)\s*(min|[smhdw])\s*")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", metavar="TASK", help="only this task; otherwise all")
    app_option(parser)
    parser.add_argument(
        "--for", dest="length", type=length, metavar="TIME", help="how long, as in 90s, 30m, 2h, 1d, 1h30m"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; shown in lists and in the history")


def run(options: Namespace) -> int:
    schedule = find(options.app)
    task = known(schedule, options.task) if options.task else None
    server = Server(schedule)
    what = "everything" if task is None else task.name
    key = EVERYTHING if task is None else task.on(server.name).key
    request = Request(
        pause_key(key),
        new_token(),
        f"{_user()}@{server.name}",
        options.length or saying.FOR_EVER,
        note=saying.one_line(options.reason),
    )
    with server:
        answer = server.store.acquire([request])
    where, lease = zone(schedule.timezone), answer.items[0]
    if not isinstance(lease, Lease):
        until = f" {saying.until(lease.until, answer.now, where)}" if lease.until is not None else ""
        raise CommandError(
            f"{what} is paused already by {lease.by}{until}; rota resume ends that pause", FAILED
        )
    print(f"{what} is paused {saying.pause(lease, answer.now, where)}")
    if task is not None and task.servers is Servers.EVERY:
        print(f"note: every server runs {task.name} for itself; this pause is that of {server.name} only")
    return FINE


def length(text: str) -> timedelta:
    """A length of time as one types it: `2h`, `1h30m`."""
    if not text or _PART.sub("", text.strip().lower()):
        raise ArgumentTypeError(f"{text!r} is not a length of time; allowed: 90s, 30m, 2h, 1d, 1w, 1h30m")
    try:
        found = sum(
            (timedelta(**{_UNITS[unit]: int(count)}) for count, unit in _PART.findall(text.strip().lower())),
            timedelta(0),
        )
    except (OverflowError, ValueError):
        found = saying.FOR_EVER + timedelta(1)
    if not timedelta(0) < found <= saying.FOR_EVER:
        raise ArgumentTypeError(
            f"{text!r} is not from 1s to 100 years; leave it out for a pause without an end"
        )
    return found


def _user() -> str:
    """Who asks: the login name, whoever they have become with sudo."""
    for variable in ("SUDO_USER", "LOGNAME", "USER"):
        if name := os.environ.get(variable):
            return saying.one_line(name)
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
