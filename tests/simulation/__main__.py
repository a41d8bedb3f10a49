"""Replay worlds: one with every store call printed, or many with what went wrong in them.

python -m tests.simulation --scenario base --seed 143 --trace
python -m tests.simulation --scenario mix --seeds 0..20000 --without keep,floor
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext

from tests.simulation.mutants import GUARDS, without
from tests.simulation.world import SCENARIOS, World


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--scenario", choices=SCENARIOS, default="base")
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seeds", default="0..1000", help="FIRST..LAST, the last not included")
    parser.add_argument("--intensity", type=float, help="how much trouble there is; drawn if not given")
    parser.add_argument(
        "--long-lease", type=float, help="seconds of a lease in the new schedule (mix, storm)"
    )
    parser.add_argument("--slowness", type=float, help="how much slower than the others a slow request is")
    parser.add_argument("--without", default="", help=f"guards to leave out, with commas: {' '.join(GUARDS)}")
    parser.add_argument("--trace", action="store_true", help="print every store call and every event")
    options = parser.parse_args()
    guards = tuple(filter(None, options.without.split(",")))
    if unknown := set(guards) - set(GUARDS):
        parser.error(f"no such guard: {', '.join(sorted(unknown))}")
    first, last = (
        (options.seed, options.seed + 1) if options.seed is not None else map(int, options.seeds.split(".."))
    )
    named = ((name, getattr(options, name)) for name in ("intensity", "long_lease", "slowness"))
    tuning = {name: value for name, value in named if value is not None}
    with without(*guards) if guards else nullcontext():
        return replay(options.scenario, range(first, last), tuning, trace=options.trace)


def replay(scenario: str, seeds: range, tuning: dict[str, float], *, trace: bool) -> int:
    bad = starts = looks = calls = 0
    counts, firsts = Counter[str](), dict[str, int]()
    began = time.process_time()
    for seed in seeds:
        world = World(seed, scenario, trace=trace, **tuning)
        if trace:
            print(*world.schedules[0], *(world.schedules[1] if world.mixed else ()), sep="\n")
        violations = world.play()
        if len(seeds) == 1:
            print(*violations, sep="\n")
        kinds = {violation.kind for violation in violations}
        starts += sum(map(len, world.witness.starts.values()))
        looks, calls, bad = looks + world.looks, calls + world.calls, bad + bool(kinds)
        counts.update(kinds)
        for kind in kinds:
            firsts.setdefault(kind, seed)
    took = time.process_time() - began
    print(
        f"{scenario:8} seeds {seeds.start}..{seeds.stop} worlds {len(seeds)} starts {starts} bad {bad}"
        f" ticks {looks} calls {calls} cpu {took:.1f} s:"
        f" {looks / took:.0f} ticks/s, {1000 * took / len(seeds):.1f} ms/world"
    )
    for kind, number in counts.most_common():
        print("   ", kind, number, "first seed", firsts[kind])
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
