"""`* * * * * rota run` on three servers over one store, for real minutes: each is started once.

Two minute boundaries by default; ROTA_MINUTES=5 makes it five.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rota._core.rows import RowQuery
from rota._core.runs import Outcome
from rota.stores import open_store
from tests.faults.hosts import Host, tick, until_the_next_minute
from tests.servers.stores import NETWORK, fresh_url

KINDS = [kind for kind in NETWORK if kind != "valkey"]  # as Redis, and each costs a core its seconds
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


def check_evidence(folder: Path, minutes: list[datetime]) -> None:
    """Each of the twenty was started exactly once a minute, and was not early by anybody's clock."""
    lines = [line.split() for line in (folder / "evidence").read_text().splitlines()]
    starts = Counter((name, datetime.fromisoformat(due)) for name, due, _ in lines)
    assert {key: number for key, number in starts.items() if number != 1} == {}
    assert len({name for name, _ in starts}) == 20
    for minute in minutes:
        assert sum(due == minute for _, due in starts) == 20


def check_rows(store: str, minutes: list[datetime]) -> None:
    """The store tells the same, where it keeps a history."""
    opened = open_store(store, namespace="shop/production")
    rows = opened.rows(RowQuery(since=minutes[0] - timedelta(seconds=1), limit=10_000)).items
    lists_rows = opened.guarantees.lists_rows
    opened.close()
    wanted = {Outcome.SUCCEEDED: 19 * len(minutes), Outcome.FAILED: len(minutes)}
    assert Counter(row.outcome for row in rows if row.occurrence.due in minutes) == (
        wanted if lists_rows else {}
    )


@pytest.mark.slow
@pytest.mark.xdist_group("minutes")
@pytest.mark.timeout(60 * MINUTES + 120)
def test_twenty_tasks_on_three_servers_are_each_started_once_a_minute(tmp_path: Path) -> None:
    (tmp_path / "schedule.py").write_text(SCHEDULE)
    store = f"sqlite:///{tmp_path / 'rota.sqlite3'}"
    hosts = [Host(tmp_path, name, store) for name in SERVERS]
    tick(hosts)
    minutes = []
    for _ in range(MINUTES):
        minutes.append(until_the_next_minute())
        tick(hosts)
    check_evidence(tmp_path, minutes)
    check_rows(store, minutes)
    assert len(json.loads(hosts[0].rota("history", "-n", "1000", "--json"))) >= 20 * MINUTES
    listing = hosts[0].rota("list")
    assert all(f"function-{number}" in listing for number in range(8))


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.xdist_group("minutes")  # dozens of processes a minute: one such test at a time
@pytest.mark.timeout(60 * MINUTES + 240)
def test_on_each_network_store_also_while_one_host_is_an_hour_ahead(tmp_path: Path) -> None:
    sites: dict[str, list[Host]] = {}
    for kind in KINDS:
        for ahead in (0, 3600):
            folder = tmp_path / f"{kind}{' ahead' if ahead else ''}"
            folder.mkdir()
            (folder / "schedule.py").write_text(SCHEDULE)
            store = fresh_url(kind, folder)
            sites[folder.name] = [
                Host(folder, name, store, ahead if name == "web-3" else 0) for name in SERVERS
            ]
    hosts = [host for site in sites.values() for host in site]
    tick(hosts)
    minutes = []
    for _ in range(MINUTES):
        minutes.append(until_the_next_minute())
        tick(hosts)
    for name, site in sites.items():
        check_evidence(site[0].folder, minutes)
        check_rows(site[0].store, minutes)
        for host in site:
            told = any("the clock of this host is" in said for said in host.said)
            assert told is bool(host.skew), (name, host.said)
