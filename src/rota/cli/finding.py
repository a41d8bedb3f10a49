"""Finds the schedule of the application, and says in one line why it cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from types import ModuleType

from rota._core.errors import DefinitionError
from rota._core.schedule import Schedule
from rota._core.task import Task
from rota.cli.commands import CommandError
from rota.cli.saying import near

_WAYS = "name one with --app MODULE:NAME, ROTA_APP, or [tool.rota] app in ./pyproject.toml"


def find(app: str | None, *, silently: bool = False) -> Schedule:
    """The schedule that `app` names, or where there is no `app`, the one that this folder has.

    `silently` sends to standard error what the application prints while it is imported.
    """
    name, said_by = _where(app)
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise CommandError(f"{said_by}: {name!r} is not MODULE:NAME, as in shop.schedule:schedule")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    with redirect_stdout(sys.stderr) if silently else _as_it_is():
        module = _imported(module_name, said_by)
    return _attribute(module, attribute, said_by) if attribute else _only_one(module, said_by)


def known(schedule: Schedule, name: str) -> Task:
    """The task of that name; an error with those of similar names if there is none."""
    if name not in schedule:
        names = [task.name for task in schedule.tasks]
        raise CommandError(
            f"schedule {schedule.name!r} has no task {name!r}{near(name, names)}; rota list shows all"
        )
    return schedule[name]


def _where(app: str | None) -> tuple[str, str]:
    """MODULE:NAME, and who says so."""
    if app:
        return app, "--app"
    if named := os.environ.get("ROTA_APP"):
        return named, "ROTA_APP"
    if named := _in_pyproject("pyproject.toml"):
        return named, "pyproject.toml"
    if os.path.isfile("schedule.py"):
        return "schedule", "./schedule.py"
    raise CommandError(f"there is no schedule here: no ./schedule.py; {_WAYS}; rota init writes a first one")


def _in_pyproject(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from error
    if "rota" not in text:
        return None
    import tomllib

    try:
        tool = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"{path} is not TOML: {error}") from error
    table = tool.get("rota", {}) if isinstance(tool, dict) else {}
    app = table.get("app") if isinstance(table, dict) else None
    if app is not None and not isinstance(app, str):
        raise CommandError(
            f'{path}: [tool.rota] app is {app!r}; allowed: a text such as "shop.schedule:schedule"'
        )
    return app or None


# -- importing


def _imported(name: str, said_by: str) -> ModuleType:
    try:
        return import_module(name)
    except DefinitionError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise CommandError(
                f"{said_by}: there is no module {error.name!r} in {os.getcwd()} or on the path"
            ) from error
        raise CommandError(_broken(name, error)) from error
    except Exception as error:
        raise CommandError(_broken(name, error)) from error
    except SystemExit as error:
        raise CommandError(f"importing {name} called exit({error.code!r}) at {_place(error)}") from error


def _broken(name: str, error: Exception) -> str:
    told = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    kind = type(error).__name__
    return f"importing {name} failed at {_place(error)}: {kind}{f': {told}' if told else ''}"


def _place(error: BaseException) -> str:
    """The last line in this folder that led to the error; without one, the last line of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}"
    last = ours = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen ") and os.path.dirname(file) != os.path.dirname(__file__):
            last = f"{_short(file)}:{trace.tb_lineno}"
            if _is_here(file) and "site-packages" not in file:
                ours = last
        trace = trace.tb_next
    return ours or last or "an unknown line"


def _short(file: str) -> str:
    return os.path.relpath(file) if _is_here(file) else file


def _is_here(file: str) -> bool:
    return os.path.abspath(file).startswith(os.path.join(os.getcwd(), ""))


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


# -- looking into the module


def _attribute(module: ModuleType, attribute: str, said_by: str) -> Schedule:
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            schedules = _schedules(module)
            there = f"schedules there: {', '.join(schedules)}" if schedules else "it has no schedule at all"
            raise CommandError(
                f"{said_by}: {module.__name__} has no {attribute!r}"
                f"{near(attribute, schedules or vars(module))}; {there}"
            )
        found = getattr(found, part)
    return _checked(found, f"{module.__name__}:{attribute}", said_by)


def _only_one(module: ModuleType, said_by: str) -> Schedule:
    if isinstance(found := getattr(module, "schedule", None), Schedule):
        return found
    schedules = _schedules(module)
    match [*{id(each): each for each in schedules.values()}.values()]:
        case [schedule]:
            return schedule
        case []:
            raise CommandError(
                f"{said_by}: {module.__name__} ({_short(module.__file__ or '?')}) has no Schedule in it"
            )
        case _:
            ways = " or ".join(f"{module.__name__}:{name}" for name in schedules)
            raise CommandError(f"{said_by}: {module.__name__} has several schedules; say which: {ways}")


def _checked(found: object, name: str, said_by: str) -> Schedule:
    if not isinstance(found, Schedule):
        raise CommandError(f"{said_by}: {name} is a {type(found).__name__}; allowed: a rota.Schedule")
    return found


def _schedules(module: ModuleType) -> dict[str, Schedule]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Schedule)}
