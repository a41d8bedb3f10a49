"""How a row and a lease stand at the wire: plain columns, instants as whole microseconds since 1970, UTC.

Every store keeps the version of what it writes (tables: in `rota_schema`; whole records: in front) and
reads one version back: columns that a version adds stand at the end and have a default. What a newer version
means is not guessed, so it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rota._core.errors import StoreUnavailable
from rota._core.leases import Lease
from rota._core.rows import Cause, Row
from rota._core.runs import Outcome, SkipReason
from rota._core.task import Occurrence

RECORD_VERSION: Final = 1

ROW_COLUMNS: Final = (
    *("task", "due", "attempt", "token", "server", "since", "start_by", "keep_until"),
    *("cause", "outcome", "reason", "ended", "took", "count", "last", "detail", "output"),
)
"""The columns of a row in the order of `row_columns`; the key first, `output` last, as it may be left out."""

LEASE_COLUMNS: Final = ("name", "token", "owner", "since", "until", "fence", "slot", "note")
"""The columns of a lease in the order of `lease_columns`."""

_DEFAULTS: Final[tuple[Any, ...]] = (*([None] * 8), Cause.SCHEDULE, None, None, None, None, 1, None, "", "")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(instant: datetime) -> int:
    """An instant as it stands at the wire: microseconds since 1970, UTC."""
    return (instant - _EPOCH) // _MICROSECOND


def instant(microseconds: int) -> datetime:
    """The instant that stands at the wire as so many microseconds since 1970, UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def row_columns(row: Row) -> tuple[str | int | None, ...]:
    """The row as plain values, in the order of `ROW_COLUMNS`."""
    return (
        row.occurrence.task,
        microseconds(row.occurrence.due),
        row.attempt,
        row.token,
        row.server,
        microseconds(row.since),
        _at(row.start_by),
        microseconds(row.keep_until),
        row.cause.value,
        None if row.outcome is None else row.outcome.value,
        None if row.reason is None else row.reason.value,
        _at(row.ended),
        None if row.took is None else row.took // _MICROSECOND,
        row.count,
        _at(row.last),
        row.detail,
        row.output,
    )


def row_of(columns: Sequence[Any]) -> Row:
    """The row that `row_columns` told. What it lacks at its end (`output`; columns of a later version) has
    the default."""
    columns = (*columns, *_DEFAULTS[len(columns) :])
    task, due, attempt, token, server, since, start_by, keep_until = columns[:8]
    cause, outcome, reason, ended, took, count, last, detail, output = columns[8:]
    return Row(
        occurrence=Occurrence(task, instant(due)),
        attempt=attempt,
        token=token,
        server=server,
        since=instant(since),
        start_by=None if start_by is None else instant(start_by),
        keep_until=instant(keep_until),
        cause=Cause(cause),
        outcome=None if outcome is None else Outcome(outcome),
        reason=None if reason is None else SkipReason(reason),
        detail=detail,
        output=output,
        ended=None if ended is None else instant(ended),
        took=None if took is None else took * _MICROSECOND,
        count=count,
        last=None if last is None else instant(last),
    )


def lease_columns(lease: Lease) -> tuple[str | int, ...]:
    """The lease as plain values, in the order of `LEASE_COLUMNS`."""
    return (
        lease.key,
        lease.token,
        lease.owner,
        microseconds(lease.since),
        microseconds(lease.until),
        lease.fence,
        lease.slot,
        lease.note,
    )


def lease_of(columns: Sequence[Any]) -> Lease:
    """The lease that `lease_columns` told."""
    key, token, owner, since, until, fence, slot, note = columns
    return Lease(key, token, owner, instant(since), instant(until), fence, slot, note)


def check_version(found: int, where: str, version: int = RECORD_VERSION) -> None:
    """Refuse what was written in a version that this rota does not read: only its own and the one before."""
    if found > version:
        raise StoreUnavailable(
            f"{where}: written by a newer rota (version {found} of the records; this one reads up to"
            f" {version}): upgrade rota on this server"
        )
    if found < version - 1:
        raise StoreUnavailable(
            f"{where}: written by an older rota (version {found} of the records; this one reads"
            f" {version - 1} and {version}): upgrade one version at a time"
        )


def _at(instant: datetime | None) -> int | None:
    return None if instant is None else microseconds(instant)
