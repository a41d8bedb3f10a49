"""The seam: what rota asks of a store. Every sentence here is a test in `rota.testing.contract`.

Three things live in a store and nothing else: rows (what was decided; written first stands), leases
(who is alive) and marks (up to where everything is decided). A store knows nothing of schedules,
catch-up or overlap. A driver is one file that imports this module only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from rota._core.errors import StoreError, StoreMisused, StoreUnavailable
from rota._core.leases import LONGEST_LEASE, PAUSE_PREFIX, Lease, Request
from rota._core.rows import (
    STEP_BACK_ALLOWANCE,
    Answer,
    Cause,
    Claim,
    End,
    Look,
    Occurrence,
    Refusal,
    Refused,
    Row,
    RowQuery,
    View,
    pruned_mark,
)
from rota._core.runs import Outcome, SkipReason
from rota._core.value import replace, value

__all__ = [
    "FORGOTTEN_AFTER",
    "LONGEST_LEASE",
    "PAUSE_PREFIX",
    "STEP_BACK_ALLOWANCE",
    "Answer",
    "Cause",
    "Claim",
    "End",
    "Guarantees",
    "Lease",
    "Look",
    "Occurrence",
    "Outcome",
    "Refusal",
    "Refused",
    "Request",
    "Row",
    "RowQuery",
    "Shared",
    "SkipReason",
    "Store",
    "StoreError",
    "StoreMisused",
    "StoreUnavailable",
    "View",
    "acquired",
    "check_claims",
    "check_ends",
    "check_leases",
    "check_requests",
    "claimed",
    "distinct",
    "instant",
    "microseconds",
    "moved",
    "pruned_mark",
    "renewed",
    "settled",
]

FORGOTTEN_AFTER: Final = timedelta(hours=1)
"""How long after a key has lapsed its fence is remembered at least."""


class Shared(StrEnum):
    """How far the store reaches: servers beyond that do not see each other."""

    PROCESS = "process"
    HOST = "host"
    NETWORK = "network"


@value
class Guarantees:
    """What a store promises beyond the contract, as data for `rota check`, the tests and the docs."""

    shared: Shared
    durable: bool
    clock: str
    grain: timedelta
    fenced: bool
    lists_rows: bool


@runtime_checkable
class Store(Protocol):
    """Rows, leases and marks of one application in one environment.

    1. A call has one `now`, the store's, used for every decision in it and returned with the answer
       (for look: that of its last read). Host clocks decide nothing.
    2. A list is answered item by item, in its order. A key that stands twice in one list is StoreMisused,
       and then nothing is done. The key of a claim and of an end is (occurrence, attempt), that of a
       request its key, that of a lease (key, token): one server may hold several places of a key.
    11. A refusal is an answer. StoreUnavailable means that nothing is known: the caller treats it as
        either, and asks again with the same token.
    12. Any method may be called from any thread; no call outlasts the store's time limit (5 s); no
        secret appears in an error, a repr or a log.
    13. A store that can forget carries an epoch: when its memory began. After it has forgotten, claims
        with not_before at or before the epoch are refused as store_lost, missed and coalesced are not
        written for occurrences due at or before it (None), and requests without not_before, or with
        one at or before the epoch, are refused as store_lost until the epoch plus the longest lease.
        Pauses are exempt. So a flush never starts anything twice.

    There is no clear, no exists and no release by force: to unlock is to release what was seen.
    """

    @property
    def guarantees(self) -> Guarantees:
        """What this store promises, needs and cannot do."""
        ...

    def look(self, question: Look) -> View:
        """Everything a tick must know.

        10. Rows are read before leases, or both in one step. It shows all rows due after each asked
            mark, final ones too, and every open row of the application, also of tasks that were not
            asked about; unexpired leases only. A lease that is renewed while look reads is not left
            out. Keys are exact, never a prefix. Rows and leases come in no particular order; `output`
            may be left out here, `rows` shows it.
        """
        ...

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        """Write an open row for each occurrence nobody has decided.

        3. Where no row stands and not_before <= now <= not_after: an open row with the asker's token,
           since = now and start_by = since + start_within. A row that stands is answered as it is,
           whoever asks, be it open or final, inside the window or not.
           Asking again with the same token is the same claim, so a lost reply is repaired by asking
           again. Checked in this order: row, epoch, window (early, too_late), pruned mark (too_late).
           Attempts are rows of their own.
        """
        ...

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        """Write the one end of each attempt.

        4. No row, or an open row with the same token, becomes final. `lost` ends only the open row
           whose token it names and never creates one (no row: None); missed, coalesced and store_lost
           are written only where no row stands. A final row never changes. The answer is the row that
           stands, so every attempt has exactly one end, whoever writes it and however often.
           What the claim said stays: since, start_by, cause, and the server that claimed (whoever
           finds it lost). A row that was never claimed has since = ended = now and no start_by.
        5. The larger keep_until of Claim and End stands. At or before `pruned:<task>` nothing is
           written where no row stands (None). An end with `last`, once it stands, moves `pruned:<task>`
           to `last` in the same step.
        """
        ...

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        """Give each key to the token that asks for it, unless another token holds it.

        6. A key has at most one unexpired holder (now < until; with slots=n: at most n, the first free
           place is given, atomically). Only tokens are compared, never owners. The same token asking again is
           one holding, now until now + ttl, or until when it stood if that is later. Windows as in
           claim, and checked first (epoch, window, holder), so whatever is granted is granted inside
           its window. A ttl that is not positive, or longer than the longest lease, is StoreMisused (a
           pause may be as long as it likes), and so are fewer slots than one.
        7. A refused acquire changes nothing. Held names the owner, and until when, of the holder who
           goes first.
        8. The fence of a key (not of a slot) grows with every new holding: max(previous + 1, now in
           microseconds); a key may be forgotten one hour after it lapsed.
        """
        ...

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        """Prolong each lease to now + ttl; never to less than it had.

        7. Only the token renews. What has lapsed is not renewed (held by its new holder, or too_late):
           in between it may have been somebody else's. The ttl is limited as in acquire.
        """
        ...

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        """Give each lease back, so that it is free at once; False where it was no longer ours.

        7. Only the token releases; a late holder touches neither its successor nor a key that lapsed.
        """
        ...

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        """Move each mark forward, and answer where it stands.

        9. A mark only moves forward, and never beyond the store's now: what lies later is taken for
           now. `first=True` writes only where none stands and moves nothing.
        """
        ...

    def rows(self, query: RowQuery) -> Answer[Row]:
        """The history, newest due instant first, at most `limit`; every condition of the query holds for
        each row. Empty where `guarantees.lists_rows` is false.
        """
        ...

    def prune(self, before: datetime) -> int:
        """Forget final rows that ended before `before`, and answer how many.

        5. A row is kept until its keep_until plus the step-back allowance (10 min) by the store's clock,
           whatever `before` says, and an open row is never pruned. In the same step `pruned:<task>`
           moves to the last due instant removed: what lies at or before it is decided though its row
           is gone (claim: too_late; settle: nothing). A row that stands there still stands.
        """
        ...

    def close(self) -> None:
        """Give back what the store holds open. It may be called twice."""
        ...


def claimed(
    claim: Claim, row: Row | None, now: datetime, *, epoch: datetime | None, pruned: datetime | None
) -> Row | Refusal:
    """What a claim comes to where `row` stands; a row that is not `row` is to be written."""
    if row is not None:
        return row
    if epoch is not None and claim.not_before <= epoch:
        return Refusal(Refused.STORE_LOST)
    if now < claim.not_before:
        return Refusal(Refused.EARLY, until=claim.not_before)
    if now > claim.not_after or (pruned is not None and claim.occurrence.due <= pruned):
        return Refusal(Refused.TOO_LATE)
    start_by = now + claim.start_within
    # By position: a value is made in half the time, and simulations claim by the million.
    return Row(
        claim.occurrence,
        claim.attempt,
        claim.token,
        claim.server,
        now,
        start_by,
        claim.keep_until,
        claim.cause,
    )


def settled(
    end: End, row: Row | None, now: datetime, *, epoch: datetime | None, pruned: datetime | None
) -> Row | None:
    """What an end comes to where `row` stands; a row that is not `row` is to be written."""
    if row is None:
        due = end.occurrence.due
        if end.outcome is Outcome.LOST or (pruned is not None and due <= pruned):
            return None
        nobody_ran = end.reason in (SkipReason.MISSED, SkipReason.COALESCED)
        if epoch is not None and due <= epoch and nobody_ran:
            return None
    elif not row.is_open or row.token != end.token or (end.reason is not None and end.reason.needs_no_row):
        return row
    return Row(
        occurrence=end.occurrence,
        attempt=end.attempt,
        token=end.token,
        server=row.server if row else end.server,
        since=row.since if row else now,
        start_by=row.start_by if row else None,
        keep_until=max(row.keep_until, end.keep_until) if row else end.keep_until,
        cause=row.cause if row else Cause.SCHEDULE,
        outcome=end.outcome,
        reason=end.reason,
        detail=end.detail,
        output=end.output,
        ended=now,
        took=end.took,
        count=end.count,
        last=end.last,
    )


def acquired(
    request: Request,
    holders: Sequence[Lease],
    now: datetime,
    *,
    fence_before: int,
    epoch: datetime | None,
    quiet_until: datetime | None,
) -> Lease | Refusal:
    """What a request comes to where `holders` hold the key now; a lease is to be written."""
    forgotten = epoch is not None and (request.not_before is None or request.not_before <= epoch)
    if forgotten and quiet_until is not None and now < quiet_until and not is_pause(request.key):
        return Refusal(Refused.STORE_LOST, until=quiet_until)
    if request.not_before is not None and now < request.not_before:
        return Refusal(Refused.EARLY, until=request.not_before)
    if request.not_after is not None and now > request.not_after:
        return Refusal(Refused.TOO_LATE)
    for lease in holders:
        if lease.token == request.token:
            return _prolonged(lease, now, request.ttl)
    if len(holders) >= request.slots:
        next_to_go = min(holders, key=lambda lease: lease.until)
        return Refusal(Refused.HELD, next_to_go.owner, next_to_go.until)
    taken = {lease.slot for lease in holders}
    slot = next(slot for slot in range(request.slots) if slot not in taken)
    fence = 0 if request.slots > 1 else max(fence_before + 1, microseconds(now))
    until = _later(now, request.ttl)
    return Lease(request.key, request.token, request.owner, now, until, fence, slot, request.note)


def renewed(lease: Lease, holders: Sequence[Lease], now: datetime, ttl: timedelta) -> Lease | Refusal:
    """What a renewal comes to where `holders` hold the key now; a lease is to be written."""
    for holder in holders:
        if holder.token == lease.token:
            return _prolonged(holder, now, ttl)
    for holder in holders:
        if holder.slot == lease.slot:
            return Refusal(Refused.HELD, holder.owner, holder.until)
    return Refusal(Refused.TOO_LATE)


def _prolonged(lease: Lease, now: datetime, ttl: timedelta) -> Lease:
    until = _later(now, ttl)
    return replace(lease, until=until) if until > lease.until else lease


def _later(now: datetime, ttl: timedelta) -> datetime:
    try:
        return now + ttl
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def is_pause(key: str) -> bool:
    return key.startswith(PAUSE_PREFIX)


def moved(stands: datetime | None, value: datetime, now: datetime, *, first: bool = False) -> datetime:
    """Where a mark stands after it was asked to move to `value`."""
    if stands is None:
        return min(value, now)
    return stands if first else max(stands, min(value, now))


def microseconds(instant: datetime) -> int:
    """An instant as it stands at the wire: microseconds since 1970, UTC."""
    return (instant - _EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    """The instant that stands at the wire as so many microseconds since 1970, UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def check_claims(claims: Sequence[Claim]) -> None:
    if len(claims) > 1:
        distinct([(claim.occurrence, claim.attempt) for claim in claims], "claim")


def check_ends(ends: Sequence[End]) -> None:
    if len(ends) > 1:
        distinct([(end.occurrence, end.attempt) for end in ends], "settle")


def check_requests(requests: Sequence[Request], longest: timedelta) -> None:
    if len(requests) > 1:
        distinct([request.key for request in requests], "acquire")
    for request in requests:
        _check_ttl(request.key, request.ttl, longest)
        if request.slots < 1:
            raise StoreMisused(f"acquire: {request.key} with slots={request.slots}; allowed: 1 and more")


def check_leases(
    leases: Sequence[Lease], ttl: timedelta | None = None, longest: timedelta = LONGEST_LEASE
) -> None:
    if len(leases) > 1:
        distinct([(lease.key, lease.token) for lease in leases], "lease")
    if ttl is not None:
        for lease in leases:
            _check_ttl(lease.key, ttl, longest)


def _check_ttl(key: str, ttl: timedelta, longest: timedelta) -> None:
    if ttl <= timedelta(0):
        raise StoreMisused(f"{key}: a lease of {ttl} would never be held; allowed: more than 0")
    if ttl > longest and not is_pause(key):
        raise StoreMisused(f"{key}: a lease of {ttl} is too long; allowed: up to {longest}")


def distinct(keys: Sequence[object], what: str) -> None:
    """Refuse a list in which a key stands twice (promise 2)."""
    if len(set(keys)) != len(keys):
        seen: set[object] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add answers None
        raise StoreMisused(f"{what}: {twice} stands twice in one list")
