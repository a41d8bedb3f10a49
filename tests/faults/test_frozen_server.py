"""A holder that is frozen or cut off for longer than its lease: another takes over, and it is told."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rota import Outcome, Schedule
from rota._core.rows import Row, RowQuery
from rota.stores import open_store
from tests.faults.hosts import Host
from tests.servers import until
from tests.servers.proxy import Proxy
from tests.servers.stores import fresh_url

LEASE = timedelta(seconds=10)
SCHEDULE = """
import os, time
from rota import Run, Schedule

schedule = Schedule("shop")

def report(run: Run):
    server = os.environ["ROTA_SERVER"]
    with open(f"{{server}}.fence", "w") as file:
        file.write(f"{{run.fence}}")
    if server == "web-1":
        while not run.lost:
            time.sleep(0.01)
        with open("told", "w") as file:
            file.write(f"{{time.time()}}")

schedule.call(report).once(at="{due}").without_overlapping().lease(seconds=10)
schedule.command("true").name("tidy").yearly(on="{far}")
"""

pytestmark = pytest.mark.slow


class Two:
    """Two hosts; the first runs a task that ends when it is told that it has lost its lease."""

    def __init__(self, folder: Path, store: str, reached_by: str | None = None) -> None:
        due = datetime.now(UTC) - timedelta(seconds=1)
        far = f"{due + timedelta(days=180):%m-%d}"
        (folder / "schedule.py").write_text(SCHEDULE.format(due=due.isoformat(), far=far))
        self.folder, self.store = folder, store
        self.first, self.second = (
            Host(folder, "web-1", reached_by or store),
            Host(folder, "web-2", store),
        )
        schedule = Schedule("shop")
        schedule.command("true").name("report").once(at=due.isoformat())
        opened = open_store(store, namespace="shop/production")
        opened.advance({schedule["report"].mark_key: due - timedelta(seconds=1)}, first=True)
        opened.close()
        self.process = self.first.start("run")
        until(self.fence_of("web-1").exists, 30, "the first to run")

    def fence_of(self, server: str) -> Path:
        return self.folder / f"{server}.fence"

    def rows(self) -> list[Row]:
        store = open_store(self.store, namespace="shop/production")
        rows = store.rows(RowQuery(tasks=("report",))).items
        store.close()
        return list(rows)

    def take_over(self) -> Row:
        """The second runs the task by hand as soon as it may; the row that stands for the first by then."""
        began = time.monotonic()

        def called() -> bool:
            process = self.second.start("call", "report")
            process.communicate(timeout=60)
            return process.returncode == 0

        until(called, 60, "the second to take over", every=0.5)
        assert time.monotonic() - began < 2 * LEASE.total_seconds() + 20
        assert "found lost" in self.second.rota("run")
        (scheduled,) = [row for row in self.rows() if row.cause == "schedule"]
        assert scheduled.outcome is Outcome.LOST
        return scheduled

    def check_end(self, before: Row) -> None:
        """The first ends as one that has lost its lease, and overwrites nothing."""
        said = self.process.communicate(timeout=60)[0]
        assert "its lease ended while it ran" in said
        assert self.process.returncode == 1
        assert (self.folder / "told").exists()
        assert [row for row in self.rows() if row.cause == "schedule"] == [before]
        fences = [int(self.fence_of(server).read_text()) for server in ("web-1", "web-2")]
        assert 0 < fences[0] < fences[1]


def test_a_frozen_holder_wakes_up_and_finds_itself_lost(tmp_path: Path) -> None:
    two = Two(tmp_path, f"sqlite:///{tmp_path / 'rota.db'}")
    two.process.send_signal(signal.SIGSTOP)
    try:
        row = two.take_over()
        assert not (tmp_path / "told").exists()
    finally:
        two.process.send_signal(signal.SIGCONT)
    two.check_end(row)


@pytest.mark.service
@pytest.mark.parametrize("kind", ["redis", "postgresql"])
def test_a_holder_that_is_cut_off_stops_and_another_takes_over(kind: str, tmp_path: Path) -> None:
    store = fresh_url(kind, tmp_path)
    port = urlsplit(store).port
    assert port is not None
    with Proxy(port) as proxy:
        two = Two(tmp_path, store, store.replace(f":{port}", f":{proxy.port}"))
        proxy.mode = "blackhole"
        cut = time.time()
        row = two.take_over()
        until((tmp_path / "told").exists, 30, "the first to be told")
        assert float((tmp_path / "told").read_text()) - cut < LEASE.total_seconds()
        proxy.mode = "ok"
        proxy.reset()
        two.check_end(row)
