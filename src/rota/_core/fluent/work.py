"""What a schedule may be told to run, checked where it is written rather than at two in the night."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Final

from rota._core.errors import DefinitionError
from rota._core.fluent.words import text
from rota._core.task import Command, Filter, Function, Module, Work

# Flags of a code object (Include/cpython/code.h); `inspect` has them too and costs a signature object.
_TAKES_MORE: Final = 0x04
_TAKES_MORE_NAMED: Final = 0x08
_GENERATOR: Final = 0x20
_ASYNC_GENERATOR: Final = 0x200


def function(call: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> Function:
    """A callable with its arguments; refused when calling it so could only fail, or do nothing."""
    if not callable(call):
        raise DefinitionError(
            "this cannot be called",
            argument="function",
            found=call,
            allowed="a function, a coroutine function or another callable",
            hint="give the function itself, not what it returns",
        )
    if _flags(call) & (_GENERATOR | _ASYNC_GENERATOR):
        raise DefinitionError(
            "calling a generator function runs none of it",
            argument="function",
            found=call,
            allowed="a function, a coroutine function or another callable",
        )
    if (problem := _misfit(call, args, {**kwargs, **dict.fromkeys(asks_for_its_run(call))})) is not None:
        raise DefinitionError(
            problem,
            argument="function",
            found=call,
            allowed="a call that gives each parameter its argument",
            hint="give arguments with call(fn, ...) or do(fn, ...)",
        )
    return Function(call, args, dict(kwargs))


def command(
    line: str | Sequence[str], cwd: str | os.PathLike[str] | None, env: Mapping[str, str] | None
) -> Command:
    """A text for /bin/sh, or a list of arguments that no shell sees."""
    allowed = 'a text for the shell, or a list of arguments such as ["pg_dump", "shop"]'
    parts: str | tuple[str, ...]
    if isinstance(line, str):
        parts = text(line, "command", allowed)
    elif (
        isinstance(line, Sequence)
        and line
        and all(isinstance(part, str) and "\0" not in part for part in line)
    ):
        parts = tuple(line)
        text(parts[0], "command", allowed)
    else:
        raise DefinitionError("this is not a command", argument="command", found=line, allowed=allowed)
    for name, value in (env or {}).items():
        if (
            not isinstance(name, str)
            or not isinstance(value, str)
            or not name
            or "=" in name
            or "\0" in name + value
        ):
            raise DefinitionError(
                "this cannot stand in an environment",
                argument="env",
                found=name,
                allowed="names and values that are texts",
            )
    return Command(
        parts, cwd=None if cwd is None else text(os.fspath(cwd), "cwd", "a folder"), env=dict(env or {})
    )


def module(name: str, args: tuple[str, ...]) -> Module:
    """A module for `python -m`, with the arguments it finds in sys.argv."""
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
        raise DefinitionError(
            "this is not the name of a module",
            argument="module",
            found=name,
            allowed='a dotted name, as in "shop.tidy"',
        )
    for arg in args:
        if not isinstance(arg, str) or "\0" in arg:
            raise DefinitionError(
                "a module is given texts only",
                argument="args",
                found=arg,
                allowed="texts, as on a command line",
            )
    return Module(name, args)


def condition(name: str, value: Callable[[], object] | object, *, wanted: bool) -> Filter:
    """A filter; refused when its answer would be the same whatever happens."""
    hint = None
    if isinstance(value, str):
        hint = 'every text but the empty one is true, even "false" and "0": compare it'
    elif callable(value) and _flags(value) & (_ASYNC_GENERATOR | _GENERATOR):
        hint = "calling it gives a generator, which is always true"
    elif callable(value) and (problem := _misfit(value, (), {})) is not None:
        hint = problem
    if hint is not None:
        raise DefinitionError(
            "this is not a condition",
            argument="condition",
            found=value,
            allowed="a function or coroutine function without parameters, or a value that is true or false",
            hint=hint,
        )
    return Filter(name, value, wanted)


def asks_for_its_run(call: object) -> tuple[str, ...]:
    """The parameters that are annotated with `Run`: each is given the run when it is called."""
    function = call if isinstance(call, FunctionType | MethodType) else getattr(type(call), "__call__", None)  # noqa: B004  # not a test of callability
    hints = getattr(function, "__annotations__", {})
    return tuple(name for name, hint in hints.items() if name != "return" and _is_run(hint))


def _is_run(hint: object) -> bool:
    if isinstance(hint, str):
        return hint in ("Run", "rota.Run")
    return getattr(hint, "__qualname__", "") == "Run" and getattr(hint, "__module__", "").startswith("rota.")


def name_of(work: Work) -> str | None:
    """The name that work brings along: that of a function defined with `def`, and no other."""
    if (
        isinstance(work, Function)
        and isinstance(work.call, FunctionType)
        and work.call.__name__ != "<lambda>"
    ):
        return work.call.__name__
    return None


def description_of(work: Work) -> str:
    """The first line of a function's docstring."""
    if isinstance(work, Function) and isinstance(work.call, FunctionType | MethodType):
        lines = (work.call.__doc__ or "").strip().splitlines()
        return lines[0].strip() if lines else ""
    return ""


def _flags(call: object) -> int:
    code = getattr(getattr(call, "__func__", call), "__code__", None)
    return getattr(code, "co_flags", 0)


def _misfit(call: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str | None:
    """Why these arguments cannot be given to this function; None where they can, or nobody knows."""
    if isinstance(call, MethodType):
        args = (call.__self__, *args)
        call = call.__func__
    if not isinstance(call, FunctionType):
        return None
    code, optional = call.__code__, call.__kwdefaults__ or {}
    positional = code.co_varnames[: code.co_argcount]
    named_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    by_name = positional[code.co_posonlyargcount :] + named_only
    required = positional[: code.co_argcount - len(call.__defaults__ or ())][len(args) :]
    missing = [name for name in required if name not in kwargs or name not in by_name]
    missing += [name for name in named_only if name not in optional and name not in kwargs]
    if missing:
        return f"it is given nothing for {', '.join(missing)}"
    if len(args) > len(positional) and not code.co_flags & _TAKES_MORE:
        return f"it takes {len(positional)} positional arguments and is given {len(args)}"
    if not code.co_flags & _TAKES_MORE_NAMED and (extra := [name for name in kwargs if name not in by_name]):
        return f"it has no parameter {', '.join(extra)}"
    return None
