"""Hosts that take part: each a name, a state folder and a clock of its own, with one store between them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.servers.skew import skewed


@dataclass
class Host:
    """A host on which `rota` is called. `skew`: seconds its clock is ahead, or a file that says how many."""

    folder: Path
    name: str
    store: str
    skew: float | Path = 0.0
    said: list[str] = field(default_factory=list)

    def start(self, *words: str) -> subprocess.Popen[str]:
        env = os.environ | {
            "ROTA_STORE": self.store,
            "ROTA_STATE_DIR": str(self.folder / f"state of {self.name}"),
            "ROTA_SERVER": self.name,
        }
        if self.skew:
            env |= skewed(self.skew)
        return subprocess.Popen(
            [sys.executable, "-m", "rota", *words],
            cwd=self.folder,
            env=env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def ahead(self) -> float:
        """Seconds that its clock is ahead now."""
        return float(self.skew.read_text()) if isinstance(self.skew, Path) else self.skew

    def rota(self, *words: str) -> str:
        """What it says; it must succeed."""
        process = self.start(*words)
        said = process.communicate(timeout=60)[0]
        assert process.returncode == 0, said
        return said


def tick(hosts: Iterable[Host]) -> None:
    """One `rota run` on each host, all at once, as cron starts them; every one must succeed."""
    ticks = [(host, host.start("run", "--exit-zero")) for host in hosts]
    try:
        for host, process in ticks:
            host.said.append(process.communicate(timeout=55)[0])
    finally:
        for _, process in ticks:
            process.kill()
    assert all(process.returncode == 0 for _, process in ticks), [
        host.said[-1] for host, process in ticks if process.returncode
    ]


def until_the_next_minute() -> datetime:
    """The minute that begins as this returns, as cron would wait for it."""
    now = time.time()
    boundary = (now // 60 + 1) * 60
    while time.time() < boundary:
        time.sleep(min(0.2, max(0.001, boundary - time.time())))
    return datetime.fromtimestamp(boundary, UTC)
