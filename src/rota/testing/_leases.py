"""Leases: promises 6, 7 and 8."""

from __future__ import annotations

import warnings
from datetime import timedelta

from rota._core.value import replace
from rota.stores.base import (
    PAUSE_PREFIX,
    SERVER_PREFIX,
    Lease,
    Refusal,
    Refused,
    StoreMisused,
    microseconds,
)
from rota.testing._tools import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    TICK,
    StoreTools,
    at_once,
    is_a,
    key_of,
    raises,
)


class LeasesContract(StoreTools):
    """Who is alive, and nobody else."""

    # acquire

    def test_a_free_key_is_given_to_the_token_that_asks(self) -> None:
        """6. Give each key to the token that asks for it."""
        answer = self.store.acquire([self.a_request(note="why")])
        lease = is_a(Lease, answer.items[0])
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
            self.pass_time(self.tick)
        else:
            self.pass_time(self.short)
        assert self.acquired(token="t2").token == "t2"

    def test_with_slots_at_most_that_many_hold_the_key(self) -> None:
        """6. ... with slots=n: at most n, the first free place is given."""
        held = [self.acquired(token=f"{n}", slots=3, owner=f"web-{n}") for n in range(3)]
        assert [lease.slot for lease in held] == [0, 1, 2]
        (refused,) = self.acquire(self.a_request(token="3", slots=3))
        assert is_a(Refusal, refused).reason is Refused.HELD
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
                request = self.a_request(f"k{round_}", token=f"{number}", slots=3, ttl=self.longest_lease)
                given.extend(self.acquire(request))

            at_once(8, server)
            assert sorted(lease.slot for lease in given if isinstance(lease, Lease)) == [0, 1, 2]

    def test_one_key_is_given_to_one_of_eight_threads(self) -> None:
        """6. A key has at most one unexpired holder."""
        given: list[Lease | Refusal] = []

        def server(number: int) -> None:
            given.extend(self.acquire(self.a_request(token=f"{number}", ttl=self.longest_lease)))

        at_once(8, server)
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

    def test_asking_again_brings_the_newer_note(self) -> None:
        """6. ... with the newer note."""
        lease = self.acquired(note="first")
        again = self.acquired(note="second")
        assert again == replace(lease, note="second", until=again.until)
        assert [held.note for held in self.look().leases] == ["second"]

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
        reasons = [is_a(Refusal, answer).reason for answer in self.acquire(*outside)]
        assert reasons == [Refused.EARLY, Refused.TOO_LATE, Refused.EARLY, Refused.TOO_LATE][: len(reasons)]
        assert self.acquired("f", not_before=now, not_after=now + HOUR).key == "f"

    def test_the_window_of_a_request_is_checked_before_its_holder(self) -> None:
        """6. ... and checked first (epoch, window, holder), so whatever is granted is granted inside its
        window."""
        lease = self.acquired()
        for token in ("t1", "t2"):
            (late,) = self.acquire(self.a_request(token=token, not_after=self.start - MINUTE))
            assert is_a(Refusal, late).reason is Refused.TOO_LATE
        assert list(self.look().leases) == [lease]

    def test_a_lease_without_length_is_misused(self) -> None:
        """6. A ttl that is not positive ... is StoreMisused."""
        lease = self.acquired()
        for ttl in (timedelta(0), -SECOND):
            for key in ("other", PAUSE_PREFIX + "a"):
                raises(StoreMisused, self.store.acquire, [self.a_request(key, ttl=ttl)])
            raises(StoreMisused, self.renew, lease, ttl)
        assert list(self.look().leases) == [lease]

    def test_a_lease_longer_than_the_longest_is_misused_but_a_pause_is_not(self) -> None:
        """6. ... or longer than the longest lease, is StoreMisused (a pause and a server
        that signs in may be as long as they like)."""
        lease = self.acquired(ttl=self.longest_lease)
        raises(StoreMisused, lambda: self.acquired("other", ttl=self.longest_lease + TICK))
        raises(StoreMisused, lambda: self.renew(lease, self.longest_lease + TICK))
        pause = self.acquired(PAUSE_PREFIX + "a", ttl=400 * DAY)
        assert pause.until - pause.since == 400 * DAY
        assert isinstance(self.renew(pause, 500 * DAY), Lease)
        for_ever = self.acquired(PAUSE_PREFIX + "b", ttl=timedelta.max)
        assert for_ever.until.year == 9999
        assert set(self.look().pauses) == {"a", "b"}
        assert self.acquired(SERVER_PREFIX + "web-1", ttl=DAY).key == "server:web-1"

    def test_fewer_slots_than_one_are_misused(self) -> None:
        """6. ... and so are fewer slots than one."""
        raises(StoreMisused, lambda: self.acquired(slots=0))

    def test_a_refused_acquire_changes_nothing(self) -> None:
        """7. A refused acquire changes nothing."""
        lease = self.acquired()
        place = self.acquired("s", slots=1)
        before = self.look()
        for _ in range(3):
            self.acquire(self.a_request(token="t2", owner="x", note="x"), self.a_request("s", token="t2"))
            self.acquire(self.a_request("n", not_after=self.start - MINUTE))
        after = self.look()
        assert sorted(after.leases, key=key_of) == sorted(before.leases, key=key_of)
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
        self.pass_time(self.tick)
        assert self.acquired().fence == lease.fence
        assert is_a(Lease, self.renew(lease)).fence == lease.fence
        assert [held.fence for held in self.look().leases] == [lease.fence]

    def test_a_token_that_asks_after_its_lease_has_lapsed_holds_it_anew(self) -> None:
        """6. ... unexpired holder; 8. with every new holding: in between it may have been somebody else's."""
        lease = self.acquired()
        self.pass_time(self.short)
        again = self.acquired()
        assert again.since > lease.since
        assert again.fence > lease.fence

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
        renewed = is_a(Lease, answer.items[0])
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
