"""The line above a list: which schedule this is, in which environment, on which store."""

from __future__ import annotations

from rota._engine.server import Server
from rota.stores import shown


def header(server: Server) -> str:
    return f"{server.schedule.name} ({server.environment}) on {server.name}, store {store_of(server)}"


def store_of(server: Server) -> str:
    """The store as it may be printed: no password is in it."""
    return shown(server.url)
