"""One of the processes of test_processes: called with URL, FOLDER, WHAT, NUMBER and READY."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from rota.stores import Store, open_store
from rota.stores.base import Claim, Lease, Look, Occurrence, Request, Row, StoreUnavailable

T = TypeVar("T")

TASKS = 4
OCCURRENCES = 10
DUE = datetime(2026, 3, 29, tzinfo=UTC)
LONG = timedelta(days=10_000)

OCCASIONS = [
    Occurrence(f"task {task}", DUE + k * timedelta(minutes=1))
    for task in range(TASKS)
    for k in range(OCCURRENCES)
]


class Process:
    """One of the servers. What it asks for is to be granted after `since`, by the store's clock."""

    def __init__(self, store: Store, number: int, since: datetime, ready: float, folder: Path) -> None:
        self.store, self.number, self.since, self.ready, self.folder = store, number, since, ready, folder
        self.random = random.Random(number)

    def claims(self) -> list[Any]:
        """One by one, in an order of its own."""
        mine = OCCASIONS[:]
        self.random.shuffle(mine)
        won = []
        self.wait()
        for occurrence in mine:
            (row,) = self.surely(lambda o=occurrence: self.store.claim([self.claim_of(o)])).items
            assert isinstance(row, Row), row
            won += [occurrence.key] if row.token == f"{self.number}" else []
        return won

    def claims_batches(self) -> list[Any]:
        """All in one call, as a tick does."""
        mine = OCCASIONS[:]
        self.random.shuffle(mine)
        self.wait()
        answer = self.surely(lambda: self.store.claim([self.claim_of(occurrence) for occurrence in mine]))
        rows = [row for row in answer.items if isinstance(row, Row)]
        assert len(rows) == len(mine)
        return [row.occurrence.key for row in rows if row.token == f"{self.number}"]

    def acquires(self) -> list[Any]:
        return self.granted(slots=1)

    def takes_places(self) -> list[Any]:
        return self.granted(slots=3)

    def counts(self) -> list[Any]:
        """Adds one under a lock of the store, the slow way: whoever met another would lose a count."""
        counter, done = self.folder / "count", 0
        self.wait()
        while done < 3:
            request = self.request("counter", token=f"{self.number}:{done}")
            (lease,) = self.surely(lambda request=request: self.store.acquire([request])).items
            if isinstance(lease, Lease):
                count = int(counter.read_text())
                time.sleep(0.001)
                counter.write_text(f"{count + 1}")
                assert list(self.store.release([lease]).items) == [True]
                done += 1
            else:
                time.sleep(self.random.uniform(0.001, 0.01))
        return [done]

    def granted(self, *, slots: int) -> list[Any]:
        keys = [f"k{k}" for k in range(10)]
        self.random.shuffle(keys)
        self.wait()
        requests = [self.request(key, slots=slots) for key in keys]
        answers = [self.surely(lambda each=each: self.store.acquire([each])).items[0] for each in requests]
        return [[lease.key, lease.slot] for lease in answers if isinstance(lease, Lease)]

    def surely(self, ask: Callable[[], T]) -> T:
        """The answer, asked for again with the same token while none comes, as the engine does."""
        for _ in range(4):
            with suppress(StoreUnavailable):
                return ask()
        return ask()

    def claim_of(self, occurrence: Occurrence) -> Claim:
        until = DUE + LONG
        return Claim(occurrence, 1, f"{self.number}", "", self.since, until, timedelta(minutes=1), until)

    def request(self, key: str, *, token: str = "", slots: int = 1) -> Request:
        who = f"{self.number}"
        return Request(key, token or who, who, timedelta(minutes=1), not_before=self.since, slots=slots)

    def wait(self) -> None:
        """The start that all have in common."""
        self.store.look(Look({}, DUE))
        time.sleep(max(0.0, self.ready - time.time()))


def after_the_epoch(store: Store) -> datetime:
    """An instant of the store's clock from which on a store that can forget grants."""
    grain = store.guarantees.grain
    epoch = store.look(Look({}, DUE)).epoch
    if epoch is None:
        return DUE - LONG
    while store.look(Look({}, DUE)).now < epoch + 2 * grain:
        time.sleep(0.01)
    return epoch + grain


if __name__ == "__main__":
    url, folder, what, number, ready = sys.argv[1:]
    opened = open_store(url, namespace="")
    process = Process(opened, int(number), after_the_epoch(opened), float(ready), Path(folder))
    sys.stdout.write(json.dumps(getattr(process, what)()))
    opened.close()
