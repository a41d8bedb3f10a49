"""The leases: each key is one item with all its places, changed by compare-and-swap on a revision."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from rota.stores.base import (
    FORGOTTEN_AFTER,
    RECORD_VERSION,
    Lease,
    Refusal,
    Request,
    acquired,
    microseconds,
    renewed,
)
from rota.stores.dynamodb.partition import AT_ONCE, FOR_WRITING, Partition, chunks
from rota.stores.dynamodb.table import Item, held, lease_key, leases_at, left, places_of
from rota.stores.dynamodb.wire import Call, Reply

_KEYS_REMEMBERED: Final = 1024


class Key:
    """How a key of leases stands: its places, its last fence, and the revision that a write must find.

    `rev` is None where nothing was read and the key is only hoped to be free, and empty where no item stands.
    """

    __slots__ = ("fence", "leases", "rev")

    def __init__(self, rev: str | None, leases: Sequence[Lease] = (), fence: int = 0) -> None:
        self.rev, self.leases, self.fence = rev, leases, fence

    def holders(self, now: datetime) -> list[Lease]:
        return [lease for lease in self.leases if lease.until > now]


class Change:
    """What was decided on a key, how it stood and stands, and when that was written (0: nothing was)."""

    __slots__ = ("after", "answers", "before", "date")

    def __init__(self, answers: list[Any], before: Key, after: Key) -> None:
        self.answers, self.before, self.after, self.date = answers, before, after, 0


Decision = Callable[[Key], tuple[Sequence[Lease], list[Any]]]
"""What becomes of a key: its places from now on (the same object: nothing is to be written), and answers."""

HOPED_FREE: Final = Key(None)


class Keys:
    """The keys of one namespace."""

    def __init__(self, items: Partition) -> None:
        self._items = items
        self._remembered: dict[str, Key] = {}

    def each(
        self,
        call: Call,
        leases: Sequence[Lease],
        decide: Callable[[Sequence[Lease], Key], tuple[Sequence[Lease], list[Any]]],
    ) -> list[Any]:
        """What is decided for each lease; the places of one key together."""
        of_key: dict[str, list[Lease]] = {}
        for lease in leases:
            of_key.setdefault(lease.key, []).append(lease)
        changes = self.change(call, {key: partial(decide, mine) for key, mine in of_key.items()})
        answers = {key: iter(change.answers) for key, change in changes.items()}
        return [next(answers[lease.key]) for lease in leases]

    def change(
        self, call: Call, decisions: Mapping[str, Decision], *, hope: bool = False
    ) -> dict[str, Change]:
        """Change each key as is decided upon how it stands, if nobody else has changed it meanwhile; else
        decide anew. How a key stands may be remembered from the last change, or hoped to be free, until a
        write says otherwise; but what writes nothing is decided only upon what was read in this call."""
        done: dict[str, Change] = {}
        known: dict[str, Key] = {}
        read: set[str] = set()
        tried: dict[str, dict[str, Change]] = {key: {} for key in decisions}
        for key in decisions:
            remembered = self._remembered.get(key, HOPED_FREE if hope else None)
            if remembered is not None:
                known[key] = remembered
        pending = sorted(decisions)
        rounds = 0
        while pending:
            unknown = [key for key in pending if key not in known]
            items = self._items.read(call, map(lease_key, unknown))
            for key in unknown:
                known[key] = stands = self._stands(items, lease_key(key))
                read.add(key)
                if stands.rev in tried[key]:  # a write of ours whose answer was lost
                    done[key] = tried[key][stands.rev]
            writes: dict[str, Change] = {}
            for key in pending:
                if key in done:
                    continue
                before = known.pop(key)
                leases, answers = decisions[key](before)
                if leases is not before.leases:
                    fence = max([before.fence, *(lease.fence for lease in leases)])
                    writes[key] = Change(answers, before, Key(_revision(), leases, fence))
                    tried[key][writes[key].after.rev or ""] = writes[key]
                elif key in read:
                    done[key] = Change(answers, before, before)
            replies = call.run(
                [
                    partial(self._write, call, key, change.before, change.after.leases, change.after.rev)
                    for key, change in writes.items()
                ]
            )
            for (key, change), reply in zip(writes.items(), replies, strict=True):
                if reply.met:
                    change.after.fence = reply.body["Attributes"]["fence"]
                    change.date = reply.date
                    done[key] = change
                    self._remember(key, change.after)
            pending = [key for key in pending if key not in done]
            call.must_go_on()
            rounds += 1
            if pending and rounds > 1:
                time.sleep(random.uniform(0, 0.004 * rounds))
        return done

    def write_back(self, call: Call, key: str, change: Change) -> Reply:
        """A job: undo a change. Only its places; the fence has been used."""
        self._remembered.pop(key, None)
        return self._write(call, key, change.after, change.before.holders(call.now), _revision())

    def prune(self, call: Call) -> None:
        """Forget the keys that lapsed an hour ago."""
        last = microseconds(call.now - FORGOTTEN_AFTER)
        lapsed = call.run(
            [
                self._items.by_state(call, held(0), held(last)),
                self._items.by_state(call, left(0), left(last)),
            ]
        )
        for some in chunks([item for items in lapsed for item in items], AT_ONCE):
            if call.spent < FOR_WRITING:
                call.run([partial(self._items.delete, call, item["sk"], "rev", item["rev"]) for item in some])

    def _write(self, call: Call, key: str, before: Key, leases: Sequence[Lease], rev: str | None) -> Reply:
        now = microseconds(call.now)
        until = max((microseconds(lease.until) for lease in leases), default=0)
        fence = max([before.fence, *(lease.fence for lease in leases)])
        values: dict[str, Any] = {
            "v": RECORD_VERSION,
            "places": places_of(leases),
            "rev": rev or "",
            "until": until,
            "state": held(until) if leases else left(now),
        }
        change = "SET " + ", ".join(f"#{name} = :{name}" for name in values) + ", #fence = "
        change += ":fence" if fence or before.rev is not None else "if_not_exists(#fence, :fence)"
        values["fence"] = fence
        if before.rev is None:
            only_if = "attribute_not_exists(#pk) OR (#v <= :v AND #until <= :now" + (
                " AND #fence < :fence)" if fence else ")"
            )
            values["now"] = now
        elif not before.rev:
            only_if = "attribute_not_exists(#pk)"
        else:
            only_if = "#rev = :before"
            values["before"] = before.rev
        item = self._items.key(lease_key(key))
        return call.write("update_item", item, only_if, change=change, answer="ALL_NEW", **values)

    def _remember(self, key: str, stands: Key) -> None:
        if not stands.leases:
            self._remembered.pop(key, None)
            return
        if len(self._remembered) >= _KEYS_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = stands

    def _stands(self, items: Mapping[str, Item], sk: str) -> Key:
        if sk not in items:
            return Key("")
        item = items[sk]
        return Key(item["rev"], leases_at(item, self._items.where), item["fence"])


def if_asked(request: Request, key: Key, now: datetime) -> Lease | Refusal:
    holders = key.holders(now)
    return acquired(request, holders, now, fence_before=key.fence, epoch=None, quiet_until=None)


def acquire_in(request: Request, now: datetime, key: Key) -> tuple[Sequence[Lease], list[Any]]:
    answer, holders = if_asked(request, key, now), key.holders(now)
    if isinstance(answer, Refusal) or answer in holders:
        return key.leases, [answer]
    return [*(lease for lease in holders if lease.slot != answer.slot), answer], [answer]


def renew_in(
    ttl: timedelta, now: datetime, mine: Sequence[Lease], key: Key
) -> tuple[Sequence[Lease], list[Any]]:
    holders = key.holders(now)
    answers = [renewed(lease, holders, now, ttl) for lease in mine]
    prolonged = {lease.slot: lease for lease in answers if isinstance(lease, Lease)}
    places = [prolonged.get(lease.slot, lease) for lease in holders]
    return (key.leases if places == holders else places), answers


def release_in(now: datetime, mine: Sequence[Lease], key: Key) -> tuple[Sequence[Lease], list[Any]]:
    holders = key.holders(now)
    held_by, given = {lease.token for lease in holders}, {lease.token for lease in mine}
    places = [lease for lease in holders if lease.token not in given]
    answers = [lease.token in held_by for lease in mine]
    return (places if any(answers) else key.leases), answers


def _revision() -> str:
    return os.urandom(12).hex()
