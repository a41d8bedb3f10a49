"""What servers do to one store, all at once: twelve real processes on each store, new to all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.stores import open_store
from rota.stores.base import Look
from tests.contract.one_process import DUE, OCCASIONS, TASKS
from tests.servers.stores import each_store, fresh_url

SERVERS = 12
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # each starts a dozen interpreters


def servers(url: str, folder: Path, what: str) -> list[list[Any]]:
    """What each process answers that starts at the same moment on this store."""
    ready = time.time() + 0.2 * SERVERS
    python = [sys.executable, "-W", "error", "-m", "tests.contract.one_process"]
    processes = [
        subprocess.Popen(
            [*python, url, str(folder), what, f"{number}", f"{ready}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(SERVERS)
    ]
    try:
        answers = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * SERVERS
    return [json.loads(answer) for answer in answers]


@pytest.mark.parametrize("what", ["claims", "claims_batches"], ids=["one by one", "in batches"])
@each_store
def test_each_occurrence_is_claimed_once_by_twelve_processes(kind: str, what: str, tmp_path: Path) -> None:
    url = fresh_url(kind, tmp_path)
    won = [key for answer in servers(url, tmp_path, what) for key in answer]
    assert sorted(won) == sorted(occurrence.key for occurrence in OCCASIONS)
    store = open_store(url, namespace="")
    tasks = {f"task {task}": "no mark" for task in range(TASKS)}
    rows = store.look(Look(tasks, DUE - timedelta(days=1))).rows
    assert sorted(row.occurrence.key for row in rows) == sorted(won)
    store.close()


@each_store
def test_each_key_is_given_to_one_of_twelve_processes(kind: str, tmp_path: Path) -> None:
    given = [
        tuple(place) for each in servers(fresh_url(kind, tmp_path), tmp_path, "acquires") for place in each
    ]
    assert sorted(given) == [(f"k{k}", 0) for k in range(10)]


@each_store
def test_each_place_is_given_to_one_of_twelve_processes(kind: str, tmp_path: Path) -> None:
    url = fresh_url(kind, tmp_path)
    given = [tuple(place) for answer in servers(url, tmp_path, "takes_places") for place in answer]
    assert sorted(given) == [(f"k{k}", slot) for k in range(10) for slot in range(3)]
    store = open_store(url, namespace="")
    holders = Counter(lease.key for lease in store.look(Look({}, DUE)).leases)
    assert holders == {f"k{k}": 3 for k in range(10)}
    store.close()


@each_store
def test_what_is_done_under_a_lease_is_done_by_one_process_at_a_time(kind: str, tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    assert servers(fresh_url(kind, tmp_path), tmp_path, "counts") == [[3]] * SERVERS
    assert (tmp_path / "count").read_text() == f"{3 * SERVERS}"
