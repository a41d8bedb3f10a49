"""The demonstration shows what it promises, and says so with its exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demonstration_kills_a_server_and_starts_every_occurrence_once() -> None:
    done = subprocess.run(
        [sys.executable, "demo/run.py"], cwd=ROOT, text=True, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KILLED with SIGKILL" in done.stdout
    assert "   0  started twice" in done.stdout
    assert "   0  missed" in done.stdout
    assert done.stdout.endswith("\nall once\n")
