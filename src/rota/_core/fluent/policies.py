"""What a policy verb means: a frozen value for the task, or a refusal that says what is allowed."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from rota._core.errors import DefinitionError
from rota._core.fluent import words
from rota._core.leases import LONGEST_LEASE, SHORTEST_LEASE
from rota._core.task import (
    CatchUp,
    CatchUpKind,
    Crash,
    CrashKind,
    LeasePolicy,
    OutputPolicy,
    Overlap,
    OverlapKind,
)
from rota._core.triggers import Window

NOT_YET: Final = {
    "cancel_previous": 'overlap("skip") and overlap("queue_one") are there',
    "expires_after": "time_limit() stops a run that takes too long",
    "retry": "retry_when_lost() repeats a run whose server died; repeat other failures in the function",
    "splay": "every(offset=...) and at=... move a task out of the crowd",
    "even_if_store_is_down": "without its store a task is not started, and caught up if catch_up() says so",
    "even_when_paused": "a pause holds for every task it names",
    "isolated": "command() and module() run in a process of their own",
    "in_background": "runs do not wait for each other",
}
"""What the design promises and this version does not do, each with the way out. To pass over one
of these in silence would be to run the task under another policy than it states."""


def not_yet(word: str) -> DefinitionError:
    return DefinitionError(f"{word} is not available yet", hint=NOT_YET[word])


def window(start: str, end: str, *, inside: bool) -> Window:
    words.time_of_day(start, "start")
    words.time_of_day(end, "end")
    return Window.parse(start, end, inside=inside)


def overlap(kind: str, limit: int, key: str | None, wait: timedelta | None) -> Overlap:
    if kind == OverlapKind.CANCEL_PREVIOUS:
        raise not_yet("cancel_previous")
    kind = OverlapKind(words.choice(kind, "kind", ("allow", "skip", "queue_one")))
    words.whole_number(limit, "limit", 1)
    if kind is OverlapKind.ALLOW and (limit, key) != (1, None):
        argument, found = ("key", key) if limit == 1 else ("limit", limit)
        raise DefinitionError(
            '"allow" has no limit',
            argument=argument,
            found=found,
            allowed=f'{argument} with "skip" or "queue_one"',
        )
    if wait is not None and kind is not OverlapKind.QUEUE_ONE:
        raise DefinitionError(
            f'nothing waits under "{kind}"', argument="wait", found=wait, allowed='wait with "queue_one"'
        )
    return Overlap(
        kind,
        limit,
        None if key is None else words.label(key, "key"),
        Overlap().wait if wait is None else words.duration(wait, "wait"),
    )


def lease(length: timedelta | None, minutes: float, seconds: float) -> LeasePolicy:
    chosen = words.duration(length, "length", minutes=minutes, seconds=seconds)
    if not SHORTEST_LEASE <= chosen <= LONGEST_LEASE:
        raise DefinitionError(
            "a lease cannot be of this length",
            argument="length",
            found=str(chosen),
            allowed="10 seconds to 5 minutes",
            hint="runs may be longer, as leases are renewed; it says how soon a dead server frees the key",
        )
    return LeasePolicy(chosen)


def crash(times: int, within: timedelta) -> Crash:
    return Crash(
        CrashKind.RETRY, words.whole_number(times, "times", 1, 100), words.duration(within, "within")
    )


def catch_up(kind: str, within: timedelta | None, most: int | None) -> CatchUp:
    kind = CatchUpKind(words.choice(kind, "kind", ("none", "latest", "all")))
    if kind is CatchUpKind.NONE and (within, most) != (None, None):
        argument, found = ("within", within) if within is not None else ("most", most)
        raise DefinitionError(
            "nothing is caught up",
            argument=argument,
            found=found,
            allowed=f'{argument} with "latest" or "all"',
        )
    if kind is CatchUpKind.NONE:
        return CatchUp()
    if within is None:
        raise DefinitionError(
            "how old an occurrence may be is not said",
            argument="within",
            found=within,
            allowed="a timedelta, as in within=timedelta(hours=6)",
        )
    age = words.duration(within, "within")
    if kind is CatchUpKind.LATEST and most is not None:
        raise DefinitionError("the latest is one", argument="most", found=most, allowed='most with "all"')
    if kind is CatchUpKind.ALL and most is None:
        raise DefinitionError(
            "how many may be started is not said",
            argument="most",
            found=most,
            allowed="a whole number of 1 or more",
        )
    return CatchUp(kind, age, 1 if most is None else words.whole_number(most, "most", 1))


def output(target: str) -> OutputPolicy:
    path = words.text(target, "target", 'the path of a file, or "-" for our own standard output')
    return OutputPolicy(echo=True) if path == "-" else OutputPolicy(path=path)
