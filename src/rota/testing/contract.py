"""The store's contract as tests, one for each sentence of `rota.stores.base`, in its order.

A driver proves itself by a subclass that opens an empty store:

    class TestMyStore(StoreContract):
        def open(self) -> Store:
            return MyStore(clock=self.clock)

The tests are for pytest and need nothing from it. Where the store's clock can be driven, they drive
it and ask exactly; a store with a clock of its own sets `clock = None`, and they wait for moments.
"""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from rota.stores.base import (
    LONGEST_LEASE,
    PAUSE_PREFIX,
    STEP_BACK_ALLOWANCE,
    Cause,
    Claim,
    End,
    Lease,
    Look,
    Occurrence,
    Outcome,
    Refusal,
    Refused,
    Request,
    Row,
    RowQuery,
    SkipReason,
    Store,
    StoreMisused,
    View,
    microseconds,
    pruned_mark,
)

T = TypeVar("T")

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)

NAMES = ("a", "ab", "a%", "a_", "A", "a ", "ä", "a\u0308", "Straße", "名前", "🎼", "a'b\"c", "x" * 200)
"""Names that a careless store takes for one another: prefixes, wildcards, case, normal forms."""


class StoreClock:
    """The clock of a store, in the hands of a test.

    It stands still until it is told to `advance`; with `step` it moves on by that much at each
    reading, so that two readings in one call show. `on_read` is called before each reading.
    """

    def __init__(self, now: datetime = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)) -> None:
        self.now = now
        self.step = timedelta(0)
        self.on_read: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def __call__(self) -> datetime:
        if self.on_read is not None:
            self.on_read()
        with self._lock:
            self.now += self.step
            return self.now

    def advance(self, by: timedelta) -> None:
        with self._lock:
            self.now += by


class StoreContract:
    """Subclass it, say how an empty store is opened, and every promise is a test."""

    clock: StoreClock | None = None
    longest_lease: timedelta = LONGEST_LEASE

    store: Store
    start: datetime

    def open(self) -> Store:
        """A fresh, empty store; a volatile one so long after its epoch that it refuses nothing."""
        raise NotImplementedError

    def open_again(self) -> Store:
        """The same store as another server opens it, where that makes a difference."""
        return self.store

    def setup_method(self, method: object = None) -> None:
        self.clock = None if type(self).clock is None else StoreClock()
        self.store = self.open()
        self.start = self.now()

    def teardown_method(self, method: object = None) -> None:
        self.store.close()

    @property
    def short(self) -> timedelta:
        """The length of a lease that a test can see the end of."""
        return timedelta(milliseconds=500) if self.clock is None else 30 * SECOND

    def pass_time(self, by: timedelta) -> None:
        if self.clock is None:
            time.sleep(by.total_seconds())
        else:
            self.clock.advance(by)

    def now(self) -> datetime:
        return self.store.rows(RowQuery(limit=0)).now

    def look(self, *tasks: str, since: datetime | None = None) -> View:
        return self.store.look(Look({task: f"mark:{task}" for task in tasks}, since or self.start - DAY))

    def a_claim(
        self, task: str = "a", *, due: datetime | None = None, token: str = "", **changes: Any
    ) -> Claim:
        due = due or self.start
        claim = Claim(
            occurrence=Occurrence(task, due),
            attempt=1,
            token=token or f"token of {task}",
            server="web-1",
            not_before=self.start - MINUTE,
            not_after=self.start + HOUR,
            start_within=MINUTE,
            keep_until=self.start + HOUR,
        )
        return replace(claim, **changes)

    def an_end(self, task: str = "a", *, due: datetime | None = None, token: str = "", **changes: Any) -> End:
        end = End(
            occurrence=Occurrence(task, due or self.start),
            attempt=1,
            token=token or f"token of {task}",
            outcome=Outcome.SUCCEEDED,
            keep_until=self.start + HOUR,
            server="web-2",
        )
        return replace(end, **changes)

    def a_skip(self, reason: SkipReason, task: str = "a", **changes: Any) -> End:
        return self.an_end(task, outcome=Outcome.SKIPPED, reason=reason, **changes)

    def a_request(self, key: str = "k", *, token: str = "t1", **changes: Any) -> Request:
        return replace(Request(key, token, "web-1", self.short), **changes)

    def claim(self, *claims: Claim) -> list[Row | Refusal]:
        return list(self.store.claim(claims).items)

    def claimed(self, *arguments: Any, **changes: Any) -> Row:
        return _is(Row, self.claim(self.a_claim(*arguments, **changes))[0])

    def settle(self, *ends: End) -> list[Row | None]:
        return list(self.store.settle(ends).items)

    def settled(self, *arguments: Any, **changes: Any) -> Row:
        return _is(Row, self.settle(self.an_end(*arguments, **changes))[0])

    def acquire(self, *requests: Request) -> list[Lease | Refusal]:
        return list(self.store.acquire(requests).items)

    def acquired(self, *arguments: Any, **changes: Any) -> Lease:
        return _is(Lease, self.acquire(self.a_request(*arguments, **changes))[0])

    def renew(self, lease: Lease, ttl: timedelta | None = None) -> Lease | Refusal:
        return self.store.renew([lease], ttl=self.short if ttl is None else ttl).items[0]

    def release(self, lease: Lease) -> bool:
        return self.store.release([lease]).items[0]

    def standing(self, *tasks: str) -> list[Row]:
        """All rows of these tasks, oldest first; of all tasks if none is named."""
        return list(reversed(self.store.rows(RowQuery(tasks, limit=1_000_000)).items))

    # 1

    def test_the_answer_carries_the_instant_of_its_decisions(self) -> None:
        """1. A call has one `now`, the store's, and it is returned with the answer."""
        claims = self.store.claim([self.a_claim()])
        assert _is(Row, claims.items[0]).since == claims.now
        ends = self.store.settle([self.an_end()])
        assert _is(Row, ends.items[0]).ended == ends.now
        leases = self.store.acquire([self.a_request()])
        lease = _is(Lease, leases.items[0])
        assert (lease.since, lease.until) == (leases.now, leases.now + self.short)

    def test_one_now_serves_a_whole_list(self) -> None:
        """1. ... used for every decision in it."""
        if self.clock is not None:
            self.clock.step = SECOND
        names = NAMES[:5]
        claims = self.store.claim([self.a_claim(name) for name in names])
        assert {_is(Row, row).since for row in claims.items} == {claims.now}
        ends = self.store.settle([self.an_end(name) for name in names])
        assert {_is(Row, row).ended for row in ends.items} == {ends.now}
        leases = self.store.acquire([self.a_request(name) for name in names])
        held = [_is(Lease, lease) for lease in leases.items]
        assert {lease.since for lease in held} == {leases.now}
        renewed = self.store.renew(held, ttl=self.longest_lease)
        assert {_is(Lease, lease).until for lease in renewed.items} == {renewed.now + self.longest_lease}
        marks = self.store.advance(dict.fromkeys(names, self.start + DAY))
        assert set(marks.items) == {marks.now}

    def test_a_look_is_dated_between_its_question_and_its_answer(self) -> None:
        """1. ... (for look: that of its last read)."""
        before = self.store.claim([]).now
        view = self.look()
        assert before <= view.now <= self.store.claim([]).now

    def test_host_clocks_decide_nothing(self) -> None:
        """1. Host clocks decide nothing."""
        if self.clock is not None:
            assert abs(datetime.now(UTC) - self.start) > 1000 * DAY
        assert self.claimed(not_before=self.start, not_after=self.start + MINUTE).since >= self.start

    # 2

    def test_a_list_is_answered_in_its_order(self) -> None:
        """2. A list is answered item by item, in its order."""
        names = list(NAMES)
        random.Random(2).shuffle(names)
        for mix in (names, sorted(names, reverse=True)):
            due = self.start + names.index(mix[0]) * SECOND
            claims = [self.a_claim(name, due=due) for name in mix]
            claims[3] = replace(claims[3], not_before=self.start + DAY, not_after=self.start + DAY)
            answers = self.claim(*claims)
            assert isinstance(answers.pop(3), Refusal)
            assert [_is(Row, row).occurrence.task for row in answers] == mix[:3] + mix[4:]
            ends = [self.an_end(name, due=due) for name in mix]
            ends[3] = replace(ends[3], outcome=Outcome.LOST)
            rows = self.settle(*ends)
            assert rows.pop(3) is None
            assert [_is(Row, row).occurrence.task for row in rows] == mix[:3] + mix[4:]

    def test_leases_and_marks_are_answered_in_their_order(self) -> None:
        """2. A list is answered item by item, in its order."""
        names = list(NAMES)
        random.Random(3).shuffle(names)
        taken = self.acquired(names[2], token="other")
        answers = self.acquire(*[self.a_request(name) for name in names])
        assert isinstance(answers.pop(2), Refusal)
        held = [_is(Lease, lease) for lease in answers]
        assert [lease.key for lease in held] == names[:2] + names[3:]
        mine = [*held[:4], replace(taken, token="t1"), *held[4:]]
        renewed = self.store.renew(mine, ttl=self.short).items
        assert [isinstance(lease, Lease) for lease in renewed] == [lease in held for lease in mine]
        assert [lease.key for lease in renewed if isinstance(lease, Lease)] == [lease.key for lease in held]
        assert list(self.store.release(mine).items) == [lease in held for lease in mine]
        marks = {name: self.start - place * SECOND for place, name in enumerate(names)}
        assert list(self.store.advance(marks).items) == list(marks.values())

    def test_an_empty_list_has_an_empty_answer(self) -> None:
        """2. A list is answered item by item."""
        assert (self.claim(), self.settle(), self.acquire()) == ([], [], [])
        assert list(self.store.renew([], ttl=self.short).items) == []
        assert list(self.store.release([]).items) == []
        assert list(self.store.advance({}).items) == []

    def test_a_key_twice_in_one_list_is_misused_and_nothing_is_done(self) -> None:
        """2. A key that stands twice in one list is StoreMisused, and then nothing is done."""
        claims = [self.a_claim("b"), self.a_claim(token="1"), self.a_claim(token="2")]
        _raises(StoreMisused, self.store.claim, claims)
        assert self.standing() == []
        ends = [self.an_end("b"), self.an_end(token="1"), self.an_end(token="2")]
        _raises(StoreMisused, self.store.settle, ends)
        assert self.standing() == []
        requests = [self.a_request("other"), self.a_request(token="1"), self.a_request(token="2")]
        _raises(StoreMisused, self.store.acquire, requests)
        assert self.look().leases == type(self.look().leases)()
        lease = self.acquired()
        _raises(StoreMisused, lambda: self.store.renew([lease, lease], ttl=self.short))
        _raises(StoreMisused, self.store.release, [lease, lease])
        assert self.look().tokens_held == {"t1"}

    def test_two_attempts_and_two_places_are_different_keys(self) -> None:
        """2. The key of a claim and of an end is (occurrence, attempt), that of a lease (key, token)."""
        assert len({_is(Row, row).key for row in self.claim(self.a_claim(), self.a_claim(attempt=2))}) == 2
        places = [self.acquired(token="1", slots=2), self.acquired(token="2", slots=2)]
        assert [isinstance(lease, Lease) for lease in self.store.renew(places, ttl=self.short).items] == [
            True
        ] * 2
        assert list(self.store.release(places).items) == [True, True]

    # 11 and 12

    def test_a_refusal_is_an_answer(self) -> None:
        """11. A refusal is an answer."""
        self.acquired()
        (held,) = self.acquire(self.a_request(token="t2"))
        (early,) = self.claim(self.a_claim(not_before=self.start + DAY, not_after=self.start + DAY))
        assert (_is(Refusal, held).reason, _is(Refusal, early).reason) == (Refused.HELD, Refused.EARLY)

    def test_each_occurrence_is_claimed_once_by_eight_threads(self) -> None:
        """12. Any method may be called from any thread; 3. written first stands."""
        occurrences = [
            Occurrence(task, self.start - k * SECOND) for task in ("a", "b", "c", "d") for k in range(20)
        ]
        won: list[Row] = []

        def server(number: int) -> None:
            mine = occurrences[:]
            random.Random(number).shuffle(mine)
            for occurrence in mine:
                token = f"{number}:{occurrence}"
                (row,) = self.claim(self.a_claim(token=token, occurrence=occurrence))
                if isinstance(row, Row) and row.token == token:
                    won.append(row)

        _at_once(8, server)
        assert sorted(row.occurrence for row in won) == sorted(occurrences)
        assert len(self.look().rows) == len(occurrences)

    def test_one_occurrence_is_claimed_once_by_threads_at_the_same_moment(self) -> None:
        """12. Any method may be called from any thread; 3. written first stands."""
        for attempt in range(1, 6):
            rows: list[Row] = []

            def server(number: int, attempt: int = attempt, rows: list[Row] = rows) -> None:
                rows.append(self.claimed(token=f"{number}", attempt=attempt))

            _at_once(4, server)
            assert len({row.token for row in rows}) == 1

    def test_methods_of_all_kinds_at_once_do_no_harm(self) -> None:
        """12. Any method may be called from any thread."""

        def server(number: int) -> None:
            for k in range(5):
                due = self.start - k * SECOND
                self.claim(self.a_claim(due=due, token=f"{number}"))
                lease = self.acquire(self.a_request(token=f"{number}"))[0]
                self.look("a")
                self.settle(self.an_end(due=due, token=f"{number}"))
                self.store.advance({"mark:a": due})
                self.store.rows(RowQuery())
                self.store.prune(self.start - DAY)
                if isinstance(lease, Lease):
                    self.renew(lease)
                    self.release(lease)

        _at_once(4, server)
        assert [row.outcome for row in self.standing()] == [Outcome.SUCCEEDED] * 5

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
        assert _is(Row, answer.items[0]).is_open
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
        assert _is(Refusal, late).reason is Refused.TOO_LATE
        assert [row.occurrence.task for row in self.standing()] == ["a"]

    def test_a_claim_outside_its_window_is_early_or_too_late(self) -> None:
        """3. ... window (early, too_late)."""
        early, late = self.claim(
            self.a_claim("b", not_before=self.start + HOUR, not_after=self.start + 2 * HOUR),
            self.a_claim("c", not_before=self.start - HOUR, not_after=self.start - MINUTE),
        )
        assert [_is(Refusal, early).reason, _is(Refusal, late).reason] == [Refused.EARLY, Refused.TOO_LATE]
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
        self.pass_time(TICK)
        assert self.claimed() == row
        assert self.standing() == [row]

    def test_a_claim_is_checked_in_a_fixed_order(self) -> None:
        """3. Checked in this order: row, epoch, window (early, too_late), pruned mark (too_late)."""
        row = self.claimed(token="first")
        self.store.advance({pruned_mark("a"): self.start})
        late = self.a_claim(token="2", not_before=self.start - HOUR, not_after=self.start - MINUTE)
        assert self.claim(late) == [row]
        early = self.a_claim(attempt=2, not_before=self.start + HOUR, not_after=self.start + HOUR)
        assert _is(Refusal, self.claim(early)[0]).reason is Refused.EARLY

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
        self.pass_time(TICK)
        end = self.an_end(outcome=Outcome.FAILED, detail="why", output="out", took=90 * SECOND)
        answer = self.store.settle([end])
        assert answer.items[0] == replace(
            row, outcome=Outcome.FAILED, detail="why", output="out", took=90 * SECOND, ended=answer.now
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
        rows = [_is(Row, row) for row in self.settle(*ends)]
        assert [(row.outcome, row.reason) for row in rows] == [(end.outcome, end.reason) for end in ends]

    def test_where_no_row_stands_an_end_writes_one(self) -> None:
        """4. No row ... becomes final. A row that was never claimed has since = ended = now and no
        start_by."""
        for reason in SkipReason:
            self.settle(self.a_skip(reason, f"{reason}", detail="why"))
        answer = self.store.settle([self.an_end(took=SECOND)])
        row = _is(Row, answer.items[0])
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
            fresh = _is(Row, self.settle(self.a_skip(reason, task, attempt=2))[0])
            assert (fresh.outcome, fresh.reason) == (Outcome.SKIPPED, reason)

    def test_a_final_row_never_changes(self) -> None:
        """4. A final row never changes."""
        self.claimed()
        final = self.settled(output="first")
        self.pass_time(TICK)
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

        _at_once(4, server)
        assert len(set(answers)) == 5
        assert sorted(self.standing(), key=lambda row: row.attempt) == sorted(
            set(map(_a_row, answers)), key=lambda row: row.attempt
        )

    def test_what_the_claim_said_stays(self) -> None:
        """4. What the claim said stays: since, start_by, cause, and the server that claimed."""
        row = self.claimed(server="web-1", cause=Cause.MANUAL)
        self.pass_time(TICK)
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
        assert (_is(Row, row).count, _is(Row, row).last) == (60, last)
        assert self.look("a").marks == {pruned_mark("a"): last}
        assert self.claim(self.a_claim(due=last)) == [Refusal(Refused.TOO_LATE)]
        assert self.standing() == [row]

    def test_an_end_with_last_that_does_not_stand_moves_nothing(self) -> None:
        """5. ... once it stands."""
        oldest = self.start - HOUR
        row = self.claimed(due=oldest)
        end = self.a_skip(SkipReason.MISSED, due=oldest, count=60, last=self.start - MINUTE)
        assert self.settle(end) == [row]
        assert self.look("a").marks == {}

    # acquire

    def test_a_free_key_is_given_to_the_token_that_asks(self) -> None:
        """6. Give each key to the token that asks for it."""
        answer = self.store.acquire([self.a_request(note="why")])
        lease = _is(Lease, answer.items[0])
        assert lease == Lease("k", "t1", "web-1", answer.now, answer.now + self.short, lease.fence, 0, "why")
        assert list(self.look().leases) == [lease]

    def test_a_key_has_at_most_one_unexpired_holder(self) -> None:
        """6. A key has at most one unexpired holder (now < until)."""
        lease = self.acquired(token="t1", owner="web-1")
        for _ in range(2):
            assert self.acquire(self.a_request(token="t2")) == [Refusal(Refused.HELD, "web-1", lease.until)]
        if self.clock is not None:
            self.pass_time(self.short - TICK)
            assert isinstance(self.acquire(self.a_request(token="t2"))[0], Refusal)
            self.pass_time(TICK)
        else:
            self.pass_time(self.short)
        assert self.acquired(token="t2").token == "t2"

    def test_with_slots_at_most_that_many_hold_the_key(self) -> None:
        """6. ... with slots=n: at most n, the first free place is given."""
        held = [self.acquired(token=f"{n}", slots=3, owner=f"web-{n}") for n in range(3)]
        assert [lease.slot for lease in held] == [0, 1, 2]
        (refused,) = self.acquire(self.a_request(token="3", slots=3))
        assert _is(Refusal, refused).reason is Refused.HELD
        assert self.release(held[1])
        assert self.acquired(token="3", slots=3).slot == 1
        assert len(self.look().leases) == 3

    def test_fewer_slots_are_full_while_more_hold_the_key(self) -> None:
        """6. ... at most n."""
        held = [self.acquired(token=f"{n}", slots=3) for n in range(3)]
        self.release(held[0])
        assert isinstance(self.acquire(self.a_request(token="x", slots=2))[0], Refusal)
        assert isinstance(self.acquire(self.a_request(token="x"))[0], Refusal)
        self.release(held[1])
        assert self.acquired(token="x", slots=2).slot == 0

    def test_the_places_of_a_key_are_never_more_than_its_slots_in_a_race(self) -> None:
        """6. ... atomically."""
        for round_ in range(5):
            given: list[Lease | Refusal] = []

            def server(number: int, round_: int = round_, given: list[Lease | Refusal] = given) -> None:
                given.extend(self.acquire(self.a_request(f"k{round_}", token=f"{number}", slots=3)))

            _at_once(8, server)
            assert sorted(lease.slot for lease in given if isinstance(lease, Lease)) == [0, 1, 2]

    def test_one_key_is_given_to_one_of_eight_threads(self) -> None:
        """6. A key has at most one unexpired holder."""
        given: list[Lease | Refusal] = []
        _at_once(8, lambda number: given.extend(self.acquire(self.a_request(token=f"{number}"))))
        assert len([lease for lease in given if isinstance(lease, Lease)]) == 1

    def test_only_tokens_are_compared_never_owners(self) -> None:
        """6. Only tokens are compared, never owners."""
        lease = self.acquired(token="t1", owner="web-1")
        assert isinstance(self.acquire(self.a_request(token="t2", owner="web-1"))[0], Refusal)
        assert isinstance(self.renew(replace(lease, token="t2")), Refusal)
        assert not self.release(replace(lease, token="t2"))
        assert self.acquired(token="t1", owner="web-2").since == lease.since
        assert isinstance(self.renew(replace(lease, owner="web-3")), Lease)
        assert self.release(replace(lease, owner="web-4"))

    def test_the_same_token_asking_again_is_one_holding(self) -> None:
        """6. The same token asking again is one holding, now until now + ttl."""
        lease = self.acquired()
        self.pass_time(self.short / 2)
        answer = self.store.acquire([self.a_request()])
        assert answer.items[0] == replace(lease, until=answer.now + self.short)
        assert list(self.look().leases) == list(answer.items)
        places = [self.acquired("s", slots=2, token="1").slot for _ in range(2)]
        assert places == [0, 0]

    def test_asking_again_for_less_takes_nothing_away(self) -> None:
        """6. ... or until when it stood if that is later."""
        lease = self.acquired(ttl=self.longest_lease)
        assert self.acquired(ttl=self.short) == lease

    def test_both_edges_of_the_window_of_a_request_belong_to_it(self) -> None:
        """6. Windows as in claim."""
        now = self.start
        outside = [
            self.a_request("b", not_before=now + HOUR, not_after=now + 2 * HOUR),
            self.a_request("c", not_before=now - HOUR, not_after=now - MINUTE),
        ]
        if self.clock is not None:
            assert self.acquired("a", not_before=now, not_after=now).since == now
            outside.append(self.a_request("d", not_before=now + TICK))
            outside.append(self.a_request("e", not_after=now - TICK))
        reasons = [_is(Refusal, answer).reason for answer in self.acquire(*outside)]
        assert reasons == [Refused.EARLY, Refused.TOO_LATE, Refused.EARLY, Refused.TOO_LATE][: len(reasons)]
        assert self.acquired("f", not_before=now, not_after=now + HOUR).key == "f"

    def test_the_window_of_a_request_is_checked_before_its_holder(self) -> None:
        """6. ... and checked first (epoch, window, holder), so whatever is granted is granted inside its
        window."""
        lease = self.acquired()
        for token in ("t1", "t2"):
            (late,) = self.acquire(self.a_request(token=token, not_after=self.start - MINUTE))
            assert _is(Refusal, late).reason is Refused.TOO_LATE
        assert list(self.look().leases) == [lease]

    def test_a_lease_without_length_is_misused(self) -> None:
        """6. A ttl that is not positive ... is StoreMisused."""
        lease = self.acquired()
        for ttl in (timedelta(0), -SECOND):
            for key in ("other", PAUSE_PREFIX + "a"):
                _raises(StoreMisused, self.store.acquire, [self.a_request(key, ttl=ttl)])
            _raises(StoreMisused, self.renew, lease, ttl)
        assert list(self.look().leases) == [lease]

    def test_a_lease_longer_than_the_longest_is_misused_but_a_pause_is_not(self) -> None:
        """6. ... or longer than the longest lease, is StoreMisused (a pause may be as long as it
        likes)."""
        lease = self.acquired(ttl=self.longest_lease)
        _raises(StoreMisused, lambda: self.acquired("other", ttl=self.longest_lease + TICK))
        _raises(StoreMisused, lambda: self.renew(lease, self.longest_lease + TICK))
        pause = self.acquired(PAUSE_PREFIX + "a", ttl=400 * DAY)
        assert pause.until - pause.since == 400 * DAY
        assert isinstance(self.renew(pause, 500 * DAY), Lease)
        for_ever = self.acquired(PAUSE_PREFIX + "b", ttl=timedelta.max)
        assert for_ever.until.year == 9999
        assert set(self.look().pauses) == {"a", "b"}

    def test_fewer_slots_than_one_are_misused(self) -> None:
        """6. ... and so are fewer slots than one."""
        _raises(StoreMisused, lambda: self.acquired(slots=0))

    def test_a_refused_acquire_changes_nothing(self) -> None:
        """7. A refused acquire changes nothing."""
        lease = self.acquired()
        place = self.acquired("s", slots=1)
        before = self.look()
        for _ in range(3):
            self.acquire(self.a_request(token="t2", owner="x", note="x"), self.a_request("s", token="t2"))
            self.acquire(self.a_request("n", not_after=self.start - MINUTE))
        after = self.look()
        assert sorted(after.leases, key=_key) == sorted(before.leases, key=_key)
        self.pass_time(self.short)
        assert self.look().leases == type(after.leases)()
        assert self.acquired(token="t2").fence > lease.fence
        assert self.acquired("s", token="t2").fence > place.fence

    def test_held_names_the_holder_who_goes_first(self) -> None:
        """7. Held names the owner, and until when, of the holder who goes first."""
        self.acquired(token="1", slots=2, owner="web-1", ttl=self.longest_lease)
        soon = self.acquired(token="2", slots=2, owner="web-2")
        assert self.acquire(self.a_request(token="3", slots=2)) == [
            Refusal(Refused.HELD, "web-2", soon.until)
        ]

    def test_the_fence_grows_with_every_new_holding(self) -> None:
        """8. The fence of a key grows with every new holding: max(previous + 1, now in microseconds)."""
        lease = self.acquired()
        assert lease.fence == microseconds(lease.since)
        for _ in range(3):
            assert self.release(lease)
            following = self.acquired()
            assert following.fence == max(lease.fence + 1, microseconds(following.since))
            lease = following
        self.pass_time(self.short)
        after_expiry = self.acquired(token="t2")
        assert after_expiry.fence == max(lease.fence + 1, microseconds(after_expiry.since))

    def test_the_fence_stays_with_the_holding(self) -> None:
        """8. ... with every new holding."""
        lease = self.acquired()
        self.pass_time(TICK)
        assert self.acquired().fence == lease.fence
        assert _is(Lease, self.renew(lease)).fence == lease.fence
        assert [held.fence for held in self.look().leases] == [lease.fence]

    def test_a_slot_has_no_fence_and_hides_none(self) -> None:
        """8. The fence of a key (not of a slot)."""
        first = self.acquired()
        self.release(first)
        place = self.acquired(slots=2)
        assert place.fence == 0
        assert [held.fence for held in self.look().leases] == [0]
        self.release(place)
        assert self.acquired().fence > first.fence

    def test_the_fence_outlives_the_key_by_an_hour(self) -> None:
        """8. ... a key may be forgotten one hour after it lapsed."""
        if self.clock is None:
            return
        lease = self.acquired()
        self.release(lease)
        self.pass_time(HOUR - SECOND)
        self.store.prune(self.start + DAY)
        self.clock.now = self.start - MINUTE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert self.acquired(token="t2").fence == lease.fence + 1

    # renew and release

    def test_a_renewal_prolongs_to_now_and_the_length(self) -> None:
        """7. Prolong each lease to now + ttl; never to less than it had."""
        lease = self.acquired()
        self.pass_time(self.short / 2)
        answer = self.store.renew([lease], ttl=self.longest_lease)
        renewed = _is(Lease, answer.items[0])
        assert renewed == replace(lease, until=answer.now + self.longest_lease)
        assert self.renew(lease, self.short) == renewed
        assert list(self.look().leases) == [renewed]

    def test_only_the_token_renews(self) -> None:
        """7. Only the token renews."""
        lease = self.acquired()
        refusal = self.renew(replace(lease, token="t2"), self.longest_lease)
        assert refusal == Refusal(Refused.HELD, "web-1", lease.until)
        assert list(self.look().leases) == [lease]

    def test_what_has_lapsed_is_not_renewed(self) -> None:
        """7. What has lapsed is not renewed (held by its new holder, or too_late)."""
        lease = self.acquired()
        self.pass_time(self.short)
        assert self.renew(lease) == Refusal(Refused.TOO_LATE)
        assert self.look().tokens_held == frozenset()
        successor = self.acquired(token="t2", owner="web-2")
        assert self.renew(lease) == Refusal(Refused.HELD, "web-2", successor.until)
        assert list(self.look().leases) == [successor]

    def test_what_was_never_held_is_not_renewed(self) -> None:
        """7. Only the token renews."""
        assert self.renew(Lease("k", "t1", "web-1", self.start, self.start + HOUR, 1)) == Refusal(
            Refused.TOO_LATE
        )
        assert self.look().tokens_held == frozenset()

    def test_a_place_that_has_lapsed_is_not_renewed(self) -> None:
        """7. What has lapsed is not renewed."""
        places = [self.acquired(token=f"{n}", slots=2) for n in range(2)]
        self.pass_time(self.short)
        successor = self.acquired(token="2", slots=2, owner="web-2")
        assert successor.slot == 0
        assert [self.renew(place) for place in places] == [
            Refusal(Refused.HELD, "web-2", successor.until),
            Refusal(Refused.TOO_LATE),
        ]

    def test_a_released_key_is_free_at_once(self) -> None:
        """7. Give each lease back, so that it is free at once."""
        lease = self.acquired()
        assert self.release(lease)
        assert self.look().tokens_held == frozenset()
        assert self.acquired(token="t2").token == "t2"

    def test_a_released_key_is_not_held_again_when_the_clock_steps_back(self) -> None:
        """7. Give each lease back, so that it is free at once."""
        if self.clock is None:
            return
        self.pass_time(MINUTE)
        assert self.release(self.acquired())
        self.pass_time(-MINUTE)
        assert self.look().tokens_held == frozenset()
        assert self.acquired(token="t2").token == "t2"

    def test_only_the_token_releases(self) -> None:
        """7. Only the token releases."""
        lease = self.acquired()
        assert not self.release(replace(lease, token="t2"))
        assert list(self.look().leases) == [lease]
        assert self.release(lease)
        assert not self.release(lease)

    def test_a_late_release_leaves_the_successor_alone(self) -> None:
        """7. ... a late holder touches neither its successor nor a key that lapsed."""
        lease = self.acquired()
        self.pass_time(self.short)
        assert not self.release(lease)
        successor = self.acquired(token="t2")
        assert not self.release(lease)
        assert list(self.look().leases) == [successor]

    # advance

    def test_a_mark_only_moves_forward(self) -> None:
        """9. A mark only moves forward, and answer where it stands."""
        earlier, later = self.start - HOUR, self.start - MINUTE
        assert list(self.store.advance({"m": later}).items) == [later]
        assert list(self.store.advance({"m": earlier, "n": earlier}).items) == [later, earlier]
        assert self.look_at("m", "n") == {"m": later, "n": earlier}

    def test_a_mark_never_goes_beyond_the_stores_now(self) -> None:
        """9. ... never beyond the store's now: what lies later is taken for now."""
        for first in (True, False):
            answer = self.store.advance({f"{first}": self.start + DAY}, first=first)
            assert list(answer.items) == [answer.now]
            assert self.look_at(f"{first}") == {f"{first}": answer.now}
        end = self.a_skip(SkipReason.MISSED, due=self.start, count=2, last=self.start + DAY)
        now = self.store.settle([end]).now
        assert self.look("a").marks == {pruned_mark("a"): now}

    def test_a_first_mark_is_written_only_where_none_stands(self) -> None:
        """9. `first=True` writes only where none stands and moves nothing."""
        earlier, later = self.start - HOUR, self.start - MINUTE
        assert list(self.store.advance({"m": earlier}, first=True).items) == [earlier]
        assert list(self.store.advance({"m": later, "n": later}, first=True).items) == [earlier, later]
        assert self.look_at("m", "n") == {"m": earlier, "n": later}

    def look_at(self, *marks: str) -> dict[str, datetime]:
        return dict(self.store.look(Look({f"task of {mark}": mark for mark in marks}, self.start)).marks)

    # look

    def test_a_look_never_shows_a_holder_without_its_lease(self) -> None:
        """10. Rows are read before leases, or both in one step."""
        other = self.open_again()
        calls = 0

        def take_lease_and_claim() -> None:
            nonlocal calls
            calls += 1
            token = f"{calls}"
            other.acquire([self.a_request(f"run:{calls}", token=token, ttl=self.longest_lease)])
            other.claim([self.a_claim(attempt=calls, token=token)])

        for view in self.looks_meanwhile(take_lease_and_claim):
            assert {row.token for row in view.rows} <= view.tokens_held
        assert calls

    def test_a_lease_that_is_renewed_while_look_reads_is_not_left_out(self) -> None:
        """10. A lease that is renewed while look reads is not left out."""
        other = self.open_again()
        lease = self.acquired(ttl=self.longest_lease / 2)

        def renew_and_outlive() -> None:
            other.renew([lease], ttl=self.longest_lease)
            if self.clock is not None:
                self.clock.advance(self.longest_lease / 2 + SECOND)

        if self.clock is not None:
            for view in self.looks_meanwhile(renew_and_outlive, times=1):
                assert view.tokens_held == {"t1"}

    def looks_meanwhile(self, action: Callable[[], None], *, times: int = 3) -> list[View]:
        """Look while another server acts at every moment that shows: the readings of the clock.

        Where the look is one step the other server has to wait, and acts afterwards. A store with a
        clock of its own is looked at in a race.
        """
        views: list[View] = []
        others: list[threading.Thread] = []
        if self.clock is None:

            def server(number: int) -> None:
                for _ in range(50):
                    if number:
                        action()
                    else:
                        views.append(self.look("a"))

            _at_once(2, server)
            return views
        looking = threading.current_thread()

        def on_read() -> None:
            if threading.current_thread() is looking:
                others.append(threading.Thread(target=action))
                others[-1].start()
                others[-1].join(0.2)

        for _ in range(times):
            self.clock.on_read = on_read
            views.append(self.look("a"))
            self.clock.on_read = None
            for thread in others:
                thread.join()
        return views

    def test_a_look_shows_all_rows_after_the_mark_final_ones_too(self) -> None:
        """10. It shows all rows due after each asked mark, final ones too."""
        dues = [self.start - n * MINUTE for n in range(4)]
        for due in dues:
            self.claimed(due=due)
            self.settled(due=due)
        self.store.advance({"mark:a": dues[2]})
        assert _dues(self.look("a").rows) == [dues[1], dues[0]]
        assert self.look("a").marks == {"mark:a": dues[2]}

    def test_where_there_is_no_mark_a_look_shows_the_rows_due_after_since(self) -> None:
        """10. ... after each asked mark (Look: where there is no mark, those due after `since`)."""
        dues = [self.start - n * MINUTE for n in range(4)]
        for due in dues:
            self.settled(due=due)
        view = self.look("a", "b", since=dues[2])
        assert (_dues(view.rows), view.marks) == ([dues[1], dues[0]], {})

    def test_a_look_starts_from_the_later_of_mark_and_pruned_mark(self) -> None:
        """10. ... after each asked mark (Look: the later of its mark and `pruned:<task>`)."""
        dues = [self.start - n * MINUTE for n in range(4)]
        for task in ("a", "b", "c"):
            for due in dues:
                self.settled(task, due=due)
        marks = {"mark:a": dues[2], pruned_mark("a"): dues[1], "mark:b": dues[1], pruned_mark("b"): dues[2]}
        marks[pruned_mark("c")] = dues[1]
        self.store.advance(marks)
        view = self.look("a", "b", "c", since=dues[3])
        assert view.marks == marks
        assert sorted((row.occurrence.task, row.occurrence.due) for row in view.rows) == [
            ("a", dues[0]),
            ("b", dues[0]),
            ("c", dues[0]),
        ]

    def test_a_look_shows_every_open_row_also_of_tasks_that_were_not_asked_about(self) -> None:
        """10. ... and every open row of the application, also of tasks that were not asked about."""
        old = self.start - DAY
        rows = [self.claimed("a", due=old), self.claimed("gone", due=old), self.claimed("gone")]
        self.settled("gone", due=old - SECOND)
        self.store.advance({"mark:a": self.start - HOUR, pruned_mark("gone"): self.start - HOUR})
        assert _by_key(self.look("a").rows) == _by_key(rows)
        assert _by_key(self.look().rows) == _by_key(rows)

    def test_no_row_is_shown_twice(self) -> None:
        """10. It shows all rows due after each asked mark ... and every open row."""
        row = self.claimed()
        assert list(self.look("a", since=self.start - DAY).rows) == [row]

    def test_a_look_shows_unexpired_leases_only(self) -> None:
        """10. ... unexpired leases only."""
        self.acquired("lapses", token="1")
        self.release(self.acquired("released", token="2"))
        long = self.acquired("stays", token="3", ttl=self.longest_lease)
        place = self.acquired("slots", token="4", slots=2, ttl=self.longest_lease)
        self.pass_time(self.short)
        assert sorted(self.look().leases, key=_key) == [place, long]

    def test_keys_are_exact_never_a_prefix(self) -> None:
        """10. Keys are exact, never a prefix."""
        self.claim(*[self.a_claim(name, token=name) for name in NAMES])
        fences = [self.acquired(name, token=name).key for name in NAMES]
        self.store.advance({f"mark:{name}": self.start - n * SECOND for n, name in enumerate(NAMES)})
        assert fences == list(NAMES)
        assert len(self.look().rows) == len(self.look().leases) == len(NAMES)
        for n, name in enumerate(NAMES):
            (row,) = self.settle(self.an_end(name, token=name))
            assert _is(Row, row).occurrence.task == name
            assert [row.occurrence.task for row in self.standing(name)] == [name]
            assert self.look(name).marks == {f"mark:{name}": self.start - n * SECOND}
            shown = [
                row.occurrence.task for row in self.look(name, since=self.start - DAY).rows if row.outcome
            ]
            assert shown == ([name] if n else [])
            self.release(Lease(name, name, "", self.start, self.start, 0))
            assert len(self.look().leases) == len(NAMES) - n - 1

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
        """What was written is what is read: a megabyte of output, and characters of every plane."""
        output = "Grüße, 世界 🎼𝄞\n" * 70_000
        row = self.settled("🎼", output=output, detail="it’s 𝄞", token="t🎼", server="wéb")
        assert row.output == output
        if self.store.guarantees.lists_rows:
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
        self.pass_time(TICK)
        assert self.store.prune(self.now() + SECOND) == 3
        assert self.standing() == []
        assert self.store.prune(self.now() + SECOND) == 0

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
            self.pass_time(TICK)
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

    # close, and what the store says of itself

    def test_it_may_be_closed_twice(self) -> None:
        """Give back what the store holds open. It may be called twice."""
        self.store.close()
        self.store.close()

    def test_it_is_a_store_and_says_what_it_promises(self) -> None:
        """What this store promises, needs and cannot do."""
        assert isinstance(self.store, Store)
        assert self.store.guarantees == self.store.guarantees
        assert self.store.guarantees.clock
        assert timedelta(0) < self.store.guarantees.grain <= SECOND

    def test_a_store_that_cannot_forget_has_no_epoch(self) -> None:
        """13. A store that can forget carries an epoch."""
        view = self.look()
        assert (view.epoch is None) == (view.quiet_until is None)
        if self.store.guarantees.durable:
            assert view.epoch is None


class VolatileStoreContract(StoreContract):
    """And what a store promises that can forget: say also how it is made to."""

    def forget(self) -> None:
        """Make the store lose all it knows, as a flush or a restart does."""
        raise NotImplementedError

    def test_the_epoch_is_when_its_memory_began(self) -> None:
        """13. A store that can forget carries an epoch: when its memory began."""
        before = self.look()
        assert before.epoch is not None
        assert before.epoch <= before.now
        self.claimed()
        self.acquired()
        self.store.advance({"mark:a": self.start})
        self.pass_time(TICK)
        self.forget()
        view = self.look("a")
        assert view.epoch is not None
        assert before.epoch < view.epoch <= view.now
        assert view.quiet_until == view.epoch + self.longest_lease
        assert (list(view.rows), list(view.leases), view.marks) == ([], [], {})
        assert self.look().epoch == view.epoch

    def test_after_it_has_forgotten_claims_from_before_are_store_lost(self) -> None:
        """13. ... claims with not_before at or before the epoch are refused as store_lost."""
        self.claimed()
        self.forget()
        epoch = _is(datetime, self.look().epoch)
        for not_before in (epoch - HOUR, epoch):
            for not_after in (epoch + HOUR, epoch - MINUTE):
                (answer,) = self.claim(self.a_claim(not_before=not_before, not_after=not_after))
                assert answer == Refusal(Refused.STORE_LOST)
        assert self.standing() == []
        self.pass_time(SECOND)
        assert isinstance(self.claim(self.a_claim(not_before=epoch + TICK))[0], Row)

    def test_the_first_call_after_it_has_forgotten_is_refused_like_the_rest(self) -> None:
        """13. ... so a flush never starts anything twice."""
        self.forget()
        (answer,) = self.claim(self.a_claim())
        assert answer == Refusal(Refused.STORE_LOST)
        self.forget()
        (refused,) = self.acquire(self.a_request())
        assert _is(Refusal, refused).reason is Refused.STORE_LOST
        self.forget()
        assert self.settle(self.a_skip(SkipReason.MISSED)) == [None]

    def test_a_row_that_stands_is_answered_before_the_epoch_is_asked(self) -> None:
        """3. Checked in this order: row, epoch, ..."""
        self.forget()
        (row,) = self.settle(self.a_skip(SkipReason.STORE_LOST))
        assert self.claim(self.a_claim()) == [row]

    def test_missed_and_coalesced_are_not_written_for_what_was_due_before_the_epoch(self) -> None:
        """13. missed and coalesced are not written for occurrences due at or before it (None)."""
        self.forget()
        epoch = _is(datetime, self.look().epoch)
        for due in (epoch - HOUR, epoch):
            for reason in (SkipReason.MISSED, SkipReason.COALESCED):
                assert self.settle(self.a_skip(reason, due=due)) == [None]
        assert isinstance(self.settle(self.a_skip(SkipReason.STORE_LOST, due=epoch))[0], Row)
        assert isinstance(self.settle(self.an_end("b", due=epoch))[0], Row)
        assert isinstance(self.settle(self.a_skip(SkipReason.MISSED, "c", due=epoch + TICK))[0], Row)

    def test_requests_are_store_lost_until_the_longest_lease_after_the_epoch(self) -> None:
        """13. requests without not_before, or with one at or before the epoch, are refused as store_lost
        until the epoch plus the longest lease."""
        self.forget()
        epoch = _is(datetime, self.look().epoch)
        refusal = Refusal(Refused.STORE_LOST, until=epoch + self.longest_lease)
        for not_before, not_after in ((None, None), (epoch, None), (None, epoch - HOUR)):
            request = self.a_request(not_before=not_before, not_after=not_after)
            assert self.acquire(request) == [refusal]
        self.pass_time(TICK)
        assert self.acquired("new", not_before=epoch + TICK).key == "new"
        if self.clock is not None:
            self.clock.now = epoch + self.longest_lease - TICK
            assert self.acquire(self.a_request()) == [refusal]
            self.pass_time(TICK)
        else:
            self.pass_time(self.longest_lease)
        assert self.acquired().key == "k"

    def test_pauses_are_exempt(self) -> None:
        """13. Pauses are exempt."""
        self.forget()
        assert self.acquired(PAUSE_PREFIX + "*", ttl=DAY).key == "pause:*"
        assert set(self.look().pauses) == {"*"}


def _is(kind: type[T], value: object) -> T:
    assert isinstance(value, kind), value
    return value


def _a_row(value: Row | None) -> Row:
    return _is(Row, value)


def _key(lease: Lease) -> tuple[str, int]:
    return lease.key, lease.slot


def _dues(rows: Sequence[Row]) -> list[datetime]:
    return sorted(row.occurrence.due for row in rows)


def _by_key(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.key)


def _raises(kind: type[Exception], call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def _at_once(count: int, server: Callable[[int], object]) -> None:
    """Run `server(number)` in so many threads that start together; the first error is ours."""
    together, errors = threading.Barrier(count), []

    def run(number: int) -> None:
        try:
            together.wait(30)
            server(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
