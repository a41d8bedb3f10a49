"""What the suites of ShedLock's lock providers and of River's elector ask, and where our contract asks it.

Each case of theirs is named, told in our words, and points to the test of the contract that every store
passes. Four of ShedLock's have another answer: a lease has no shortest time (shouldBeAbleToExtendAtLeast:
the row stands instead); the token renews and releases whatever it holds, however often it was renewed
(lockCanNotBeExtendedTwice, lockCanNotBeUnlockedAfterExtending); and every store renews
(shouldNotExtendIfNotExtensible).
"""

from __future__ import annotations

import pytest

from rota.testing import StoreContract, VolatileStoreContract

SHEDLOCK = {
    "shouldCreateLock: a free key is given, and is free again after release": (
        "test_a_free_key_is_given_to_the_token_that_asks",
        "test_a_released_key_is_free_at_once",
    ),
    "shouldNotReturnSecondLock: a held key is refused": ("test_a_key_has_at_most_one_unexpired_holder",),
    "shouldCreateTwoIndependentLocks: one key does not hold another": ("test_keys_are_exact_never_a_prefix",),
    "shouldLockTwiceInARow: given, released, given again": ("test_the_fence_grows_with_every_new_holding",),
    "shouldTimeout: what is not released lapses": ("test_a_key_has_at_most_one_unexpired_holder",),
    "shouldBeAbleToLockRightAfterUnlock: ten times, refused while held": (
        "test_a_released_key_is_free_at_once",
        "test_the_fence_grows_with_every_new_holding",
    ),
    "fuzzTestShouldPass: what is counted under the lock adds up": (
        "test_one_key_is_given_to_one_of_eight_threads",
        "test_each_occurrence_is_claimed_once_by_eight_threads",
    ),
    "shouldLockAtLeastFor: a short run on a slow clock is not run again": (
        # The row of the occurrence stands long after its lease, so no lease must outlive its run.
        "test_a_row_that_stands_is_answered_as_it_is",
        "test_a_final_row_never_changes",
    ),
    "shouldBeAbleToExtendLock: a renewed key is held past its first end": (
        "test_a_renewal_prolongs_to_now_and_the_length",
    ),
    "shouldNotBeAbleToExtendUnlockedLock: what was released is not renewed": (
        "test_what_was_never_held_is_not_renewed",
        "test_only_the_token_renews",
    ),
    "shouldNotBeAbleToExtendExpiredLock: what has lapsed is not renewed": (
        "test_what_has_lapsed_is_not_renewed",
    ),
    "lockShouldSurviveCacheClearingInTheMiddle: another client sees it held": (
        "test_one_key_is_given_to_one_of_eight_threads",
    ),
    "unlock by a late holder: the successor's lock stays": (
        "test_a_late_release_leaves_the_successor_alone",
    ),
    "lock of the same name by another instance: only the holder's token counts": (
        "test_only_tokens_are_compared_never_owners",
    ),
    "usingDbTime: the clock of the host decides nothing": ("test_host_clocks_decide_nothing",),
}

RIVER = {
    "ElectsLeader: until is now and the length": ("test_a_free_key_is_given_to_the_token_that_asks",),
    "ReelectsSameLeader: the same token asking again holds it longer": (
        "test_the_same_token_asking_again_is_one_holding",
    ),
    "CannotElectDifferentLeader: another is refused, and the end does not move": (
        "test_a_key_has_at_most_one_unexpired_holder",
        "test_a_refused_acquire_changes_nothing",
    ),
    "StartsGainsLeadershipAndStops: released, nobody holds it": ("test_a_released_key_is_free_at_once",),
    "SustainsLeadership: renewed again and again": ("test_a_renewal_prolongs_to_now_and_the_length",),
    "LosesLeadership: taken over meanwhile, a renewal is refused": ("test_what_has_lapsed_is_not_renewed",),
    "CompetingElectors: one after the other, never both": ("test_one_key_is_given_to_one_of_eight_threads",),
    "an old term may not resign the new one's lead": ("test_a_late_release_leaves_the_successor_alone",),
    "an expired lead is not renewed but won anew, with a new term": (
        "test_what_has_lapsed_is_not_renewed",
        "test_the_fence_grows_with_every_new_holding",
    ),
}


@pytest.mark.parametrize("case", [*SHEDLOCK, *RIVER])
def test_the_contract_asks_what_the_peers_ask(case: str) -> None:
    for name in {**SHEDLOCK, **RIVER}[case]:
        assert callable(getattr(StoreContract, name, None)), name
        assert callable(getattr(VolatileStoreContract, name)), name
