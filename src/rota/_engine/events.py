"""What happens, as typed values, and the listeners that hear of it.

Logging, messages of the command line, pings and metrics are listeners. A listener that raises
becomes an event itself, told to the others; the engine goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from rota._core.planner import NotYet
from rota._core.rows import Occurrence, Row
from rota._core.runs import Result
from rota._core.value import value


@value
class FirstSeen:
    """Tasks that the store had not heard of: they start with the next instant at which each is due."""

    tasks: tuple[str, ...]
    now: datetime


@value
class Started:
    """A run has begun."""

    occurrence: Occurrence
    attempt: int
    fence: int
    late: timedelta


@value
class Ended:
    """A run has ended; `row` is what stands for it, None if the store forgot it or could not be told.

    The two differ where another server had already found the run lost.
    """

    occurrence: Occurrence
    attempt: int
    result: Result
    row: Row | None


@value
class Skipped:
    """This server decided an occurrence without starting it, and says why."""

    row: Row


@value
class FoundLost:
    """This server found a run whose holder is gone."""

    row: Row


@value
class Waits:
    """An occurrence is due and stays so for now."""

    not_yet: NotYet


@value
class LeaseEnded:
    """Trust in a lease has ended while its run goes on: the run is told and stopped."""

    occurrence: Occurrence
    attempt: int


@value
class StoreTrouble:
    """A store call ended without an answer; nothing is known of what it did."""

    call: str
    error: str


@value
class StoreConcern:
    """Something about the store that a careful operator would want to know; told about once an hour."""

    words: str


@value
class ListenerFailed:
    """A listener raised. It will be called again for the next event."""

    listener: str
    error: str


Event = (
    FirstSeen
    | Started
    | Ended
    | Skipped
    | FoundLost
    | Waits
    | LeaseEnded
    | StoreTrouble
    | StoreConcern
    | ListenerFailed
)
Listener = Callable[[Event], object]


class Events:
    """Tells every listener of every event, in the thread in which it happens."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def tell(self, event: Event) -> None:
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:
                if not isinstance(event, ListenerFailed):
                    name = getattr(listener, "__qualname__", type(listener).__qualname__)
                    self.tell(ListenerFailed(name, f"{type(error).__name__}: {error}"))
