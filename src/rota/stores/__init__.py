"""Opens a store by its URL; a driver is imported when it is asked for, never before.

    memory:                             this process, for tests and single-process applications
    sqlite:///rota.db                   this host; relative to the working directory
    sqlite:////var/lib/shop/rota.db     this host; four slashes make an absolute path
    sqlite:///rota.db?timeout=2         no call waits longer than two seconds (default: 5)
    sqlite:///rota.db?create=false      the tables are expected to be there

A new store is a module with a row in `DRIVERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from types import MappingProxyType
from urllib.parse import parse_qsl

from rota._core.errors import DefinitionError
from rota._core.value import NOTHING, value
from rota.stores.base import Store

__all__ = ["DRIVERS", "Driver", "Store", "open_store", "shown"]


def _seconds(text: str) -> timedelta:
    with suppress(ValueError):
        seconds = float(text)
        if 0 < seconds <= 5:
            return timedelta(seconds=seconds)
    raise ValueError("more than 0, at most 5 seconds")


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text]
    except KeyError:
        raise ValueError("true or false") from None


@value
class Driver:
    """Where a scheme is served: `module.opener(location, namespace=..., **options)`."""

    module: str
    opener: str
    example: str
    options: Mapping[str, Callable[[str], object]] = NOTHING


DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {
        "memory": Driver("rota.stores.memory", "open_memory", "memory:"),
        "sqlite": Driver(
            "rota.stores.sql.sqlite",
            "open_sqlite",
            "sqlite:///rota.db",
            {"timeout": _seconds, "create": _boolean},
        ),
    }
)


def open_store(url: str, *, namespace: str) -> Store:
    """The store behind the URL, for the application and environment that `namespace` names.

    A URL that no driver can mean raises DefinitionError, with what exists. Whatever the world
    outside does (a missing folder, a server that is down) shows as StoreUnavailable at the first call.
    """
    scheme, _, rest = url.partition(":")
    driver = DRIVERS.get(scheme)
    if driver is None:
        examples = ", ".join(known.example for known in DRIVERS.values())
        raise DefinitionError("no such store", argument="store", found=shown(url), allowed=examples)
    location, _, query = rest.partition("?")
    options: dict[str, object] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in driver.options:
            allowed = ", ".join(driver.options) or "none"
            raise DefinitionError(
                f"{scheme} has no such option", argument="store", found=f"{name}=", allowed=allowed
            )
        try:
            options[name] = driver.options[name](text)
        except ValueError as error:
            raise DefinitionError(
                f"the option {name} cannot mean that",
                argument="store",
                found=shown(url),
                allowed=str(error),
            ) from None
    opener = getattr(import_module(driver.module), driver.opener)
    try:
        store: Store = opener(location, namespace=namespace, **options)
    except ValueError:
        raise DefinitionError(
            f"not a {scheme} address", argument="store", found=shown(url), allowed=driver.example
        ) from None
    return store


_USERINFO = re.compile(r"(?<=://)([^/:@]*):[^?]*@")
_SECRET_OPTION = re.compile(r"(?i)([?&;][^=&;]*(?:pass|pwd|secret|token|key)[^=&;]*=)[^&;#]*")


def shown(url: str) -> str:
    """The URL as it may be printed: passwords are three stars."""
    return _SECRET_OPTION.sub(r"\1***", _USERINFO.sub(r"\1:***@", url))
