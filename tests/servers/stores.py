"""Every store that several processes can share, by name, for the tests that run on each of them."""

from __future__ import annotations

import uuid
from importlib import import_module
from pathlib import Path

import pytest

from rota.stores import open_store

NETWORK = ("redis", "valkey", "postgresql", "mysql", "memcached", "dynamodb")
"""The kinds that servers on different hosts share."""

_SERVERS = {
    "redis": ("tests.servers.redis", "redis_server"),
    "valkey": ("tests.servers.redis", "valkey_server"),
    "postgresql": ("tests.servers.postgresql", "postgresql_server"),
    "mysql": ("tests.servers.mariadb", "mariadb_server"),
    "memcached": ("tests.servers.memcached", "memcached_server"),
    "dynamodb": ("tests.servers.dynalite", "dynalite_server"),
}

_AGED = {
    "redis": ("tests.servers.redis", "age"),
    "valkey": ("tests.servers.redis", "age"),
    "memcached": ("tests.servers.memcached", "age"),
}

each_store = pytest.mark.parametrize(
    "kind", ["sqlite", *(pytest.param(kind, marks=pytest.mark.service) for kind in NETWORK)]
)
each_network_store = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.service) for kind in NETWORK]
)


def server_url(kind: str, folder: Path) -> str:
    """The URL of the shared server of that kind; for SQLite, of a file in `folder`."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'rota.db'}"
    module, name = _SERVERS[kind]
    url: str = getattr(import_module(module), name)().url
    return url


def fresh_url(kind: str, folder: Path) -> str:
    """The same with a namespace that nobody has used. A store that can forget began to remember long ago:
    otherwise it would start nothing for five minutes."""
    url = server_url(kind, folder)
    url = f"{url}{'&' if '?' in url else '?'}namespace=shop/{uuid.uuid4().hex}"
    if kind in _AGED:
        store = open_store(url, namespace="")
        module, name = _AGED[kind]
        getattr(import_module(module), name)(store)
        store.close()
    return url
