"""Which of 10,000 tasks are due: rota's resident index and its one-shot way, beside cronsim and croniter.

    python benchmarks/due.py [tasks]

Every figure is the median processor time of several rounds in this process; the peers are measured on a
sample and scaled up, since they need seconds. Figures of one run on one machine: read the ratios.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from croniter import croniter
from cronsim import CronSim

from rota._core import cron, triggers
from rota._core.due import DueIndex, due_between
from rota._core.triggers import Cron, Trigger
from rota._core.zones import zone

ZONE = "Europe/Berlin"
AFTER = datetime(2026, 8, 5, 9, 59, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SAMPLE = 300


def realistic(count: int, rng: random.Random) -> list[str]:
    """A few hundred texts, used over and over, as schedules are written."""
    texts = ["* * * * *", "*/5 * * * *", "0 * * * *", "0 0 * * *", "*/10 8-18 * * MON-FRI", "0 0 1 * *"]
    texts += [f"{rng.randrange(60)} {rng.randrange(24)} * * *" for _ in range(200)]
    texts += [f"{rng.randrange(60)} * * * *" for _ in range(60)]
    texts += [f"{rng.randrange(60)} {rng.randrange(24)} * * {rng.randrange(7)}" for _ in range(60)]
    return [rng.choice(texts) for _ in range(count)]


def distinct(count: int, rng: random.Random) -> list[str]:
    """No text twice: the worst that compiling can meet."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[f"{rng.randrange(60)} {rng.randrange(24)} {rng.randrange(1, 29)} * *"] = None
        found[f"{rng.randrange(60)},{rng.randrange(60)} {rng.randrange(24)} * * {rng.randrange(7)}"] = None
    return list(found)[:count]


def median(action: Callable[[], object], rounds: int, before: Callable[[], object] = lambda: None) -> float:
    """Seconds."""
    taken = []
    for _ in range(rounds):
        before()
        start = time.process_time()
        action()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def forget() -> None:
    """As in a process that has just started: nothing parsed yet."""
    for cached in triggers._parsed, cron._parse:
        cached.cache_clear()


def compiled(texts: list[str]) -> list[Trigger]:
    return [Cron.parse(text, zone=ZONE) for text in texts]


def with_cronsim(texts: list[str], after: datetime, upto: datetime) -> list[int]:
    local = after.astimezone(zone(ZONE))
    return [place for place, text in enumerate(texts) if next(CronSim(text, local)) <= upto]


def with_croniter(texts: list[str], after: datetime, upto: datetime) -> list[int]:
    local = after.astimezone(zone(ZONE))
    return [place for place, text in enumerate(texts) if croniter(text, local).get_next(datetime) <= upto]


def line(name: str, seconds: float, base: float | None = None) -> None:
    times = f"{seconds / base:10.1f}x" if base else ""
    print(f"  {name:<58}{seconds * 1000:10.3f} ms{times}")


def compare(title: str, texts: list[str]) -> None:
    """One table."""
    print(f"{len(texts)} tasks, {title} ({len(set(texts))} texts), zone {ZONE}")
    upto = AFTER + MINUTE
    tasks = compiled(texts)
    index = DueIndex(tasks)
    due = index.between(AFTER, upto)
    assert due == due_between(tasks, AFTER, upto)
    assert due == [place for place, task in enumerate(tasks) if (task.next(AFTER) or upto + MINUTE) <= upto]
    instants = [AFTER + MINUTE * step for step in range(50)]
    resident = median(lambda: [index.between(at, at + MINUTE) for at in instants], 7) / len(instants)
    line(f"resident, one minute ({len(due)} due)", resident)
    late = median(lambda: index.between(AFTER, AFTER + 5 * MINUTE), 50)
    line("resident, the 5 minutes of a late tick", late)
    line("building the index", median(lambda: DueIndex(tasks), 3))
    one_shot = median(lambda: due_between(compiled(texts), AFTER, upto), 5, forget)
    line("one-shot: parse, compile and judge", one_shot)
    line("  of which judging", median(lambda: due_between(tasks, AFTER, upto), 5))
    sample = texts[:SAMPLE]
    for name, peer in ("cronsim", with_cronsim), ("croniter", with_croniter):
        taken = median(partial(peer, sample, AFTER, upto), 3) * len(texts) / len(sample)
        line(f"{name}, parse and next (x one-shot)", taken, one_shot)
        line(f"{name}, the same (x resident)", taken, resident)
    print()


def main(count: int) -> None:
    rng = random.Random(1)
    compare("a few hundred texts over and over", realistic(count, rng))
    compare("every text once", distinct(count, rng))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
