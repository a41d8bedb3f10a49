"""Known mistakes, each planted in a store that is right otherwise: the contract must catch every one.

A mutant names the test that catches it. That the same test passes on the true store is asked as well.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rota._core.value import replace
from rota.stores.base import (
    Answer,
    Claim,
    End,
    Lease,
    Look,
    Outcome,
    Refusal,
    Refused,
    Request,
    Row,
    RowQuery,
    SkipReason,
    Store,
    View,
    claimed,
    is_notice,
    pruned_mark,
)
from rota.stores.memory import MemoryStore
from rota.stores.sql import sqlite
from rota.stores.sql.sqlite import SQLiteStore
from rota.testing import StoreClock, StoreContract, VolatileStoreContract

ALWAYS = timedelta(days=10_000)
TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class Mutant:
    name: str
    suite: type[StoreContract]
    caught_by: str


MUTANTS: list[Mutant] = []


class Memory(StoreContract):
    clock = StoreClock()
    kind: type[MemoryStore] = MemoryStore

    def open(self) -> Store:
        assert self.clock is not None
        return self.kind(clock=self.clock)


class Volatile(VolatileStoreContract):
    clock = StoreClock()
    kind: type[MemoryStore] = MemoryStore
    store: MemoryStore

    def open(self) -> Store:
        assert self.clock is not None
        store = self.kind(clock=self.clock, volatile=True)
        store.look(Look({}, self.clock.now))
        self.clock.advance(timedelta(days=2))
        return store

    def forget(self) -> None:
        self.store.flush()


class SQLite(StoreContract):
    clock = StoreClock()
    kind: type[SQLiteStore] = SQLiteStore
    folder: tempfile.TemporaryDirectory[str]

    def open(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return self.open_again()

    def open_again(self) -> Store:
        assert self.clock is not None
        return self.kind(Path(self.folder.name) / "rota.db", clock=self.clock)

    def teardown_method(self, method: object = None) -> None:
        super().teardown_method(method)
        self.folder.cleanup()


def caught_by(test: str, suite: type[Any] = Memory) -> Callable[[type[Any]], type[Any]]:
    """Plant the decorated store in the suite."""

    def plant(kind: type[Any]) -> type[Any]:
        MUTANTS.append(Mutant(kind.__name__, type(kind.__name__, (suite,), {"kind": kind}), test))
        return kind

    return plant


def fails(suite: type[StoreContract], test: str) -> bool:
    """Whether this test of the suite fails; any other error would be one of the mutant itself."""
    run = suite()
    try:
        run.setup_method()
        getattr(run, test)()
    except AssertionError:
        return True
    finally:
        run.teardown_method()
    return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mutant" in metafunc.fixturenames:
        metafunc.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])


def test_the_contract_catches_the_mutant(mutant: Mutant) -> None:
    assert not fails(mutant.suite.__bases__[0], mutant.caught_by)
    assert fails(mutant.suite, mutant.caught_by)


def twin_of(store: MemoryStore) -> MemoryStore:
    """A copy of the store as it is now, which goes its own way."""
    twin = MemoryStore(clock=store._clock)
    with store._lock:
        twin._memory = store._memory.copy()
    return twin


# Claims


@caught_by("test_one_occurrence_is_claimed_once_by_threads_at_the_same_moment")
class ChecksThenWrites(MemoryStore):
    """All four threads of the test have looked before the first of them writes."""

    together = threading.Barrier(4, timeout=5)

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        answer = twin_of(self).claim(claims)
        self.together.wait()
        with self._lock:
            for row in answer.items:
                if isinstance(row, Row):
                    self._memory.write(row)
        self.together.wait()
        return answer


@caught_by("test_asking_again_with_the_same_token_is_the_same_claim")
class RefusesTheSameToken(MemoryStore):
    def _claim(self, claim: Claim, now: datetime) -> Row | Refusal:
        stood = self._memory.row(claim.occurrence.task, claim.occurrence.due, claim.attempt)
        return Refusal(Refused.HELD) if stood else super()._claim(claim, now)


@caught_by("test_a_claim_outside_its_window_is_early_or_too_late")
class IgnoresTheWindow(MemoryStore):
    def _claim(self, claim: Claim, now: datetime) -> Row | Refusal:
        return super()._claim(replace(claim, not_before=now - ALWAYS, not_after=now + ALWAYS), now)


@caught_by("test_both_edges_of_the_window_of_a_claim_belong_to_it")
class LeavesTheEdgesOut(MemoryStore):
    def _claim(self, claim: Claim, now: datetime) -> Row | Refusal:
        narrow = replace(claim, not_before=claim.not_before + TICK, not_after=claim.not_after - TICK)
        return super()._claim(narrow, now)


@caught_by("test_a_row_that_stands_is_answered_as_it_is")
class AsksTheWindowFirst(MemoryStore):
    def _claim(self, claim: Claim, now: datetime) -> Row | Refusal:
        if now > claim.not_after:
            return Refusal(Refused.TOO_LATE)
        return super()._claim(claim, now)


@caught_by("test_one_now_serves_a_whole_list")
class ReadsTheClockForEachItem(MemoryStore):
    def _claim(self, claim: Claim, now: datetime) -> Row | Refusal:
        return super()._claim(claim, self._enter())


@caught_by("test_a_list_is_answered_in_its_order")
class AnswersInItsOwnOrder(MemoryStore):
    """What a driver does that sorts the keys against deadlocks and forgets to sort the answers back."""

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        return super().claim(sorted(claims, key=lambda claim: claim.occurrence.key))


@caught_by("test_at_or_before_the_pruned_mark_a_claim_is_too_late")
class ClaimsWhatWasPruned(MemoryStore):
    def _claim(self, claim: Claim, now: datetime) -> Row | Refusal:
        pruned = self._memory.marks.pop(pruned_mark(claim.occurrence.task), None)
        answer = super()._claim(claim, now)
        if pruned is not None:
            self._memory.marks[pruned_mark(claim.occurrence.task)] = pruned
        return answer


@caught_by("test_a_key_twice_in_one_list_is_misused_and_nothing_is_done")
class TakesAKeyTwice(MemoryStore):
    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        answers = [super(TakesAKeyTwice, self).claim([claim]) for claim in claims]
        return Answer(self._clock(), [answer.items[0] for answer in answers])


# Ends


class Rewrites(MemoryStore):
    """A store that ends a row although another one stands."""

    def wrongly(self, end: End, row: Row | None) -> bool:
        raise NotImplementedError

    def _settle(self, end: End, now: datetime) -> Row | None:
        row = self._memory.row(end.occurrence.task, end.occurrence.due, end.attempt)
        if not self.wrongly(end, row):
            return super()._settle(end, now)
        stood = row or Row(end.occurrence, end.attempt, end.token, "", now, None, end.keep_until)
        final = replace(stood, token=end.token, outcome=end.outcome, reason=end.reason, ended=now)
        self._memory.write(replace(final, output=end.output, detail=end.detail))
        return final


@caught_by("test_a_final_row_never_changes")
class OverwritesAFinalRow(Rewrites):
    def wrongly(self, end: End, row: Row | None) -> bool:
        return row is not None and not row.is_open and row.token == end.token


@caught_by("test_every_attempt_has_one_end_whoever_writes_it")
class LetsTheLastEndStand(OverwritesAFinalRow):
    pass


@caught_by("test_lost_ends_only_the_row_whose_token_it_names")
class LosesAnothersRow(Rewrites):
    def wrongly(self, end: End, row: Row | None) -> bool:
        return row is not None and row.is_open and end.outcome is Outcome.LOST


@caught_by("test_lost_never_creates_a_row")
class LosesWhatNobodyHad(Rewrites):
    def wrongly(self, end: End, row: Row | None) -> bool:
        return row is None and end.outcome is Outcome.LOST


@caught_by("test_missed_coalesced_and_store_lost_are_written_only_where_no_row_stands")
class MissesWhatIsClaimed(Rewrites):
    def wrongly(self, end: End, row: Row | None) -> bool:
        return row is not None and row.is_open and end.reason is SkipReason.MISSED


@caught_by("test_missed_coalesced_and_store_lost_are_written_only_where_no_row_stands")
class CoalescesItsOwnClaim(Rewrites):
    def wrongly(self, end: End, row: Row | None) -> bool:
        own = row is not None and row.is_open and row.token == end.token
        return own and end.reason is SkipReason.COALESCED


@caught_by("test_an_open_row_with_another_token_stays_open")
class EndsAnothersRow(Rewrites):
    def wrongly(self, end: End, row: Row | None) -> bool:
        return row is not None and row.is_open and end.outcome is Outcome.SUCCEEDED


@caught_by("test_at_or_before_the_pruned_mark_an_end_writes_nothing_where_no_row_stands")
class EndsWhatWasPruned(Rewrites):
    def wrongly(self, end: End, row: Row | None) -> bool:
        return row is None and end.outcome is not Outcome.LOST


@caught_by("test_the_larger_keep_until_of_claim_and_end_stands")
class LetsKeepUntilShrink(MemoryStore):
    def _settle(self, end: End, now: datetime) -> Row | None:
        row = super()._settle(end, now)
        if row is not None:
            row = replace(row, keep_until=end.keep_until)
            self._memory.write(row)
        return row


@caught_by("test_what_the_claim_said_stays")
class NamesTheFinder(MemoryStore):
    def _settle(self, end: End, now: datetime) -> Row | None:
        row = super()._settle(end, now)
        if row is not None:
            row = replace(row, server=end.server)
            self._memory.write(row)
        return row


@caught_by("test_an_end_with_last_moves_the_pruned_mark")
class ForgetsLast(MemoryStore):
    def _settle(self, end: End, now: datetime) -> Row | None:
        return super()._settle(replace(end, last=None), now)


@caught_by("test_an_end_with_last_that_does_not_stand_moves_nothing")
class MovesToLastInAnyCase(MemoryStore):
    def _settle(self, end: End, now: datetime) -> Row | None:
        row = super()._settle(end, now)
        if end.last is not None:
            self._memory.move(pruned_mark(end.occurrence.task), end.last, now)
        return row


@caught_by("test_a_mark_never_goes_beyond_the_stores_now")
class MovesToLastBeyondNow(MemoryStore):
    def _settle(self, end: End, now: datetime) -> Row | None:
        row = super()._settle(end, now)
        if end.last is not None:
            self._memory.marks[pruned_mark(end.occurrence.task)] = end.last
        return row


# Leases


class WaitsBeforeItWrites(MemoryStore):
    """All eight threads of the test have looked before the first of them writes."""

    together = threading.Barrier(8, timeout=5)

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        answer = twin_of(self).acquire(requests)
        self.together.wait()
        with self._lock:
            for lease in answer.items:
                if isinstance(lease, Lease):
                    self._hold(lease)
        self.together.wait()
        return answer


@caught_by("test_one_key_is_given_to_one_of_eight_threads")
class GivesAKeyTwice(WaitsBeforeItWrites):
    together = threading.Barrier(8, timeout=5)


@caught_by("test_the_places_of_a_key_are_never_more_than_its_slots_in_a_race")
class GivesAPlaceTwice(WaitsBeforeItWrites):
    together = threading.Barrier(8, timeout=5)


@caught_by("test_with_slots_at_most_that_many_hold_the_key")
class CountsOnePlaceMore(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        more = request.slots + 1 if request.slots > 1 else 1
        return super()._acquire(replace(request, slots=more), now)


@caught_by("test_fewer_slots_are_full_while_more_hold_the_key")
class CountsOnlyItsOwnPlaces(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        self._slots = request.slots
        return super()._acquire(request, now)

    def _holders(self, key: str, now: datetime) -> list[Lease]:
        return [lease for lease in super()._holders(key, now) if lease.slot < self._slots]

    _slots = 1_000


@caught_by("test_only_tokens_are_compared_never_owners")
class ComparesOwners(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        for lease in self._holders(request.key, now):
            if lease.owner == request.owner:
                return super()._acquire(replace(request, token=lease.token), now)
        return super()._acquire(request, now)


@caught_by("test_the_same_token_asking_again_is_one_holding")
class TakesTheSameTokenForAnother(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        for lease in self._holders(request.key, now):
            if lease.token == request.token:
                return lease
        return super()._acquire(request, now)


@caught_by("test_the_window_of_a_request_is_checked_before_its_holder")
class AsksTheHolderFirst(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        if any(lease.token == request.token for lease in self._holders(request.key, now)):
            request = replace(request, not_before=None, not_after=None)
        return super()._acquire(request, now)


@caught_by("test_both_edges_of_the_window_of_a_request_belong_to_it")
class IgnoresTheWindowOfARequest(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        return super()._acquire(replace(request, not_before=None, not_after=None), now)


@caught_by("test_a_lease_without_length_is_misused")
class TakesNoLengthForEver(MemoryStore):
    """What memcached does with an expiry of 0."""

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        now = self._clock()
        ttl = self.longest_lease
        return Answer(
            now,
            [self._acquire(replace(r, ttl=r.ttl if r.ttl > timedelta(0) else ttl), now) for r in requests],
        )


@caught_by("test_a_lease_longer_than_the_longest_is_misused_but_a_pause_is_not")
class KnowsNoLongestLease(MemoryStore):
    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments, longest_lease=ALWAYS)


@caught_by("test_a_lease_longer_than_the_longest_is_misused_but_a_pause_is_not")
class LimitsPauses(MemoryStore):
    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        longest = self.longest_lease
        return super().acquire(
            [replace(r, ttl=min(r.ttl, longest)) if is_notice(r.key) else r for r in requests]
        )


@caught_by("test_a_refused_acquire_changes_nothing")
class RefusesAndProlongs(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        answer = super()._acquire(request, now)
        if isinstance(answer, Refusal):
            for lease in self._holders(request.key, now):
                self._hold(replace(lease, until=now + request.ttl, owner=request.owner))
        return answer


@caught_by("test_the_fence_grows_with_every_new_holding")
class StartsTheFenceAgainAfterRelease(MemoryStore):
    def _release(self, lease: Lease, now: datetime) -> bool:
        released = super()._release(lease, now)
        self._memory.fences.pop(lease.key, None)
        return released


@caught_by("test_the_fence_outlives_the_key_by_an_hour")
class StartsTheFenceAgainAfterPruning(MemoryStore):
    def prune(self, before: datetime) -> int:
        self._memory.fences.clear()
        return super().prune(before)


@caught_by("test_the_fence_stays_with_the_holding")
class RaisesTheFenceAtRenewal(MemoryStore):
    def _renew(self, lease: Lease, ttl: timedelta, now: datetime) -> Lease | Refusal:
        answer = super()._renew(lease, ttl, now)
        return replace(answer, fence=answer.fence + 1) if isinstance(answer, Lease) else answer


@caught_by("test_a_slot_has_no_fence_and_hides_none")
class ForgetsTheFenceBehindASlot(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        if request.slots > 1:
            self._memory.fences.pop(request.key, None)
        return super()._acquire(request, now)


@caught_by("test_only_the_token_renews")
class RenewsWithoutTheToken(MemoryStore):
    def _renew(self, lease: Lease, ttl: timedelta, now: datetime) -> Lease | Refusal:
        for holder in self._holders(lease.key, now):
            lease = holder
        return super()._renew(lease, ttl, now)


@caught_by("test_what_has_lapsed_is_not_renewed")
class RenewsAfterExpiry(MemoryStore):
    def _renew(self, lease: Lease, ttl: timedelta, now: datetime) -> Lease | Refusal:
        if not self._holders(lease.key, now) and lease.key in self._memory.leases:
            self._hold(replace(lease, until=now + ttl))
        return super()._renew(lease, ttl, now)


@caught_by("test_a_renewal_prolongs_to_now_and_the_length")
class RenewsToLess(MemoryStore):
    def _renew(self, lease: Lease, ttl: timedelta, now: datetime) -> Lease | Refusal:
        answer = super()._renew(lease, ttl, now)
        if isinstance(answer, Lease):
            self._hold(answer := replace(answer, until=now + ttl))
        return answer


@caught_by("test_only_the_token_releases")
@caught_by("test_a_late_release_leaves_the_successor_alone")
class ReleasesByKey(MemoryStore):
    def _release(self, lease: Lease, now: datetime) -> bool:
        for holder in self._holders(lease.key, now):
            lease = holder
        return super()._release(lease, now)


@caught_by("test_a_late_release_leaves_the_successor_alone")
class ReleasesWhatLapsed(MemoryStore):
    def _release(self, lease: Lease, now: datetime) -> bool:
        return super()._release(lease, now) or lease.key in self._memory.leases


@caught_by("test_a_released_key_is_not_held_again_when_the_clock_steps_back")
class ReleasesByEndingTheLease(MemoryStore):
    def _release(self, lease: Lease, now: datetime) -> bool:
        for holder in self._holders(lease.key, now):
            if holder.token == lease.token:
                self._hold(replace(holder, until=now))
                return True
        return False


# Marks


class MovesMarks(MemoryStore):
    def to(self, stands: datetime | None, value: datetime, now: datetime, first: bool) -> datetime:
        raise NotImplementedError

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        now, stand = self._clock(), self._memory.marks
        for key, value in marks.items():
            stand[key] = self.to(stand.get(key), value, now, first)
        return Answer(now, [stand[key] for key in marks])


@caught_by("test_a_mark_only_moves_forward")
class MovesAMarkBack(MovesMarks):
    def to(self, stands: datetime | None, value: datetime, now: datetime, first: bool) -> datetime:
        return stands if stands and first else min(value, now)


@caught_by("test_a_mark_never_goes_beyond_the_stores_now")
class MovesAMarkBeyondNow(MovesMarks):
    def to(self, stands: datetime | None, value: datetime, now: datetime, first: bool) -> datetime:
        return stands if stands and first else max(value, stands or value)


@caught_by("test_a_first_mark_is_written_only_where_none_stands")
class MovesWithFirst(MovesMarks):
    def to(self, stands: datetime | None, value: datetime, now: datetime, first: bool) -> datetime:
        return max(min(value, now), stands or min(value, now))


# Looks


@caught_by("test_a_look_never_shows_a_holder_without_its_lease")
class ReadsLeasesBeforeRows(MemoryStore):
    """In two steps, with a moment between them."""

    def look(self, question: Look) -> View:
        leases = super().look(question).leases
        self._clock()
        return replace(super().look(question), leases=leases)


class Shows(MemoryStore):
    def shown(self, view: View, question: Look) -> View:
        raise NotImplementedError

    def look(self, question: Look) -> View:
        return self.shown(super().look(question), question)


@caught_by("test_a_look_shows_all_rows_after_the_mark_final_ones_too")
class HidesFinalRows(Shows):
    def shown(self, view: View, question: Look) -> View:
        return replace(view, rows=[row for row in view.rows if row.is_open])


@caught_by("test_a_look_shows_every_open_row_also_of_tasks_that_were_not_asked_about")
class HidesTasksNotAskedAbout(Shows):
    def shown(self, view: View, question: Look) -> View:
        return replace(view, rows=[row for row in view.rows if row.occurrence.task in question.marks])


@caught_by("test_a_look_shows_every_open_row_also_of_tasks_that_were_not_asked_about")
class HidesOpenRowsBehindTheMark(Shows):
    def shown(self, view: View, question: Look) -> View:
        marks = {task: view.marks.get(mark, question.since) for task, mark in question.marks.items()}
        after = [
            row for row in view.rows if row.occurrence.due > marks.get(row.occurrence.task, question.since)
        ]
        return replace(view, rows=after)


@caught_by("test_a_look_shows_unexpired_leases_only")
class ShowsLeasesThatLapsed(MemoryStore):
    def _unexpired(self, now: datetime) -> list[Lease]:
        return [lease for places in self._memory.leases.values() for lease in places.values()]


@caught_by("test_a_look_starts_from_the_later_of_mark_and_pruned_mark")
class ForgetsThePrunedMark(Shows):
    def shown(self, view: View, question: Look) -> View:
        return replace(view, marks={mark: at for mark, at in view.marks.items() if mark[:7] != "pruned:"})


@caught_by("test_keys_are_exact_never_a_prefix")
class ScansPrefixes(MemoryStore):
    def rows(self, query: RowQuery) -> Answer[Row]:
        found = super().rows(replace(query, tasks=(), limit=1_000))
        wanted = tuple(query.tasks) or ("",)
        return Answer(found.now, [row for row in found.items if row.occurrence.task.startswith(wanted)])


# Pruning


@caught_by("test_pruning_moves_the_pruned_mark_to_the_last_instant_removed")
class PrunesWithoutTheMark(MemoryStore):
    def prune(self, before: datetime) -> int:
        marks = dict(self._memory.marks)
        gone = super().prune(before)
        self._memory.marks = marks
        return gone


@caught_by("test_an_open_row_is_never_pruned")
class PrunesOpenRows(MemoryStore):
    def prune(self, before: datetime) -> int:
        now = self._clock()
        for row in list(self._memory.open.values()):
            if row.keep_until < now - self.allowance:
                self._memory.write(replace(row, outcome=Outcome.LOST, ended=now))
        return super().prune(before)


@caught_by("test_a_row_is_kept_until_its_keep_until_plus_the_allowance")
class PrunesWithoutTheAllowance(MemoryStore):
    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments, allowance=timedelta(0))


# A store that can forget


@caught_by("test_the_epoch_is_when_its_memory_began", Volatile)
@caught_by("test_after_it_has_forgotten_claims_from_before_are_store_lost", Volatile)
@caught_by("test_missed_and_coalesced_are_not_written_for_what_was_due_before_the_epoch", Volatile)
@caught_by("test_requests_are_store_lost_until_the_longest_lease_after_the_epoch", Volatile)
class NoticesNothing(MemoryStore):
    """Forgets that it has forgotten: the old epoch goes on."""

    def flush(self) -> None:
        epoch, born = self._memory.epoch, self._memory.born
        super().flush()
        self._memory.epoch, self._memory.born = epoch, born


@caught_by("test_the_first_call_after_it_has_forgotten_is_refused_like_the_rest", Volatile)
class NoticesTooLate(MemoryStore):
    """Looks for the epoch after the call, not within it."""

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        born, self._memory.born = self._memory.born, self._process
        answer = super().claim(claims)
        self._memory.born = born
        return answer


@caught_by("test_requests_are_store_lost_until_the_longest_lease_after_the_epoch", Volatile)
class KnowsNoQuarantine(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        epoch, self._memory.epoch = self._memory.epoch, None
        answer = super()._acquire(request, now)
        self._memory.epoch = epoch
        return answer


@caught_by("test_pauses_and_servers_that_sign_in_are_exempt", Volatile)
class QuarantinesPauses(MemoryStore):
    def _acquire(self, request: Request, now: datetime) -> Lease | Refusal:
        quiet_until = self._quiet_until()
        if quiet_until is not None and now < quiet_until:
            return Refusal(Refused.STORE_LOST, until=quiet_until)
        return super()._acquire(request, now)


@caught_by("test_a_row_that_stands_is_answered_before_the_epoch_is_asked", Volatile)
class AsksTheEpochFirst(MemoryStore):
    def _claim(self, claim: Claim, now: datetime) -> Row | Refusal:
        if self._memory.epoch is not None and claim.not_before <= self._memory.epoch:
            return Refusal(Refused.STORE_LOST)
        return super()._claim(claim, now)


# SQLite


@caught_by("test_a_lease_that_is_renewed_while_look_reads_is_not_left_out", SQLite)
class ReadsTheClockAfterTheSnapshot(SQLiteStore):
    @contextmanager
    def _reading(self) -> Iterator[tuple[Any, datetime]]:
        with self._file.transaction("BEGIN") as connection:
            connection.execute("SELECT 1 FROM rota_lease").fetchall()
            yield connection, self._clock()


@caught_by("test_a_look_never_shows_a_holder_without_its_lease", SQLite)
class LooksInTwoSnapshots(SQLiteStore):
    def look(self, question: Look) -> View:
        leases = super().look(question).leases
        return replace(super().look(question), leases=leases)


@caught_by("test_keys_are_exact_never_a_prefix", SQLite)
class ComparesWithoutCase(SQLiteStore):
    def _prepare(self, connection: Any) -> None:
        schema = [
            statement.replace("TEXT NOT NULL", "TEXT NOT NULL COLLATE NOCASE") for statement in sqlite.SCHEMA
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite, "SCHEMA", schema)
            super()._prepare(connection)


@caught_by("test_the_fence_grows_with_every_new_holding", SQLite)
class DeletesReleasedLeases(SQLiteStore):
    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        answer = super().release(leases)
        with self._writing() as (connection, _):
            connection.execute("DELETE FROM rota_lease WHERE token IS NULL")
        return answer


@caught_by("test_a_key_has_at_most_one_unexpired_holder", SQLite)
class CountsSeconds(SQLiteStore):
    """What a store does whose expiry is in whole seconds, rounded down."""

    def _hold(self, connection: Any, lease: Lease) -> None:
        super()._hold(connection, replace(lease, until=lease.until.replace(microsecond=0) - TICK))


@caught_by("test_one_occurrence_is_claimed_once_by_threads_at_the_same_moment", SQLite)
class ClaimsWithoutATransaction(SQLiteStore):
    """All four threads of the test have read before the first of them writes."""

    together = threading.Barrier(4, timeout=5)

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        with contextlib.suppress(LookupError), self._writing() as (_, now):
            answers = [self._decided(claim, now) for claim in claims]
            raise LookupError
        self.together.wait()
        with self._writing() as (connection, now):
            self._put(connection, [row for row in answers if isinstance(row, Row)])
        self.together.wait()
        return Answer(now, answers)

    def _decided(self, claim: Claim, now: datetime) -> Row | Refusal:
        connection = self._file._sql
        assert connection is not None
        stood = self._row(connection, claim.occurrence, claim.attempt)
        return claimed(claim, stood, now, epoch=None, pruned=None)
