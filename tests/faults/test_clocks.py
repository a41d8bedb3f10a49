"""Hosts whose clocks are off, and stores whose clocks decide: nothing early, nothing twice, nothing lost.

Real processes whose wall clock alone is shifted, ticking at real minutes on each store of the network. What
a task notes down is its boot-time clock, which is nobody's to shift.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota.stores import open_store
from rota.stores.base import Look, RowQuery
from tests.faults.hosts import Host, tick, until_the_next_minute
from tests.servers.stores import NETWORK, fresh_url

KINDS = [kind for kind in NETWORK if kind != "valkey"]  # as Redis, and each costs a core its seconds
MINUTES = int(os.environ.get("ROTA_MINUTES", "2"))
TASKS = 5
SCHEDULE = f"""
import time
from rota import Run, Schedule

schedule = Schedule("shop")

def note(run: Run):
    with open("evidence", "a") as file:
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        file.write(f"{{run.task.name}} {{run.due.isoformat()}} {{boot}}\\n")

for number in range({TASKS}):
    schedule.call(note).name(f"task-{{number}}").every(minutes=1).without_overlapping()
"""
OFF = {"hour-behind": -3600.0, "behind": -90.0, "ahead": 65.0, "hour-ahead": 3600.0, "days-ahead": 259200.0}
GRAIN = timedelta(seconds=1)


class Drifting:
    """A clock that runs a twentieth too fast, and one that steps back by two minutes when told to."""

    def __init__(self, folder: Path) -> None:
        self.drift, self.step = folder / "drift", folder / "step"
        self.drift.write_text("0")
        self.step.write_text("0")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Drifting:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(0.2):
            part = self.drift.with_name("drift.part")
            part.write_text(f"{(time.monotonic() - began) / 20:.3f}")
            part.replace(self.drift)


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.xdist_group("minutes")  # dozens of processes a minute: one such test at a time
@pytest.mark.timeout(60 * MINUTES + 300)
def test_with_every_kind_of_wrong_clock_each_is_started_once_and_never_early(tmp_path: Path) -> None:
    with Drifting(tmp_path) as clocks:
        sites: dict[str, list[Host]] = {}
        for kind in KINDS:
            folder = tmp_path / kind
            folder.mkdir()
            (folder / "schedule.py").write_text(SCHEDULE)
            store = fresh_url(kind, folder)
            sites[kind] = [
                Host(folder, "right", store),
                *(Host(folder, name, store, off) for name, off in OFF.items()),
                Host(folder, "drifts", store, clocks.drift),
                Host(folder, "steps", store, clocks.step),
            ]
        hosts = [host for site in sites.values() for host in site]
        tick(hosts)
        minutes = []
        for number in range(MINUTES):
            if number == MINUTES // 2:
                clocks.step.write_text("-120")
            minutes.append(until_the_next_minute())
            tick(hosts)
    for kind, site in sites.items():
        check_starts(site[0], minutes)
        check_rows(site[0].store, minutes)
        for host in site:
            told = "the clock of this host is" in host.said[-1]
            if host.name != "drifts":  # it may or may not be more than five seconds off by now
                assert told is (host.name != "right"), (kind, host.name, host.said[-1])
            checked = json.loads(host.rota("check", "--json", "--expect-servers", f"{len(site)}"))
            assert abs(checked["offset"] + host.ahead()) < checked["guarantees"]["grain"] + 1.5
            assert len(checked["servers"]) == len(site)


def check_starts(host: Host, minutes: list[datetime]) -> None:
    """Each exactly once a minute, and none before it by the true clock."""
    booted = datetime.now(UTC).timestamp() - time.clock_gettime(time.CLOCK_BOOTTIME)
    lines = [line.split() for line in (host.folder / "evidence").read_text().splitlines()]
    starts = Counter((name, datetime.fromisoformat(due)) for name, due, _ in lines)
    assert {key: number for key, number in starts.items() if number != 1} == {}
    for minute in minutes:
        assert sum(due == minute for _, due in starts) == TASKS
    for name, due, boot in lines:
        early = datetime.fromisoformat(due).timestamp() - (booted + float(boot))
        assert early <= 0.1, f"{name} was started {early} s early"


def check_rows(url: str, minutes: list[datetime]) -> None:
    """No row is dated before it was due, and none is lost or missed."""
    store = open_store(url, namespace="shop/production")
    rows = store.rows(RowQuery(limit=1000)).items
    assert not store.look(Look({}, minutes[0])).rows
    grain = store.guarantees.grain if store.guarantees.grain >= GRAIN else timedelta(0)
    store.close()
    for row in rows:
        assert row.outcome == "succeeded", row
        assert row.since + grain >= row.occurrence.due, row
