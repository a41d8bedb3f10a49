"""The verbs of a schedule: each states one fact about a task, and no two state the same.

A schedule begins a sentence with any of them, a chain carries it on. What a verb is given is
checked at once, so that an error stands where the mistake does; what verbs mean together is
checked when the schedule is read (`freeze`), because they may come in any order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from rota._core.fluent import policies, timing, words, work
from rota._core.fluent.policies import NOT_YET, not_yet
from rota._core.task import Servers

C_co = TypeVar("C_co", covariant=True)

Moment = datetime | str
"""An aware datetime, or ISO text; without an offset the text is read in the zone of the task."""


def place() -> str:
    """The file and line outside of rota that we are called from: `app/schedule.py:12`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("rota._core."):
        frame = frame.f_back
    return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}"


@lru_cache(maxsize=256)
def _short(file: str) -> str:
    return "/".join(file.replace("\\", "/").rsplit("/", 2)[-2:])


class Verbs(Generic[C_co]):
    """What may be stated about a task, in any order; each verb returns the chain, to go on.

    A fact that is stated twice is refused, as the second would undo the first. Only conditions
    (`when`, `skip`) and hours (`between`, `except_between`) may be repeated: all of them must hold.
    A fact that a group states is a default, which a task of the group may state otherwise.
    """

    __slots__ = ()

    def _state(self, fact: str, verb: str, value: Callable[[], object]) -> C_co:
        """Note the fact, once `value` has been found to make sense."""
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in NOT_YET:
                raise not_yet(f"{name}").located(task=None, source=place())
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- when: one of these nine

    def every(
        self,
        period: timedelta | None = None,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        offset: timedelta | None = None,
        anchor: datetime | None = None,
    ) -> C_co:
        """At a steady pace of one second or more, the same instants on every server.

        They are aligned to the wall clock in the zone of the task: every six hours is at 00:00, 06:00,
        12:00 and 18:00, and `offset` moves that. With `anchor` they are counted from that instant, by
        elapsed time alone; never from the start of a process.
        """
        return self._state(
            "timing",
            "every",
            lambda: timing.every(
                words.duration(
                    period, "period", weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds
                ),
                offset,
                anchor,
            ),
        )

    def hourly(self, *, at: int | Iterable[int] = 0) -> C_co:
        """Every hour, at these minutes past it."""
        return self._state("timing", "hourly", lambda: timing.hourly(at))

    def daily(self, *, at: str | Iterable[str] = "00:00") -> C_co:
        """Every day at these times, "HH:MM" in the zone of the task.

        Where the clocks skip a time it runs right after the gap; where they repeat it, the first time.
        """
        return self._state("timing", "daily", lambda: timing.daily(at))

    def weekly(self, *, on: str | Iterable[str] = "sunday", at: str | Iterable[str] = "00:00") -> C_co:
        """Every week on these days; like @weekly on Sunday unless told otherwise."""
        return self._state("timing", "weekly", lambda: timing.weekly(on, at))

    def monthly(self, *, on: int | str | Iterable[int | str] = 1, at: str | Iterable[str] = "00:00") -> C_co:
        """Every month on these days: 15, "last", "last weekday", "first monday", "last friday".

        A month without the day is left out, so `on=31` has seven runs a year and `on="last"` twelve.
        """
        return self._state("timing", "monthly", lambda: timing.monthly(on, at))

    def quarterly(
        self, *, on: int | str | Iterable[int | str] = 1, at: str | Iterable[str] = "00:00"
    ) -> C_co:
        """In January, April, July and October, on days as `monthly` takes them."""
        return self._state("timing", "quarterly", lambda: timing.quarterly(on, at))

    def yearly(self, *, on: str | tuple[int, int] = "01-01", at: str | Iterable[str] = "00:00") -> C_co:
        """Every year on this day: "12-24", or (12, 24)."""
        return self._state("timing", "yearly", lambda: timing.yearly(on, at))

    def cron(self, *lines: str) -> C_co:
        """When any of these cron lines says so; one instant that several name is one run."""
        return self._state("timing", "cron", lambda: timing.cron(lines))

    def once(self, *, at: Moment | Iterable[Moment]) -> C_co:
        """At these instants and never again. Those that had passed before the task was first seen
        are not run."""
        return self._state("timing", "once", lambda: timing.once(at))

    # -- within what

    def on_days(self, *days: str) -> C_co:
        """Only on these days of the week in the zone of the task."""
        return self._state("days", "on_days", lambda: words.weekdays(days, "days"))

    def weekdays(self) -> C_co:
        """Only from Monday to Friday."""
        return self._state("days", "weekdays", lambda: words.WORKDAYS)

    def weekends(self) -> C_co:
        """Only on Saturday and Sunday."""
        return self._state("days", "weekends", lambda: words.WEEKEND)

    def between(self, start: str, end: str) -> C_co:
        """Only from the minute `start` to the minute `end`, both included.

        An `end` that is earlier than `start` is on the next day. Of several windows all must be open.
        """
        return self._state("windows", "between", lambda: policies.window(start, end, inside=True))

    def except_between(self, start: str, end: str) -> C_co:
        """Never from the minute `start` to the minute `end`, both included; read like `between`."""
        return self._state("windows", "except_between", lambda: policies.window(start, end, inside=False))

    def starting(self, moment: date | Moment) -> C_co:
        """Not before this instant; of a date, its first in the zone of the task."""
        return self._state("starting", "starting", lambda: words.moment(moment, "starting", days=True))

    def until(self, moment: date | Moment) -> C_co:
        """Not after this instant; of a date, its last in the zone of the task."""
        return self._state("until", "until", lambda: words.moment(moment, "until", days=True))

    def when(self, condition: Callable[[], object] | object) -> C_co:
        """Only if this is true. A function is asked by the one server that won the occurrence, just
        before the run; an occurrence refused by it is recorded as skipped(filtered)."""
        return self._state("filters", "when", lambda: work.condition("when", condition, wanted=True))

    def skip(self, condition: Callable[[], object] | object) -> C_co:
        """Only if this is not true; asked like `when`."""
        return self._state("filters", "skip", lambda: work.condition("skip", condition, wanted=False))

    def environments(self, *names: str) -> C_co:
        """Only in these environments; elsewhere the task does not exist."""
        return self._state(
            "environments",
            "environments",
            lambda: frozenset(words.label(name, "environments") for name in names or ("",)),
        )

    # -- under which policies

    def on_one_server(self) -> C_co:
        """Each occurrence on one server, which is so unless told otherwise; stated, it also demands a
        store that all servers share."""
        return self._state("servers", "on_one_server", lambda: Servers.ONE)

    def on_every_server(self) -> C_co:
        """Each occurrence once on every server, for what belongs to the machine, such as tidying its disk."""
        return self._state("servers", "on_every_server", lambda: Servers.EVERY)

    def without_overlapping(self, key: str | None = None) -> C_co:
        """Skip an occurrence while an earlier run goes on, on any server.

        Tasks with one `key` keep each other out as well.
        """
        return self._state(
            "overlap",
            "without_overlapping",
            lambda: policies.overlap("skip", 1, key, None),
        )

    def overlap(
        self,
        kind: Literal["allow", "skip", "queue_one"],
        *,
        limit: int = 1,
        key: str | None = None,
        wait: timedelta | None = None,
    ) -> C_co:
        """What happens when an occurrence is due while an earlier run goes on.

        "allow" starts it all the same; "skip" leaves it out; "queue_one" starts the newest that
        waited, if its turn comes within `wait` (an hour). Up to `limit` runs may go on at once, of
        all tasks with the same `key` together.
        """
        return self._state("overlap", "overlap", lambda: policies.overlap(kind, limit, key, wait))

    def lease(self, length: timedelta | None = None, *, minutes: float = 0, seconds: float = 0) -> C_co:
        """How long a server that dies in a run keeps the key: 10 seconds to 5 minutes, 60 seconds
        unless told otherwise. A living server renews it, however long the run takes."""
        return self._state("lease", "lease", lambda: policies.lease(length, minutes, seconds))

    def retry_when_lost(self, times: int = 1, *, within: timedelta = timedelta(hours=1)) -> C_co:
        """Up to `times` further attempts, begun within this time after the due instant, for a run
        that was lost with its server. The work may then happen twice: it must bear that."""
        return self._state(
            "crash",
            "retry_when_lost",
            lambda: policies.crash(times, within),
        )

    def catch_up(
        self,
        kind: Literal["none", "latest", "all"],
        *,
        within: timedelta | None = None,
        most: int | None = None,
    ) -> C_co:
        """What is started after a time when no server could: nothing, the latest occurrence, or up to
        `most` of them, each only within this time after its due instant."""
        return self._state("catch_up", "catch_up", lambda: policies.catch_up(kind, within, most))

    def grace(
        self,
        length: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> C_co:
        """How late the newest occurrence may be started still; two minutes unless told otherwise."""
        return self._state(
            "grace",
            "grace",
            lambda: words.duration(
                length, "length", days=days, hours=hours, minutes=minutes, seconds=seconds
            ),
        )

    def time_limit(
        self,
        length: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> C_co:
        """How long a run may take before it is stopped and ends as timed_out; for ever unless told otherwise.

        A command is killed with its process group, a coroutine cancelled; a function is told, as
        Python has no way to stop one.
        """
        return self._state(
            "time_limit",
            "time_limit",
            lambda: words.duration(
                length, "length", days=days, hours=hours, minutes=minutes, seconds=seconds
            ),
        )

    def output_to(self, target: str) -> C_co:
        """Where the output of a run goes besides its record: it is added to a file, or "-" for our own
        standard output."""
        return self._state("output", "output_to", lambda: policies.output(target))
