"""One executor on a real clock, for the engine's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.executor.close()
