"""Claims, ends, history and pruning: promises 3, 4 and 5."""

from __future__ import annotations

from typing import Any

from rota._core.value import replace
from rota.stores.base import (
    STEP_BACK_ALLOWANCE,
    Cause,
    Outcome,
    Refusal,
    Refused,
    Row,
    RowQuery,
    SkipReason,
    pruned_mark,
)
from rota.testing._tools import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    TICK,
    StoreTools,
    a_row,
    at_once,
    by_key,
    is_a,
)


class RowsContract(StoreTools):
    """What is decided stays decided."""

    # claim

    def test_where_no_row_stands_a_claim_opens_one(self) -> None:
        """3. Where no row stands ...: an open row with the asker's token, since = now and start_by =
        since + start_within."""
        claim = self.a_claim(start_within=90 * SECOND, cause=Cause.MANUAL)
        answer = self.store.claim([claim])
        assert answer.items[0] == Row(
            occurrence=claim.occurrence,
            attempt=1,
            token=claim.token,
            server="web-1",
            since=answer.now,
            start_by=answer.now + 90 * SECOND,
            keep_until=claim.keep_until,
            cause=Cause.MANUAL,
        )
        assert is_a(Row, answer.items[0]).is_open
        assert list(self.look().rows) == list(answer.items)

    def test_both_edges_of_the_window_of_a_claim_belong_to_it(self) -> None:
        """3. ... and not_before <= now <= not_after."""
        if self.clock is None:
            return
        now = self.start
        assert self.claimed("a", not_before=now, not_after=now).since == now
        (early,) = self.claim(self.a_claim("b", not_before=now + TICK, not_after=now + HOUR))
        assert early == Refusal(Refused.EARLY, until=now + TICK)
        (late,) = self.claim(self.a_claim("c", not_before=now - HOUR, not_after=now - TICK))
        assert is_a(Refusal, late).reason is Refused.TOO_LATE
        assert [row.occurrence.task for row in self.standing()] == ["a"]

    def test_a_claim_outside_its_window_is_early_or_too_late(self) -> None:
        """3. ... window (early, too_late)."""
        early, late = self.claim(
            self.a_claim("b", not_before=self.start + HOUR, not_after=self.start + 2 * HOUR),
            self.a_claim("c", not_before=self.start - HOUR, not_after=self.start - MINUTE),
        )
        assert [is_a(Refusal, early).reason, is_a(Refusal, late).reason] == [Refused.EARLY, Refused.TOO_LATE]
        assert self.standing() == []

    def test_a_row_that_stands_is_answered_as_it_is(self) -> None:
        """3. A row that stands is answered as it is, whoever asks, be it open or final, inside the
        window or not."""
        row = self.claimed(token="first")
        for token in ("first", "second"):
            again = self.a_claim(token=token, server="web-9", keep_until=self.start + DAY, cause=Cause.MANUAL)
            late = replace(again, not_before=self.start - HOUR, not_after=self.start - MINUTE)
            early = replace(again, not_before=self.start + HOUR, not_after=self.start + HOUR)
            for claim in (again, late, early):
                assert self.claim(claim) == [row]
        final = self.settled(token="first", output="done")
        for token in ("first", "second"):
            assert self.claim(self.a_claim(token=token)) == [final]

    def test_asking_again_with_the_same_token_is_the_same_claim(self) -> None:
        """3. Asking again with the same token is the same claim, so a lost reply is repaired by asking
        again."""
        row = self.claimed()
        self.pass_time(self.tick)
        assert self.claimed() == row
        assert self.standing() == [row]

    def test_a_claim_is_checked_in_a_fixed_order(self) -> None:
        """3. Checked in this order: row, epoch, window (early, too_late), pruned mark (too_late)."""
        row = self.claimed(token="first")
        self.store.advance({pruned_mark("a"): self.start})
        late = self.a_claim(token="2", not_before=self.start - HOUR, not_after=self.start - MINUTE)
        assert self.claim(late) == [row]
        early = self.a_claim(attempt=2, not_before=self.start + HOUR, not_after=self.start + HOUR)
        assert is_a(Refusal, self.claim(early)[0]).reason is Refused.EARLY

    def test_at_or_before_the_pruned_mark_a_claim_is_too_late(self) -> None:
        """3. ... pruned mark (too_late)."""
        self.store.advance({pruned_mark("a"): self.start - SECOND})
        for due, opened in ((self.start - MINUTE, False), (self.start - SECOND, False), (self.start, True)):
            (answer,) = self.claim(self.a_claim(due=due))
            assert isinstance(answer, Row) is opened
            assert opened or answer == Refusal(Refused.TOO_LATE)
        assert isinstance(self.claim(self.a_claim("b", due=self.start - MINUTE))[0], Row)

    def test_attempts_are_rows_of_their_own(self) -> None:
        """3. Attempts are rows of their own."""
        first = self.claimed(token="1")
        lost = self.settled(token="1", outcome=Outcome.LOST)
        second = self.claimed(token="2", attempt=2)
        assert (first.attempt, second.attempt, second.is_open) == (1, 2, True)
        assert self.settled(token="2", attempt=2).outcome is Outcome.SUCCEEDED
        assert self.claim(self.a_claim(token="3")) == [lost]

    # settle

    def test_an_open_row_with_the_same_token_becomes_final(self) -> None:
        """4. ... an open row with the same token, becomes final."""
        row = self.claimed(cause=Cause.MANUAL)
        self.pass_time(self.tick)
        end = self.an_end(outcome=Outcome.FAILED, detail="why", output="out", took=90 * SECOND)
        answer = self.store.settle([end])
        output = "out" if self.store.guarantees.lists_rows else ""
        assert answer.items[0] == replace(
            row, outcome=Outcome.FAILED, detail="why", output=output, took=90 * SECOND, ended=answer.now
        )
        assert self.standing() == list(answer.items)

    def test_every_outcome_and_reason_that_ends_a_run_is_written(self) -> None:
        """4. ... an open row with the same token, becomes final."""
        reasons = [reason for reason in SkipReason if not reason.needs_no_row]
        ends = [
            self.an_end(f"{outcome}", outcome=outcome) for outcome in Outcome if outcome != Outcome.SKIPPED
        ]
        ends += [self.a_skip(reason, f"{reason}") for reason in reasons]
        self.claim(*[self.a_claim(end.occurrence.task) for end in ends])
        rows = [is_a(Row, row) for row in self.settle(*ends)]
        assert [(row.outcome, row.reason) for row in rows] == [(end.outcome, end.reason) for end in ends]

    def test_where_no_row_stands_an_end_writes_one(self) -> None:
        """4. No row ... becomes final. A row that was never claimed has since = ended = now and no
        start_by."""
        for reason in SkipReason:
            self.settle(self.a_skip(reason, f"{reason}", detail="why"))
        answer = self.store.settle([self.an_end(took=SECOND)])
        row = is_a(Row, answer.items[0])
        assert (row.since, row.ended, row.start_by) == (answer.now, answer.now, None)
        assert (row.token, row.server, row.cause) == ("token of a", "web-2", Cause.SCHEDULE)
        assert {row.reason for row in self.standing()} == {None, *SkipReason}

    def test_an_open_row_with_another_token_stays_open(self) -> None:
        """4. ... an open row with the same token."""
        row = self.claimed(token="mine")
        for outcome in Outcome:
            reason = SkipReason.PAUSED if outcome is Outcome.SKIPPED else None
            assert self.settle(self.an_end(token="theirs", outcome=outcome, reason=reason)) == [row]
        assert self.standing() == [row]

    def test_lost_ends_only_the_row_whose_token_it_names(self) -> None:
        """4. `lost` ends only the open row whose token it names ..."""
        row = self.claimed(token="mine")
        assert self.settle(self.an_end(token="another", outcome=Outcome.LOST)) == [row]
        assert self.settled(token="mine", outcome=Outcome.LOST).outcome is Outcome.LOST

    def test_lost_never_creates_a_row(self) -> None:
        """4. ... and never creates one (no row: None)."""
        assert self.settle(self.an_end(outcome=Outcome.LOST)) == [None]
        assert self.standing() == []

    def test_missed_coalesced_and_store_lost_are_written_only_where_no_row_stands(self) -> None:
        """4. missed, coalesced and store_lost are written only where no row stands."""
        for reason in (SkipReason.MISSED, SkipReason.COALESCED, SkipReason.STORE_LOST):
            task = f"{reason}"
            row = self.claimed(task, token="mine")
            for token in ("mine", "theirs"):
                assert self.settle(self.a_skip(reason, task, token=token)) == [row]
            fresh = is_a(Row, self.settle(self.a_skip(reason, task, attempt=2))[0])
            assert (fresh.outcome, fresh.reason) == (Outcome.SKIPPED, reason)

    def test_a_final_row_never_changes(self) -> None:
        """4. A final row never changes."""
        self.claimed()
        final = self.settled(output="first")
        self.pass_time(self.tick)
        for token in ("token of a", "another"):
            for outcome in Outcome:
                for reason in SkipReason if outcome is Outcome.SKIPPED else (None,):
                    end = self.an_end(token=token, outcome=outcome, reason=reason, output="second")
                    assert self.settle(end) == [final]
        assert self.standing() == [final]

    def test_every_attempt_has_one_end_whoever_writes_it(self) -> None:
        """4. The answer is the row that stands, so every attempt has exactly one end, whoever writes it
        and however often."""
        self.claim(*[self.a_claim(attempt=attempt, token="mine") for attempt in range(1, 6)])
        answers: list[Row | None] = []

        def server(number: int) -> None:
            outcome = (Outcome.SUCCEEDED, Outcome.LOST)[number % 2]
            for attempt in range(1, 6):
                end = self.an_end(token="mine", attempt=attempt, outcome=outcome, detail=f"{number}")
                answers.extend(self.settle(end))

        at_once(4, server)
        assert len(set(answers)) == 5
        assert sorted(self.standing(), key=lambda row: row.attempt) == sorted(
            set(map(a_row, answers)), key=lambda row: row.attempt
        )

    def test_what_the_claim_said_stays(self) -> None:
        """4. What the claim said stays: since, start_by, cause, and the server that claimed."""
        row = self.claimed(server="web-1", cause=Cause.MANUAL)
        self.pass_time(self.tick)
        final = self.settled(server="web-2", outcome=Outcome.LOST)
        assert (final.since, final.start_by, final.cause) == (row.since, row.start_by, Cause.MANUAL)
        assert final.server == "web-1"

    def test_the_larger_keep_until_of_claim_and_end_stands(self) -> None:
        """5. The larger keep_until of Claim and End stands."""
        shorter, longer = self.start + HOUR, self.start + DAY
        self.claimed("a", keep_until=longer)
        self.claimed("b", keep_until=shorter)
        assert self.settled("a", keep_until=shorter).keep_until == longer
        assert self.settled("b", keep_until=longer).keep_until == longer
        assert {row.keep_until for row in self.standing()} == {longer}

    def test_at_or_before_the_pruned_mark_an_end_writes_nothing_where_no_row_stands(self) -> None:
        """5. At or before `pruned:<task>` nothing is written where no row stands (None)."""
        stands = self.claimed(due=self.start - 2 * SECOND)
        self.store.advance({pruned_mark("a"): self.start - SECOND})
        for due in (self.start - SECOND, self.start - MINUTE):
            assert self.settle(self.an_end(due=due)) == [None]
            assert self.settle(self.a_skip(SkipReason.MISSED, due=due)) == [None]
        assert self.standing() == [stands]
        assert self.settled(due=stands.occurrence.due).outcome is Outcome.SUCCEEDED
        assert self.settled(due=self.start).outcome is Outcome.SUCCEEDED

    def test_an_end_with_last_moves_the_pruned_mark(self) -> None:
        """5. An end with `last`, once it stands, moves `pruned:<task>` to `last` in the same step."""
        oldest, last = self.start - HOUR, self.start - MINUTE
        row = self.settle(self.a_skip(SkipReason.MISSED, due=oldest, count=60, last=last))[0]
        assert (is_a(Row, row).count, is_a(Row, row).last) == (60, last)
        assert self.look("a").marks == {pruned_mark("a"): last}
        assert self.claim(self.a_claim(due=last)) == [Refusal(Refused.TOO_LATE)]
        assert self.claim(self.a_claim(due=oldest)) == [row]

    def test_an_end_with_last_that_does_not_stand_moves_nothing(self) -> None:
        """5. ... once it stands."""
        oldest = self.start - HOUR
        row = self.claimed(due=oldest)
        end = self.a_skip(SkipReason.MISSED, due=oldest, count=60, last=self.start - MINUTE)
        assert self.settle(end) == [row]
        assert self.look("a").marks == {}

    # rows

    def test_the_history_is_newest_first_and_limited(self) -> None:
        """The history, newest due instant first, at most `limit`."""
        if not self.store.guarantees.lists_rows:
            assert self.standing() == []
            return
        dues = [self.start - n * MINUTE for n in range(5)]
        for due in reversed(dues):
            self.settled("b", due=due)
            self.claimed("a", due=due)
        answer = self.store.rows(RowQuery(limit=4))
        assert [(row.occurrence.due, row.occurrence.task) for row in answer.items] == [
            (dues[0], "a"),
            (dues[0], "b"),
            (dues[1], "a"),
            (dues[1], "b"),
        ]
        assert answer.now >= self.start
        assert len(self.store.rows(RowQuery()).items) == 10
        assert list(self.store.rows(RowQuery(limit=0)).items) == []

    def test_every_condition_of_a_query_holds_for_each_row(self) -> None:
        """... every condition of the query holds for each row."""
        if not self.store.guarantees.lists_rows:
            return
        self.claimed("a", server="web-1")
        self.claimed("b", server="web-2")
        self.settled("b", outcome=Outcome.FAILED)
        self.settled("c", due=self.start - HOUR, server="web-3")
        self.settled("a%", server="web-3")

        def found(**conditions: Any) -> list[str]:
            return [row.occurrence.task for row in self.store.rows(RowQuery(**conditions)).items]

        assert found() == ["a", "a%", "b", "c"]
        assert found(tasks=["a", "c"]) == ["a", "c"]
        assert found(since=self.start) == ["a", "a%", "b"]
        assert found(outcome=Outcome.FAILED) == ["b"]
        assert found(server="web-3") == ["a%", "c"]
        assert found(open_only=True) == ["a"]
        assert found(server="web-3", since=self.start, outcome=Outcome.SUCCEEDED, tasks=["a%", "c"]) == ["a%"]
        assert found(open_only=True, outcome=Outcome.FAILED) == []

    def test_long_output_and_every_script_are_kept(self) -> None:
        """Output of up to 65,536 characters is kept whole where rows are listed, of whatever plane."""
        output = ("Grüße, 世界 🎼𝄞\n" * 5_000)[:65_536]
        row = self.settled("🎼", output=output, detail="it’s 𝄞", token="t🎼", server="wéb")
        if self.store.guarantees.lists_rows:
            assert row.output == output
            assert self.standing("🎼") == [row]
        assert self.acquired("🎼", note="𝄞", owner="wéb").note == "𝄞"

    # prune

    def test_pruning_forgets_final_rows_that_ended_before(self) -> None:
        """5. Forget final rows that ended before `before`, and answer how many."""
        past = self.start - DAY
        for n in range(3):
            self.settled(due=past - n * MINUTE, keep_until=past)
        ended = self.standing()[0].ended
        assert ended is not None
        assert self.store.prune(ended - SECOND) == 0
        assert len(self.standing()) == 3
        self.pass_time(self.tick)
        assert self.store.prune(self.now() + SECOND) == 3
        assert self.standing() == []
        assert self.store.prune(self.now() + SECOND) == 0

    def test_pruning_keeps_so_many_of_the_newest_of_each_task(self) -> None:
        """With `most`, of each task also those that are not among its `most` newest final rows."""
        past = self.start - DAY
        for task in ("a", "b"):
            for n in range(4):
                self.settled(task, due=past - n * MINUTE, keep_until=past)
        self.settled("a", due=past, attempt=2, keep_until=past)
        self.claimed("a", due=past + MINUTE, keep_until=past)
        self.settled("c", due=past, keep_until=self.start)
        long_ago = self.start - 1000 * DAY
        assert self.store.prune(long_ago, most=5) == 0
        assert self.store.prune(long_ago, most=2) == 5
        assert [
            (row.occurrence.task, row.occurrence.due, row.attempt) for row in by_key(self.standing("a", "b"))
        ] == [
            ("a", past, 1),
            ("a", past, 2),
            ("a", past + MINUTE, 1),
            ("b", past - MINUTE, 1),
            ("b", past, 1),
        ]
        assert self.look("a", "b").marks == {
            pruned_mark("a"): past - MINUTE,
            pruned_mark("b"): past - 2 * MINUTE,
        }
        assert self.store.prune(long_ago, most=0) == 4
        assert {row.occurrence.task for row in self.standing()} == {"a", "c"}

    def test_a_row_is_kept_until_its_keep_until_plus_the_allowance(self) -> None:
        """5. A row is kept until its keep_until plus the step-back allowance (10 min) by the store's
        clock, whatever `before` says."""
        self.settled("later", keep_until=self.start)
        self.settled("over", keep_until=self.start - STEP_BACK_ALLOWANCE - MINUTE)
        self.settled("not yet", keep_until=self.start - STEP_BACK_ALLOWANCE + MINUTE)
        assert self.store.prune(self.start + 1000 * DAY) == 1
        assert {row.occurrence.task for row in self.standing()} == {"later", "not yet"}
        if self.clock is not None:
            self.pass_time(STEP_BACK_ALLOWANCE)
            assert self.store.prune(self.start + 1000 * DAY) == 1
            self.pass_time(self.tick)
            assert self.store.prune(self.start + 1000 * DAY) == 1

    def test_an_open_row_is_never_pruned(self) -> None:
        """5. ... and an open row is never pruned."""
        row = self.claimed(keep_until=self.start - DAY)
        assert self.store.prune(self.start + 1000 * DAY) == 0
        assert self.standing() == [row]

    def test_pruning_moves_the_pruned_mark_to_the_last_instant_removed(self) -> None:
        """5. In the same step `pruned:<task>` moves to the last due instant removed: what lies at or
        before it is decided though its row is gone (claim: too_late; settle: nothing)."""
        past = self.start - DAY
        dues = [past, past + MINUTE, past + HOUR]
        for task in ("a", "b"):
            for due in dues:
                self.settled(task, due=due, keep_until=past)
        self.settled("a", due=self.start)
        self.store.advance({pruned_mark("b"): self.start - MINUTE})
        assert self.store.prune(self.start + DAY) == 6
        assert self.look("a").marks == {pruned_mark("a"): dues[2]}
        assert self.look("b").marks == {pruned_mark("b"): self.start - MINUTE}
        for due in (*dues, past + 2 * MINUTE):
            assert self.claim(self.a_claim(due=due)) == [Refusal(Refused.TOO_LATE)]
            assert self.settle(self.an_end(due=due)) == [None]
        assert len(self.standing()) == 1
        assert isinstance(self.claim(self.a_claim(due=dues[2] + SECOND))[0], Row)

    def test_a_row_that_stands_before_the_pruned_mark_still_stands(self) -> None:
        """5. A row that stands there still stands."""
        past = self.start - DAY
        kept = self.claimed(due=past)
        self.settled(due=past + HOUR, keep_until=past)
        assert self.store.prune(self.start + DAY) == 1
        assert self.claim(self.a_claim(due=past, token="another")) == [kept]
        assert list(self.look("a").rows) == [kept]
        assert self.settled(due=past).outcome is Outcome.SUCCEEDED
