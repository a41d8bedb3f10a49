"""Each guard of the design, left out of the real code, shows in a world that is known to need it.

Where a guard that was put there for a reason can be taken away unseen, the simulation is too kind, or
another guard covers for it: then the pair is planted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
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
    tuning: Mapping[str, float] = MappingProxyType({})

    def worlds(self) -> Iterator[World]:
        for seed in self.seeds:
            yield World(seed, self.scenario, **self.tuning)


FIERCE: Final = {"intensity": 4.0}

SEEN: Final[tuple[Seen, ...]] = (
    Seen(("absent_only",), "base", (55,), "g recorded unstarted, but started"),
    Seen(("ask_extends",), "base", (821,), "c meets another run", FIERCE),
    Seen(("early",), "short", (1914,), "e dropped in calm weather"),
    Seen(("epoch",), "flush", (175,), "a attempt started twice"),
    Seen(("epoch_settle",), "flush", (23,), "g recorded unstarted, but started", FIERCE),
    Seen(("floor",), "short", (24,), "g recorded unstarted, but started"),
    Seen(("floor",), "mix", (64,), "g ended more than once"),
    Seen(("keep",), "back", (16,), "r retry never made"),
    Seen(("lease_first",), "base", (1,), "e dropped instead of queued"),
    Seen(("mark_per_trigger",), "mix", (25,), "b silent", FIERCE),
    Seen(("mark_unbroken",), "base", (109,), "b silent", FIERCE),
    Seen(("quarantine",), "flush", (192,), "c meets another run", {"slowness": 3.0}),
    Seen(("retry_from_rows",), "base", (6,), "r retry never made"),
    Seen(("row_atomic",), "base", (2,), "g ended more than once"),
    Seen(("rows_first",), "base", (2,), "g lost while alive in trust"),
    Seen(("run_id",), "restart", (1,), "a attempt started twice"),
    Seen(("settle_known",), "base", (5,), "g outcome never settled by a living server"),
    Seen(("settle_then_release",), "base", (5,), "g outcome replaced while trust held"),
    Seen(("start_by",), "base", (5,), "g lost but started"),
    Seen(("start_by_boot",), "back", (70,), "g lost but started"),
    Seen(("start_by_in_row",), "mix", (126,), "g lost but started", {**FIERCE, "long_lease": 150.0}),
    Seen(("trust",), "base", (79,), "c meets another run", FIERCE),
    Seen(("trust_from_sent",), "base", (26,), "c meets another run", FIERCE),
    Seen(("young_epoch",), "restart", (39,), "g lost while alive in trust"),
    Seen(("absent_only", "row_atomic"), "base", (2,), "g ended more than once"),
    Seen(("all_open", "mark_unbroken"), "base", (30,), "b open for ever"),
    Seen(("claim_window", "floor"), "back", (1,), "g recorded unstarted, but started"),
    Seen(("claim_window", "keep", "floor"), "back", (0,), "g recorded unstarted, but started"),
    Seen(("epoch", "epoch_settle"), "flush", (175,), "a attempt started twice"),
    Seen(("epoch", "quarantine"), "flush", (252,), "c meets another run"),
    Seen(("keep", "floor"), "back", (0,), "g recorded unstarted, but started"),
    Seen(("keep", "floor"), "mix", (7,), "g recorded unstarted, but started"),
    Seen(("lost_needs_row", "young_epoch"), "flush", (61,), "g lost while alive in trust"),
    Seen(("quarantine", "young_epoch"), "flush", (192,), "c meets another run", {"slowness": 3.0}),
    Seen(("shared_run_key", "start_by"), "base", (5, 6, 10), "f retried while alive"),
    Seen(("start_by", "start_by_boot"), "back", (0,), "g lost while alive in trust"),
    Seen(("start_by", "start_by_boot"), "base", (5,), "g lost but started"),
    Seen(
        ("start_by_in_row", "start_by_boot"),
        "mix",
        (126,),
        "g lost but started",
        {**FIERCE, "long_lease": 150.0},
    ),
    Seen(("trust", "start_by_boot"), "base", (15,), "g lost but started"),
    Seen(("trust", "trust_ends"), "base", (79,), "c meets another run", FIERCE),
    Seen(("trust_from_sent", "start_by_boot"), "base", (60,), "g lost while alive in trust"),
)

UNSEEN: Final[dict[str, str]] = {
    "all_open": "covered by mark_unbroken; the pair shows",
    "cancel_waits": "cancel_previous is not in the engine yet",
    "claim_window": "covered by floor; the pair shows",
    "first_sight": "needs two servers that first look on both sides of a due instant",
    "give_back": "an unused lease blocks its key for one lease; no invariant sees it",
    "lost_needs_row": "covered by young_epoch; the pair shows",
    "lost_token": "needs two open rows of one attempt in turn",
    "same_token": "an open row that nobody runs ends as lost; no invariant sees it",
    "shared_run_key": "covered by start_by; the pair shows",
    "trust_ends": "needs a late duplicate that revives a lapsed key just then; not met",
}


@pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: f"{'+'.join(mutant.guards)}-{mutant.scenario}")
def test_a_guard_that_is_left_out_shows(mutant: Seen) -> None:
    found = set()
    with without(*mutant.guards):
        for world in mutant.worlds():
            found |= {violation.kind for violation in world.play()}
    how = "".join(f" --{name.replace('_', '-')} {value:g}" for name, value in mutant.tuning.items())
    assert mutant.violation in found, (
        f"python -m tests.simulation --scenario {mutant.scenario} --seed {mutant.seeds[0]}{how}"
        f" --without {','.join(mutant.guards)} --trace"
    )


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: f"{'+'.join(mutant.guards)}-{mutant.scenario}")
def test_with_every_guard_the_same_worlds_are_well(mutant: Seen) -> None:
    for world in mutant.worlds():
        assert world.play() == []


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
