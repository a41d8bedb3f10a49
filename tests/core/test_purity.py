"""The core decides and never acts: it can read no clock, file, socket or environment."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "rota" / "_core"

ALLOWED_IMPORTS = {
    "__future__",
    "abc",
    "bisect",
    "calendar",
    "collections",
    "contextlib",
    "dataclasses",
    "datetime",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "inspect",  # what a function is, never where it runs
    "itertools",
    "math",
    "operator",
    "os",  # see ATTRIBUTES
    "re",
    "string",
    "sys",  # see ATTRIBUTES
    "textwrap",
    "types",
    "typing",
    "zlib",
    "zoneinfo",  # reads the zone data, which is a table and not the state of a machine
}

CLOCKS = {"now", "utcnow", "today"}
EFFECTS = {"open", "print", "input", "exec", "eval", "__import__"}

# Of modules that could do more: what is only arithmetic on what one is given.
ATTRIBUTES = {"os": {"PathLike", "fspath"}, "sys": {"_getframe", "maxsize"}}


def impurities(source: str) -> list[str]:
    """Everything in a module that the core must not do, as `line: what`."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [
                    (node.lineno, f"imports {alias.name}")
                    for alias in names
                    if alias.name not in {*ALLOWED_IMPORTS, "collections.abc"}
                    and not alias.name.startswith("rota._core")
                ]
            case ast.ImportFrom(module=module, level=0) if module is not None:
                if module in ATTRIBUTES or (
                    module.split(".")[0] not in ALLOWED_IMPORTS and not f"{module}.".startswith("rota._core.")
                ):
                    found.append((node.lineno, f"imports {module}"))
            case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCKS:
                found.append((node.lineno, f"reads a clock: {ast.unparse(node)}"))
            case ast.Call(func=ast.Attribute(attr="astimezone"), args=[], keywords=[]):
                found.append((node.lineno, "asks for the zone of this machine: astimezone()"))
            case ast.Call(func=ast.Name(id=name)) if name in EFFECTS:
                found.append((node.lineno, f"acts: {name}()"))
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in ATTRIBUTES:
                if name not in ATTRIBUTES[module]:
                    found.append((node.lineno, f"looks at the machine: {module}.{name}"))
            case _:
                pass
    return [f"{line}: {what}" for line, what in sorted(found)]


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_of_the_core_is_pure(path: Path) -> None:
    assert impurities(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from os import environ",
        "os.environ",
        "from threading import Lock",
        "from rota._engine import clock",
        "from rota import Schedule",
        "import redis",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "date.today()",
        "due.astimezone()",
        "open('x')",
        "print('x')",
        "sys.argv",
    ],
)
def test_an_impure_line_is_found(source: str) -> None:
    assert len(impurities(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from rota._core.rows import Row",
        "import rota._core.cron",
        "due.astimezone(UTC)",
        "sys._getframe(1)",
        "import os",
        "os.fspath(x)",
        "from collections.abc import Mapping",
        "import collections.abc",
    ],
)
def test_a_pure_line_is_left_alone(source: str) -> None:
    assert impurities(source) == []
