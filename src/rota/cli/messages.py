"""What `rota run` says: a listener that turns events into lines, and remembers whether a task failed.

Who lost a race hears at most one line of it, at the end. Nobody reading our output must not hurt a
run, so a closed pipe silences this listener and nothing else.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, TextIO, assert_never

from rota._core.rows import Occurrence, Row
from rota._core.runs import SkipReason
from rota._core.schedule import Schedule
from rota._core.task import Task
from rota._core.zones import zone
from rota._engine.events import (
    Ended,
    Event,
    FirstSeen,
    FoundLost,
    LeaseEnded,
    ListenerFailed,
    Skipped,
    Started,
    StoreConcern,
    StoreTrouble,
    Waits,
)
from rota._engine.remarks import some
from rota.cli import saying

MOST: Final = 10
"""Tasks named at first sight, and lines of output shown of a run that failed."""

_NOTEWORTHY: Final = timedelta(seconds=1)


class Messages:
    """Says on standard output what happens. Trouble with the store goes to standard error."""

    def __init__(self, schedule: Schedule, *, quiet: bool) -> None:
        self._zone = zone(schedule.timezone)
        self._tasks = {task.key: task for task in schedule.tasks}
        self._by_name = {task.name: task for task in schedule.tasks}
        self._quiet = quiet
        self._out, self._errors = sys.stdout, sys.stderr
        self._closed: TextIO | None = None
        self._lock = threading.Lock()
        self._waits: dict[Occurrence, str] = {}
        self._told: set[Occurrence] = set()
        self._troubles: list[str] = []
        self._said_anything = False
        self.anything_failed = False

    def __call__(self, event: Event) -> None:
        match event:
            case FirstSeen():
                self._first_seen(event)
            case Started():
                self._note_told(event.occurrence)
                self.say(f"{self._of(event.occurrence)}: started{_attempt(event.attempt)}{_late(event.late)}")
            case Ended():
                self._ended(event)
            case Skipped(row):
                self._note_told(row.occurrence)
                self.anything_failed |= row.reason is SkipReason.BROKEN
                self.say(
                    f"{self._of(row.occurrence)}: not started{_many(row)}: {saying.outcome(row)}: {_why(row)}"
                )
            case FoundLost(row):
                self._note_told(row.occurrence)
                self.say(f"{self._of(row.occurrence)}: found lost{_attempt(row.attempt)}: {_why(row)}")
            case Waits(not_yet):
                with self._lock:
                    self._waits[not_yet.occurrence] = not_yet.why
            case LeaseEnded():
                self.say(f"{self._of(event.occurrence)}: its lease ended while it ran; it is told to stop")
            case StoreTrouble():
                self._trouble(event)
            case StoreConcern(words):
                self.note(words)
            case ListenerFailed():
                self._print(f"a listener failed: {event.listener}: {event.error}", self._errors)
            case _:
                assert_never(event)

    # -- what the command says itself

    def say(self, line: str) -> None:
        """Something happened."""
        self._said_anything = True
        self._print(line, self._out)

    def note(self, line: str) -> None:
        """Something that must be known whatever happens; "" is nothing."""
        if line:
            self._print(f"note: {line}", self._out)

    def summary(self, tasks: Sequence[Task], now: datetime) -> None:
        """At the end, if nothing was said so far: that there was nothing to do here, and why."""
        waits = {each: why for each, why in self._waits.items() if each not in self._told}
        if waits and not self._quiet:
            shown = [f"{self._of(occurrence)} ({why})" for occurrence, why in waits.items()]
            self.say(f"not started here: {some(shown, 3)}")
        if not (self._said_anything or self._quiet):
            self._print(saying.nothing_due(tasks, now, self._zone), self._out)

    @property
    def trouble(self) -> str:
        """What the store's last trouble was, as the end of a sentence."""
        return f": {self._troubles[-1]}" if self._troubles else ""

    # -- events

    def _first_seen(self, event: FirstSeen) -> None:
        self.say(f"first sight: {_tasks(len(event.tasks))} with the next due time")
        for name in event.tasks[:MOST]:
            due = self._by_name[name].trigger.next(event.now)
            self._print(
                f"  {name}: {saying.instant(due, self._zone) if due else 'never due again'}", self._out
            )
        if len(event.tasks) > MOST:
            self._print(f"  and {len(event.tasks) - MOST} more", self._out)

    def _trouble(self, event: StoreTrouble) -> None:
        """Tell each once. If the store does not even answer the first look, the command fails with it."""
        if event.error not in self._troubles:
            self._troubles.append(event.error)
            if self._said_anything or event.call != "look":
                self._print(f"no answer from the store ({event.call}): {event.error}", self._errors)

    def _ended(self, event: Ended) -> None:
        self._note_told(event.occurrence)
        result, row = event.result, event.row
        took = f" in {saying.span(result.took)}" if result.took is not None else ""
        why = f": {saying.one_line(result.detail)}" if result.detail else ""
        lines = [f"{self._of(event.occurrence)}: {result.outcome}{_attempt(event.attempt)}{took}{why}"]
        if row is None:
            lines.append("  its end is not recorded: the store has no row of it, or does not answer")
        elif row.outcome is not result.outcome:
            lines.append(f"  recorded as {saying.outcome(row)}: {_why(row)}")
        if result.outcome.is_trouble or (
            row is not None and row.outcome is not None and row.outcome.is_trouble
        ):
            self.anything_failed = True
            lines += self._last_lines(event)
        self.say("\n".join(lines))

    def _last_lines(self, event: Ended) -> list[str]:
        """The end of what a failed run printed, unless it was shown already."""
        task = self._tasks.get(event.occurrence.task)
        if task is not None and task.output.echo:
            return []
        lines = event.result.output.splitlines()
        cut = [f"  | ... {len(lines) - MOST} lines before"] if len(lines) > MOST else []
        return cut + [f"  | {saying.one_line(line)}" for line in lines[-MOST:]]

    def _note_told(self, occurrence: Occurrence) -> None:
        with self._lock:
            self._told.add(occurrence)

    def _of(self, occurrence: Occurrence) -> str:
        task = self._tasks.get(occurrence.task)
        return f"{task.name if task else occurrence.task}, due {saying.instant(occurrence.due, self._zone)}"

    def _print(self, line: str, stream: TextIO) -> None:
        with self._lock:
            try:
                if stream is not self._closed:
                    print(line, file=stream, flush=True)
            except BrokenPipeError:
                self._closed = stream


def _attempt(attempt: int) -> str:
    return f", attempt {attempt}" if attempt > 1 else ""


def _late(late: timedelta) -> str:
    return f", {saying.span(late)} late" if late >= _NOTEWORTHY else ""


def _many(row: Row) -> str:
    return f", {row.count} in a row" if row.count > 1 else ""


def _why(row: Row) -> str:
    return saying.detail(row) or "no reason is known"


def _tasks(number: int) -> str:
    return "1 task starts" if number == 1 else f"{number} tasks start"
