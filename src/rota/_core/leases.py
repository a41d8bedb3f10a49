"""Leases: an expiring right to a key, and how long we may trust one without another answer.

The store decides who holds a key; `Trust` decides when *we* must stop acting on it. The two use
different clocks on purpose. The store counts from the instant it granted the lease, by its own
clock; we count from the instant the request was *sent*, by the boot-time clock, which no operator
and no time daemon can step. The request was sent before the store granted, so our count ends first:

    trust ends = sent + length - margin - grain

margin covers clocks that run at different rates and the time between our last look at trust and
the first instruction after it; grain is the coarseness of the store's clock. Trust that has ended
never returns: a late answer may say that the key is ours again, but in between it may have been
somebody else's.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from rota._core.value import replace, value

LONGEST_LEASE: Final = timedelta(minutes=5)
"""No lease is longer, so after this long nobody acts on a lease that a store has forgotten."""

SHORTEST_LEASE: Final = timedelta(seconds=10)

PAUSE_PREFIX: Final = "pause:"
"""Keys of pauses. A pause protects nothing that runs, so it may be long and needs no quarantine."""

SERVER_PREFIX: Final = "server:"
"""Keys under which servers sign in, for `rota check`. Like a pause, a record that protects nothing."""

EVERYTHING: Final = "*"
"""The task name in the key of a pause that holds for the whole schedule."""


@value
class Request:
    """A wish for a lease.

    `token` is unique to the attempt and alone gives the right to renew and release; `owner` is for
    people. `ttl` is counted by the store from the instant it answers. Outside `not_before` and
    `not_after` (store's clock, both included) the request is refused. With `slots=n` up to n
    tokens hold the key at once. `note` is kept beside the lease for whoever reads the list.
    """

    key: str
    token: str
    owner: str
    ttl: timedelta
    not_before: datetime | None = None
    not_after: datetime | None = None
    slots: int = 1
    note: str = ""


@value
class Lease:
    """A right to `key` from `since` until `until` by the store's clock.

    `fence` grows with every new holding of the key, so a resource that remembers the highest fence
    it has seen can refuse a holder that came before. It is 0 for a slot. `slot` is which of the
    n places is held.
    """

    key: str
    token: str
    owner: str
    since: datetime
    until: datetime
    fence: int
    slot: int = 0
    note: str = ""


@value
class Trust:
    """Until when, on our boot-time clock in seconds, we may act on a lease."""

    ends: float

    @classmethod
    def granted(cls, sent: float, ttl: timedelta, grain: timedelta) -> Trust:
        """Trust in a lease of length `ttl` whose request was sent at `sent` (boot-time seconds)."""
        return cls(sent + (ttl - margin(ttl) - grain).total_seconds())

    def holds_at(self, boot: float) -> bool:
        return boot < self.ends

    def extended(self, sent: float, ttl: timedelta, grain: timedelta, *, answered: float) -> Trust:
        """Trust after a renewal sent at `sent` and answered at `answered`.

        A renewal whose answer comes after trust has ended changes nothing: it never returns.
        """
        if not self.holds_at(answered):
            return self
        return replace(self, ends=max(self.ends, Trust.granted(sent, ttl, grain).ends))


def is_notice(key: str) -> bool:
    """Whether the key is for people to read (a pause, a server that signed in): it protects nothing that
    runs, so it may be held for long and needs no quarantine after a flush."""
    return key.startswith((PAUSE_PREFIX, SERVER_PREFIX))


def margin(length: timedelta) -> timedelta:
    """The part of a lease that we leave unused: a tenth."""
    return length / 10


def renew_every(length: timedelta) -> timedelta:
    """How often a lease is renewed: three renewals may fail before trust ends."""
    return length / 4
