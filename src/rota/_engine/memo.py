"""A note that nothing is due for a while, so that `rota run` need not even import the application.

Started every minute, most one-shot ticks find nothing to do, and importing the schedule to find that out
costs far more than the answer. Such a tick leaves a note of what it said and until when that holds.
The next one with the same command line, folder and environment repeats it, provided that no source
file, package or setting it was based on has changed since. A note holds for five minutes at most, and
never into the time in which something may be due: then everything is read again. Without a note, or
with one that does not fit, nothing is lost but time.

Everything here is imported at each tick, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys
from zlib import crc32

from rota._engine.places import folder

LONGEST = 300.0
"""Seconds a note holds at most: a schedule that depends on more than its source files is read that often."""


def path() -> str:
    """Where the note for this very command line, folder, environment and interpreter is."""
    told = sorted(os.environ.items())
    text = "\0".join([os.getcwd(), sys.executable, sys.version, *sys.argv, *(f"{k}={v}" for k, v in told)])
    return os.path.join(folder(), f"run-{crc32(text.encode('utf-8', 'surrogateescape')):08x}.memo")


def recall(path: str, now: float) -> str | None:
    """What the note says, if it holds at `now` (seconds since the epoch by the host's clock)."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            head, said, *basis = file.read().split("\n")
        since, until = map(float, head.split())
    except (OSError, ValueError):
        return None
    if not since <= now < until or any(_state_of(line.partition(" ")[2]) != line for line in basis):
        return None
    return said


def leave(path: str, said: str, now: float, until: float) -> None:
    """Note that `said` holds from `now` until `until`, on the basis of what is imported by now."""
    until = min(until, now + LONGEST)
    text = "\n".join([f"{now!r} {until!r}", said, *map(_state_of, _basis())])
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        try:
            os.unlink(part)
        except OSError:
            return


def _basis() -> list[str]:
    """The files and folders that decide what the application is: its modules, the path, its settings."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    library = os.path.dirname(os.__file__)
    ours = {file for file in files if file and (not file.startswith(library) or "-packages" in file)}
    return sorted(ours | {folder or "." for folder in sys.path} | {"pyproject.toml"})


def _state_of(path: str) -> str:
    """A line that changes when the file does."""
    try:
        found = os.stat(path)
    except OSError:
        return f"absent {path}"
    if path.endswith(".py"):
        return f"{found.st_mtime_ns}-{found.st_size}-{found.st_ino} {path}"
    return f"{found.st_mtime_ns}-{found.st_ino} {path}"
