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

_NEW_AT_EACH_START = {"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID"}


def path() -> str:
    """Where the note for this command line and folder is."""
    return os.path.join(folder(), f"run-{_digest(os.getcwd(), sys.executable, *sys.argv)}.memo")


def recall(path: str, now: float) -> str | None:
    """What the note says, if it holds at `now` (seconds since the epoch by the host's clock)."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            head, said, *basis = file.read().split("\n")
        since, until = map(float, head.split())
    except (OSError, ValueError):
        return None
    if basis[:1] != [_settings()] or not since <= now < until:
        return None
    if any(_state_of(line.partition(" ")[2]) != line for line in basis[1:]):
        return None
    return said


def leave(path: str, said: str, now: float, until: float, *files: str) -> None:
    """Note that `said` holds from `now` until `until`, while what is imported by now and `files` stay."""
    until = min(until, now + LONGEST)
    text = "\n".join([f"{now!r} {until!r}", said, _settings(), *map(_state_of, [*_basis(), *files])])
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


def _settings() -> str:
    """A line that changes with the interpreter and the environment, save for what is new at each start."""
    told = (f"{name}={text}" for name, text in os.environ.items() if name not in _NEW_AT_EACH_START)
    return f"settings {_digest(sys.version, *sorted(told))}"


def _digest(*texts: str) -> str:
    return f"{crc32(chr(0).join(texts).encode('utf-8', 'surrogateescape')):08x}"


def _state_of(path: str) -> str:
    """A line that changes when the file does."""
    try:
        found = os.stat(path)
    except OSError:
        return f"absent {path}"
    if path.endswith(".py"):
        return f"{found.st_mtime_ns}-{found.st_size}-{found.st_ino} {path}"
    return f"{found.st_mtime_ns}-{found.st_ino} {path}"
