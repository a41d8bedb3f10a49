"""Processes whose wall clock alone is off: a library made of skew.c beside this is loaded into them."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
from pathlib import Path

from tests.servers import need, new_folder


@functools.cache
def _library() -> Path:
    folder = new_folder("skew")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = folder / "skew.so"
    source = Path(__file__).with_name("skew.c")
    subprocess.run(
        [need("gcc", "gcc"), "-O2", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True
    )
    return made


def skewed(by: float | Path) -> dict[str, str]:
    """Environment variables under which a process lives `by` seconds ahead, or as much as a file says."""
    name = "SKEW_FILE" if isinstance(by, Path) else "SKEW"
    return {"LD_PRELOAD": str(_library()), name: str(by)}
