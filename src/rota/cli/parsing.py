"""What a command line may say: one parser for each command, whose help is the docstring of its module."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import ModuleType
from typing import NoReturn

from rota.cli.commands import EXITS, STORE, CommandError

WIDTH = 100
"""Columns of the help, whatever the terminal: it stands in the documentation as well."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ours, and whose help looks alike everywhere."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message}; see {self.prog} --help")


def parser_of(name: str, command: ModuleType) -> Parser:
    """The parser of the command `name`, which this module is."""
    exits: Mapping[int, str] = {**EXITS, **getattr(command, "EXITS", {})}
    reads_no_store = getattr(command, "READS_NO_STORE", False)
    parser = Parser(
        prog=f"rota {name}",
        description=(command.__doc__ or "").strip(),
        epilog="exit codes:\n"
        + "\n".join(
            f"  {code}  {meaning}"
            for code, meaning in exits.items()
            if not (code == STORE and reads_no_store)
        ),
        formatter_class=_Help,
        allow_abbrev=False,
    )
    command.arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def app_option(parser: argparse.ArgumentParser) -> None:
    """For the commands that need a schedule."""
    parser.add_argument(
        "--app",
        metavar="MODULE:NAME",
        help="where the schedule is; otherwise ROTA_APP, [tool.rota] app in ./pyproject.toml, "
        "or ./schedule.py",
    )


def json_option(parser: argparse.ArgumentParser, units: str = "instants in UTC, lengths in seconds") -> None:
    """For the commands that answer programs as well."""
    parser.add_argument("--json", action="store_true", help=f"for programs: {units}")


def number(text: str) -> int:
    """The type of options that count something."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 10_000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return int(text)


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=WIDTH, max_help_position=26)
