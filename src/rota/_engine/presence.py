"""Who takes part: each server signs in on the store, under its host name, so that `rota check` sees them all.

A sign-in is a notice: a lease that protects nothing, `server:<name>/<id>`, with what it says in its note.
Each tick that opens the store renews it, after what is due has been started. It is kept for a day, so a
server that has fallen silent is still shown. The id tells two machines apart that have one name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from rota._core.leases import SERVER_PREFIX, Lease, Request
from rota._core.value import value
from rota._engine import places
from rota._version import VERSION
from rota.stores.base import instant, microseconds

if TYPE_CHECKING:
    from rota._core.task import Task

KEPT: Final = timedelta(days=1)
"""How long a sign-in is shown after the last one."""


@value
class Me:
    """What a server says of itself. `timezone` is that of its schedule, `fingerprint` that of its tasks."""

    name: str
    id: str
    timezone: str
    fingerprint: str
    tasks: int
    version: str = VERSION


@value
class Present:
    """A server that has signed in: first `since`, last `seen`, both by the store's clock.

    `ticked` is its last tick that opened the store; None if it has only been checked.
    """

    me: Me
    since: datetime
    seen: datetime
    ticked: datetime | None


def fingerprint(tasks: Iterable[Task]) -> str:
    """What the tasks decide by, in eight characters: names, triggers and policies.

    What they run is left out: a path or an argument may differ from server to server.
    """
    lines = sorted(
        "|".join(
            (
                task.mark_key,
                *map(repr, (task.servers, task.overlap, task.lease, task.crash, task.catch_up)),
                *map(repr, (task.grace, task.time_limit, sorted(task.environments))),
            )
        )
        for task in tasks
    )
    return f"{crc32(chr(10).join(lines).encode()):08x}"


def sign_in(me: Me, ticked: datetime | None) -> Request:
    """The request by which a server signs in."""
    note = {
        "version": me.version,
        "timezone": me.timezone,
        "fingerprint": me.fingerprint,
        "tasks": me.tasks,
        "ticked": None if ticked is None else microseconds(ticked),
    }
    said = json.dumps(note, separators=(",", ":"))
    return Request(f"{SERVER_PREFIX}{me.name}/{me.id}", me.id, me.name, KEPT, note=said)


def present(leases: Iterable[Lease]) -> Sequence[Present]:
    """The servers that have signed in, by name. What cannot be read as a sign-in is left out."""
    found = [each for lease in leases if (each := _read(lease)) is not None]
    return sorted(found, key=lambda each: (each.me.name, each.since))


def _read(lease: Lease) -> Present | None:
    if not lease.key.startswith(SERVER_PREFIX):
        return None
    name, _, ident = lease.key.removeprefix(SERVER_PREFIX).rpartition("/")
    try:
        note: dict[str, Any] = json.loads(lease.note)
        ticked = note.get("ticked")
        me = Me(
            name,
            ident,
            str(note["timezone"]),
            str(note["fingerprint"]),
            int(note["tasks"]),
            str(note["version"]),
        )
        return Present(me, lease.since, lease.until - KEPT, None if ticked is None else instant(ticked))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def identity() -> str:
    """What tells this user's servers on this machine from all others: kept in the state folder.

    Where nothing can be kept, it is the machine's own boot, so that at least one boot is one server.
    """
    path = os.path.join(places.folder(), "server-id")
    if known := _kept(path):
        return known
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(places.folder(), mode=0o700, exist_ok=True)
        with open(part, "w", encoding="ascii") as file:
            file.write(os.urandom(4).hex())
        with suppress(FileExistsError):  # another process of this server was first
            os.link(part, path)
        os.unlink(part)
    except OSError:
        return _boot()
    return _kept(path) or _boot()


def _kept(path: str) -> str:
    with suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        known = file.read().strip()
        return known if known.isalnum() and len(known) == 8 else ""
    return ""


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(8)
    except OSError:
        return "unknown0"
