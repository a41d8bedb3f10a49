"""The demonstration: three real servers, one schedule, one store; each occurrence is started once.

Three processes of `rota run` share one SQLite file for about half a minute, as three servers would
share a database. One of them is killed with SIGKILL in the middle of a task. What ran is taken
from what the tasks themselves wrote down; what was due is worked out from the schedule. The exit
code is 0 only if every occurrence was started exactly once or has a row that says why not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECONDS = 28
SERVERS = ("web-1", "web-2", "web-3")
COLOURS = {"web-1": "36", "web-2": "33", "web-3": "35"}


class Hosts:
    """The three servers. Each runs `rota run` again and again, as cron would start it."""

    def __init__(self, folder: Path) -> None:
        self.env = {
            **os.environ,
            "ROTA_STORE": f"sqlite:///{folder / 'demo.sqlite3'}",
            "ROTA_STATE_DIR": str(folder),
            "DEMO_EVIDENCE": str(folder / "evidence.jsonl"),
        }
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def keep_up(self) -> None:
        for name in SERVERS:
            process = self.processes.get(name)
            if process is None or process.poll() is not None:
                with (self.folder / f"{name}.log").open("ab") as log:
                    self.processes[name] = subprocess.Popen(
                        [sys.executable, "-m", "rota", "run", "--app", "schedule:schedule", "--exit-zero"],
                        cwd=HERE,
                        env={**self.env, "ROTA_SERVER": name},
                        stdout=log,
                        stderr=log,
                    )

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        """Ask each to finish what it runs; make sure that none is left."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Evidence:
    """What the tasks wrote down, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path, self.position = path, 0
        self.starts: Counter[tuple[str, datetime]] = Counter()

    def fresh(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with self.path.open() as file:
            file.seek(self.position)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self.position += len(whole.encode())
        found = [json.loads(line) for line in whole.splitlines()]
        for each in found:
            if each["what"] == "start":
                self.starts[each["task"], datetime.fromisoformat(each["due"])] += 1
        return found


def say(server: str, text: str) -> None:
    stamp = datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-4]
    name = f"\033[{COLOURS[server]}m{server}\033[0m" if sys.stdout.isatty() and server in COLOURS else server
    print(f"  {stamp}  {name:6}  {text}", flush=True)


def show(found: dict[str, Any]) -> None:
    due = datetime.fromisoformat(found["due"]).astimezone()
    word = "starts " if found["what"] == "start" else "ends   "
    say(found["server"], f"{word} {found['task']:14} due {due:%H:%M:%S}  fence {found['fence']}")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="rota-demo-") as name:
        folder = Path(name)
        hosts, evidence = Hosts(folder), Evidence(folder / "evidence.jsonl")
        print(f"three servers, one schedule, one SQLite file, {SECONDS} seconds\n", flush=True)
        began, killed = time.monotonic(), ""
        try:
            while time.monotonic() - began < SECONDS:
                hosts.keep_up()
                for found in evidence.fresh():
                    show(found)
                    if not killed and found["task"] == "archive" and found["what"] == "start":
                        killed = found["server"]
                        hosts.kill(killed)
                        say(killed, "KILLED with SIGKILL in the middle of archive; it is started again")
                time.sleep(0.05)
            stopped = datetime.now(UTC)
        finally:
            hosts.stop()
        for found in evidence.fresh():
            show(found)
        return summary(hosts, evidence, stopped, killed)


def summary(hosts: Hosts, evidence: Evidence, stopped: datetime, killed: str) -> int:
    """Hold what was due against what ran, and against what the history says."""
    os.environ |= hosts.env
    sys.path.insert(0, str(HERE))
    from schedule import schedule

    from rota._core.rows import RowQuery
    from rota._engine.server import namespace_of, store_url
    from rota.stores import open_store

    store = open_store(store_url(schedule), namespace=namespace_of(schedule))
    rows = store.rows(RowQuery(limit=10_000)).items
    store.close()
    decided = {(row.occurrence.task, row.occurrence.due): row for row in rows}
    first = min(row.occurrence.due for row in rows) - timedelta(microseconds=1)
    until = stopped - timedelta(seconds=1)
    due = {(task.name, at) for task in schedule.tasks for at in task.trigger.between(first, until)}
    seen = {key for key in due if evidence.starts[key]}
    commands = {key for key in due if key[0] == "backup" and key in decided and decided[key].took is not None}
    once = {key for key in seen if evidence.starts[key] == 1} | commands
    double = {key for key, number in evidence.starts.items() if number > 1}
    reasons = Counter(
        f"{decided[key].outcome}({decided[key].reason})" for key in due - once - double if key in decided
    )
    missed = {key for key in due - once - double if key not in decided or decided[key].reason == "missed"}
    outcomes = Counter(str(decided[key].outcome or "open") for key in once if key in decided)

    print("\nwho started what")
    table = Counter(
        (row.occurrence.task, row.server) for row in rows if row.took is not None or row.outcome == "lost"
    )
    print(f"  {'':16}" + "".join(f"{server:>8}" for server in SERVERS))
    for task in schedule.tasks:
        print(f"  {task.name:16}" + "".join(f"{table[task.name, server]:8}" for server in SERVERS))
    print("\nhow it ended")
    for outcome, number in sorted(outcomes.items()):
        print(f"  {number:4}  {outcome}")
    for reason, number in sorted(reasons.items()):
        print(f"  {number:4}  not started: {reason}")
    for row in rows:
        if row.outcome == "lost":
            print(f"        lost: {row.occurrence}: {row.detail}")
    unknown = len(due) - len(once) - len(double & due) - sum(reasons.values())
    print("\nsummary")
    print(f"  {len(due):4}  occurrences due")
    print(f"  {len(once):4}  started exactly once")
    print(f"  {sum(reasons.values()):4}  not started, each with its reason")
    print(f"  {len(double):4}  started twice")
    print(f"  {len(missed):4}  missed")
    lost = [row for row in rows if row.outcome == "lost"]
    print(f"  {len(lost):4}  lost, all with the server that was killed")
    fine = not double and not missed and not unknown and once
    fine = fine and killed and lost and all(row.server == killed for row in lost)
    print("\nall once" if fine else "\nNOT all once")
    if not fine:
        for key in sorted(double | missed):
            print("  ", key, evidence.starts[key], decided.get(key))
        for server in SERVERS:
            print(f"--- {server}\n" + (hosts.folder / f"{server}.log").read_text(errors="replace")[-3000:])
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
