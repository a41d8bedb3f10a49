"""Worlds of every scenario, played with the real engine; ROTA_SEEDS=2000 plays that many of each."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable

import pytest
from greenlet import getcurrent

from tests.simulation.world import SCENARIOS, World

SAFE = [scenario for scenario in SCENARIOS if scenario != "forward"]
SEEDS = int(os.environ.get("ROTA_SEEDS", "200"))
QUICK_SEEDS, BLOCK = 6, 50
KNOWN_LIMITS = {
    "c meets another run",
    "f retried while alive",
    "g lost while alive in trust",
    "g outcome replaced while trust held",
}


def troubles(scenario: str, seeds: Iterable[int]) -> list[str]:
    """What went wrong in these worlds, each with the command that replays it."""
    found = []
    for seed in seeds:
        violations = World(seed, scenario).play()
        if violations:
            kinds = ", ".join(sorted({violation.kind for violation in violations}))
            found.append(f"{kinds}: python -m tests.simulation --scenario {scenario} --seed {seed} --trace")
    return found


@pytest.mark.parametrize("scenario", SAFE)
def test_no_invariant_is_violated_in_a_few_worlds(scenario: str) -> None:
    assert troubles(scenario, range(QUICK_SEEDS)) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK_SEEDS, max(SEEDS, QUICK_SEEDS + 1), BLOCK))
@pytest.mark.parametrize("scenario", SAFE)
def test_no_invariant_is_violated_in_many_worlds(scenario: str, first: int) -> None:
    assert troubles(scenario, range(first, min(first + BLOCK, SEEDS))) == []


def test_a_store_clock_that_jumps_forward_ends_leases_early_and_that_is_a_known_limit() -> None:
    """Within one lease of it a run may be found lost, retried or met by another. Nothing else goes wrong."""
    kinds = Counter(violation.kind for seed in range(15) for violation in World(seed, "forward").play())
    assert kinds
    assert set(kinds) <= KNOWN_LIMITS


def test_the_same_seed_gives_the_same_world() -> None:
    def history() -> object:
        world = World(7, "storm")
        return world.play(), world.calls, world.witness.starts, world.witness.ends

    assert history() == history()


def test_the_worlds_are_full_of_trouble() -> None:
    """A simulation in which nothing happens would find nothing."""
    said, starts = Counter[str](), 0
    for seed in range(2 * QUICK_SEEDS):
        world = World(seed)
        world.play()
        starts += sum(map(len, world.witness.starts.values()))
        said.update(str(outcome) for ends in world.witness.ends.values() for _, outcome in ends)
    assert starts > 20 * QUICK_SEEDS
    assert said.keys() >= {"succeeded", "lost", "missed", "coalesced", "overlapping"}


def test_no_store_call_is_made_under_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for the store may wait for seconds; whoever wants its lock would wait too."""
    holders: set[object] = set()

    class Watched:
        def __enter__(self) -> None:
            holders.add(getcurrent())

        def __exit__(self, *raised: object) -> None:
            holders.discard(getcurrent())

    sends = World.sends

    def sends_freely(self: World, host: object, fiber: object, wish: object) -> None:
        assert fiber not in holders
        sends(self, host, fiber, wish)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(threading, "Lock", Watched)
    monkeypatch.setattr(World, "sends", sends_freely)
    for seed in range(4):
        World(seed).play()
    assert not holders
