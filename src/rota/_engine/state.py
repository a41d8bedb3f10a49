"""The small file in which one-shot ticks leave each other what they learnt: the offset to the store's clock.

It saves opening the store when nothing is due. Nothing depends on it: if it is absent, old or
unreadable, the store is asked. It is read at every tick, so this module imports next to nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final
from zlib import crc32

from rota._core.value import value
from rota._engine.places import folder, safe

TRUSTED_FOR: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@value
class State:
    """What was learnt at `at` (the host's wall clock): how far the store's clock is ahead."""

    at: datetime
    offset: timedelta
    pruned_at: datetime

    def is_fresh(self, now: datetime) -> bool:
        """Whether it may be used at `now` by the host's wall clock. A file from the future may not."""
        return timedelta(0) <= now - self.at < TRUSTED_FOR


def file_for(namespace: str, url: str) -> str:
    """One file for each schedule, environment and store."""
    return os.path.join(folder(), f"{safe(namespace)}-{crc32(f'{namespace}|{url}'.encode()):08x}.state")


def load(path: str) -> State | None:
    """What stands in the file; None if it cannot be read or makes no sense."""
    try:
        with open(path, encoding="ascii") as file:
            at, offset, pruned_at = (int(word) * _MICROSECOND for word in file.read().split())
        return State(_EPOCH + at, offset, _EPOCH + pruned_at)
    except (OSError, ValueError, OverflowError):
        return None


def forget(path: str) -> None:
    """Have no state, so that the next tick asks the store whatever becomes of this one."""
    with suppress(OSError):
        os.unlink(path)


def save(path: str, state: State) -> None:
    """Write it whole or not at all. A folder that cannot be written to only costs time."""
    spans = state.at - _EPOCH, state.offset, state.pruned_at - _EPOCH
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "w", encoding="ascii") as file:
            file.write(" ".join(str(span // _MICROSECOND) for span in spans))
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
