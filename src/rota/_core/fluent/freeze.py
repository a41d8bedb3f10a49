"""Chains become tasks: what was left unsaid gets its default, what contradicts itself is refused.

All problems of a schedule are found in one reading, so that whoever mends it need not load it once
for each. No clock is read: whether a task can ever be due is a question about its trigger alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from rota._core.errors import DefinitionError
from rota._core.fluent import words, work
from rota._core.fluent.chain import Chain, Facts, Said
from rota._core.task import CatchUpKind, OverlapKind, Task
from rota._core.triggers import Cron, Every, Once, Restricted, Trigger
from rota._core.zones import zone as zone_named

_SEARCH_FROM: Final = datetime(2024, 1, 1, tzinfo=UTC)
_MOMENT: Final = timedelta(microseconds=1)
_POLICIES: Final = (
    "description",
    "former_name",
    "environments",
    "servers",
    "overlap",
    "lease",
    "crash",
    "catch_up",
    "grace",
    "time_limit",
    "output",
)


def freeze(schedule: str, zone: str, chains: Iterable[Chain]) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """The tasks in the order of their definition, and the warnings; or one error with every problem."""
    tasks: list[Task] = []
    warnings: list[str] = []
    problems: list[DefinitionError] = []
    for chain in chains:
        if chain._group is not None:
            if not chain._group.was_entered:
                problems.append(
                    DefinitionError(
                        "group() was never entered", source=chain._place, allowed="with schedule... .group():"
                    )
                )
            continue
        facts = _with_groups(chain)
        found = list(_gaps(facts)) or list(_contradictions(facts))
        if not found:
            try:
                task = _task(facts, zone, chain._place)
            except DefinitionError as error:
                found = [error]
            else:
                tasks.append(task)
                warnings += _warnings(facts, task)
        problems += (error.located(task=facts.known_name, source=chain._place) for error in found)
    problems += _clashes(tasks)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise DefinitionError(f"{len(problems)} problems in schedule {schedule!r}:{lines}", problems=problems)
    return tuple(tasks), tuple(warnings)


def _with_groups(chain: Chain) -> Facts:
    facts = chain._facts
    for group in reversed(chain._outer):
        facts = facts.within(group.facts)
    return facts


def _gaps(facts: Facts) -> Iterator[DefinitionError]:
    """What a task cannot do without."""
    if facts.work is None:
        yield DefinitionError(
            "there is nothing to run",
            allowed="a function under the line, do(fn), or a start with call(), command() or module()",
        )
    elif facts.known_name is None:
        yield DefinitionError(
            "this task has no name",
            argument="work",
            found=facts.work.value.describe(),
            allowed='name("...") for all but functions defined with def',
            hint="the name is what all servers know the task by",
        )
    if facts.timing is None:
        yield DefinitionError(
            "it is never said when to run",
            allowed="one of every, hourly, daily, weekly, monthly, quarterly, yearly, cron, once",
        )


def _contradictions(facts: Facts) -> Iterator[DefinitionError]:
    """Facts that are each right and together are not."""
    overlap, catch_up = facts.overlap, facts.catch_up
    if (
        overlap is not None
        and catch_up is not None
        and overlap.value.kind is OverlapKind.QUEUE_ONE
        and catch_up.value.kind is CatchUpKind.ALL
    ):
        yield DefinitionError(
            f"queue_one of {overlap.place} keeps the newest occurrence only, catch_up all keeps each",
            argument="catch_up",
            found="all",
            allowed='catch_up("latest") with queue_one, or overlap("skip") with catch_up("all")',
            source=catch_up.place,
        )
    name = facts.known_name
    if facts.former_name is not None and facts.former_name.value == name:
        yield DefinitionError(
            "the former name is the present one",
            argument="formerly",
            found=name,
            allowed="the name before",
            source=facts.former_name.place,
        )
    if facts.name is None and name is not None:
        try:
            words.label(name, "name")
        except DefinitionError as error:
            yield error


def _task(facts: Facts, zone: str, place: str) -> Task:
    assert facts.work is not None
    name = facts.known_name
    assert name is not None
    stated: dict[str, Any] = {"description": work.description_of(facts.work.value)}
    for policy in _POLICIES:
        if (said := getattr(facts, policy)) is not None:
            stated[policy] = said.value
    return Task(
        name=name,
        work=facts.work.value,
        trigger=_trigger(facts, facts.zone.value if facts.zone is not None else zone),
        servers_stated=facts.servers is not None,
        filters=tuple(said.value for said in facts.filters),
        source=place,
        **stated,
    )


def _trigger(facts: Facts, zone: str) -> Trigger:
    timing = facts.timing
    assert timing is not None
    try:
        trigger = timing.value.within(zone)
    except DefinitionError as error:
        raise error.located(task=None, source=timing.place) from error.__cause__
    if not (facts.windows or facts.days or facts.starting or facts.until):
        return trigger
    starting = _instant(facts.starting, zone, end_of_day=False)
    until = _instant(facts.until, zone, end_of_day=True)
    if starting is not None and until is not None and until < starting:
        assert facts.until is not None
        assert facts.starting is not None
        raise DefinitionError(
            f"until() lies before starting() of {facts.starting.place}",
            argument="until",
            found=str(facts.until.value),
            allowed=f"{facts.starting.value} or later",
            source=facts.until.place,
        )
    restricted = Restricted(
        trigger,
        zone,
        windows=tuple(said.value for said in facts.windows),
        days=facts.days.value if facts.days is not None else None,
        starting=starting,
        until=until,
    )
    _check_ever_due(restricted, facts)
    return restricted


def _instant(said: Said[date] | None, zone: str, *, end_of_day: bool) -> datetime | None:
    if said is None:
        return None
    try:
        return words.instant(said.value, zone_named(zone), said.verb, end_of_day=end_of_day)
    except DefinitionError as error:
        raise error.located(task=None, source=said.place) from error.__cause__


def _check_ever_due(trigger: Restricted, facts: Facts) -> None:
    """Refuse a task that no instant satisfies.

    The search begins where the task does. One that has only an end is searched backwards from it,
    since a task whose time is over is finished, not wrong.
    """
    inner = trigger.trigger
    if trigger.starting is not None:
        due = trigger.next(trigger.starting - _MOMENT)
    elif trigger.until is not None:
        due = trigger.previous(trigger.until + _MOMENT)
    elif isinstance(inner, Once):
        due = trigger.next(min(inner.instants) - _MOMENT)
    else:
        due = trigger.next(_SEARCH_FROM)
    if due is None:
        limits = [*facts.windows, facts.days, facts.starting, facts.until]
        said = ", ".join(f"{limit.verb}() of {limit.place}" for limit in limits if limit is not None)
        assert facts.timing is not None
        raise DefinitionError(
            "this task would never be due",
            argument=facts.timing.verb,
            found=inner.describe(),
            allowed=f"times left open by {said}",
            source=facts.timing.place,
        )


def _warnings(facts: Facts, task: Task) -> Iterator[str]:
    assert facts.timing is not None
    trigger = task.trigger.trigger if isinstance(task.trigger, Restricted) else task.trigger
    remarks = trigger.warnings if isinstance(trigger, Cron | Every) else ()
    for warning in facts.timing.value.warnings + remarks:
        yield f"task {task.name!r}, {facts.timing.place}: {warning}"


def _clashes(tasks: list[Task]) -> Iterator[DefinitionError]:
    """Tasks that are each right and cannot stand in one schedule."""
    named: dict[str, Task] = {}
    for task in tasks:
        if (other := named.setdefault(task.name, task)) is not task:
            yield DefinitionError(
                f"a task of this name stands at {other.source}",
                task=task.name,
                source=task.source,
                argument="name",
                found=task.name,
                allowed="one task of a name",
                hint='give each its own with name("...")',
            )
    former: dict[str, Task] = {}
    for task in tasks:
        if task.former_name is None:
            continue
        other = named.get(task.former_name) or former.setdefault(task.former_name, task)
        if other is not task:
            yield DefinitionError(
                f"this name belongs to task {other.name!r} of {other.source}",
                task=task.name,
                source=task.source,
                argument="formerly",
                found=task.former_name,
                allowed="a name that no other task has or had",
                hint="both would have the same rows in the store",
            )
    limits: dict[str, Task] = {}
    for task in tasks:
        if task.overlap.key is None or task.allows_overlap:
            continue
        other = limits.setdefault(task.overlap.key, task)
        if other.overlap.limit != task.overlap.limit:
            yield DefinitionError(
                f"task {other.name!r} of {other.source} has another limit for the key {task.overlap.key!r}",
                task=task.name,
                source=task.source,
                argument="limit",
                found=task.overlap.limit,
                allowed=f"limit={other.overlap.limit}, the same for all tasks with this key",
            )
