"""What each call of a store comes to, as pure functions: what stands goes in, what is to be written out.

A driver that reads before it writes in one step (memory, SQLite, memcached) calls them; one whose server
decides in its own language (SQL, Lua, conditions) says the same there, and the contract compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from rota._core.errors import StoreMisused
from rota._core.leases import LONGEST_LEASE, Lease, Request, is_notice
from rota._core.rows import Cause, Claim, End, Look, Refusal, Refused, Row, pruned_mark
from rota._core.runs import Outcome
from rota._core.value import replace
from rota.stores.records import microseconds


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
        if epoch is not None and due <= epoch and end.says_nobody_ran:
            return None
    elif not row.is_open or row.token != end.token or end.needs_no_row:
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


def shown_after(question: Look, marks: Mapping[str, datetime]) -> dict[str, datetime]:
    """After which instant a look shows the rows of each task: its mark or else `since`, and not before
    `pruned:<task>`. `marks` are those that stand."""
    starts = {}
    for task, mark in question.marks.items():
        start = marks.get(mark, question.since)
        starts[task] = max(start, marks.get(pruned_mark(task), start))
    return starts


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
    if forgotten and quiet_until is not None and now < quiet_until and not is_notice(request.key):
        return Refusal(Refused.STORE_LOST, until=quiet_until)
    if request.not_before is not None and now < request.not_before:
        return Refusal(Refused.EARLY, until=request.not_before)
    if request.not_after is not None and now > request.not_after:
        return Refusal(Refused.TOO_LATE)
    for lease in holders:
        if lease.token == request.token:
            return replace(_prolonged(lease, now, request.ttl), note=request.note)
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


def moved(stands: datetime | None, value: datetime, now: datetime, *, first: bool = False) -> datetime:
    """Where a mark stands after it was asked to move to `value`."""
    if stands is None:
        return min(value, now)
    return stands if first else max(stands, min(value, now))


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
    if ttl > longest and not is_notice(key):
        raise StoreMisused(f"{key}: a lease of {ttl} is too long; allowed: up to {longest}")


def distinct(keys: Sequence[object], what: str) -> None:
    """Refuse a list in which a key stands twice (promise 2)."""
    if len(set(keys)) != len(keys):
        seen: set[object] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add answers None
        raise StoreMisused(f"{what}: {twice} stands twice in one list")
