"""The table: what stands in it, and under which names.

One item for each row, each key of leases and each mark; `pk` is the namespace, so one application in one
environment is one partition, which the local indexes can list without being behind:

    sk                             state               due     what else
    row#<task>#<due>#<attempt>     open                due     token, claim
                                   over <ended>        due     token, claim, end, output, size (of it)
    lease#<key>                    held <until>                places, fence, until, rev
                                   left <when>
    mark#<key>                                                 at

Index `state` lists the open rows, the leases in force, and what may be pruned; index `due` the history.
Neither has the output in it. DynamoDB compares text byte by byte as UTF-8, so equal names are equal names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rota.stores.base import (
    RECORD_VERSION,
    Lease,
    Occurrence,
    Row,
    check_version,
    instant,
    lease_columns,
    lease_of,
    microseconds,
    row_columns,
    row_of,
)

Item = Mapping[str, Any]
"""Attributes as plain values: text and whole numbers."""

OPEN: Final = "open"
HELD_FOR_EVER: Final = "held ~"
BY_STATE: Final = "state"
BY_DUE: Final = "due"
INDEXES: Final = (BY_STATE, BY_DUE)
THIN: Final = "#v, #claim, #end, #size"
"""What is read of a row where its output is not asked for."""

_PROJECTED: Final = ("v", "claim", "end", "size", "places", "rev")
_CLAIMED: Final = 9
_READABLE: Final = re.compile(r"[A-Za-z0-9_.:/@+ -]{1,200}")


def definition(table: str) -> dict[str, Any]:
    """The table as `CreateTable` takes it."""

    def keys(sort: str) -> list[dict[str, str]]:
        return [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": sort, "KeyType": "RANGE"},
        ]

    kinds = {"pk": "S", "sk": "S", "state": "S", "due": "N"}
    return {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()
        ],
        "KeySchema": keys("sk"),
        "LocalSecondaryIndexes": [
            {
                "IndexName": index,
                "KeySchema": keys(index),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(_PROJECTED)},
            }
            for index in INDEXES
        ],
    }


def partition(namespace: str) -> str:
    """Never empty, as a key may not be."""
    return f"rota:{namespace}"


def name(key: str) -> str:
    """A key as a part of `sk`: as it is if it is short and plain; else its digest, as there is a limit of
    1,024 bytes."""
    if _READABLE.fullmatch(key):
        return key
    return "%" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def lease_key(key: str) -> str:
    return f"lease#{name(key)}"


def mark_key(key: str) -> str:
    return f"mark#{name(key)}"


def row_key(occurrence: Occurrence, attempt: int) -> str:
    return f"{due_key(occurrence.task, occurrence.due)}{attempt:010d}"


def due_key(task: str, due: datetime) -> str:
    """What the keys of all attempts of an occurrence begin with; in the alphabet's order, so in time's."""
    utc = instant(microseconds(due)).isoformat(timespec="microseconds")[:26]
    return f"row#{name(task)}#{utc}#"


def span(task: str, since: datetime | None = None) -> dict[str, str]:
    """Between which keys the rows of the task stand, or those that are due at or after an instant."""
    first = f"row#{name(task)}#"
    return {"first": first if since is None else due_key(task, since), "last": f"{first}~"}


def over(ended: int) -> str:
    return f"over {max(0, ended):020d}"


def held(until: int) -> str:
    return f"held {max(0, until):020d}"


def left(when: int) -> str:
    return f"left {max(0, when):020d}"


def state_of(row: Row) -> str:
    return OPEN if row.ended is None else over(microseconds(row.ended))


def item_of(row: Row) -> dict[str, Any]:
    """The attributes of a row but its key."""
    columns = row_columns(row)
    item: dict[str, Any] = {"v": RECORD_VERSION, "due": columns[1], "token": row.token}
    item["claim"] = _text(columns[:_CLAIMED])
    return item | ({"state": OPEN} if row.is_open else ended_of(row))


def ended_of(row: Row) -> dict[str, Any]:
    """The attributes that the end of a row adds or changes."""
    columns = row_columns(row)
    ended = {"end": _text((columns[7], *columns[_CLAIMED:-1])), "state": state_of(row)}
    return ended | ({"output": row.output, "size": len(row.output)} if row.output else {})


def row_at(item: Item, where: str) -> Row:
    """The row of an item. A claim and an end may each say how long it is kept: the longer stands."""
    check_version(item["v"], where)
    claim = json.loads(item["claim"])
    if "end" in item:
        keep_until, *end = json.loads(item["end"])
        claim[7] = max(claim[7], keep_until)
        return row_of((*claim, *end, item.get("output", "")))
    return row_of(claim)


def places_of(leases: Sequence[Lease]) -> str:
    return _text([lease_columns(lease) for lease in leases])


def leases_at(item: Item, where: str) -> list[Lease]:
    check_version(item["v"], where)
    return [lease_of(place) for place in json.loads(item["places"])]


def mark_at(item: Item, where: str) -> datetime:
    check_version(item["v"], where)
    return instant(item["at"])


def _text(columns: Sequence[Any]) -> str:
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"))
