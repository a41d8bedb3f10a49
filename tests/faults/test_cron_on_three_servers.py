"""`* * * * * rota run` on three servers over one SQLite file, for real minutes: each is started once.

Two minute boundaries by default; ROTA_MINUTES=5 makes it five.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rota._core.rows import RowQuery
from rota._core.runs import Outcome
from rota.stores import open_store

MINUTES = int(os.environ.get("ROTA_MINUTES", "2"))
SERVERS = ("web-1", "web-2", "web-3")
SCHEDULE = """
import asyncio, os, time
from rota import Run, Schedule

schedule = Schedule("shop")

def note(run: Run):
    with open("evidence", "a") as file:
        file.write(f"{run.task.name} {run.due.isoformat()} {run.row.server}\\n")

async def wait(run: Run):
    await asyncio.sleep(0.2)
    note(run)

def fail(run: Run):
    note(run)
    raise ValueError("as it should")

for number in range(8):
    schedule.call(note).name(f"function-{number}").every(minutes=1)
for number in range(3):
    schedule.call(wait).name(f"coroutine-{number}").every(minutes=1)
schedule.call(fail).name("fails").every(minutes=1)
schedule.call(note).name("alone").every(minutes=1).without_overlapping()
schedule.call(note).name("waits").every(minutes=1).overlap("queue_one")
line = 'echo "$ROTA_TASK ${ROTA_OCCURRENCE#*@} command" >> evidence'
for number in range(5):
    schedule.command(line).name(f"command-{number}").every(minutes=1)
schedule.command(line + "; sleep 3").name("slow-command").every(minutes=1).without_overlapping()
"""


def rota(folder: Path, server: str, *words: str) -> subprocess.Popen[str]:
    env = os.environ | {
        "ROTA_STORE": f"sqlite:///{folder / 'rota.sqlite3'}",
        "ROTA_STATE_DIR": str(folder / server),
        "ROTA_SERVER": server,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "rota", *words],
        cwd=folder,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def until_the_next_minute() -> datetime:
    """The minute that begins as this returns, as cron would wait for it."""
    now = time.time()
    boundary = (now // 60 + 1) * 60
    while time.time() < boundary:
        time.sleep(min(0.2, max(0.001, boundary - time.time())))
    return datetime.fromtimestamp(boundary).astimezone()


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 120)
def test_twenty_tasks_on_three_servers_are_each_started_once_a_minute(tmp_path: Path) -> None:
    (tmp_path / "schedule.py").write_text(SCHEDULE)
    first = [rota(tmp_path, server, "run", "--exit-zero") for server in SERVERS]
    said = [process.communicate(timeout=60)[0] for process in first]
    assert all(process.returncode == 0 for process in first), said
    minutes = []
    for _ in range(MINUTES):
        minutes.append(until_the_next_minute())
        ticks = [rota(tmp_path, server, "run", "--exit-zero") for server in SERVERS]
        said = [process.communicate(timeout=50)[0] for process in ticks]
        assert all(process.returncode == 0 for process in ticks), said

    lines = [line.split() for line in (tmp_path / "evidence").read_text().splitlines()]
    starts = Counter((name, datetime.fromisoformat(due)) for name, due, _ in lines)
    assert {key: number for key, number in starts.items() if number != 1} == {}
    assert len({name for name, _ in starts}) == 20
    for minute in minutes:
        assert sum(due == minute for _, due in starts) == 20

    history = rota(tmp_path, "web-1", "history", "-n", "1000", "--json").communicate(timeout=60)[0]
    assert len(json.loads(history)) >= 20 * MINUTES
    store = open_store(f"sqlite:///{tmp_path / 'rota.sqlite3'}", namespace="shop/production")
    rows = store.rows(RowQuery(since=minutes[0] - timedelta(seconds=1), limit=10_000)).items
    store.close()
    assert Counter(row.outcome for row in rows if row.occurrence.due in minutes) == {
        Outcome.SUCCEEDED: 19 * MINUTES,
        Outcome.FAILED: MINUTES,
    }
    listing = rota(tmp_path, "web-1", "list").communicate(timeout=60)[0]
    assert all(f"function-{number}" in listing for number in range(8))
