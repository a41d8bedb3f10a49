"""Seeded worlds: the real planner, runner, carrier, heartbeat and memory store under many virtual servers.

Modelled: two to four servers, `rota work` and `rota run`, with one to three tasks under any overlap,
catch-up and crash policy, and pauses set meanwhile. For 330 s an adversary freezes servers before a
request is sent or before its reply arrives, kills and restarts them, loses requests or delivers them
minutes late, loses replies after the store obeyed, splits a look in two, and makes host clocks and
boot clocks wrong; by scenario it also mixes two versions of the schedule, steps the store's clock,
flushes the store or restarts it with its last writes gone. Then comes calm weather, and the
invariants are judged. The same seed and scenario always give the same world.

Not modelled: threads (a fiber gives way in store calls, waits and sleeps only, so the last look at
trust and the first instruction of the body are one step), stores that are not atomic within a call,
replicas, clocks that step back beyond the allowance or together with a flush, filters, daylight
saving, different periods in one schedule, time limits, fences, runs by hand, on_every_server,
cancel_previous (not in the engine yet: Witness and draw_tasks have a place for it), and the loop of
`rota work`, which stands here until the engine has one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from greenlet import getcurrent

from rota._core.due import next_due, worth_asking
from rota._core.errors import StoreUnavailable
from rota._core.leases import Lease, Request
from rota._core.rows import Answer, Claim, End, Look, Refusal, Row, RowQuery, View, pause_key
from rota._core.runs import Outcome, Result
from rota._core.task import (
    CatchUp,
    CatchUpKind,
    Crash,
    CrashKind,
    Filter,
    Function,
    LeasePolicy,
    Overlap,
    OverlapKind,
    Task,
)
from rota._core.triggers import Every
from rota._engine.asking import Asking
from rota._engine.events import Event, Events
from rota._engine.heartbeat import Heartbeat
from rota._engine.run import Run
from rota._engine.runner import Runner
from rota.stores.base import Guarantees
from rota.stores.memory import MemoryStore
from tests.simulation.hub import BASE, Fiber, Host, Hub, SimClock
from tests.simulation.invariants import Violation, Witness, key_of

PERIOD, LEASE, LONG_LEASE = 60.0, 20.0, 40.0
GRACE, SHORT_GRACE, WINDOW, WITHIN, STEP_BACK = 120.0, 30.0, 400.0, 300.0, 120.0
CHAOS, TIME_LIMIT, PRUNE_EVERY, SLOW, SLOWNESS = 330.0, 5.0, 5.0, 0.03, 20.0
FREEZES, LATE, DOWN = (5, 15, 25, 45, 70, 130, 200, 450), (4, 12, 40, 150), (1, 10, 60, 200)
LENGTHS, STEPS, UNSAVED = (1, 5, 30, 70, 150, 200), (20.0, 60.0, 119.0), (0.0, 0.5, 5.0, 60.0)
SCENARIOS: Final = ("base", "mix", "back", "forward", "flush", "restart", "storm", "short")

UNKNOWN: Final = object()
"""What a call is answered with when nothing is known."""


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def work() -> None:
    """What the tasks would call."""


class Line:
    """The store as one server reaches it: a call is a request and a reply, with the adversary between."""

    def __init__(self, world: World, host: Host) -> None:
        self._world, self._host = world, host
        self.guarantees: Guarantees = world.store.guarantees

    def _ask(self, call: str, *arguments: object, **named: object) -> Any:
        world, host, fiber = self._world, self._host, getcurrent()
        world.sends(host, fiber, (call, arguments, named))
        answer = world.hub.pause()
        if answer is UNKNOWN:
            raise StoreUnavailable(f"{call}: no answer within {TIME_LIMIT:g} s")
        return answer

    def look(self, question: Look) -> View:
        view: View = self._ask("look", question)
        return view

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        answer: Answer[Row | Refusal] = self._ask("claim", claims)
        return answer

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        answer: Answer[Row | None] = self._ask("settle", ends)
        self._world.witness.told_settle(ends, answer)
        return answer

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        answer: Answer[Lease | Refusal] = self._ask("acquire", requests)
        return answer

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        answer: Answer[Lease | Refusal] = self._ask("renew", leases, ttl=ttl)
        return answer

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        answer: Answer[bool] = self._ask("release", leases)
        return answer

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        answer: Answer[datetime] = self._ask("advance", marks, first=first)
        return answer

    def rows(self, query: RowQuery) -> Answer[Row]:
        answer: Answer[Row] = self._ask("rows", query)
        return answer

    def prune(self, before: datetime) -> int:
        raise NotImplementedError("the world prunes")

    def close(self) -> None:
        """Nothing is held open."""


class SimExecutor:
    """Bodies that do nothing for a drawn length of time, unless they are lost or stopped."""

    def __init__(self, world: World, host: Host, clock: SimClock) -> None:
        self._world, self._host, self._clock = world, host, clock

    def free(self) -> int:
        return 64

    def spawn(self, body: Callable[[], None]) -> None:
        world = self._world
        world.hub.spawn(self._host, body, world.random.choice((0.0, 0.01, 1.0)))

    def execute(self, run: Run) -> Result:
        world, clock = self._world, self._clock
        body = world.witness.starts_body(run, self._host, clock)
        if world.trace:
            world.say(self._host, "STARTS", body, f"trust until {run.held.trust.ends / self._host.rate:.2f}")
        until = clock.boot() + world.random.choice(LENGTHS)
        slice_ = run.task.lease.length.total_seconds() / 4
        while not run.lost and (left := until - clock.boot()) > 0:
            run.lost.wait(min(left, slice_))
        stopped = run.stopped_by is not None
        outcome = Outcome.CANCELLED if stopped else Outcome.LOST if run.lost else Outcome.SUCCEEDED
        world.witness.ends_body(body)
        if world.trace:
            world.say(self._host, "ENDS", body, outcome)
        return Result(outcome)

    def judge(self, task: Task) -> Filter | Exception | None:
        return None


class Process:
    """One process on a host: a runner and all that it stands on."""

    def __init__(self, world: World, host: Host, offset: timedelta | None) -> None:
        self.tasks = world.schedules[world.version_of[host.index]]
        self.clock = SimClock(world.hub, host, offset)
        line, events = Line(world, host), Events(world.hears)
        asking = Asking(line, self.clock, events)
        self.heartbeat = Heartbeat(line, self.clock, told=asking.tell_trouble)
        self.runner = Runner(
            self.tasks,
            line,
            server=str(host),
            environment=None,
            clock=self.clock,
            executor=SimExecutor(world, host, self.clock),
            heartbeat=self.heartbeat,
            events=events,
            token=world.token,
        )
        world.hub.spawn(host, self.heartbeat.run)


class World:
    """One seeded history."""

    period = PERIOD

    def __init__(
        self,
        seed: int,
        scenario: str = "base",
        *,
        intensity: float | None = None,
        long_lease: float = LONG_LEASE,
        slowness: float = SLOWNESS,
        trace: bool = False,
    ) -> None:
        """A world is tuned by how much trouble there is (drawn from 0.3 to 2 by default), how long the
        leases of the new schedule are, and how much slower than the others a slow request is.
        """
        assert scenario in SCENARIOS
        rng = self.random = random.Random(f"{scenario} {seed}")
        self.seed, self.scenario, self.trace = seed, scenario, trace
        self.long_lease, self.slowness = long_lease, slowness
        self.fair, self.mixed = scenario == "short", scenario in ("mix", "storm")
        kind = rng.choice(("flush", "restart", "back")) if scenario == "storm" else scenario
        self.chaos = 0.0 if self.fair else CHAOS
        self.calm = 2 * PERIOD if self.fair else self.chaos + max(LATE) + 2 * self.long_lease + 2 * PERIOD
        self.end = self.chaos + WINDOW + (600.0 if self.fair else 200.0)
        self.lasts = rng.random() < 0.1
        drawn = rng.choice((0.3, 1, 1, 2))
        self.intensity = drawn if intensity is None else intensity
        self.step = 0.0
        self.calls = self.looks = self._tokens = 0
        self._pruned_at = 0.0
        self.hub = Hub(rng)
        self.schedules = self._draw_schedules()
        self.store = self._open_store(volatile=kind in ("flush", "restart"))
        self.witness = Witness(self)
        self.hosts: list[Host] = []
        self.version_of: list[int] = []
        self._one_shot: list[bool] = []
        self._offsets: list[timedelta | None] = []
        for index in range(rng.randint(2, 4)):
            self._set_up(index)
        self._draw_weather(kind)

    def play(self) -> list[Violation]:
        """Let it happen, and say what went wrong."""
        try:
            self.hub.run(lambda: self.end)
            self.witness.check()
        finally:
            self.hub.drop()
        return self.witness.violations

    # -- what is drawn at the beginning

    def _draw_schedules(self) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
        """The old version of the schedule and the new one; only the scenarios that mix use the second."""
        names = "abc"[: self.random.choice((1, 1, 2, 3))]
        both = [self._draw_task(name) for name in names]
        return tuple(old for old, _ in both), tuple(new for _, new in both)

    def _draw_task(self, name: str) -> tuple[Task, Task]:
        rng = self.random
        overlap = rng.choice(("allow", "skip", "queue_one", "limit"))
        catch_up = "none" if self.mixed else rng.choice(("none", "none", "latest", "all"))
        if (overlap, catch_up) == ("queue_one", "all"):
            catch_up = "none"
        attempts = rng.choice((1, 1, 3))

        def version(catch_up: str, lease: float) -> Task:
            kind = OverlapKind.SKIP if overlap == "limit" else OverlapKind(overlap)
            return Task(
                name=name,
                work=Function(work),
                trigger=Every(seconds(PERIOD), anchor=BASE),
                overlap=Overlap(kind, limit=2 if overlap == "limit" else 1, wait=seconds(WINDOW)),
                lease=LeasePolicy(seconds(lease)),
                crash=Crash(CrashKind.RETRY, attempts - 1, seconds(WITHIN)) if attempts > 1 else Crash(),
                catch_up=CatchUp(CatchUpKind(catch_up), seconds(WINDOW), 100)
                if catch_up != "none"
                else CatchUp(),
                grace=seconds(SHORT_GRACE if self.fair else GRACE),
            )

        return version(catch_up, LEASE), version("latest", self.long_lease)

    def _open_store(self, *, volatile: bool) -> MemoryStore:
        """The store; a volatile one has mostly been there for long, and sometimes begins with the world."""
        store = MemoryStore(
            clock=self.store_now,
            volatile=volatile,
            longest_lease=seconds(self.long_lease if self.mixed else LEASE),
            allowance=seconds(STEP_BACK),
        )
        if volatile and self.random.random() < 0.8:
            self.step = -1e6
            store.look(Look({}, BASE))
            self.step = 0.0
        return store

    def _set_up(self, index: int) -> None:
        rng = self.random
        wrong = rng.choice((0.0, 0.0, 0.03, -0.03, rng.uniform(-100, 100), 3600.0, -3600.0))
        host = Host(
            index,
            error=0.0 if self.fair else wrong,
            rate=1.0 + rng.uniform(-0.002, 0.002),
            started=rng.uniform(0, 30),
        )
        self.hosts.append(host)
        self._one_shot.append(rng.random() < 0.3)
        self.version_of.append(rng.randrange(2) if self.mixed else 0)
        self._offsets.append(None)
        self.hub.at(host.started, self._boot, host)

    def _draw_weather(self, kind: str) -> None:
        rng, hub = self.random, self.hub
        at = rng.uniform(50, self.chaos)
        if kind in ("back", "forward"):
            hub.at(at, self._step_store_clock, rng.choice(STEPS) * (-1 if kind == "back" else 1))
        elif kind == "flush":
            hub.at(at, self._flush)
        elif kind == "restart":
            hub.at(max(1.0, at - rng.choice(UNSAVED)), self._save, at)
        for task in self.schedules[0]:
            if rng.random() < 0.15:
                hub.at(rng.uniform(30, 300), self._pause, task.name, rng.uniform(20, 150))
        if not self.fair:
            hub.at(self.chaos, self._end_chaos)

    # -- time, as the invariants need it

    def store_now(self) -> datetime:
        return BASE + timedelta(seconds=self.hub.time + self.step)

    def due_after(self, instant: float) -> float:
        return (instant // PERIOD + 1) * PERIOD

    def judged_until(self, now: float) -> float:
        """Occurrences due by then have had time for every window."""
        return now - WINDOW - self.long_lease - 2 * PERIOD

    def shortest_look_back(self, task: str) -> float:
        both = [each for schedule in self.schedules for each in schedule if each.name == task]
        used = both if self.mixed else both[:1]
        return min(each.look_back.total_seconds() for each in used)

    @property
    def most_keys(self) -> float:
        return len(self.schedules[0]) * (2 * (WINDOW + WITHIN + STEP_BACK) / PERIOD + 12)

    @property
    def somebody_lives_since(self) -> float:
        """Since when at least one server has been up, neither frozen nor cut off."""
        return max(
            self.chaos, min(max(host.started, host.frozen) if host.alive else 1e9 for host in self.hosts)
        )

    def token(self) -> str:
        self._tokens += 1
        return f"t{self._tokens}"

    def say(self, *words: object) -> None:
        print(f"{self.hub.time:8.2f}", *words)

    def hears(self, event: Event) -> None:
        if self.trace:
            self.say("    ", event)
        self.witness.hears(event)

    # -- the servers

    def _boot(self, host: Host) -> None:
        if self._one_shot[host.index]:
            self.hub.spawn(host, lambda: self._cron(host))
        else:
            self.hub.spawn(host, lambda: self._work(Process(self, host, None)))

    def _work(self, process: Process) -> None:
        """The loop of `rota work`: tick, then sleep to the first instant after the one planned up to."""
        runner, clock, tasks = process.runner, process.clock, process.tasks
        changed = runner.carrier.changed
        waiting = any(task.may_wait() or task.attempts > 1 for task in tasks)
        longest = PERIOD / 2 if waiting else PERIOD
        while True:
            tick = runner.tick()
            estimate = clock.estimate()
            planned = estimate if tick.plan is None else max(tick.plan.upto, estimate - seconds(PERIOD))
            due = next_due(tasks, planned)
            assert due is not None
            until = clock.boot() + min(longest, max(0.02, (due - estimate).total_seconds()))
            while (left := until - clock.boot()) > 0:
                ended = clock.wait(changed, left)
                changed.clear()
                if ended and waiting:
                    break

    def _cron(self, host: Host) -> None:
        """Start `rota run` every minute by the host's clock."""
        while True:
            self.hub.spawn(host, lambda: self._run(host))
            self.hub.sleep(60.3 - (self.hub.time + host.error) % 60)

    def _run(self, host: Host) -> None:
        offset = self._offsets[host.index]
        process = Process(self, host, offset)
        if offset is None or worth_asking(process.tasks, process.clock.estimate()):
            process.runner.run()
        process.heartbeat.stop()
        if process.clock.knows_the_store:
            self._offsets[host.index] = process.clock.offset

    # -- the adversary

    def _trouble(self, likelihood: float) -> bool:
        return self.hub.time < self.chaos and self.random.random() < likelihood * self.intensity

    def _latency(self) -> float:
        return 0.005 + self.random.random() * 0.03

    def sends(self, host: Host, fiber: Fiber, wish: tuple[str, Any, Any]) -> None:
        """A fiber is about to wait for the answer to its wish."""
        hub = self.hub
        delay = self._latency()
        if delay > SLOW:  # a slow request and a quick reply: the server will think it later than it is
            delay += (delay - SLOW) * self.slowness
        if self._trouble(0.025):
            host.frozen = hub.time + self.random.choice(FREEZES)
            delay = host.frozen - hub.time + 0.001
            if self.trace:
                self.say(host, f"FROZEN before sending until {host.frozen:.2f}")
        if self._trouble(0.012):
            self._kill(host)
        else:
            hub.at(hub.time + delay, self._arrives, host, fiber, fiber.ticket, wish)

    def _arrives(self, host: Host, fiber: Fiber, ticket: int, wish: tuple[str, Any, Any]) -> None:
        hub, rng = self.hub, self.random
        if fiber.life != host.life and rng.random() < 0.5:
            return
        fate = rng.random() / self.intensity if hub.time < self.chaos else 1.0
        if fate < 0.03:
            if self.trace:
                self.say(host, wish[0], "request lost or late")
            hub.at(hub.time + TIME_LIMIT, hub.wake, fiber, ticket, UNKNOWN)
            if fate > 0.02 and wish[0] != "look":
                hub.at(hub.time + rng.choice(LATE), self._obeys, "late", wish)
        elif wish[0] == "look":
            half = self._obeys(host, wish)
            stormy = rng.random() * 60 if hub.time < self.chaos else 0.0
            gap = rng.choice((0.0, 0.0, rng.random() * 0.5, stormy))
            if gap:
                hub.at(hub.time + gap, self._second_half, host, fiber, ticket, wish, half, fate)
            else:
                self._replies(host, fiber, ticket, half, fate)
        else:
            self._replies(host, fiber, ticket, self._obeys(host, wish), fate)

    def _second_half(
        self, host: Host, fiber: Fiber, ticket: int, wish: tuple[str, Any, Any], half: View, fate: float
    ) -> None:
        self._replies(host, fiber, ticket, self.compose(half, self._obeys(host, wish)), fate)

    @staticmethod
    def compose(first: View, second: View) -> View:
        """A look in two steps: the rows are read first, and all else after it."""
        return View(second.now, second.marks, first.rows, second.leases, second.epoch, second.quiet_until)

    def _replies(self, host: Host, fiber: Fiber, ticket: int, answer: object, fate: float) -> None:
        hub = self.hub
        if fiber.life != host.life:
            return
        if fate < 0.055:
            if self.trace:
                self.say(host, "reply lost")
            hub.at(hub.time + TIME_LIMIT, hub.wake, fiber, ticket, UNKNOWN)
            return
        if self._trouble(0.025):
            host.frozen = max(host.frozen, hub.time + self.random.choice(FREEZES))
            if self.trace:
                self.say(host, f"FROZEN before the reply until {host.frozen:.2f}")
        if self._trouble(0.012):
            self._kill(host)
        else:
            hub.at(hub.time + self._latency(), hub.wake, fiber, ticket, answer)

    def _obeys(self, who: object, wish: tuple[str, Any, Any]) -> Any:
        """The store does what it is asked, whoever still waits for the answer."""
        call, arguments, named = wish
        if self.hub.time > self._pruned_at + PRUNE_EVERY:
            self._pruned_at = self.hub.time
            self.store.prune(self.store_now())
            self.witness.counts_keys()
        answer = getattr(self.store, call)(*arguments, **named)
        self.calls += 1
        if call == "look":
            self.looks += 1
        elif call == "settle":
            self.witness.saw_settle(answer)
        elif call == "advance":
            self.witness.saw_advance(arguments[0], answer)
        if self.trace:
            self.say(who, call, *arguments, named or "", "->", answer)
        return answer

    def _kill(self, host: Host) -> None:
        if self.trace:
            self.say(host, "KILLED")
        self.witness.kills(host)
        host.life, host.alive = host.life + 1, False
        self.hub.at(self.hub.time + self.random.choice(DOWN), self._comes_up, host)

    def _comes_up(self, host: Host) -> None:
        host.alive, host.frozen, host.started = True, 0.0, self.hub.time
        if self.mixed:
            self.version_of[host.index] = self.random.choice((0, 1, 1))
        if self.trace:
            self.say(host, "UP, version", self.version_of[host.index])
        self._boot(host)

    def _end_chaos(self) -> None:
        """Nothing goes wrong any more. Some worlds last until what is due from now on can be judged."""
        up = [host.frozen if host.alive else self.chaos + max(DOWN) for host in self.hosts]
        self.calm = max(self.calm, max(up) + 2 * PERIOD)
        if self.lasts:
            self.end = self.calm + abs(self.step) + WINDOW + self.long_lease + 5 * PERIOD

    def _step_store_clock(self, by: float) -> None:
        if self.trace:
            self.say("STORE CLOCK STEPS", by)
        self.step += by

    def _pause(self, task: str, length: float) -> None:
        self.store.acquire([Request(pause_key(task), self.token(), "an operator", seconds(length))])

    def _flush(self) -> None:
        if self.trace:
            self.say("STORE FLUSHED")
        self.store.flush()
        self.witness.forgets(set())

    def _save(self, until: float) -> None:
        """What is written now is there again after the restart; what is written until then is gone."""
        rows = self.store.rows(RowQuery(limit=1 << 30)).items
        kept = {key_of(row.occurrence, row.attempt) for row in rows if not row.is_open}
        self.hub.at(until, self._restart, self.store.snapshot(), kept)

    def _restart(self, memory: Any, kept: set[Any]) -> None:
        if self.trace:
            self.say("STORE RESTARTS, remembering", len(kept), "final rows")
        self.store.restart(memory)
        self.witness.forgets(kept)
