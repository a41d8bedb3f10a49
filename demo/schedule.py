"""The schedule of the demonstration: every task writes down that it ran, so that nobody has to believe us."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from rota import Run, Schedule

schedule = Schedule("demo", timezone="Europe/Berlin")
EVIDENCE = Path(os.environ.get("DEMO_EVIDENCE", "evidence.jsonl"))


def witness(run: Run, what: str) -> None:
    """Append one line; a single small append is atomic, so three servers may share the file."""
    line = json.dumps(
        {
            "what": what,
            "task": run.task.name,
            "due": run.due.isoformat(),
            "attempt": run.attempt,
            "server": run.row.server,
            "pid": os.getpid(),
            "fence": run.fence,
            "at": time.time(),
        }
    )
    with EVIDENCE.open("a") as file:
        file.write(line + "\n")


@schedule.every(seconds=2).lease(seconds=10)
def send_invoices(run: Run) -> None:
    """Quick, and a disaster if two servers do it."""
    witness(run, "start")


@schedule.every(seconds=3).lease(seconds=10).without_overlapping()
def rebuild_index(run: Run) -> None:
    """Takes longer than its period, so every other occurrence is skipped, with its reason."""
    witness(run, "start")
    time.sleep(4)
    witness(run, "end")


@schedule.every(seconds=5).lease(seconds=10)
def import_rates(run: Run) -> None:
    """Fails, which is nobody else's business."""
    witness(run, "start")
    raise ConnectionError("the bank does not answer")


@schedule.every(seconds=10).lease(seconds=10)
def archive(run: Run) -> None:
    """Its server is killed while it runs, the first time."""
    witness(run, "start")
    time.sleep(2)
    witness(run, "end")


schedule.command('echo "backup of $ROTA_OCCURRENCE"').name("backup").every(seconds=4).lease(seconds=10)
