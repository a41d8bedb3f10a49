"""Tables: drawn by rich on a terminal, plain aligned text everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

_COLOURS: Final = {
    "succeeded": "green",
    "running": "cyan",
    "failed": "red",
    "timed_out": "red",
    "lost": "red",
    "cancelled": "yellow",
    "skipped": "yellow",
    "paused": "yellow",
}


def show(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the rows under their columns. In a pipe nothing is cut, folded or coloured."""
    if sys.stdout.isatty():
        try:
            import rich.table  # noqa: F401 - is it there?
        except ImportError:
            pass
        else:
            _drawn(columns, rows)
            return
    _plain(columns, rows)


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [[column.upper() for column in columns], *([cell or "-" for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _drawn(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(cell, style=_COLOURS.get(cell.partition("(")[0].partition(" ")[0], "")) for cell in row)
        )
    Console(file=sys.stdout).print(table)
