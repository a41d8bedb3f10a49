"""What one `rota run` costs beside a bare Python start, in one interleaved run.

Wall time and processor time, the median of each. The target of the design: with nothing due, at most
3 times a bare start.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rota import Schedule
from rota._core.rows import RowQuery
from rota.stores import open_store

ROUNDS = 15
QUIET = """
from rota import Schedule

schedule = Schedule("cold", timezone="Europe/Berlin")
for number in range(100):
    at = f"{number % 24:02}:{number % 60:02}"
    schedule.command("true").name(f"task-{number}").yearly(on="{day}", at=at)
"""
ONE = """
import os
from rota import Schedule

schedule = Schedule("cold")
schedule.call(int).name("one").once(at=os.environ["DUE"])
for number in range(99):
    schedule.command("true").name(f"task-{number}").yearly(on="{day}", at="12:00")
"""


def measure(argv: list[str], folder: Path, **env: str) -> tuple[float, float]:
    """Wall and processor milliseconds of one process."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        argv,
        cwd=folder,
        env=os.environ | env,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall * 1e3, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def in_folder(root: Path, name: str, source: str) -> tuple[Path, dict[str, str]]:
    folder = root / name
    folder.mkdir()
    far = datetime.now(UTC) + timedelta(days=180)
    (folder / "schedule.py").write_text(source.replace("{day}", f"{far:%m-%d}"))
    return folder, {
        "ROTA_STATE_DIR": str(root / f"{name}-state"),
        "ROTA_STORE": f"sqlite:///{root / name}.sqlite3",
    }


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    python = [sys.executable, "-c", "pass"]
    rota = [sys.executable, "-m", "rota", "run"]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        noted, noted_env = in_folder(root, "noted", QUIET)
        read, read_env = in_folder(root, "read", QUIET)
        due, due_env = in_folder(root, "due", ONE)
        for folder, env in ((noted, noted_env), (read, read_env)):
            for _ in range(2):
                measure(rota, folder, **env)
        store = open_store(due_env["ROTA_STORE"], namespace="cold/production")

        def without_note() -> tuple[float, float]:
            for note in Path(read_env["ROTA_STATE_DIR"]).glob("*.memo"):
                note.unlink()
            return measure(rota, read, **read_env)

        def one_due() -> tuple[float, float]:
            at = datetime.now(UTC) - timedelta(seconds=1)
            schedule = Schedule("cold")
            schedule.call(int).name("one").once(at=at.isoformat())
            store.advance({schedule["one"].mark_key: at - timedelta(seconds=1)}, first=True)
            return measure(rota, due, DUE=at.isoformat(), **due_env)

        kinds: dict[str, Callable[[], tuple[float, float]]] = {
            "bare Python start": lambda: measure(python, root),
            "nothing due, the usual tick (a note holds)": lambda: measure(rota, noted, **noted_env),
            "nothing due, every fifth minute (100 tasks are read)": without_note,
            "one due on SQLite, started and settled": one_due,
        }
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        one_due()
        for _ in range(ROUNDS):
            for kind, ask in kinds.items():
                found[kind].append(ask())
        started = sum(row.outcome == "succeeded" for row in store.rows(RowQuery(limit=1000)).items)
        store.close()
    assert started == ROUNDS + 1, f"{started} of {ROUNDS + 1} were started"
    base_wall, base_cpu = (statistics.median(each) for each in zip(*found["bare Python start"], strict=True))
    for kind, times in found.items():
        wall, cpu = (statistics.median(each) for each in zip(*times, strict=True))
        print(f"{kind:55} {wall:7.1f} ms {wall / base_wall:5.2f}x   cpu {cpu:6.1f} ms {cpu / base_cpu:5.2f}x")


if __name__ == "__main__":
    main()
