"""`rota` alone, `rota --help` and `rota --version`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rota.cli.commands import COMMANDS, EXITS, CommandError


def answer(args: Sequence[str]) -> int:
    """Answer what is asked of rota as a whole."""
    match [arg for arg in args if arg != "--debug"]:
        case []:
            print(overview(), file=sys.stderr)
            raise CommandError("no command is given")
        case ["--help" | "-h", *_]:
            print(overview())
        case ["--version" | "-V", *_]:
            from rota._version import VERSION

            print(f"rota {VERSION}")
        case [option, *_]:
            raise CommandError(f"{option} stands before the command; write rota COMMAND {option} ...")
    return 0


def overview() -> str:
    """The help of rota as a whole."""
    commands = "\n".join(f"  {name:<9}{summary}" for name, summary in COMMANDS.items())
    exits = "\n".join(f"  {code}  {meaning}" for code, meaning in EXITS.items())
    return f"""\
usage: rota COMMAND [options]

Scheduled work of an application that runs on more than one server: for each due instant exactly one
server starts the task. The schedule is found by --app MODULE:NAME, ROTA_APP, [tool.rota] app in
./pyproject.toml, or as ./schedule.py.

commands:
{commands}

options:
  --help     show this; rota COMMAND --help shows more of one command
  --version  show the version

exit codes:
{exits}"""
