"""The database that a Django project has configured: `Schedule("shop", store="django://default")`.

The settings of the alias are turned into the URL of our own driver, which opens connections of its own: rota
must see what is committed, whatever transaction the project's own connection is in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from django.conf import settings
from django.db import connections

from rota.stores.base import DefinitionError, Store

_ENGINES: Final = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}
_NOT_FOR_CONNECTING: Final = frozenset(
    {"assume_role", "isolation_level", "pool", "server_side_binding", "transaction_mode", "init_command"}
    | {"charset", "sql_mode", "timeout"}
)
"""Options that concern how Django uses a connection; ours is used in its own way."""

_NONE: Final[Mapping[str, object]] = MappingProxyType({})


def open_django(address: str, *, namespace: str) -> Store:
    """What `django://alias?options` opens. The options are those of the driver that the database has.

    Raises DefinitionError where there is no such alias, or no driver for what stands behind it.
    """
    from rota.stores import open_store

    alias, _, options = address.removeprefix("django://").partition("?")
    if not settings.configured and "DJANGO_SETTINGS_MODULE" not in os.environ:
        raise _wrong(
            "Django has no settings", "no DJANGO_SETTINGS_MODULE", "the name of your settings' module"
        )
    known = sorted(connections)
    if alias not in known:
        raise _wrong("there is no such alias", alias, ", ".join(known))
    database = connections[alias]
    url = url_of(database.vendor, database.settings_dict, dict(parse_qsl(options)))
    return open_store(url, namespace=namespace)


def url_of(vendor: str, said: Mapping[str, Any], options: Mapping[str, object] = _NONE) -> str:
    """The URL of our driver for an entry of Django's DATABASES; DefinitionError where there is none."""
    if vendor not in _ENGINES:
        raise _wrong("rota has no driver for this database of Django's", vendor, ", ".join(_ENGINES))
    name = str(said["NAME"])
    if vendor == "sqlite":
        return f"sqlite:///{quote(name)}{_query(options)}"
    user, password = (quote(str(said.get(each) or ""), safe="") for each in ("USER", "PASSWORD"))
    host, port = str(said.get("HOST") or ""), str(said.get("PORT") or "")
    query: dict[str, object] = {
        key: value for key, value in (said.get("OPTIONS") or {}).items() if key not in _NOT_FOR_CONNECTING
    }
    for key, value in query.items():
        if not isinstance(value, str | int):
            raise _wrong("this option of the alias cannot stand in a URL", key, "give rota a URL of its own")
    if host.startswith("/"):
        query["host" if vendor == "postgresql" else "unix_socket"] = host
        host = ""
    who = user + (f":{password}" if password else "") + "@" if user else ""
    place = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    return f"{_ENGINES[vendor]}://{who}{place}/{quote(name, safe='')}{_query({**query, **options})}"


def _wrong(what: str, found: str, allowed: str) -> DefinitionError:
    return DefinitionError(what, argument="store", found=found, allowed=allowed)


def _query(options: Mapping[str, object]) -> str:
    given = {key: value for key, value in options.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""
