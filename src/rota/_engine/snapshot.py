"""The read model of every face: what is scheduled, what stands for it, what runs, what is held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rota._core.leases import Lease, is_notice
from rota._core.planner import question
from rota._core.rows import Row, RowQuery
from rota._core.task import Task
from rota._core.value import value
from rota.stores.base import Store

_RECENT = 20


@value
class TaskState:
    """One task as it stands: when it is due next, how its last run ended, what goes on."""

    task: Task
    next_due: datetime | None
    last: Row | None
    running: Sequence[Row]
    pause: Lease | None


@value
class Snapshot:
    """The schedule at the store's instant `now`. `leases` are those in force, without pauses and sign-ins."""

    now: datetime
    tasks: Sequence[TaskState]
    leases: Sequence[Lease]
    pauses: Mapping[str, Lease]


def take(tasks: Sequence[Task], store: Store, estimate: datetime) -> Snapshot:
    """Read it in a fixed number of calls. Raises StoreUnavailable if the store does not answer."""
    view = store.look(question(tasks, estimate))
    running: dict[str, list[Row]] = {}
    for row in view.rows:
        if row.is_open:
            running.setdefault(row.occurrence.task, []).append(row)
    last = _last_rows(tasks, store) if store.guarantees.lists_rows else {}
    return Snapshot(
        view.now,
        [
            TaskState(
                task,
                task.trigger.next(view.now),
                last.get(task.key),
                running.get(task.key, ()),
                view.pause_of(task.key),
            )
            for task in tasks
        ],
        [lease for lease in view.leases if not is_notice(lease.key)],
        view.pauses,
    )


def _last_rows(tasks: Sequence[Task], store: Store) -> Mapping[str, Row]:
    """The newest final row of each task: from one page of the history, then one by one for the rest."""
    found: dict[str, Row] = {}
    page = store.rows(RowQuery(limit=_RECENT * max(1, len(tasks)))).items
    complete = len(page) < _RECENT * max(1, len(tasks))
    for row in page:
        if not row.is_open:
            found.setdefault(row.occurrence.task, row)
    if complete:
        return found
    for task in tasks:
        if task.key not in found:
            rows = store.rows(RowQuery(tasks=(task.key,), limit=_RECENT)).items
            final = next((row for row in rows if not row.is_open), None)
            if final is not None:
                found[task.key] = final
    return found
