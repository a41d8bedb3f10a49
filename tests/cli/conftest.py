"""An application in a folder of its own, with its command line and a look into its store."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota._core.rows import Row, RowQuery
from rota._core.task import Task
from rota.stores import Store, open_store

PATIENCE = 30.0
"""Seconds after which a test gives up waiting for something that is going to happen."""


@dataclass
class App:
    """A folder with a schedule.py. Its store is the default one, in a state folder of its own."""

    path: Path
    env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def write(self, text: str, name: str = "schedule.py") -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def schedule(self, body: str, *, timezone: str = "UTC") -> None:
        """Write a schedule of this body."""
        head = "import os, sys, time\nfrom datetime import timedelta\nfrom rota import Schedule\n"
        self.write(f'{head}schedule = Schedule("shop", timezone="{timezone}")\n{body}\n')

    def rota(
        self, *args: str, env: Mapping[str, str] | None = None, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Call rota to its end."""
        return subprocess.run(
            self._command(args),
            cwd=self.path,
            env={**self.env, **(env or {})},
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=PATIENCE * 3,
            check=False,
        )

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Call rota and go on; it is ended with the test."""
        process = subprocess.Popen(
            self._command(args),
            cwd=self.path,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.started.append(process)
        return process

    def _command(self, args: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "rota", *args]

    # -- looking into the store

    @property
    def store_file(self) -> Path:
        return self.path / "state" / "shop.sqlite3"

    def store(self) -> Store:
        self.store_file.parent.mkdir(exist_ok=True)
        return open_store(f"sqlite:///{self.store_file}", namespace="shop/production")

    def rows(self, task: str | None = None) -> Sequence[Row]:
        store = self.store()
        try:
            return store.rows(RowQuery(tasks=(task,) if task else (), limit=1000)).items
        finally:
            store.close()

    def tasks(self) -> dict[str, Task]:
        found = runpy.run_path(str(self.path / "schedule.py"))["schedule"]
        return {task.name: task for task in found.tasks}

    def has_seen_it(self, *, ago: float = 60.0) -> None:
        """Make it a schedule that was first seen a while ago, so that what is due since then is due now."""
        store = self.store()
        since = datetime.now(UTC) - timedelta(seconds=ago)
        store.advance({task.mark_key: since for task in self.tasks().values()}, first=True)
        store.close()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                told = [f"{process.args}: {process.communicate(timeout=5)}" for process in self._killed()]
                pytest.fail(f"it never happened: {what}\n" + "\n".join(told))
            time.sleep(0.02)

    def _killed(self) -> Sequence[subprocess.Popen[str]]:
        for process in self.started:
            process.kill()
        return self.started


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    folder = tmp_path / "shop"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "PYTHONSAFE"))}
    env = {**kept, "ROTA_STATE_DIR": str(folder / "state"), "ROTA_SERVER": "web-1", "COLUMNS": "200"}
    made = App(folder, env)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ago(seconds: float) -> str:
    """An instant so long ago, as a schedule writes it."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="seconds")
