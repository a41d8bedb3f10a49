"""Virtual time: greenlets in the place of threads, one event queue in the place of every clock.

A fiber is a thread of a virtual server. It gives way only where the engine would block: in a store
call, a wait or a sleep. A fiber of a killed server is never resumed, so none of its `finally` blocks
runs while the world goes on; `Hub.drop` unwinds what is left once the world is over.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Final

from greenlet import getcurrent, greenlet

from rota._engine.clock import Clock

BASE: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The instant 0 of every world. All that is due is due a whole number of periods after it."""


OVERSLEPT: Final = 1e-6
"""Every wait ends a little late, so that rounding lets nobody wait for ever without getting on."""


class Host:
    """A machine: how its clocks go wrong, and whether it is frozen, killed or well.

    Its `life` is over at each kill; fibers and requests carry the life they belong to.
    """

    def __init__(self, index: int, *, error: float, rate: float, started: float) -> None:
        self.index, self.error, self.rate = index, error, rate
        self.started = started
        self.life, self.alive, self.frozen = 0, True, 0.0

    def __str__(self) -> str:
        return f"s{self.index}"


class Fiber(greenlet):
    """A thread of a host. A wake-up counts only with the ticket that the fiber has while it waits."""

    def __init__(self, body: Callable[[], None], host: Host) -> None:
        super().__init__(body)
        self.host, self.life, self.ticket = host, host.life, 0


class Hub:
    """The event queue. Everything happens at `time`, in seconds since the beginning of the world."""

    def __init__(self, rng: random.Random) -> None:
        self.time = 0.0
        self.over = False
        self._random = rng.random
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._fibers: set[Fiber] = set()
        self._switch = getcurrent().switch

    def at(self, time: float, call: Callable[..., None], *arguments: object) -> None:
        self._count += 1
        heappush(self._queue, (time, self._count, call, arguments))

    def run(self, until: Callable[[], float]) -> None:
        queue = self._queue
        while queue and queue[0][0] <= until():
            self.time, _, call, arguments = heappop(queue)
            call(*arguments)

    def spawn(self, host: Host, body: Callable[[], None], delay: float = 0.0) -> None:
        """Call `body` in a new fiber of this life of the host."""
        self.at(self.time + delay, self._begin, host, host.life, body)

    def _begin(self, host: Host, life: int, body: Callable[[], None]) -> None:
        if life != host.life:
            return
        if host.frozen > self.time:
            self.at(self._thaw(host), self._begin, host, life, body)
            return
        fiber = Fiber(body, host)
        self._fibers.add(fiber)
        fiber.switch()
        if fiber.dead:
            self._fibers.discard(fiber)

    def wake(self, fiber: Fiber, ticket: int, value: object = None) -> None:
        """Resume a fiber that waits with this ticket, once its host is not frozen."""
        host = fiber.host
        if fiber.ticket != ticket or fiber.life != host.life:
            return
        if host.frozen > self.time:
            self.at(self._thaw(host), self.wake, fiber, ticket, value)
            return
        fiber.ticket = ticket + 1
        fiber.switch(value)
        if fiber.dead:
            self._fibers.discard(fiber)

    def pause(self) -> Any:
        """Called in a fiber: give way until it is woken, and answer what it was woken with."""
        return self._switch()

    def sleep(self, seconds: float) -> None:
        fiber = getcurrent()
        self.at(self.time + seconds, self.wake, fiber, fiber.ticket)
        self._switch()

    def drop(self) -> None:
        """Unwind what still waits, after the end of the world."""
        self.over = True
        for fiber in list(self._fibers):
            fiber.throw()
        self._fibers.clear()
        self._queue.clear()

    def _thaw(self, host: Host) -> float:
        """After a freeze everything goes on at almost the same time, in any order."""
        return host.frozen + self._random() * 0.01


class SimSignal:
    """What threading.Event is to the engine."""

    __slots__ = ("_hub", "_set", "_waiters")

    def __init__(self, hub: Hub) -> None:
        self._hub, self._set = hub, False
        self._waiters: list[tuple[Fiber, int]] = []

    def set(self) -> None:
        self._set = True
        if self._waiters and not self._hub.over:
            for fiber, ticket in self._waiters:
                self._hub.at(self._hub.time, self._hub.wake, fiber, ticket)
            self._waiters.clear()

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def await_in(self, fiber: Fiber) -> None:
        self._waiters = [waiter for waiter in self._waiters if waiter[0].ticket == waiter[1]]
        self._waiters.append((fiber, fiber.ticket))


class SimClock(Clock):
    """The clock of one process of a host. The offset and the estimate are the engine's own."""

    def __init__(self, hub: Hub, host: Host, offset: timedelta | None = None) -> None:
        super().__init__(offset)
        self._hub, self._host = hub, host
        self._rate, self._error = host.rate, host.error

    def wall(self) -> datetime:
        return BASE + timedelta(seconds=self._hub.time + self._error)

    def boot(self) -> float:
        return self._hub.time * self._rate

    def signal(self) -> SimSignal:
        return SimSignal(self._hub)

    def wait(self, signal: Any, seconds: float | None) -> bool:
        if not signal.is_set():
            hub, fiber = self._hub, getcurrent()
            signal.await_in(fiber)
            if seconds is not None:
                hub.at(hub.time + max(0.0, seconds) / self._rate + OVERSLEPT, hub.wake, fiber, fiber.ticket)
            hub.pause()
        return bool(signal.is_set())

    def sleep(self, seconds: float) -> None:
        self._hub.sleep(max(0.0, seconds) / self._rate + OVERSLEPT)
