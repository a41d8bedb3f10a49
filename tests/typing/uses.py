"""The public API as its users write it: never executed, checked by mypy and pyright."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import assert_type

from rota import Chain, DefinitionError, Occurrence, Outcome, RotaError, Schedule, SkipReason, Task

schedule = Schedule("shop", timezone="Europe/Berlin", store="redis://cache.internal/0")
assert_type(schedule.name, str)
assert_type(schedule.timezone, str)


# A decorated function keeps its signature.
@schedule.daily(at="02:00").on_one_server().without_overlapping()
def send_invoices() -> int:
    return 1


assert_type(send_invoices(), int)


@schedule.every(minutes=5)
async def poll(endpoint: str = "https://shop.example", *, tries: int = 3) -> bytes:
    return endpoint.encode() * tries


async def waits_for_it() -> None:
    assert_type(await poll("x", tries=1), bytes)
    await poll(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the signature was kept


def wants_it(function: Callable[[str], Awaitable[bytes]]) -> None: ...


wants_it(poll)


# Arguments are checked against the function that they are for.
def charge(customer: str, *, cents: int) -> None: ...


assert_type(schedule.call(charge, "acme", cents=100), Chain)
assert_type(schedule.hourly().do(charge, "acme", cents=100).name("charge"), Chain)
schedule.call(charge, "acme", cents="100")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # cents is a number
schedule.hourly().do(charge)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # no customer

# Every way to say when.
assert_type(schedule.every(timedelta(minutes=90), anchor=datetime(2026, 1, 1, tzinfo=UTC)), Chain)
assert_type(schedule.every(hours=1, minutes=30, offset=timedelta(minutes=7)), Chain)
assert_type(schedule.hourly(at=[15, 45]), Chain)
assert_type(schedule.daily(at=("02:00", "14:30")), Chain)
assert_type(schedule.weekly(on=["mon", "thu"], at="08:00"), Chain)
assert_type(schedule.monthly(on=[1, "last friday"], at="15:00"), Chain)
assert_type(schedule.quarterly(on="last weekday"), Chain)
assert_type(schedule.yearly(on=(12, 24), at="18:00"), Chain)
assert_type(schedule.cron("*/5 8-17 * * 1-5", "@monthly"), Chain)
assert_type(schedule.once(at=["2026-12-24T18:00", datetime(2027, 1, 1, tzinfo=UTC)]), Chain)

# Every limit and policy.
assert_type(
    schedule.command(["pg_dump", "shop"], cwd=Path("/srv"), env={"PGHOST": "db"})
    .name("backup")
    .formerly("dump")
    .describe("Dumps the shop")
    .timezone("Europe/Berlin")
    .daily(at="03:15")
    .on_days("mon", "wed")
    .between("9:00", "17:00")
    .except_between("12:00", "13:00")
    .starting(date(2026, 1, 1))
    .until("2027-01-01T12:00")
    .when(lambda: True)
    .skip(False)
    .environments("production", "staging")
    .on_every_server()
    .overlap("queue_one", limit=2, key="database", wait=timedelta(minutes=10))
    .lease(seconds=20)
    .retry_when_lost(2, within=timedelta(hours=1))
    .catch_up("latest", within=timedelta(hours=6))
    .grace(minutes=5)
    .time_limit(timedelta(minutes=20))
    .output_to("-"),
    Chain,
)
assert_type(schedule.module("shop.tidy", "--all").weekly().weekdays(), Chain)
assert_type(schedule.weekends().hourly(), Chain)
schedule.hourly().overlap("cancel_previous")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # not yet
schedule.hourly().splay(minutes=5)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # not yet
schedule.dailyAt("02:00")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # no such verb

with schedule.environments("production").every(minutes=5).group() as nothing:
    assert_type(nothing, None)
    schedule.call(charge, "acme", cents=1).name("charge:acme")

# Reading.
assert_type(schedule.tasks, tuple[Task, ...])
assert_type(schedule["backup"], Task)
assert_type([task.name for task in schedule], list[str])
assert_type(len(schedule), int)
assert_type("backup" in schedule, bool)
assert_type(schedule.warnings, tuple[str, ...])
assert_type(Occurrence("backup", datetime.now(UTC)).key, str)
assert_type(Outcome("lost").is_trouble, bool)
assert_type(SkipReason("missed").needs_no_row, bool)

try:
    schedule.daily(at="9am")
except DefinitionError as error:
    assert_type(error.task, str | None)
    assert_type(error.source, str | None)
    assert_type(error.problems, tuple[DefinitionError, ...])
    raise RotaError from error
