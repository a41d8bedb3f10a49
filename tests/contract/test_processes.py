"""What one host's servers do to one SQLite file, all at once: eight real processes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.stores.base import Claim, Lease, Look, Occurrence, Request, Row, RowQuery
from rota.stores.sql.sqlite import SQLiteStore

SERVERS = 8
TASKS = 4
OCCURRENCES = 10
DUE = datetime(2026, 3, 29, tzinfo=UTC)
LONG = timedelta(days=10_000)

OCCASIONS = [
    Occurrence(f"task {task}", DUE + k * timedelta(minutes=1))
    for task in range(TASKS)
    for k in range(OCCURRENCES)
]

pytestmark = pytest.mark.slow  # each starts eight interpreters


def claims(store: SQLiteStore, number: int, ready: float) -> list[Any]:
    """One by one, in an order of its own."""
    mine = OCCASIONS[:]
    random.Random(number).shuffle(mine)
    won = []
    wait_until(ready)
    for occurrence in mine:
        (row,) = store.claim([a_claim(occurrence, number)]).items
        assert isinstance(row, Row)
        won += [occurrence.key] if row.token == f"{number}" else []
    return won


def claims_batches(store: SQLiteStore, number: int, ready: float) -> list[Any]:
    """All in one call, as a tick does."""
    mine = OCCASIONS[:]
    random.Random(number).shuffle(mine)
    wait_until(ready)
    answer = store.claim([a_claim(occurrence, number) for occurrence in mine])
    return [row.occurrence.key for row in answer.items if isinstance(row, Row) and row.token == f"{number}"]


def acquires(store: SQLiteStore, number: int, ready: float) -> list[Any]:
    return granted(store, number, ready, slots=1)


def takes_places(store: SQLiteStore, number: int, ready: float) -> list[Any]:
    return granted(store, number, ready, slots=3)


def counts(store: SQLiteStore, number: int, ready: float) -> list[Any]:
    """Adds one under a lock of its own file, the slow way: whoever met another would lose a count."""
    counter, done = Path(store.path).with_suffix(".count"), 0
    wait_until(ready)
    while done < 5:
        request = Request("counter", f"{number}:{done}", f"{number}", timedelta(minutes=1))
        (lease,) = store.acquire([request]).items
        if isinstance(lease, Lease):
            count = int(counter.read_text())
            time.sleep(0.001)
            counter.write_text(f"{count + 1}")
            store.release([lease])
            done += 1
        else:
            time.sleep(0.002)
    return [done]


def granted(store: SQLiteStore, number: int, ready: float, *, slots: int) -> list[Any]:
    requests = [
        Request(f"k{k}", f"{number}", f"{number}", timedelta(minutes=1), slots=slots) for k in range(10)
    ]
    wait_until(ready)
    answers = [store.acquire([request]).items[0] for request in requests]
    return [[lease.key, lease.slot] for lease in answers if isinstance(lease, Lease)]


def a_claim(occurrence: Occurrence, number: int) -> Claim:
    return Claim(occurrence, 1, f"{number}", "", DUE - LONG, DUE + LONG, timedelta(minutes=1), DUE + LONG)


def wait_until(ready: float) -> None:
    time.sleep(max(0.0, ready - time.time()))


def servers(path: Path, what: str) -> list[list[Any]]:
    """What each of eight processes answers that start at the same moment on one file, new to all."""
    ready = time.time() + 2
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", __file__, str(path), what, f"{number}", f"{ready}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(SERVERS)
    ]
    try:
        answers = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * SERVERS
    return [json.loads(answer) for answer in answers]


@pytest.mark.parametrize("what", [claims, claims_batches], ids=["one by one", "in batches"])
def test_each_occurrence_is_claimed_once_by_eight_processes(tmp_path: Path, what: Any) -> None:
    won = [key for answer in servers(tmp_path / "rota.db", what.__name__) for key in answer]
    assert sorted(won) == sorted(occurrence.key for occurrence in OCCASIONS)
    store = SQLiteStore(tmp_path / "rota.db")
    assert len(store.rows(RowQuery(limit=1000)).items) == len(OCCASIONS)
    store.close()


def test_each_key_is_given_to_one_of_eight_processes(tmp_path: Path) -> None:
    given = [tuple(place) for answer in servers(tmp_path / "rota.db", "acquires") for place in answer]
    assert sorted(given) == [(f"k{k}", 0) for k in range(10)]


def test_each_place_is_given_to_one_of_eight_processes(tmp_path: Path) -> None:
    given = [tuple(place) for answer in servers(tmp_path / "rota.db", "takes_places") for place in answer]
    assert sorted(given) == [(f"k{k}", slot) for k in range(10) for slot in range(3)]
    store = SQLiteStore(tmp_path / "rota.db")
    holders = Counter(lease.key for lease in store.look(Look({}, DUE)).leases)
    assert set(holders.values()) == {3}
    store.close()


def test_what_is_done_under_a_lease_is_done_by_one_process_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "rota.count").write_text("0")
    assert servers(tmp_path / "rota.db", "counts") == [[5]] * SERVERS
    assert (tmp_path / "rota.count").read_text() == f"{5 * SERVERS}"


if __name__ == "__main__":
    path, what, number, ready = sys.argv[1:]
    opened = SQLiteStore(path)
    sys.stdout.write(json.dumps(globals()[what](opened, int(number), float(ready))))
    opened.close()
