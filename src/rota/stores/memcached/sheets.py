"""Sheets: what a namespace keeps on memcached, in a fixed number of items.

A sheet holds the rows and marks, or the leases and fences, of all names whose hash falls on it, and since
when it remembers. It is read and written whole, so all of it is judged in one step.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from rota.stores.base import (
    FORGOTTEN_AFTER,
    RECORD_VERSION,
    ROW_COLUMNS,
    STEP_BACK_ALLOWANCE,
    Lease,
    Row,
    StoreUnavailable,
    check_version,
    instant,
    lease_columns,
    lease_of,
    microseconds,
    moved,
    pruned_mark,
    row_columns,
    row_of,
)

_COMPRESSED: Final = 1
_WORTH_COMPRESSING: Final = 2048
_OUTCOME, _ENDED, _KEEP_UNTIL = (ROW_COLUMNS.index(name) for name in ("outcome", "ended", "keep_until"))


class Sheet:
    """What is kept under one item, and whether it must be written."""

    __slots__ = ("born", "changed", "epoch", "fences", "leases", "marks", "name", "number", "rows")

    def __init__(self, name: str, born: str, epoch: int) -> None:
        self.name, self.born, self.epoch = name, born, epoch
        self.number, self.changed = 0, True
        self.rows: dict[tuple[str, int, int], Sequence[Any]] = {}
        self.marks: dict[str, int] = {}
        self.leases: dict[str, dict[int, Sequence[Any]]] = {}
        self.fences: dict[str, tuple[int, int]] = {}

    def read(self, flags: int, number: int, value: bytes, where: str) -> None:
        """Take what was found under the name.

        What another server process wrote came back from a file, and may be older than the truth: it stays,
        with the new epoch.
        """
        if number == 0:
            raise StoreUnavailable(f"{where}: it runs without compare-and-swap (-C), which rota needs")
        try:
            version, *content = json.loads(zlib.decompress(value) if flags == _COMPRESSED else value)
            check_version(version, f"{where}, item {self.name}")
            born, epoch, rows, self.marks, leases, self.fences = content
            self.rows = {(row[0], row[1], row[2]): row for row in rows}
            for lease in leases:
                self.leases.setdefault(lease[0], {})[lease[6]] = lease
        except (ValueError, TypeError, LookupError, zlib.error) as error:
            raise StoreUnavailable(
                f"{where}: the item {self.name} is not rota's: delete it, or choose another namespace"
            ) from error
        self.number = number
        if born == self.born:
            self.epoch, self.changed = epoch, False

    def written(self) -> tuple[int, bytes]:
        leases = [lease for places in self.leases.values() for lease in places.values()]
        rows = list(self.rows.values())
        content = [RECORD_VERSION, self.born, self.epoch, rows, self.marks, leases, self.fences]
        value = json.dumps(content, separators=(",", ":")).encode()
        if len(value) < _WORTH_COMPRESSING:
            return 0, value
        return _COMPRESSED, zlib.compress(value, 1)

    def row(self, task: str, due: datetime, attempt: int) -> Row | None:
        row = self.rows.get((task, microseconds(due), attempt))
        return None if row is None else row_of(row)

    def put(self, row: Row) -> Row:
        """Write the row, and answer what stands: all but the output, which only a history would show."""
        columns = row_columns(row)[:-1]
        self.rows[columns[:3]] = columns  # type: ignore[index]  # the key stands first
        self.changed = True
        return row_of(columns) if row.output else row

    def mark(self, name: str) -> datetime | None:
        at = self.marks.get(name)
        return None if at is None else instant(at)

    def move(self, name: str, value: datetime, now: datetime, *, first: bool = False) -> datetime:
        stood = self.mark(name)
        stands = moved(stood, value, now, first=first)
        if stands != stood:
            self.marks[name], self.changed = microseconds(stands), True
        return stands

    def holders(self, key: str, now: datetime) -> list[Lease]:
        at = microseconds(now)
        return [lease_of(lease) for lease in self.leases.get(key, {}).values() if lease[4] > at]

    def hold(self, lease: Lease) -> None:
        self.leases.setdefault(lease.key, {})[lease.slot] = lease_columns(lease)
        if lease.fence:
            self.fences[lease.key] = (lease.fence, microseconds(lease.until))
        self.changed = True

    def let_go(self, lease: Lease, now: datetime) -> None:
        del self.leases[lease.key][lease.slot]
        if lease.fence:
            self.fences[lease.key] = (lease.fence, microseconds(now))
        self.changed = True

    def prune(self, before: datetime, now: datetime, *, most: int | None = None) -> int:
        """Forget final rows that ended before `before`, or are not among the `most` newest of their task, and
        need not be kept; `pruned:<task>` says so."""
        ended_before, kept_until = microseconds(before), microseconds(now - STEP_BACK_ALLOWANCE)
        left: dict[str, int] = {}
        gone = []
        for task, due, attempt in sorted(self.rows, reverse=True):  # of each task, the newest first
            row = self.rows[task, due, attempt]
            if not is_open(row):
                left[task] = left.get(task, 0) + 1
                too_many = most is not None and left[task] > most
                if (row[_ENDED] < ended_before or too_many) and row[_KEEP_UNTIL] < kept_until:
                    gone.append((task, due, attempt))
        for task, due, attempt in gone:
            self.move(pruned_mark(task), instant(due), now)
            del self.rows[task, due, attempt]
            self.changed = True
        return len(gone)

    def sweep(self, now: datetime) -> None:
        """Whoever writes the sheet clears it: of rows that ended long ago, lapsed leases, old fences."""
        self.prune(now - STEP_BACK_ALLOWANCE, now)
        at, forgotten = microseconds(now), microseconds(now - FORGOTTEN_AFTER)
        self.leases = {
            key: in_force
            for key, places in self.leases.items()
            if (in_force := {slot: lease for slot, lease in places.items() if lease[4] > at})
        }
        self.fences = {key: fence for key, fence in self.fences.items() if fence[1] >= forgotten}


def is_open(row: Sequence[Any]) -> bool:
    return row[_OUTCOME] is None
