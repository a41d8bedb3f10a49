"""The small file in which one-shot ticks leave each other what they learnt: the offset to the store's clock.

It saves opening the store when nothing is due. Nothing depends on it: if it is absent, old or
unreadable, the store is asked.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Final

from rota._core.errors import DefinitionError

TRUSTED_FOR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class State:
    """What was learnt at `at` (the host's wall clock): how far the store's clock is ahead."""

    at: datetime
    offset: timedelta
    pruned_at: datetime

    def is_fresh(self, now: datetime) -> bool:
        """Whether it may be used at `now` by the host's wall clock. A file from the future may not."""
        return timedelta(0) <= now - self.at < TRUSTED_FOR


def folder() -> Path:
    """Where this user's state is: $ROTA_STATE_DIR, else $XDG_STATE_HOME/rota, else ~/.local/state/rota."""
    given = os.environ.get("ROTA_STATE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "rota"
    try:
        return Path.home() / ".local" / "state" / "rota"
    except RuntimeError:
        raise DefinitionError(
            "there is no home directory to keep state in",
            argument="ROTA_STATE_DIR",
            allowed="a folder that this user may write to",
            hint="set ROTA_STATE_DIR, and ROTA_STORE for the store",
        ) from None


def file_for(namespace: str, url: str) -> Path:
    """One file for each schedule, environment and store."""
    return folder() / f"{blake2b(f'{namespace}|{url}'.encode(), digest_size=8).hexdigest()}.json"


def load(path: Path) -> State | None:
    """What stands in the file; None if it cannot be read or makes no sense."""
    try:
        found = json.loads(path.read_text())
        return State(
            datetime.fromisoformat(found["at"]),
            timedelta(microseconds=found["offset_us"]),
            datetime.fromisoformat(found["pruned_at"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(path: Path, state: State) -> None:
    """Write it whole or not at all. A folder that cannot be written to only costs time."""
    text = json.dumps(
        {
            "at": state.at.isoformat(),
            "offset_us": state.offset // timedelta(microseconds=1),
            "pruned_at": state.pruned_at.isoformat(),
        }
    )
    part = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
