"""How instants, spans, policies and ends are said, in every command alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final

from rota._core.task import CatchUpKind, OverlapKind, Servers, Task

if TYPE_CHECKING:
    from rota._core.leases import Lease
    from rota._core.rows import Row

FOR_EVER: Final = timedelta(days=36525)
"""How long a pause lasts that nobody limits."""

_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def instant(when: datetime, zone: tzinfo) -> str:
    """`Tue 2026-12-01 02:00 CET`; with seconds only where there are any."""
    local = when.astimezone(zone)
    return f"{local:%a %Y-%m-%d %H:%M}{f':{local:%S}' if local.second else ''} {local:%Z}"


def utc(when: datetime | None) -> str | None:
    """As a program reads it: `2026-12-01T01:00:00Z`."""
    return None if when is None else f"{when.astimezone(UTC).isoformat().removesuffix('+00:00')}Z"


def span(length: timedelta) -> str:
    """In the two largest units: `34 ms`, `2.5 s`, `2 min 5 s`, `1 d 6 h`."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    rest, parts = int(seconds), []
    for unit, size in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def until(end: datetime, now: datetime, zone: tzinfo) -> str:
    """When something ends that may be meant to have no end."""
    return "until resumed" if end - now > FOR_EVER / 2 else f"until {instant(end, zone)}"


def outcome(row: Row) -> str:
    """`succeeded`, `skipped(missed)`, or `running` while the row is open."""
    if row.outcome is None:
        return "running"
    return f"{row.outcome}({row.reason})" if row.reason is not None else str(row.outcome)


def detail(row: Row) -> str:
    """The sentence of a row, with what else sets it apart."""
    parts = ["by hand" if row.cause == "manual" else "", one_line(row.detail)]
    return ": ".join(part for part in parts if part)


def policies(task: Task) -> list[str]:
    """What a task states besides the defaults, in a few words each."""
    default = Task(task.name, task.work, task.trigger)
    words = []
    if task.servers is Servers.EVERY:
        words.append("every server")
    elif task.servers_stated:
        words.append("one server")
    overlap = task.overlap
    if overlap.kind is OverlapKind.SKIP:
        words.append("no overlap" if overlap.limit == 1 else f"at most {overlap.limit} at once")
    elif overlap.kind is not OverlapKind.ALLOW:
        words.append(
            overlap.kind.replace("_", " ") + ("" if overlap.limit == 1 else f", {overlap.limit} at once")
        )
    if overlap.key is not None:
        words.append(f"key {overlap.key}")
    if task.crash.retries:
        words.append(f"retry {task.crash.retries} when lost")
    catch_up = task.catch_up
    if catch_up.kind is not CatchUpKind.NONE:
        most = f" {catch_up.most}" if catch_up.kind is CatchUpKind.ALL else ""
        words.append(f"catch up {catch_up.kind}{most} within {span(catch_up.within)}")
    if task.grace != default.grace:
        words.append(f"grace {span(task.grace)}")
    if task.time_limit is not None:
        words.append(f"limit {span(task.time_limit)}")
    if task.lease != default.lease:
        words.append(f"lease {span(task.lease.length)}")
    words += [each.label for each in task.filters]
    if task.environments:
        words.append(f"only in {' '.join(sorted(task.environments))}")
    return words


def one_line(text: str) -> str:
    """The text on one line; what cannot be printed is shown as an escape, and cannot steer a terminal."""
    joined = " ".join(text.split())
    if joined.isprintable():
        return joined
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in joined)


def near(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` where something has a similar name, else nothing."""
    from difflib import get_close_matches

    found = get_close_matches(name, [*known], n=3)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def pause(lease: Lease, now: datetime, zone: tzinfo) -> str:
    """`by ann@web-1 until Tue 2026-12-01 02:00 CET: moving house`, to follow `is paused`."""
    why = f": {one_line(lease.note)}" if lease.note else ""
    return f"by {one_line(lease.owner)} {until(lease.until, now, zone)}{why}"


def pause_data(lease: Lease | None) -> dict[str, object] | None:
    """A pause as a program reads it."""
    if lease is None:
        return None
    return {"by": lease.owner, "reason": lease.note, "since": utc(lease.since), "until": utc(lease.until)}


def row_data(row: Row, name: str) -> dict[str, object]:
    """A row as a program reads it."""
    return {
        "task": name,
        "due": utc(row.occurrence.due),
        "attempt": row.attempt,
        "outcome": row.outcome,
        "reason": row.reason,
        "cause": row.cause,
        "server": row.server,
        "since": utc(row.since),
        "ended": utc(row.ended),
        "took": None if row.took is None else row.took.total_seconds(),
        "count": row.count,
        "last": utc(row.last),
        "detail": row.detail,
        "output": row.output,
    }


def nothing_due(tasks: Sequence[Task], now: datetime, zone: tzinfo) -> str:
    """One calm line: nothing is due, and what will be."""
    found = []
    for task in tasks:
        try:
            due = task.trigger.next(now)
        except Exception:  # a broken trigger is told by the tick that meets it
            continue
        if due is not None:
            found.append((due, task.name))
    if not found:
        return "nothing due; nothing ever will be"
    due, name = min(found)
    return f"nothing due; next: {name} at {instant(due, zone)}"
