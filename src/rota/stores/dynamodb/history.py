"""The history: rows as they are listed, and pruned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from rota.stores.base import STEP_BACK_ALLOWANCE, Row, RowQuery, microseconds, pruned_mark
from rota.stores.dynamodb.partition import AT_ONCE, FOR_WRITING, Partition, by_key, chunks, key_of
from rota.stores.dynamodb.table import BY_DUE, BY_STATE, OPEN, THIN, Item, over, row_at, span, state_of
from rota.stores.dynamodb.wire import Call

_FOR_READING: Final = 0.4
_EVER: Final = -(10**17)
"""Microseconds, before the year 1."""


class History:
    """The rows of one namespace."""

    def __init__(self, items: Partition) -> None:
        self._items = items

    def rows(self, call: Call, query: RowQuery) -> list[Row]:
        found: list[tuple[Row, Item]] = []
        if query.limit <= 0:
            call.hear()
        else:
            whole = query.open_only or not query.tasks
            tasks = [None] if whole else sorted(set(query.tasks))
            for some in call.run([partial(self._found, call, query, task) for task in tasks]):
                found += some
        found.sort(key=lambda each: (each[0].occurrence.task, -each[0].attempt))
        found.sort(key=lambda each: each[0].occurrence.due, reverse=True)
        del found[max(0, query.limit) :]
        items = self._with_outputs(call, [item for _, item in found])
        return self._items.rows_at(items)

    def _found(self, call: Call, query: RowQuery, task: str | None) -> list[tuple[Row, Item]]:
        """A job: the rows of one task or all, newest first, until the limit is found (and what is due at the
        same instant as the last)."""
        found: list[tuple[Row, Item]] = []

        def enough(items: Sequence[Item]) -> bool:
            rows = self._items.rows_at(items)
            found.extend((row, item) for row, item in zip(rows, items, strict=True) if _matches(row, query))
            if not rows or len(found) < query.limit or query.open_only:
                return False
            return rows[-1].occurrence.due < found[query.limit - 1][0].occurrence.due

        if query.open_only:
            self._items.query(call, "#state = :open", index=BY_STATE, enough=enough, open=OPEN)()
        elif task is not None:
            among = span(task, query.since)
            condition = "#sk BETWEEN :first AND :last"
            self._items.query(call, condition, what=THIN, backwards=True, enough=enough, **among)()
        else:
            since = _EVER if query.since is None else microseconds(query.since)
            condition = "#due >= :since"
            self._items.query(call, condition, index=BY_DUE, backwards=True, enough=enough, since=since)()
        return found

    def _with_outputs(self, call: Call, items: Sequence[Item]) -> list[Item]:
        keys = {id(item): key_of(row_at(item, self._items.where)) for item in items if "size" in item}
        found = by_key(call.run(self._items.reads(call, keys.values(), "#sk, #output")))
        return [
            {**item, "output": found[keys[id(item)]]["output"]} if keys.get(id(item)) in found else item
            for item in items
        ]

    def prune(self, call: Call, before: datetime) -> int:
        """Forget final rows that ended before, those first that ended first."""
        count = 0
        first, last = over(0), over(microseconds(before) - 1)
        seen: set[str] = set()
        while first <= last and call.spent < FOR_WRITING:
            (page,) = call.run([self._items.by_state(call, first, last, enough=lambda _: True)])
            new = [item for item in page if item["sk"] not in seen]
            if not new:
                break
            count += self._forget(call, self._items.rows_at(new))
            first, seen = page[-1]["state"], {item["sk"] for item in page}
        return count

    def prune_beyond(self, call: Call, most: int) -> int:
        """Forget the final rows that are not among the newest so many of their task."""
        items: list[Item]
        (items,) = call.run(
            [
                self._items.query(
                    call,
                    "#due >= :since",
                    index=BY_DUE,
                    backwards=True,
                    enough=lambda _: call.spent > _FOR_READING,
                    since=_EVER,
                )
            ]
        )
        rows = [row for row in self._items.rows_at(items) if not row.is_open]
        rows.sort(key=lambda row: (row.occurrence.due, row.attempt), reverse=True)
        newer: Counter[str] = Counter()
        beyond = []
        for row in rows:
            newer[row.occurrence.task] += 1
            if newer[row.occurrence.task] > most:
                beyond.append(row)
        return self._forget(call, beyond)

    def _forget(self, call: Call, rows: Sequence[Row]) -> int:
        """Forget those of these rows that need not be kept, as many as there is time for."""
        kept_until = call.now - STEP_BACK_ALLOWANCE
        count = 0
        for some in chunks([row for row in rows if row.keep_until < kept_until], AT_ONCE):
            if call.spent > FOR_WRITING:
                break
            last: dict[str, datetime] = {}
            for row in some:
                mark, due = pruned_mark(row.occurrence.task), row.occurrence.due
                last[mark] = max(due, last.get(mark, due))
            # The mark first: a row at or before it that still stands, stands; but a row that is gone before
            # its mark has moved could be claimed once more.
            self._items.move(call, last)
            gone = [partial(self._items.delete, call, key_of(row), "state", state_of(row)) for row in some]
            count += sum(reply.met for reply in call.run(gone))
        return count


def _matches(row: Row, query: RowQuery) -> bool:
    return (
        (not query.tasks or row.occurrence.task in query.tasks)
        and (query.since is None or row.occurrence.due >= query.since)
        and (query.outcome is None or row.outcome is query.outcome)
        and (query.server is None or row.server == query.server)
        and (not query.open_only or row.is_open)
    )
