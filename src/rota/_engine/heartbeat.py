"""The heartbeat: renews every held lease in one call, and knows when trust in one has ended.

It has a thread of its own, so that a task which blocks its thread, or the coroutine loop, starves
no lease. A renewal is tried every quarter lease, so three may fail before trust ends. A renewal
that is refused ends trust at once; one that gets no answer changes nothing, and trust runs out by
the boot-time clock. Whoever holds a lease asks `Held.is_lost`; it is exact even while a renewal
hangs, because it compares with the clock and waits for nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from rota._core.errors import StoreError
from rota._core.leases import Lease, Trust, renew_every
from rota._engine.clock import Clock
from rota.stores.base import Store


class Held:
    """A lease that this process holds, and our trust in it."""

    def __init__(self, lease: Lease, ttl: timedelta, trust: Trust, clock: Clock) -> None:
        self.lease, self.ttl, self.trust = lease, ttl, trust
        self.renew_at = 0.0
        self._clock = clock
        self._lost = False

    @property
    def is_lost(self) -> bool:
        """Whether trust has ended. It never returns."""
        if not self._lost and not self.trust.holds_at(self._clock.boot()):
            self._lost = True
        return self._lost

    @property
    def seconds_left(self) -> float:
        """Until trust ends, if no renewal succeeds."""
        return 0.0 if self.is_lost else self.trust.ends - self._clock.boot()

    def lose(self) -> None:
        self._lost = True


class Heartbeat:
    """Renews the leases of one store until they are dropped. Safe to use from any thread."""

    def __init__(self, store: Store, clock: Clock, *, told: Callable[[str, StoreError], None]) -> None:
        """`told` hears of each renewal that got no answer."""
        self._store, self._clock, self._told = store, clock, told
        self._grain = store.guarantees.grain
        self._held: dict[str, Held] = {}
        self._lock = threading.Lock()
        self._changed = clock.signal()
        self._stopping = False

    def hold(self, lease: Lease, ttl: timedelta, *, sent: float) -> Held:
        """Renew this lease from now on. Trust counts from `sent`, when it was asked for."""
        held = Held(lease, ttl, Trust.granted(sent, ttl, self._grain), self._clock)
        held.renew_at = sent + renew_every(ttl).total_seconds()
        with self._lock:
            self._held[lease.token] = held
        self._changed.set()
        return held

    def drop(self, held: Held) -> None:
        """Renew it no more: it is about to be released, or is no longer ours."""
        with self._lock:
            self._held.pop(held.lease.token, None)

    def beat(self) -> None:
        """Renew every lease that is held, in one call for each length there is."""
        with self._lock:
            lengths: dict[timedelta, list[Held]] = {}
            for held in self._held.values():
                if not held.is_lost:
                    lengths.setdefault(held.ttl, []).append(held)
        for ttl, group in lengths.items():
            self._renew(ttl, group)

    def _renew(self, ttl: timedelta, group: list[Held]) -> None:
        sent = self._clock.boot()
        try:
            answer = self._store.renew([held.lease for held in group], ttl=ttl)
        except StoreError as error:
            for held in group:
                held.renew_at = self._clock.boot() + renew_every(ttl).total_seconds() / 4
            self._told("renew", error)
            return
        answered = self._clock.boot()
        self._clock.learn(answer.now, sent=sent, answered=answered)
        for held, item in zip(group, answer.items, strict=True):
            if isinstance(item, Lease):
                held.trust = held.trust.extended(sent, ttl, self._grain, answered=answered)
                held.renew_at = sent + renew_every(ttl).total_seconds()
            else:
                held.lose()

    def seconds_to_beat(self) -> float | None:
        """Until the next renewal is due; None while no lease is held."""
        with self._lock:
            due = [held.renew_at for held in self._held.values() if not held.is_lost]
        return min(due) - self._clock.boot() if due else None

    def run(self) -> None:
        """Beat until `stop`. This is the body of the heartbeat's thread."""
        while True:
            self._changed.clear()
            if self._stopping:
                return
            seconds = self.seconds_to_beat()
            if seconds is not None and seconds <= 0:
                self.beat()
            else:
                self._clock.wait(self._changed, seconds)

    def stop(self) -> None:
        """End the thread. Only after every run has ended and every lease is released."""
        self._stopping = True
        self._changed.set()
