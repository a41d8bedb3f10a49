"""Where this user's files are. Imported at each tick, so it imports next to nothing."""

from __future__ import annotations

import os


def folder() -> str:
    """Where this user's state is: $ROTA_STATE_DIR, else $XDG_STATE_HOME/rota, else ~/.local/state/rota."""
    if given := os.environ.get("ROTA_STATE_DIR"):
        return given
    if base := os.environ.get("XDG_STATE_HOME"):
        return os.path.join(base, "rota")
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        from rota._core.errors import DefinitionError

        raise DefinitionError(
            "there is no home directory to keep state in",
            argument="ROTA_STATE_DIR",
            allowed="a folder that this user may write to",
            hint="set ROTA_STATE_DIR, and ROTA_STORE for the store",
        )
    return os.path.join(home, ".local", "state", "rota")


def safe(name: str) -> str:
    """A name as part of a file's name."""
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in name)[:80]
