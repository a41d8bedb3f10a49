"""What a tick decides, case by case: each line of DESIGN's tick that is a decision has its sentence here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota._core.due import next_due, worth_asking
from rota._core.leases import Lease
from rota._core.planner import COLLAPSE, Plan, plan, question
from rota._core.rows import Occurrence, Row, View, pause_key, pruned_mark
from rota._core.runs import Outcome, SkipReason
from rota._core.task import (
    CatchUp,
    CatchUpKind,
    Crash,
    CrashKind,
    Function,
    Overlap,
    OverlapKind,
    Servers,
    Task,
)
from rota._core.triggers import Every, Once
from rota._core.value import replace

MIDNIGHT = datetime(2026, 6, 1, tzinfo=UTC)


def at(minutes: float, seconds: float = 0) -> datetime:
    return MIDNIGHT + timedelta(minutes=minutes, seconds=seconds)


def task_of(name: str = "task", every: timedelta = timedelta(minutes=1), **policies: object) -> Task:
    return replace(Task(name, Function(print), Every(every)), **policies)  # type: ignore[arg-type]  # any field


def row_of(
    minutes: float,
    outcome: Outcome | None = Outcome.SUCCEEDED,
    *,
    attempt: int = 1,
    task: str = "task",
    token: str = "t",
    start_by: datetime | None = None,
) -> Row:
    due = at(minutes)
    return Row(
        Occurrence(task, due),
        attempt,
        token,
        "web-1",
        due,
        start_by or due + timedelta(minutes=1),
        due,
        outcome=outcome,
    )


def lease_of(token: str, key: str = "run:task", owner: str = "web-1") -> Lease:
    return Lease(key, token, owner, at(0), at(100), 1)


def decide(task: Task, now: datetime, *rows: Row, mark: datetime | None = MIDNIGHT, **view: object) -> Plan:
    marks = {} if mark is None else {task.mark_key: mark}
    marks |= view.pop("marks", {})  # type: ignore[call-overload]  # a mapping, where it is given
    return plan([task], View(now, marks, rows, **view), server="web-2")  # type: ignore[arg-type]  # fields of a View


def starts(decided: Plan) -> list[tuple[datetime, int]]:
    return [(start.due, start.attempt) for start in decided.starts]


def skips(decided: Plan, reason: SkipReason) -> list[datetime]:
    return [end.occurrence.due for end in decided.ends if end.reason is reason]


NONE, LATEST, ALL = CatchUpKind.NONE, CatchUpKind.LATEST, CatchUpKind.ALL
SKIP, QUEUE = Overlap(OverlapKind.SKIP), Overlap(OverlapKind.QUEUE_ONE, wait=timedelta(minutes=10))


# -- first sight


def test_a_task_that_is_seen_for_the_first_time_starts_from_now() -> None:
    decided = decide(task_of(), at(5, 10), mark=None)
    assert decided.first == {task_of().mark_key: at(5, 10)}
    assert [task.name for task in decided.first_seen] == ["task"]
    assert not decided.starts
    assert not decided.ends


def test_a_changed_trigger_is_a_first_sight_and_an_edited_policy_is_not() -> None:
    task = task_of()
    assert replace(task, grace=timedelta(hours=1), overlap=SKIP).mark_key == task.mark_key
    assert task_of(every=timedelta(minutes=2)).mark_key != task.mark_key


def test_a_former_name_keeps_the_identity() -> None:
    assert task_of("new", former_name="old").key == "old"
    assert task_of("new", former_name="old").mark_key == task_of("old").mark_key


# -- what is due


def test_a_due_occurrence_that_nobody_decided_is_started() -> None:
    assert starts(decide(task_of(), at(1, 0.3))) == [(at(1), 1)]


def test_an_occurrence_that_is_due_within_a_moment_is_asked_for_already() -> None:
    assert starts(decide(task_of(), at(0, 59.96))) == [(at(1), 1)]
    assert starts(decide(task_of(), at(0, 59.9))) == []


def test_what_has_a_row_is_not_started_again() -> None:
    assert starts(decide(task_of(), at(1, 5), row_of(1))) == []
    assert starts(decide(task_of(), at(1, 5), row_of(1, Outcome.FAILED))) == []


def test_what_another_server_has_claimed_is_told_and_left_alone() -> None:
    decided = decide(task_of(), at(1, 5), row_of(1, None), leases=(lease_of("t"),))
    assert not decided.starts
    assert not decided.ends
    assert [(each.occurrence.due, each.why) for each in decided.not_yet] == [(at(1), "claimed by web-1")]


def test_what_lies_at_or_before_the_pruned_mark_is_decided_though_its_row_is_gone() -> None:
    decided = decide(task_of(), at(5, 1), marks={pruned_mark("task"): at(4)})
    assert starts(decided) == [(at(5), 1)]
    assert not decided.ends


# -- late: grace, missed, catch-up


def test_of_several_that_may_still_start_the_newest_stands_for_the_others() -> None:
    decided = decide(task_of(), at(3, 1), mark=at(0))
    assert starts(decided) == [(at(3), 1)]
    assert skips(decided, SkipReason.COALESCED) == [at(2)]
    assert skips(decided, SkipReason.MISSED) == [at(1)]


def test_late_by_exactly_the_grace_is_still_started() -> None:
    task = task_of(every=timedelta(hours=1))
    assert starts(decide(task, at(62), mark=at(0))) == [(at(60), 1)]
    late = decide(task, at(62, 0.001), mark=at(0))
    assert not late.starts
    assert skips(late, SkipReason.MISSED) == [at(60)]


def test_a_missed_occurrence_says_how_late_it_was_found() -> None:
    decided = decide(task_of(every=timedelta(days=1)), at(24 * 60 + 95), mark=at(0))
    assert "found 1 h 35 min late" in decided.ends[0].detail
    assert "allowed: 2 min late" in decided.ends[0].detail


@pytest.mark.parametrize(("missed", "rows"), [(COLLAPSE, COLLAPSE), (COLLAPSE + 1, 1), (1000, 1)])
def test_many_missed_in_a_row_are_one_row_that_counts_them(missed: int, rows: int) -> None:
    decided = decide(task_of(grace=timedelta(0)), at(missed, 59), mark=at(0))
    found = [end for end in decided.ends if end.reason is SkipReason.MISSED]
    assert len(found) == rows
    if rows == 1:
        assert (found[0].occurrence.due, found[0].last, found[0].count) == (at(1), at(missed), missed)


def test_a_long_absence_does_not_stop_the_future() -> None:
    decided = decide(task_of(), at(150, 1), mark=at(0))
    assert starts(decided) == [(at(150), 1)]


def test_a_row_in_the_middle_splits_what_was_missed() -> None:
    decided = decide(task_of(grace=timedelta(0)), at(300, 59), row_of(150), mark=at(0))
    found = [(end.occurrence.due, end.count) for end in decided.ends]
    assert found == [(at(1), 149), (at(151), 150)]


def test_catch_up_latest_starts_the_newest_within_its_window_only() -> None:
    task = task_of(every=timedelta(hours=1), catch_up=CatchUp(LATEST, timedelta(hours=2)))
    assert starts(decide(task, at(175), mark=at(0))) == [(at(120), 1)]
    daily = task_of(every=timedelta(days=1), catch_up=CatchUp(LATEST, timedelta(hours=2)))
    late = decide(daily, at(24 * 60 + 180), mark=at(0))
    assert not late.starts
    assert skips(late, SkipReason.MISSED) == [at(24 * 60)]


def test_catch_up_all_starts_each_and_coalesces_none() -> None:
    task = task_of(catch_up=CatchUp(ALL, timedelta(hours=1), most=10))
    decided = decide(task, at(4, 1), mark=at(0))
    assert starts(decided) == [(at(n), 1) for n in (1, 2, 3, 4)]
    assert not decided.ends


def test_catch_up_all_without_overlap_starts_the_oldest_and_the_others_wait() -> None:
    task = task_of(catch_up=CatchUp(ALL, timedelta(hours=1), most=10), overlap=SKIP)
    decided = decide(task, at(3, 1), mark=at(0))
    assert starts(decided) == [(at(1), 1)]
    assert [each.occurrence.due for each in decided.not_yet] == [at(2), at(3)]


def test_more_than_may_be_caught_up_is_missed_and_never_stops_the_future() -> None:
    task = task_of(catch_up=CatchUp(ALL, timedelta(hours=10), most=2))
    decided = decide(task, at(5, 1), mark=at(0))
    assert starts(decided) == [(at(4), 1), (at(5), 1)]
    assert skips(decided, SkipReason.MISSED) == [at(1), at(2), at(3)]


# -- waiting


def test_where_an_occurrence_may_wait_the_lease_comes_first_and_coalescing_after_the_claim() -> None:
    decided = decide(task_of(overlap=QUEUE), at(3, 1), mark=at(0))
    (start,) = decided.starts
    assert start.lease_first
    assert not decided.ends
    assert [end.occurrence.due for end in start.older] == [at(1), at(2)]


@pytest.mark.parametrize(
    ("policies", "waits"),
    [
        ({}, False),
        ({"overlap": SKIP}, False),
        ({"overlap": QUEUE}, True),
        ({"catch_up": CatchUp(LATEST, timedelta(hours=1))}, False),
        ({"catch_up": CatchUp(LATEST, timedelta(hours=1)), "overlap": SKIP}, True),
    ],
)
def test_which_policies_wait(policies: dict[str, object], waits: bool) -> None:
    task = task_of(**policies)
    assert task.may_wait() is waits
    assert task.may_wait(2)


def test_the_run_key_is_the_overlap_policy_and_all_attempts_share_it() -> None:
    assert task_of().run_key(at(1)) == "run:task@2026-06-01T00:01:00Z"
    assert task_of(overlap=SKIP).run_key(at(1)) == "run:task"
    assert task_of(overlap=replace(SKIP, key="db")).run_key(at(1)) == "run:db"


# -- lost


def test_an_open_row_past_its_start_by_whose_token_holds_no_lease_is_lost() -> None:
    decided = decide(task_of(), at(2, 1), row_of(1, None), mark=at(0))
    (end,) = [end for end in decided.ends if end.outcome is Outcome.LOST]
    assert (end.occurrence.due, end.token) == (at(1), "t")
    assert "web-1 holds no lease" in end.detail
    assert "found by web-2" in end.detail


def test_an_open_row_is_not_lost_before_its_own_start_by_nor_while_its_token_holds_a_lease() -> None:
    early = decide(task_of(), at(1, 30), row_of(1, None))
    assert not early.ends
    held = decide(task_of(), at(1, 70), row_of(1, None), leases=(lease_of("t"),))
    assert not [end for end in held.ends if end.outcome is Outcome.LOST]
    other = decide(task_of(), at(1, 70), row_of(1, None), leases=(lease_of("another"),))
    assert [end for end in other.ends if end.outcome is Outcome.LOST]


def test_start_by_is_the_rows_own_and_not_worked_out_from_this_schedule() -> None:
    row = row_of(1, None, start_by=at(6))
    assert not decide(task_of(), at(1, 59), row).ends


def test_a_lost_run_of_a_task_that_this_schedule_no_longer_has_is_found_too() -> None:
    decided = decide(task_of(), at(0, 30), row_of(-5, None, task="gone"))
    assert [(end.occurrence.task, end.outcome) for end in decided.ends] == [("gone", Outcome.LOST)]


RETRY = Crash(CrashKind.RETRY, retries=2, within=timedelta(minutes=5))


def test_a_lost_run_is_retried_only_where_the_task_says_so() -> None:
    lost = row_of(1, Outcome.LOST)
    assert starts(decide(task_of(), at(1, 59), lost)) == []
    decided = decide(task_of(crash=RETRY), at(1, 59), lost)
    assert starts(decided) == [(at(1), 2)]
    assert decided.starts[0].lease_first


def test_attempts_and_their_window_have_an_end() -> None:
    task = task_of(crash=RETRY, every=timedelta(hours=1))
    rows = [row_of(60, Outcome.LOST, attempt=attempt) for attempt in (1, 2, 3)]
    assert starts(decide(task, at(61), *rows[:2], mark=at(0))) == [(at(60), 3)]
    assert starts(decide(task, at(61), *rows, mark=at(0))) == []
    assert starts(decide(task, at(65), rows[0], mark=at(0))) == [(at(60), 2)]
    assert starts(decide(task, at(65, 1), rows[0], mark=at(0))) == []


def test_only_a_lost_run_is_retried() -> None:
    for outcome in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CANCELLED):
        assert starts(decide(task_of(crash=RETRY), at(1, 59), row_of(1, outcome))) == []


# -- the mark


def test_the_mark_moves_over_the_unbroken_run_of_final_rows_only() -> None:
    rows = [row_of(1), row_of(2, Outcome.FAILED), row_of(3, None), row_of(4)]
    decided = decide(task_of(), at(4, 30), *rows, leases=(lease_of("t"),))
    assert decided.marks == {task_of().mark_key: at(2)}


def test_the_mark_does_not_pass_an_occurrence_without_a_row() -> None:
    assert decide(task_of(), at(3, 1), row_of(2), row_of(3)).marks == {}


def test_the_mark_does_not_pass_a_lost_run_that_is_owed_a_retry() -> None:
    lost = row_of(1, Outcome.LOST)
    assert decide(task_of(crash=RETRY), at(1, 59), lost).marks == {}
    assert decide(task_of(), at(1, 59), lost).marks == {task_of().mark_key: at(1)}


# -- a store that forgets


def test_what_was_due_before_the_store_forgot_is_unknown_and_never_started() -> None:
    decided = decide(task_of(), at(3, 1), mark=None, epoch=at(2, 30), quiet_until=at(2, 30))
    assert skips(decided, SkipReason.STORE_LOST) == [at(1), at(2)]
    assert starts(decided) == [(at(3), 1)]
    assert "may have run" in decided.ends[0].detail


def test_while_the_store_is_quiet_nothing_is_started_and_nothing_is_lost() -> None:
    task = task_of(crash=RETRY)
    decided = decide(task, at(3, 1), row_of(1, None), mark=at(0), epoch=at(-60), quiet_until=at(5))
    assert not decided.starts
    assert not [end for end in decided.ends if end.outcome is Outcome.LOST]
    assert decided.quiet_until == at(5)
    assert any("forgotten" in each.why for each in decided.not_yet)


# -- trouble of one task


@dataclass(frozen=True)
class Broken:
    """A trigger that raises."""

    identity: str = "broken"

    def next(self, after: datetime) -> datetime | None:
        raise ZeroDivisionError("by a trigger")

    def previous(self, before: datetime) -> datetime | None:
        raise ZeroDivisionError("by a trigger")

    def between(self, after: datetime, upto: datetime) -> Iterator[datetime]:
        raise ZeroDivisionError("by a trigger")

    def describe(self) -> str:
        return "never"


def test_a_trigger_that_raises_breaks_its_own_task_and_no_other() -> None:
    broken, fine = task_of("broken", trigger=Broken()), task_of("fine")
    view = View(at(1, 20), {fine.mark_key: at(0), broken.mark_key: at(0)})
    decided = plan([broken, fine], view, server="web-2")
    assert [start.task.name for start in decided.starts] == ["fine"]
    (end,) = decided.ends
    assert (end.occurrence, end.reason) == (Occurrence("broken", at(1)), SkipReason.BROKEN)
    assert "ZeroDivisionError: by a trigger" in end.detail
    assert next_due([broken, fine], at(1, 20)) == at(2)


def test_a_broken_trigger_is_told_once_a_minute_and_never_twice_in_one_list() -> None:
    broken = task_of(trigger=Broken())
    lost = row_of(1, None, start_by=at(1, 5))
    decided = decide(broken, at(1, 20), lost)
    assert [(end.occurrence.due, end.outcome) for end in decided.ends] == [(at(1), Outcome.LOST)]


# -- the smaller questions


def test_a_task_that_every_server_runs_has_a_key_for_each_server() -> None:
    task = task_of(servers=Servers.EVERY)
    assert task.on("web-1").key == "task@web-1"
    assert task_of().on("web-1").key == "task"


def test_a_pause_of_the_task_or_of_everything_is_found() -> None:
    pause = Lease(pause_key("task"), "p", "ann", at(0), at(9), 0, note="deploy")
    everything = replace(pause, key=pause_key("*"))
    assert View(at(1), leases=(pause,)).pause_of("task") == pause
    assert View(at(1), leases=(pause,)).pause_of("other") is None
    assert View(at(1), leases=(everything,)).pause_of("other") == everything


def test_the_store_is_asked_only_where_something_may_be_due() -> None:
    daily = [task_of(every=timedelta(days=1))]
    assert not worth_asking(daily, at(10))
    assert worth_asking(daily, at(24 * 60 - 1.4))
    assert worth_asking(daily, at(24 * 60 + 1.9))
    assert not worth_asking(daily, at(24 * 60 + 2.1))
    assert worth_asking([task_of(every=timedelta(days=1), overlap=QUEUE)], at(10))
    assert worth_asking([task_of(every=timedelta(days=1), crash=RETRY)], at(10))
    assert worth_asking([task_of(trigger=Broken())], at(10))


def test_the_question_names_each_mark() -> None:
    task = task_of()
    assert question([task], at(5)).marks == {"task": task.mark_key}


def test_keep_until_covers_the_windows_of_this_and_the_next_occurrence() -> None:
    task = task_of(every=timedelta(hours=1))
    assert task.keep_until(at(0)) == at(62)
    assert replace(task, crash=replace(RETRY, within=timedelta(hours=3))).keep_until(at(0)) == at(180)
    once = replace(task, trigger=Once((at(0),)))
    assert once.keep_until(at(0)) == at(2)


outcomes = st.sampled_from([*(o for o in Outcome if o is not Outcome.SKIPPED), None])
policies = st.fixed_dictionaries(
    {
        "overlap": st.sampled_from([Overlap(), SKIP, QUEUE]),
        "catch_up": st.sampled_from(
            [CatchUp(), CatchUp(LATEST, timedelta(minutes=7)), CatchUp(ALL, timedelta(minutes=7), 3)]
        ),
        "crash": st.sampled_from([Crash(), RETRY]),
    }
)


@given(st.dictionaries(st.integers(1, 12), outcomes), policies, st.floats(0, 13), st.booleans())
def test_every_due_occurrence_is_started_decided_or_told_and_none_twice(
    rows: dict[int, Outcome | None], policy: dict[str, object], now: float, held: bool
) -> None:
    task = task_of(**policy)
    leases = (lease_of("t"),) if held else ()
    decided = decide(
        task, at(now), *(row_of(minute, outcome) for minute, outcome in rows.items()), leases=leases
    )
    started = [start.occurrence for start in decided.starts]
    ended = [end.occurrence for end in decided.ends] + [
        end.occurrence for s in decided.starts for end in s.older
    ]
    told = [each.occurrence for each in decided.not_yet]
    assert len(started) == len(set(started))
    assert len(ended) == len(set(ended))
    assert not set(started) & set(ended)
    for minute in range(1, 14):
        occurrence = Occurrence("task", at(minute))
        if at(minute) <= at(now):
            standing = minute in rows and rows[minute] is not None
            assert standing or occurrence in [*started, *ended, *told]
        elif at(minute) > decided.upto:
            assert occurrence not in [*started, *(e for e in ended if minute not in rows)]
    assert all(mark <= decided.upto for mark in decided.marks.values())
