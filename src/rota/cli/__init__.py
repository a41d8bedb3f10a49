"""The command line: finds the command, calls it, and turns what goes wrong into a line and an exit code.

Each command is a module of its own, imported when it is called. It has a docstring, which is its
help, and two functions: `arguments(parser)` says what it takes, and `run(options)` does it and
answers the exit code. Faces decide nothing: what is due, and what becomes of it, the engine knows.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from rota._core.errors import RotaError, StoreUnavailable
from rota.cli.commands import COMMANDS, FINE, STORE, USAGE, CommandError

TYPE_CHECKING = False  # as in typing, which takes as long to import as Python takes to start
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from rota.cli.parsing import Parser

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say (those of this process if there are none), and answer the exit code."""
    args = [_text(arg) for arg in (sys.argv[1:] if argv is None else argv)]
    sys.stdout, sys.stderr = _safe(sys.stdout), _safe(sys.stderr)
    code = FINE
    try:
        code = _obey(args, is_process=argv is None)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _let_go_of_stdout()
        return code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (CommandError, RotaError) as error:
        if "--debug" in args:
            import traceback

            traceback.print_exc()
        print(f"rota: error: {_told(error)}", file=sys.stderr)
        return _code_of(error)


def _obey(args: Sequence[str], *, is_process: bool) -> int:
    """`is_process`: the arguments are those of this process, which is what a note is found by."""
    if not args or args[0].startswith("-"):
        from rota.cli.top import answer

        return answer(args)
    name = args[0]
    if name not in COMMANDS:
        from rota.cli.saying import near

        known = ", ".join(COMMANDS)
        raise CommandError(f"there is no command {name!r}{near(name, COMMANDS)}; there are {known}")
    if name == "run" and is_process and (said := _noted()) is not None:
        if said:
            print(said)
        return FINE
    command = import_module(f"rota.cli.{name}")
    parser: Parser = import_module("rota.cli.parsing").parser_of(name, command)
    try:
        options = parser.parse_args(args[1:])
    except SystemExit as asked_for_help:
        return int(asked_for_help.code or 0)
    options.is_process = is_process
    code: int = command.run(options)
    return code


def _noted() -> str | None:
    """What `rota run` said a short while ago, if that still holds and nothing is due."""
    import time

    from rota._engine import memo

    return memo.recall(memo.path(), time.time())


def _told(error: Exception) -> str:
    if isinstance(error, StoreUnavailable):
        return f"the store does not answer: {error}"
    return str(error) or type(error).__name__


def _code_of(error: Exception) -> int:
    if isinstance(error, CommandError):
        return error.code
    return STORE if isinstance(error, StoreUnavailable) else USAGE


def _text(arg: str) -> str:
    """An argument as the text it was typed as, also where the locale is not able to say so."""
    try:
        arg.encode()
    except UnicodeEncodeError:
        return os.fsencode(arg).decode("utf-8", "backslashreplace")
    return arg


def _safe(stream: TextIO | None) -> TextIO:
    """The stream made safe to print to: what its encoding lacks is shown as an escape; closed is nowhere."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return stream


def _let_go_of_stdout() -> None:
    """Nobody reads any more: what is still buffered goes nowhere, so that the end is quiet as well."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    finally:
        os.close(nowhere)
