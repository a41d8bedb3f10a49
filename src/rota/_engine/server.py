"""A server: one running process that holds a schedule, with everything a runner stands on.

    with Server(schedule) as server:
        server.runner.run()

What is set up here is taken down in the fixed order: runs end, outcomes are settled, leases are
released, the heartbeat stops, the store is closed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from rota._core.due import FORESIGHT, next_due, worth_asking
from rota._core.errors import StoreError
from rota._engine import memo, places, state
from rota._engine.clock import Clock

if TYPE_CHECKING:
    from types import TracebackType

    from rota._core.rows import Row
    from rota._core.schedule import Schedule
    from rota._core.task import Task
    from rota._engine.events import Listener
    from rota._engine.presence import Me
    from rota.stores.base import Store

HISTORY: Final = timedelta(days=30)
"""How long final rows are kept at least; what is still needed for deciding is kept longer."""

KNOWN_FOR: Final = 30.0
"""Seconds after a look for which it is taken to be known whether runs are going on."""

MOST_ROWS: Final = 10_000
"""How many final rows of one task are kept at most, on the same condition."""

PRUNE_EVERY: Final = timedelta(hours=1)


def environment() -> str:
    """The environment of this server: ROTA_ENV, else production."""
    return os.environ.get("ROTA_ENV") or "production"


def server_name() -> str:
    """Who this server is, for people and for tasks of every server: ROTA_SERVER, else the host name."""
    return os.environ.get("ROTA_SERVER") or os.uname().nodename


def namespace_of(schedule: Schedule) -> str:
    """Application and environment, so that staging and production may share a store."""
    return f"{schedule.name}/{environment()}"


def store_url(schedule: Schedule) -> str:
    """The store of a schedule: its own argument, else ROTA_STORE, else SQLite in this user's state folder.

    Where the argument is an open store it is what that says of itself, where it is a client the name of its
    class: neither is a URL.
    """
    given = schedule.store
    if isinstance(given, str):
        return given
    if given is not None:
        said = repr(given) if hasattr(given, "claim") else ""
        return (
            said if said and " at 0x" not in said else f"{type(given).__module__}.{type(given).__qualname__}"
        )
    return os.environ.get("ROTA_STORE") or _default_url(schedule)


def _default_url(schedule: Schedule) -> str:
    return f"sqlite:///{os.path.join(places.folder(), places.safe(schedule.name))}.sqlite3"


def concerns(store: Store) -> tuple[str, ...]:
    """What a careful operator would want to know of this store, where its driver can tell."""
    tell = getattr(store, "concerns", None)
    return () if tell is None else tuple(tell())


class Server:
    """Everything one process needs to take part. Opening it opens the store; use it as a context manager."""

    def __init__(self, schedule: Schedule, *listeners: Listener, most: int = 64) -> None:
        """At most `most` runs go on at once in this process."""
        self.schedule = schedule
        self.name, self.environment = server_name(), environment()
        self.namespace, self.url = namespace_of(schedule), store_url(schedule)
        self._file = state.file_for(self.namespace, self.url)
        self._state = state.load(self._file)
        self.clock = Clock(self._state.offset if self._state else None)
        self._listeners, self._most = listeners, most
        self.tasks = tuple(task.on(self.name) for task in schedule.tasks if task.runs_in(self.environment))

    def is_anything_due(self) -> bool:
        """Whether a one-shot tick must open the store, judged without it."""
        fresh = self._state is not None and self._state.is_fresh(self.clock.wall())
        return not fresh or worth_asking(self.tasks, self.clock.estimate())

    def leave_note(self, said: str) -> None:
        """Note that nothing is due, so that the next ticks say the same without reading the schedule."""
        memo.leave(memo.path(), said, self.clock.wall().timestamp(), self._quiet_until(), self._file)

    def _quiet_until(self) -> float:
        """Until when nothing can be due if nothing is now: seconds since the epoch by the host's clock."""
        until = (
            self.clock.wall() + state.TRUSTED_FOR
            if self._state is None
            else self._state.at + state.TRUSTED_FOR
        )
        due = next_due(self.tasks, self.clock.estimate())
        return (until if due is None else min(until, due - FORESIGHT - self.clock.offset)).timestamp()

    def run(self) -> bool:
        """`Runner.run`, after which the next one-shot tick knows what this one learnt.

        Until then, and if this process is killed, there is no state, so the next tick asks the store.
        """
        state.forget(self._file)
        return self.runner.run(ticked=self._sign_in)

    def sign_in(self, *, ticked: datetime | None) -> None:
        """Show on the store that this server takes part, and when it last ticked."""
        from rota._engine import presence

        self.runner.ask.acquire([presence.sign_in(self.me(), ticked)])

    def _sign_in(self) -> None:
        self.sign_in(ticked=self.clock.estimate())

    def me(self) -> Me:
        """What this server says of itself when it signs in."""
        from rota._engine import presence

        schedule = self.schedule
        return presence.Me(
            self.name,
            presence.identity(),
            schedule.timezone,
            presence.fingerprint(schedule.tasks),
            len(schedule.tasks),
        )

    def call(self, task: Task) -> Row | None:
        """`Runner.call`, with the same care."""
        state.forget(self._file)
        return self.runner.call(task)

    def __enter__(self) -> Server:
        # Most one-shot ticks find nothing due and never come here, so the engine is loaded here.
        import threading

        from rota._engine.events import Events
        from rota._engine.executor import Executor
        from rota._engine.heartbeat import Heartbeat
        from rota._engine.runner import Runner

        self.store = self._open()
        self.events = Events(*self._listeners)
        self.executor = Executor(self.clock, most=self._most)
        self.heartbeat = Heartbeat(self.store, self.clock, told=self._tell_trouble)
        self._thread = threading.Thread(target=self.heartbeat.run, name="rota-heartbeat", daemon=True)
        self._thread.start()
        self.runner = Runner(
            self.schedule.tasks,
            self.store,
            server=self.name,
            environment=self.environment,
            clock=self.clock,
            executor=self.executor,
            heartbeat=self.heartbeat,
            events=self.events,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.runner.carrier.finish()
        self.heartbeat.stop()
        self._thread.join()
        self.executor.close()
        try:
            if self.clock.knows_the_store:
                self._remember()
        except StoreError as error:
            self._tell_trouble("prune", error)
        finally:
            self.store.close()

    def _tell_trouble(self, call: str, error: StoreError) -> None:
        from rota._engine.events import StoreTrouble

        self.events.tell(StoreTrouble(call, str(error)))

    def _open(self) -> Store:
        from rota.stores import open_store

        given = self.schedule.store
        if given is None and self.url == _default_url(self.schedule):
            with suppress(OSError):  # the store says what is wrong with its folder
                os.makedirs(places.folder(), mode=0o700, exist_ok=True)
        return open_store(self.url if given is None else given, namespace=self.namespace)

    def _remember(self) -> None:
        """Leave the offset for the next one-shot tick; now and then prune, and look after the store.

        Where some run was going on when the store was last looked at, or that was a while ago, nothing is
        left: the next tick asks again, so a killed run is found as soon as its lease has lapsed.
        """
        from rota._engine.events import StoreConcern

        now = self.clock.wall()
        pruned_at = self._state.pruned_at if self._state else None
        if pruned_at is None or not timedelta(0) <= now - pruned_at < PRUNE_EVERY:
            self.store.prune(self.clock.estimate() - HISTORY, most=MOST_ROWS)
            for words in concerns(self.store):
                self.events.tell(StoreConcern(words))
            pruned_at = now
        if not self.runner.saw_open_rows and self.clock.boot() - self.runner.looked_at < KNOWN_FOR:
            state.save(self._file, state.State(now, self.clock.offset, pruned_at))
