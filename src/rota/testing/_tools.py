"""What the tests of the contract have in common: a clock to drive, and short ways to ask a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from rota._core.value import replace
from rota.stores.base import (
    LONGEST_LEASE,
    Claim,
    End,
    Lease,
    Look,
    Occurrence,
    Outcome,
    Refusal,
    Request,
    Row,
    RowQuery,
    SkipReason,
    Store,
    View,
)

T = TypeVar("T")

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)

ALWAYS = datetime(1970, 1, 2, tzinfo=UTC)

NAMES = ("a", "ab", "a%", "a_", "A", "a ", "ä", "a\u0308", "Straße", "名前", "🎼", "a'b\"c", "x" * 200)
"""Names that a careless store takes for one another: prefixes, wildcards, case, normal forms."""


class StoreClock:
    """The clock of a store, in the hands of a test.

    It stands still until it is told to `advance`; with `step` it moves on by that much at each
    reading, so that two readings in one call show. `on_read` is called before each reading.
    """

    def __init__(self, now: datetime = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)) -> None:
        self.now = now
        self.step = timedelta(0)
        self.on_read: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def __call__(self) -> datetime:
        if self.on_read is not None:
            self.on_read()
        with self._lock:
            self.now += self.step
            return self.now

    def advance(self, by: timedelta) -> None:
        with self._lock:
            self.now += by


class StoreTools:
    """A store under test, and how to ask it."""

    clock: StoreClock | None = None
    longest_lease: timedelta = LONGEST_LEASE

    store: Store
    start: datetime

    def open(self) -> Store:
        """A fresh, empty store; a volatile one so long after its epoch that it refuses nothing."""
        raise NotImplementedError

    def open_again(self) -> Store:
        """The same store as another server opens it, where that makes a difference."""
        return self.store

    def setup_method(self, method: object = None) -> None:
        self.clock = None if type(self).clock is None else StoreClock()
        self._others: list[Store] = []
        self._asked: set[str] = set()
        self.store = self.open()
        self.start = self.now()

    def teardown_method(self, method: object = None) -> None:
        for store in (self.store, *self._others):
            store.close()

    def another_server(self) -> Store:
        """`open_again`, closed at the end of the test."""
        other = self.open_again()
        self._others.append(other)
        return other

    @property
    def short(self) -> timedelta:
        """The length of a lease that a test can see the end of: 30 s on a clock that is driven, else two
        grains of the store's clock, half a second at least."""
        return max(2 * self.grain, timedelta(milliseconds=500)) if self.clock is None else 30 * SECOND

    @property
    def tick(self) -> timedelta:
        """What is written this long apart has different instants: a microsecond where the clock is driven."""
        return self.grain if self.clock is None else TICK

    @property
    def grain(self) -> timedelta:
        return self.store.guarantees.grain

    def pass_time(self, by: timedelta) -> None:
        if self.clock is None:
            time.sleep(by.total_seconds())
        else:
            self.clock.advance(by)

    def now(self) -> datetime:
        return self.store.rows(RowQuery(limit=0)).now

    def look(self, *tasks: str, since: datetime | None = None) -> View:
        return self.store.look(Look({task: f"mark:{task}" for task in tasks}, since or self.start - DAY))

    def a_claim(
        self, task: str = "a", *, due: datetime | None = None, token: str = "", **changes: Any
    ) -> Claim:
        due = due or self.start
        self._asked.add(task)
        claim = Claim(
            occurrence=Occurrence(task, due),
            attempt=1,
            token=token or f"token of {task}",
            server="web-1",
            not_before=self.start - MINUTE,
            not_after=self.start + HOUR,
            start_within=MINUTE,
            keep_until=self.start + HOUR,
        )
        return replace(claim, **changes)

    def an_end(self, task: str = "a", *, due: datetime | None = None, token: str = "", **changes: Any) -> End:
        self._asked.add(task)
        end = End(
            occurrence=Occurrence(task, due or self.start),
            attempt=1,
            token=token or f"token of {task}",
            outcome=Outcome.SUCCEEDED,
            keep_until=self.start + HOUR,
            server="web-2",
        )
        return replace(end, **changes)

    def a_skip(self, reason: SkipReason, task: str = "a", **changes: Any) -> End:
        return self.an_end(task, outcome=Outcome.SKIPPED, reason=reason, **changes)

    def a_request(self, key: str = "k", *, token: str = "t1", **changes: Any) -> Request:
        return replace(Request(key, token, "web-1", self.short), **changes)

    def claim(self, *claims: Claim) -> list[Row | Refusal]:
        return list(self.store.claim(claims).items)

    def claimed(self, *arguments: Any, **changes: Any) -> Row:
        return is_a(Row, self.claim(self.a_claim(*arguments, **changes))[0])

    def settle(self, *ends: End) -> list[Row | None]:
        return list(self.store.settle(ends).items)

    def settled(self, *arguments: Any, **changes: Any) -> Row:
        return is_a(Row, self.settle(self.an_end(*arguments, **changes))[0])

    def acquire(self, *requests: Request) -> list[Lease | Refusal]:
        return list(self.store.acquire(requests).items)

    def acquired(self, *arguments: Any, **changes: Any) -> Lease:
        return is_a(Lease, self.acquire(self.a_request(*arguments, **changes))[0])

    def renew(self, lease: Lease, ttl: timedelta | None = None) -> Lease | Refusal:
        return self.store.renew([lease], ttl=self.short if ttl is None else ttl).items[0]

    def release(self, lease: Lease) -> bool:
        return self.store.release([lease]).items[0]

    def standing(self, *tasks: str) -> list[Row]:
        """All rows of these tasks, oldest first; of all tasks if none is named.

        Where the store keeps no history, those that a look shows of tasks that never had a mark.
        """
        if not self.store.guarantees.lists_rows:
            names = tasks or tuple(self._asked)
            view = self.store.look(Look({name: f"no mark:{name}" for name in names}, ALWAYS))
            rows = [row for row in view.rows if row.occurrence.task in names]
            return sorted(rows, key=lambda row: (row.occurrence.due, row.occurrence.task, row.attempt))
        return list(reversed(self.store.rows(RowQuery(tasks, limit=1_000_000)).items))


def is_a(kind: type[T], value: object) -> T:
    assert isinstance(value, kind), value
    return value


def a_row(value: Row | None) -> Row:
    return is_a(Row, value)


def key_of(lease: Lease) -> tuple[str, int]:
    return lease.key, lease.slot


def dues_of(rows: Sequence[Row]) -> list[datetime]:
    return sorted(row.occurrence.due for row in rows)


def by_key(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.occurrence.key, row.attempt))


def raises(kind: type[Exception], call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def at_once(count: int, server: Callable[[int], object]) -> None:
    """Run `server(number)` in so many threads that start together; the first error is ours."""
    together, errors = threading.Barrier(count), []

    def run(number: int) -> None:
        try:
            together.wait(30)
            server(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
