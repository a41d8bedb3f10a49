"""A server killed between claim and end: the next tick shows it; nothing is blocked beyond one lease."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota import Outcome, Schedule
from rota._core.rows import Row, RowQuery
from rota.stores import open_store
from tests.faults.hosts import Host
from tests.servers import until

pytestmark = pytest.mark.slow
PATIENCE = 30.0
SCHEDULE = """
from rota import Schedule

schedule = Schedule("shop")
line = "echo $$ >> pids; touch begun; exec sleep 60"
schedule.command(line).name("report").once(at="{due}").lease(seconds=10)
schedule.command("true").name("tidy").yearly(on="{far}")
"""


class Hosts:
    """Two servers with a state folder each, over one SQLite file; the one task is due a second ago."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.due = datetime.now(UTC) - timedelta(seconds=1)
        self.url = f"sqlite:///{folder / 'rota.sqlite3'}"
        far = f"{self.due + timedelta(days=180):%m-%d}"
        (folder / "schedule.py").write_text(SCHEDULE.format(due=self.due.isoformat(), far=far))
        schedule = Schedule("shop")
        schedule.command("true").name("report").once(at=self.due.isoformat())
        store = open_store(self.url, namespace="shop/production")
        store.advance({schedule["report"].mark_key: self.due - timedelta(seconds=1)}, first=True)
        store.close()

    def start(self, server: str, *words: str) -> subprocess.Popen[str]:
        return Host(self.folder, server, self.url).start(*words)

    def run(self, server: str) -> str:
        return self.start(server, "run").communicate(timeout=60)[0]

    def row(self) -> Row:
        store = open_store(self.url, namespace="shop/production")
        (row,) = store.rows(RowQuery(tasks=("report",))).items
        store.close()
        return row


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path)
    yield hosts
    for pid in (tmp_path / "pids").read_text().split():  # what a killed server leaves behind goes on
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def killed_in_the_middle(hosts: Hosts) -> datetime:
    """web-1 starts the task and is killed while it runs; when that was."""
    process = hosts.start("web-1", "run")
    until((hosts.folder / "begun").exists, PATIENCE, "the task to begin")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    return datetime.now(UTC)


@pytest.mark.parametrize("finder", ["web-1", "web-2"])
def test_a_killed_run_is_found_lost_by_the_next_tick_after_its_lease(hosts: Hosts, finder: str) -> None:
    killed = killed_in_the_middle(hosts)
    said = hosts.run(finder)
    assert "claimed by web-1" in said
    assert hosts.row().is_open
    until(lambda: datetime.now(UTC) > killed + timedelta(seconds=11), PATIENCE, "the lease to lapse")
    said = hosts.run(finder)
    row = hosts.row()
    assert row.outcome is Outcome.LOST
    assert "web-1 holds no lease" in row.detail
    assert f"found by {finder}" in row.detail
    assert "lost" in said


def test_what_a_killed_run_held_is_free_after_one_lease(hosts: Hosts) -> None:
    path = hosts.folder / "schedule.py"
    path.write_text(path.read_text().replace('.name("report")', '.name("report").without_overlapping()'))
    killed = killed_in_the_middle(hosts)
    refused = hosts.start("web-2", "call", "report")
    said = refused.communicate(timeout=30)[0]
    assert refused.returncode == 1
    assert "web-1" in said
    until(lambda: datetime.now(UTC) > killed + timedelta(seconds=10.5), PATIENCE, "the lease to lapse")
    (hosts.folder / "begun").unlink()
    taken = hosts.start("web-2", "call", "report")
    until((hosts.folder / "begun").exists, PATIENCE, "the task to begin")
    taken.terminate()
    taken.communicate(timeout=30)
