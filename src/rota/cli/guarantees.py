"""Renders what each store promises, from its `guarantees`, for the README and the reference.

python -m rota.cli.guarantees > docs/reference/stores.md; with --table, the part in README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from rota.stores import DRIVERS, Driver, open_store
from rota.stores.base import Guarantees

_TITLES: Final = {
    "rota.stores.sql.postgresql": "PostgreSQL",
    "rota.stores.redis": "Redis, Valkey",
    "rota.stores.sql.mysql": "MySQL, MariaDB",
    "rota.stores.dynamodb": "DynamoDB",
    "rota.stores.memcached": "memcached",
    "rota.stores.sql.sqlite": "SQLite",
    "rota.stores.memory": "memory",
}

_HEAD = """\
# Stores

This page is made by `python -m rota.cli.guarantees` from what the drivers say of themselves; a test
compares the two. Why it is so, and what no store can promise, is in
[what a store promises](../explanation/stores.md).

The store of a schedule is `Schedule(store=...)`, else the environment's `ROTA_STORE`, else an SQLite file in
this user's state folder. It may be a URL, a client that the application has already (a client of redis-py, a
pool of psycopg, an engine of SQLAlchemy, what is listed below), or an object of your own that
[keeps the contract](../how-to/write-a-store.md).
"""

_COMMON = """\
Every URL takes `?timeout=` (seconds that one call may take, at most 5, which is the default) and
`?namespace=` (instead of application and environment: whoever shares a namespace shares every decision).
Passwords are never shown.
"""

_COLUMNS: Final = (
    *("store", "shared by", "answers survive a restart", "whose clock, its step", "a claim is"),
    *("round trips a call", "history", "if it forgets"),
)


def page() -> str:
    """The page as it stands in the documentation."""
    sections = [_section(title, schemes) for title, schemes in _stores()]
    return "\n".join([_HEAD, table(), _COMMON, *sections])


def table() -> str:
    """One row a store, as it stands in the README as well."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for title, schemes in _stores():
        said = _guarantees(DRIVERS[schemes[0]])
        lines.append(
            f"| {title} | {_REACH[said.shared]} | {_yes(said.durable)} | {said.clock}, {_grain(said.grain)}"
            f" | {said.primitive} | {said.trips} | {_yes(said.lists_rows)}"
            f" | {_forgets(said)} |"
        )
    return "\n".join(lines) + "\n"


_REACH: Final = {"network": "all hosts", "host": "one host", "process": "one process"}


def _stores() -> Iterator[tuple[str, list[str]]]:
    """Each store with its schemes, in the order of `_TITLES`."""
    for module, title in _TITLES.items():
        schemes = [scheme for scheme, driver in DRIVERS.items() if driver.module == module]
        if schemes:
            yield title, schemes


def _section(title: str, schemes: list[str]) -> str:
    driver = DRIVERS[schemes[0]]
    said = _guarantees(driver)
    lines = [f"## {title}", ""]
    lines += [f"- `{DRIVERS[scheme].example}`" for scheme in schemes]
    if driver.library:
        lines.append(f"- client library: `pip install 'rota[{driver.extra}]'`")
    if driver.options:
        lines.append(f"- options: {', '.join(f'`{name}`' for name in driver.options)}")
    if driver.passes:
        lines.append("- all other options are the client library's own")
    if driver.clients:
        engines = ", SQLAlchemy's engines" if driver.wraps_engines else ""
        lines.append(f"- clients it takes: those of {', '.join(driver.clients)}{engines}")
    for name, sentences in (("It needs", said.needs), ("It cannot", said.cannot)):
        if sentences:
            lines += ["", f"{name}:", ""]
            lines += [f"- {sentence}" for sentence in sentences]
    return "\n".join(lines) + "\n"


def _guarantees(driver: Driver) -> Guarantees:
    """What the driver says; nothing is asked of a server for it."""
    store = open_store(driver.example, namespace="shop/production")
    try:
        return store.guarantees
    finally:
        store.close()


def _forgets(said: Guarantees) -> str:
    if said.epoch:
        return "it notices, and refuses"
    return "it does not" if said.durable else "with its process"


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _grain(grain: timedelta) -> str:
    return f"{grain / timedelta(seconds=1):g} s" if grain >= timedelta(milliseconds=1) else "1 µs"


if __name__ == "__main__":
    print(table() if sys.argv[1:] == ["--table"] else page(), end="")
