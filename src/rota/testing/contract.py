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
from datetime import UTC, datetime, timedelta

from rota._core.value import replace
from rota.stores.base import (
    PAUSE_PREFIX,
    SERVER_PREFIX,
    Lease,
    Occurrence,
    Outcome,
    Refusal,
    Refused,
    Row,
    RowQuery,
    SkipReason,
    Store,
    StoreMisused,
)
from rota.testing._leases import LeasesContract
from rota.testing._looks import LooksContract
from rota.testing._rows import RowsContract
from rota.testing._tools import (
    DAY,
    HOUR,
    MINUTE,
    NAMES,
    SECOND,
    TICK,
    StoreClock,
    at_once,
    is_a,
    raises,
)

__all__ = ["StoreClock", "StoreContract", "VolatileStoreContract"]


class StoreContract(RowsContract, LeasesContract, LooksContract):
    """Subclass it, say how an empty store is opened, and every promise is a test.

    Here are the promises about every call (1, 2, 11, 12); those about rows, leases and looks are in the
    files beside this one.
    """

    # 1

    def test_the_answer_carries_the_instant_of_its_decisions(self) -> None:
        """1. A call has one `now`, the store's, and it is returned with the answer."""
        claims = self.store.claim([self.a_claim()])
        assert is_a(Row, claims.items[0]).since == claims.now
        ends = self.store.settle([self.an_end()])
        assert is_a(Row, ends.items[0]).ended == ends.now
        leases = self.store.acquire([self.a_request()])
        lease = is_a(Lease, leases.items[0])
        assert (lease.since, lease.until) == (leases.now, leases.now + self.short)

    def test_one_now_serves_a_whole_list(self) -> None:
        """1. ... used for every decision in it."""
        if self.clock is not None:
            self.clock.step = SECOND
        names = NAMES[:5]
        claims = self.store.claim([self.a_claim(name) for name in names])
        assert {is_a(Row, row).since for row in claims.items} == {claims.now}
        ends = self.store.settle([self.an_end(name) for name in names])
        assert {is_a(Row, row).ended for row in ends.items} == {ends.now}
        leases = self.store.acquire([self.a_request(name) for name in names])
        held = [is_a(Lease, lease) for lease in leases.items]
        assert {lease.since for lease in held} == {leases.now}
        renewed = self.store.renew(held, ttl=self.longest_lease)
        assert {is_a(Lease, lease).until for lease in renewed.items} == {renewed.now + self.longest_lease}
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
            assert [is_a(Row, row).occurrence.task for row in answers] == mix[:3] + mix[4:]
            ends = [self.an_end(name, due=due) for name in mix]
            ends[3] = replace(ends[3], outcome=Outcome.LOST)
            rows = self.settle(*ends)
            assert rows.pop(3) is None
            assert [is_a(Row, row).occurrence.task for row in rows] == mix[:3] + mix[4:]

    def test_leases_and_marks_are_answered_in_their_order(self) -> None:
        """2. A list is answered item by item, in its order."""
        names = list(NAMES)
        random.Random(3).shuffle(names)
        taken = self.acquired(names[2], token="other")
        answers = self.acquire(*[self.a_request(name) for name in names])
        assert isinstance(answers.pop(2), Refusal)
        held = [is_a(Lease, lease) for lease in answers]
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
        raises(StoreMisused, self.store.claim, claims)
        assert self.standing() == []
        ends = [self.an_end("b"), self.an_end(token="1"), self.an_end(token="2")]
        raises(StoreMisused, self.store.settle, ends)
        assert self.standing() == []
        requests = [self.a_request("other"), self.a_request(token="1"), self.a_request(token="2")]
        raises(StoreMisused, self.store.acquire, requests)
        assert self.look().leases == type(self.look().leases)()
        lease = self.acquired()
        raises(StoreMisused, lambda: self.store.renew([lease, lease], ttl=self.short))
        raises(StoreMisused, self.store.release, [lease, lease])
        assert self.look().tokens_held == {"t1"}

    def test_two_attempts_and_two_places_are_different_keys(self) -> None:
        """2. The key of a claim and of an end is (occurrence, attempt), that of a lease (key, token)."""
        assert len({is_a(Row, row).key for row in self.claim(self.a_claim(), self.a_claim(attempt=2))}) == 2
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
        assert (is_a(Refusal, held).reason, is_a(Refusal, early).reason) == (Refused.HELD, Refused.EARLY)

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

        at_once(8, server)
        assert sorted(row.occurrence.key for row in won) == sorted(each.key for each in occurrences)
        assert len(self.look().rows) == len(occurrences)

    def test_one_occurrence_is_claimed_once_by_threads_at_the_same_moment(self) -> None:
        """12. Any method may be called from any thread; 3. written first stands."""
        for attempt in range(1, 6):
            rows: list[Row] = []

            def server(number: int, attempt: int = attempt, rows: list[Row] = rows) -> None:
                rows.append(self.claimed(token=f"{number}", attempt=attempt))

            at_once(4, server)
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

        at_once(4, server)
        assert [row.outcome for row in self.standing()] == [Outcome.SUCCEEDED] * 5

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
        assert timedelta(0) < self.store.guarantees.grain <= 2 * SECOND

    def test_a_store_that_cannot_forget_has_no_epoch(self) -> None:
        """13. A store that can forget carries an epoch."""
        view = self.look()
        assert (view.epoch is not None) == (view.quiet_until is not None) == self.store.guarantees.epoch


class VolatileStoreContract(StoreContract):
    """And what a store promises that can forget: say also how it is made to."""

    def forget(self) -> None:
        """Make the store lose all it knows, as a flush or a restart does."""
        raise NotImplementedError

    def epoch(self) -> datetime:
        """When the memory began that was lost in this test."""
        epoch = is_a(datetime, self.look().epoch)
        assert epoch >= self.start
        return epoch

    def test_the_epoch_is_when_its_memory_began(self) -> None:
        """13. A store that can forget carries an epoch: when its memory began."""
        before = self.look()
        assert before.epoch is not None
        assert before.epoch <= before.now
        self.claimed()
        self.acquired()
        self.store.advance({"mark:a": self.start})
        self.pass_time(self.tick)
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
        epoch = self.epoch()
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
        assert is_a(Refusal, refused).reason is Refused.STORE_LOST
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
        epoch = self.epoch()
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
        epoch = self.epoch()
        refusal = Refusal(Refused.STORE_LOST, until=epoch + self.longest_lease)
        for not_before, not_after in ((None, None), (epoch, None), (None, epoch - HOUR)):
            request = self.a_request(not_before=not_before, not_after=not_after)
            assert self.acquire(request) == [refusal]
        self.pass_time(self.tick)
        assert self.acquired("new", not_before=epoch + TICK).key == "new"
        if self.clock is not None:
            self.clock.now = epoch + self.longest_lease - TICK
            assert self.acquire(self.a_request()) == [refusal]
            self.pass_time(self.tick)
        else:
            self.pass_time(self.longest_lease)
        assert self.acquired().key == "k"

    def test_pauses_and_servers_that_sign_in_are_exempt(self) -> None:
        """13. Pauses and servers that sign in are exempt."""
        self.forget()
        assert self.acquired(PAUSE_PREFIX + "*", ttl=DAY).key == "pause:*"
        assert set(self.look().pauses) == {"*"}
        assert self.acquired(SERVER_PREFIX + "web-1").key == "server:web-1"
