"""What all tests share: which of them are quick, and that every server they started is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests import servers

TESTS = Path(__file__).parent
QUICK = {"cases", "contract", "core", "engine", "simulation", "typing"}

# A time limit on a single example measures the machine, not the code.
settings.register_profile("rota", deadline=None, print_blob=True)
settings.load_profile("rota")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as quick what lies in a quick directory and asks for neither a service nor patience."""
    for item in items:
        inside = item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).parts[0] in QUICK
        if inside and not item.get_closest_marker("slow") and not item.get_closest_marker("service"):
            item.add_marker("quick")


def pytest_sessionfinish() -> None:
    servers.stop_all()
