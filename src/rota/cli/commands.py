"""The commands there are, and the exit codes that they share."""

from __future__ import annotations

from types import MappingProxyType

TYPE_CHECKING = False  # as in typing, which takes as long to import as Python takes to start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

FINE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
STORE: Final = 3

COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "init": "write a first schedule.py here, and show the line for cron",
        "run": "start what is due now, once; for cron, on every server",
        "list": "show every task: when it is due, how it ended, what goes on",
        "next": "show when tasks are due next",
        "call": "run one task now, by hand, under the same locks",
        "history": "show what was decided and how it ended, newest first",
        "locks": "show which leases are in force",
        "unlock": "release the lease on a key",
        "pause": "start nothing more, of one task or of all",
        "resume": "end a pause",
        "check": "say whether this server, its store and the other servers are set up right",
        "schema": "print the tables of a store, for those who create them themselves",
        "explain": "say in plain English what a cron line means",
    }
)
"""Each command is the module of its name; this line is its help in the overview."""

EXITS: Final[Mapping[int, str]] = MappingProxyType(
    {
        FINE: "fine, or nothing to do",
        FAILED: "a task failed",
        USAGE: "the command line or the schedule is wrong",
        STORE: "the store does not answer",
    }
)


class CommandError(Exception):
    """A command cannot do what it was asked to; the message is for the person who asked."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code
