"""Say in plain English what a cron line means, and when it is due next.

The line has five fields, six with the seconds first, or is an alias such as @daily. Quote it, so
that the shell leaves the stars alone.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from rota._core.cron import CronExpression
from rota._core.triggers import Cron
from rota._core.zones import zone
from rota._engine.clock import Clock
from rota.cli import saying
from rota.cli.parsing import number

READS_NO_STORE = True


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("line", nargs="+", metavar="CRON", help='as in "30 2 * * 1-5"')
    parser.add_argument(
        "--timezone", default="UTC", metavar="ZONE", help="of the wall clock; UTC unless told otherwise"
    )
    parser.add_argument(
        "-n", type=number, default=5, metavar="N", help="how many instants; 5 unless told otherwise"
    )


def run(options: Namespace) -> int:
    where = zone(options.timezone)
    expression = CronExpression.parse(" ".join(options.line))
    trigger = Cron((expression,), options.timezone)
    print(trigger.describe())
    for warning in trigger.warnings:
        print(f"warning: {warning}")
    due = Clock().wall()
    for _ in range(options.n):
        following = trigger.next(due)
        if following is None:
            break
        due = following
        print(f"  {saying.instant(due, where)}")
    return 0
