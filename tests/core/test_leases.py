"""Trust: how long we may act on a lease without another answer."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from rota._core.leases import LONGEST_LEASE, SHORTEST_LEASE, Trust, margin, renew_every

MINUTE, GRAIN = timedelta(seconds=60), timedelta(0)
lengths = st.timedeltas(min_value=SHORTEST_LEASE, max_value=LONGEST_LEASE)


def test_trust_counts_from_the_instant_the_request_was_sent() -> None:
    trust = Trust.granted(1000.0, MINUTE, GRAIN)
    assert trust.ends == 1054.0
    assert trust.holds_at(1053.9)
    assert not trust.holds_at(1054.0)


def test_a_coarse_store_clock_shortens_trust_by_its_grain() -> None:
    assert Trust.granted(0.0, MINUTE, timedelta(seconds=1)).ends == 53.0


def test_a_renewal_prolongs_trust_from_when_it_was_sent() -> None:
    trust = Trust.granted(0.0, MINUTE, GRAIN).extended(15.0, MINUTE, GRAIN, answered=15.2)
    assert trust.ends == 69.0


def test_a_renewal_that_is_answered_after_trust_has_ended_changes_nothing() -> None:
    trust = Trust.granted(0.0, MINUTE, GRAIN).extended(53.0, MINUTE, GRAIN, answered=54.5)
    assert trust.ends == 54.0


@given(lengths, st.floats(0, 1e9))
def test_trust_always_ends_before_the_store_lets_the_key_go(length: timedelta, sent: float) -> None:
    assert Trust.granted(sent, length, GRAIN).ends < sent + length.total_seconds()


@given(lengths)
def test_three_renewals_may_fail_before_trust_ends(length: timedelta) -> None:
    assert 3 * renew_every(length) < length - margin(length)
