"""The items of one namespace: how they are found, and the writes that more than one call makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from rota.stores.base import RECORD_VERSION, End, Row, microseconds, moved, settled
from rota.stores.dynamodb.table import (
    BY_STATE,
    OPEN,
    Item,
    ended_of,
    item_of,
    mark_at,
    mark_key,
    partition,
    row_at,
    row_key,
)
from rota.stores.dynamodb.wire import READ_AT_ONCE, Call, Reply, Wire

T = TypeVar("T")
Job = Callable[[], T]

AT_ONCE: Final = 250
"""How many items are pruned between two looks at the time, and"""
FOR_WRITING: Final = 0.8
"""up to which part of the time limit."""

_STANDS_OPEN: Final = "#token = :token AND #state = :open"


class Partition:
    """The items of `namespace` in the table behind `wire`. What answers a `Job` or takes part in one is to be
    run by the call; the rest runs by itself."""

    def __init__(self, wire: Wire, namespace: str) -> None:
        self.where = wire.where
        self._pk = partition(namespace)

    def put(self, call: Call, row: Row) -> Reply:
        key = self.key(key_of(row))
        return call.write("put_item", key, "attribute_not_exists(#pk)", item=item_of(row))

    def take_back(self, call: Call, row: Row) -> Reply:
        key = self.key(key_of(row))
        return call.write("delete_item", key, _STANDS_OPEN, token=row.token, open=OPEN)

    def close(self, call: Call, end: End, now: datetime) -> Reply:
        """End the row that stands open with the token of the end."""
        key = self.key(row_key(end.occurrence, end.attempt))
        open_row = Row(end.occurrence, end.attempt, end.token, "", now, None, end.keep_until)
        final = settled(end, open_row, now, epoch=None, pruned=None)
        assert final is not None
        values = {"v": RECORD_VERSION, **ended_of(final)}
        change = "SET " + ", ".join(f"#{name} = :{name}" for name in values)
        values |= {"token": end.token, "open": OPEN}
        only_if = f"{_STANDS_OPEN} AND #v <= :v"
        return call.write("update_item", key, only_if, change=change, answer="ALL_OLD", **values)

    def delete(self, call: Call, sk: str, name: str, value: str) -> Reply:
        return call.write("delete_item", self.key(sk), f"#{name} = :value", value=value)

    def move(self, call: Call, marks: Mapping[str, datetime], *, first: bool = False) -> dict[str, datetime]:
        """Move the marks, and say where they stand."""
        if not marks:
            return {}
        values = {name: moved(None, marks[name], call.now) for name in sorted(marks)}
        only_if = "attribute_not_exists(#pk)" + ("" if first else " OR (#at < :at AND #v <= :v)")
        writes = [
            partial(
                call.write,
                "update_item",
                self.key(mark_key(name)),
                only_if,
                change="SET #v = :v, #at = :at",
                v=RECORD_VERSION,
                at=microseconds(value),
            )
            for name, value in values.items()
        ]
        replies = call.run(writes)
        further = [name for name, reply in zip(values, replies, strict=True) if not reply.met]
        items = self.read(call, map(mark_key, further))
        return values | {name: mark_at(items[mark_key(name)], self.where) for name in further}

    def key(self, sk: str) -> dict[str, str]:
        return {"pk": self._pk, "sk": sk}

    def query(
        self, call: Call, condition: str, *, index: str = "", what: str = "", **arguments: Any
    ) -> Job[list[Item]]:
        condition = f"#pk = :pk AND {condition}"
        return partial(call.query, condition, index=index, what=what, pk=self._pk, **arguments)

    def open_rows(self, call: Call) -> Job[list[Item]]:
        return self.query(call, "#state = :open", index=BY_STATE, open=OPEN)

    def by_state(self, call: Call, first: str, last: str, **arguments: Any) -> Job[list[Item]]:
        condition = "#state BETWEEN :first AND :last"
        return self.query(call, condition, index=BY_STATE, first=first, last=last, **arguments)

    def reads(self, call: Call, keys: Iterable[str], what: str = "") -> list[Job[list[Item]]]:
        wanted = [self.key(sk) for sk in keys]
        return [partial(call.read, chunk, what) for chunk in chunks(wanted, READ_AT_ONCE)]

    def read(self, call: Call, keys: Iterable[str]) -> dict[str, Item]:
        return by_key(call.run(self.reads(call, keys)))

    def write_and_read(
        self, call: Call, writes: Sequence[Job[Reply]], keys: Iterable[str]
    ) -> tuple[list[Reply], dict[str, Item]]:
        """Both at once."""
        jobs: list[Job[Any]] = [*writes, *self.reads(call, keys)]
        done = call.run(jobs)
        return done[: len(writes)], by_key(done[len(writes) :])

    def rows_at(self, items: Iterable[Item]) -> list[Row]:
        return [row_at(item, self.where) for item in items]

    def row_in(self, items: Mapping[str, Item], sk: str) -> Row | None:
        return row_at(items[sk], self.where) if sk in items else None

    def mark_in(self, items: Mapping[str, Item], sk: str) -> datetime | None:
        return mark_at(items[sk], self.where) if sk in items else None


def key_of(row: Row) -> str:
    return row_key(row.occurrence, row.attempt)


def by_key(found: Iterable[Iterable[Item]]) -> dict[str, Item]:
    return {item["sk"]: item for items in found for item in items}


def chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[n : n + size] for n in range(0, len(items), size)]
