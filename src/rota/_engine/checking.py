"""What `rota check` finds: whether this server, its store and the other servers are set up as the schedule
demands.

`survey` asks the store and gathers the facts; `findings` is pure and judges them. An error is something that
breaks a promise the schedule makes; a warning is something a careful operator would want to know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from rota._core.planner import in_words, question
from rota._core.value import value
from rota._engine.presence import KEPT, Present, present
from rota._engine.remarks import clock_is_off, promised_too_far, some
from rota._engine.server import concerns
from rota.stores import shown
from rota.stores.base import Guarantees, Shared

if TYPE_CHECKING:
    from rota._core.rows import View
    from rota._core.task import Task
    from rota._engine.presence import Me
    from rota._engine.server import Server

TRIES: Final = 5
"""Looks that the round-trip time is taken from."""

SILENT_AFTER: Final = timedelta(minutes=70)
"""A server that ticks opens its store at least once an hour; after this long it has fallen silent."""


class Level(StrEnum):
    """How grave a finding is. An error makes `rota check` fail."""

    ERROR = "error"
    WARNING = "warning"
    FINE = "fine"


@value
class Finding:
    """One thing found, in words a person can act upon."""

    level: Level
    about: str
    words: str


@value
class Facts:
    """What was found out, without a judgement.

    `store` is as it may be printed. `round_trip` is the shortest of several looks. `offset` is how far the
    store's clock is ahead of this host's. `local`: the address means another store on every host.
    """

    me: Me
    environment: str
    namespace: str
    store: str
    local: bool
    guarantees: Guarantees
    now: datetime
    round_trip: timedelta
    offset: timedelta
    concerns: Sequence[str]
    servers: Sequence[Present]
    tasks: Sequence[Task]
    expected: int | None = None


def survey(server: Server, *, expected: int | None = None) -> Facts:
    """Ask the open store of this server, and sign in on it. Raises StoreUnavailable if it does not answer."""
    store, clock = server.store, server.clock
    asked = question((), clock.estimate())

    def look() -> tuple[float, View]:
        sent = clock.boot()
        view = store.look(asked)
        answered = clock.boot()
        clock.learn(view.now, sent=sent, answered=answered)
        return answered - sent, view

    view = look()[1]
    round_trip = min(look()[0] for _ in range(TRIES))
    me = server.me()
    own = next((each for each in present(view.leases) if each.me.id == me.id), None)
    server.sign_in(ticked=None if own is None else own.ticked)
    view = look()[1]
    return Facts(
        me=me,
        environment=server.environment,
        namespace=server.namespace,
        store=shown(server.url),
        local=is_local(server.url) or store.guarantees.shared is not Shared.NETWORK,
        guarantees=store.guarantees,
        now=view.now,
        round_trip=timedelta(seconds=round_trip),
        offset=clock.offset,
        concerns=concerns(store),
        servers=present(view.leases),
        tasks=server.tasks,
        expected=expected,
    )


def findings(facts: Facts) -> list[Finding]:
    """The judgement, gravest first."""
    found = [
        *_reach(facts),
        *_expected(facts),
        *_clock(facts),
        *_concerns(facts),
        *_versions(facts),
        *_names(facts),
        *_silence(facts),
    ]
    return sorted(found, key=lambda each: list(Level).index(each.level))


def is_local(url: str) -> bool:
    """Whether the address is one that means another store on every host: loopback, a socket file, a file."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not parts.netloc and parts.scheme in ("memory", "sqlite"):
        return True
    if "unix" in parts.scheme or "unix_socket=" in parts.query or "host=/" in parts.query:
        return True
    host = host.lower()
    return host in ("localhost", "::1") or host.startswith(("127.", "%2f"))


def seen_lately(facts: Facts) -> Sequence[Present]:
    return [each for each in facts.servers if facts.now - each.seen <= SILENT_AFTER]


def _reach(facts: Facts) -> Iterator[Finding]:
    """Does the store reach as far as the schedule demands?"""
    shared = facts.guarantees.shared
    if stated := promised_too_far(facts.tasks, shared):
        yield Finding(
            Level.ERROR,
            "store",
            f"on_one_server() of {some(stated)} is promised on this {shared} only: {facts.store} is not"
            " shared between hosts. Set ROTA_STORE to a store that all servers reach",
        )
    elif shared is not Shared.NETWORK:
        yield Finding(
            Level.FINE, "store", f"holds for this {shared} only; servers elsewhere would start everything too"
        )
    elif facts.local and _alone(facts) and facts.expected is None:
        yield Finding(
            Level.WARNING,
            "store",
            f"this looks like your own local store: {facts.store} means another one on every host. If there"
            " are other servers, they do not see this one; rota check --expect-servers N tells",
        )
    else:
        yield Finding(Level.FINE, "store", f"answers in {_ms(facts.round_trip)}")


def _alone(facts: Facts) -> bool:
    return {each.me.name for each in seen_lately(facts)} <= {facts.me.name}


def _expected(facts: Facts) -> Iterator[Finding]:
    if facts.expected is None:
        return
    lately = seen_lately(facts)
    names = some([each.me.name for each in lately])
    if len(lately) >= facts.expected:
        more = "" if len(lately) == facts.expected else f" ({facts.expected} expected)"
        yield Finding(Level.FINE, "servers", f"{len(lately)} are on this store{more}: {names}")
        return
    why = (
        f"; this looks like your own local store: {facts.store} means another one on every host"
        if facts.local
        else f"; the others have not ticked or been checked in the last {in_words(SILENT_AFTER)}, or use"
        f" another store or environment than {facts.store}, {facts.namespace}"
    )
    yield Finding(
        Level.ERROR,
        "servers",
        f"only {len(lately)} of {facts.expected} expected servers {'is' if len(lately) == 1 else 'are'} on"
        f" this store: {names}{why}",
    )


def _clock(facts: Facts) -> Iterator[Finding]:
    off, grain = abs(facts.offset), facts.guarantees.grain
    if words := clock_is_off(facts.offset, grain):
        yield Finding(Level.WARNING, "clock", words)
    else:
        yield Finding(Level.FINE, "clock", f"within {_ms(max(off, grain))} of the store's")


def _concerns(facts: Facts) -> Iterator[Finding]:
    for concern in facts.concerns:
        yield Finding(Level.WARNING, "store", concern)


def _versions(facts: Facts) -> Iterator[Finding]:
    """Are the servers seen lately on one version of the schedule, of rota, and in one zone?"""
    lately = seen_lately(facts)
    for what, of in (
        ("schedule", lambda each: f"{each.me.fingerprint}, {each.me.tasks} tasks"),
        ("rota", lambda each: each.me.version),
        ("time zone", lambda each: each.me.timezone),
    ):
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for each in lately:
            groups[of(each)].append(each.me.name)
        if len(groups) > 1:
            told = "; ".join(f"{version} on {some(names)}" for version, names in sorted(groups.items()))
            yield Finding(
                Level.WARNING,
                what,
                f"servers are on different versions: {told}. Normal while a deploy rolls, but not for long",
            )


def _names(facts: Facts) -> Iterator[Finding]:
    """Two machines with one name that were there at the same time."""
    by_name: Mapping[str, list[Present]] = defaultdict(list)
    for each in facts.servers:
        by_name[each.me.name].append(each)
    for name, same in by_name.items():
        same.sort(key=lambda each: each.since)
        if any(later.since < earlier.seen for earlier, later in pairwise(same)):
            yield Finding(
                Level.WARNING,
                "servers",
                f"{len(same)} servers call themselves {name}: tasks of every server run on one of them only,"
                " and the history cannot tell them apart. Give each a name of its own: ROTA_SERVER",
            )


def _silence(facts: Facts) -> Iterator[Finding]:
    for each in facts.servers:
        mine = each.me.id == facts.me.id and each.me.name == facts.me.name
        if mine and each.ticked is None:
            yield Finding(
                Level.WARNING,
                "cron",
                "rota run has not ticked on this host: is its line in the crontab, and that of this user?",
            )
            continue
        last = each.ticked if mine and each.ticked is not None else each.seen
        if facts.now - last > SILENT_AFTER:
            yield Finding(
                Level.WARNING,
                "cron",
                f"{'this server' if mine else each.me.name} last ticked {in_words(facts.now - last)} ago:"
                f" does cron fire there? (It is forgotten after {in_words(KEPT)}.)",
            )


def _ms(length: timedelta) -> str:
    milliseconds = length.total_seconds() * 1000
    return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds / 1000:.1f} s"
