"""Renders the reference page of the command line.

python -m rota.cli.reference > docs/reference/command-line.md
"""

from __future__ import annotations

from importlib import import_module

from rota.cli.commands import COMMANDS
from rota.cli.parsing import parser_of
from rota.cli.top import overview

_HEAD = """\
# Command line

This page is made by `python -m rota.cli.reference` from the help of the commands; a test compares the two.

`python -m rota` is the same as `rota`. Whatever is wrong is told in one line on standard error,
`rota: error: ...`; `--debug` shows the traceback as well. Lists are drawn by [rich](https://rich.readthedocs.io)
where it is installed and standard output is a terminal, and are plain aligned text in a pipe; `--json` is for
programs.

## The environment

| variable | says |
|---|---|
| `ROTA_APP` | where the schedule is, as `module:name` |
| `ROTA_STORE` | the store of a schedule that names none; without it an SQLite file in the state folder |
| `ROTA_SERVER` | the name of this server, otherwise the host name |
| `ROTA_ENV` | the environment, otherwise `production` |
| `ROTA_STATE_DIR` | the state folder, otherwise `$XDG_STATE_HOME/rota` or `~/.local/state/rota` |
"""


def page() -> str:
    """The page as it stands in the documentation."""
    parts = [_HEAD, _section("rota", overview())]
    for name in COMMANDS:
        parser = parser_of(name, import_module(f"rota.cli.{name}"))
        parts.append(_section(f"rota {name}", parser.format_help().strip()))
    return "\n".join(parts)


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    print(page(), end="")
