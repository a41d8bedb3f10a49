"""Each guard of the design, left out of the real code, shows in a world that is known to need it.

Where a guard that was put there for a reason can be taken away unseen, the simulation is too kind, or
another guard covers for it: then the pair is planted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from rota._core.task import Task
from rota._engine.carrier import Carrier
from rota.stores import memory
from tests.simulation.mutants import GUARDS, without
from tests.simulation.world import World


class Seen(NamedTuple):
    """Without these guards the violation shows in at least one of these worlds."""

    guards: tuple[str, ...]
    scenario: str
    seeds: tuple[int, ...]
    violation: str
    intensity: float | None = None


SEEN: Final[tuple[Seen, ...]] = ()

UNSEEN: Final[dict[str, str]] = {}


@pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: f"{'+'.join(mutant.guards)}-{mutant.scenario}")
def test_a_guard_that_is_left_out_shows(mutant: Seen) -> None:
    found = set()
    with without(*mutant.guards):
        for seed in mutant.seeds:
            world = World(seed, mutant.scenario, intensity=mutant.intensity)
            found |= {violation.kind for violation in world.play()}
    how = f" --intensity {mutant.intensity:g}" if mutant.intensity else ""
    assert mutant.violation in found, (
        f"python -m tests.simulation --scenario {mutant.scenario} --seed {mutant.seeds[0]}{how}"
        f" --without {','.join(mutant.guards)} --trace"
    )


@pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: f"{'+'.join(mutant.guards)}-{mutant.scenario}")
def test_with_every_guard_the_same_worlds_are_well(mutant: Seen) -> None:
    for seed in mutant.seeds:
        assert World(seed, mutant.scenario, intensity=mutant.intensity).play() == []


def test_every_guard_is_seen_or_has_a_reason_why_not() -> None:
    alone = {mutant.guards[0] for mutant in SEEN if len(mutant.guards) == 1}
    assert alone.isdisjoint(UNSEEN)
    assert alone | UNSEEN.keys() == GUARDS.keys() | {"cancel_waits"}


def test_every_guard_is_documented() -> None:
    assert all(plant.__doc__ for plant in GUARDS.values())


def test_a_mutant_leaves_the_code_as_it_was() -> None:
    owners = Task, Carrier, memory
    before = [dict(vars(owner)) for owner in owners]
    with without(*GUARDS):
        assert [dict(vars(owner)) for owner in owners] != before
    assert [dict(vars(owner)) for owner in owners] == before
