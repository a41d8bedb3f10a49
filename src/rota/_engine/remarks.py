"""What a tick remarks about where it runs, and a check judges: both ask here, so both say the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from rota._core.planner import in_words
from rota._core.task import Servers, Task
from rota.stores.base import Shared

TOLERATED_OFFSET: Final = timedelta(seconds=5)
"""How far a host's clock may be off before it is told."""


def promised_too_far(tasks: Iterable[Task], shared: Shared) -> Sequence[str]:
    """The tasks whose on_one_server() is stated, and holds no further than this host or process."""
    if shared is Shared.NETWORK:
        return ()
    return [task.name for task in tasks if task.servers_stated and task.servers is Servers.ONE]


def clock_is_off(offset: timedelta, grain: timedelta) -> str:
    """What is wrong with this host's clock, and what comes of it; "" where it is near enough.

    `offset`: how far the store's is ahead, told by a clock of that grain.
    """
    if abs(offset) <= TOLERATED_OFFSET + grain:
        return ""
    off = timedelta(seconds=round(abs(offset).total_seconds()))
    way = "behind" if offset > timedelta(0) else "ahead of"
    return (
        f"the clock of this host is {in_words(off)} {way} the store's. The store's decides, so"
        " nothing starts early or twice for it; mend the host's all the same (is its time service running?)"
    )


def some(names: Sequence[str], most: int = 5) -> str:
    """The names in one line, the first few if they are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
