"""Write a first schedule.py into this folder, and show the line for cron.

A schedule.py that is there already is left alone.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from rota.cli.commands import CommandError

READS_NO_STORE = True

_FIRST = '''\
"""What this application does by the clock. On every server; for each due instant one starts the task."""

from rota import Schedule

schedule = Schedule({name!r}, timezone="UTC")  # the zone of all times below, such as "Europe/Berlin"


@schedule.every(minutes=5)
def say_hello():
    """Shows that the schedule runs."""
    print("hello from rota")


schedule.command("df -h").name("disk-space").daily(at="06:00").time_limit(minutes=1)
'''


def arguments(parser: ArgumentParser) -> None:
    """Nothing."""


def run(options: Namespace) -> int:
    path = Path("schedule.py")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_FIRST.format(name=_name_of(Path.cwd())))
    except FileExistsError:
        raise CommandError(f"{path.absolute()} is there already, and was left alone") from None
    except OSError as error:
        raise CommandError(f"{path.absolute()} cannot be written: {error.strerror}") from error
    print(f"""\
{path.absolute()} is written. Look at it with

    rota list

and try a task with

    rota call say_hello

Then, on every server, one line in the crontab (crontab -e):

    {cron_line()}

Servers that do not share a disk need a store that they share: see ROTA_STORE.""")
    return 0


def cron_line() -> str:
    """The crontab line that runs the schedule of this folder every minute."""
    program = Path(sys.executable).with_name("rota")
    rota = shlex.quote(str(program)) if program.exists() else f"{shlex.quote(sys.executable)} -m rota"
    line = f"cd {shlex.quote(os.getcwd())} && {rota} run --exit-zero --quiet"
    return "* * * * * " + line.replace("%", r"\%")


def _name_of(folder: Path) -> str:
    return folder.name if folder.name.isprintable() and folder.name.strip() else "app"
