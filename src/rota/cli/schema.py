"""Print the tables that a store needs, for teams that create them by their own migrations.

rota creates them itself at the first use of a store, unless its URL says ?create=false.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from rota.cli.commands import FINE

READS_NO_STORE = True

KINDS = ("postgresql", "mysql", "sqlite", "dynamodb")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("store", choices=KINDS, metavar="STORE", help=f"one of {', '.join(KINDS)}")


def run(options: Namespace) -> int:
    from rota.stores import schema_of

    print(schema_of(options.store), end="")
    return FINE
