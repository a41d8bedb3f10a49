"""`import rota` costs nothing that is not used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import sys
before = set(sys.modules)
import json
import rota
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """What a fresh interpreter has loaded after `import rota`, and had not before."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_importing_rota_loads_the_standard_library_and_rota_only(loaded: list[str]) -> None:
    known = {"rota", *sys.stdlib_module_names}
    # zoneinfo loads sysconfig, and that a module named after the machine.
    foreign = [
        name for name in loaded if name.split(".")[0] not in known and not name.startswith("_sysconfigdata_")
    ]
    assert foreign == []


def test_importing_rota_loads_no_driver_and_no_face(loaded: list[str]) -> None:
    faces = ("rota.cli", "rota.integrations", "rota.testing", "rota.web")
    unused = [name for name in loaded if name.startswith(faces)]
    unused += [name for name in loaded if name.startswith("rota.stores.") and name != "rota.stores.base"]
    assert unused == []


@pytest.mark.parametrize("name", ["asyncio", "multiprocessing", "sqlite3", "unittest"])
def test_importing_rota_leaves_the_costly_parts_of_the_standard_library_alone(
    loaded: list[str], name: str
) -> None:
    assert name not in loaded
