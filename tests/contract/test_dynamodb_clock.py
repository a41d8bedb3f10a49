"""The bounds of DynamoDB's clock, told from the Date headers of its answers: no server, no waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from hypothesis import given
from hypothesis import strategies as some

from rota.stores.base import microseconds
from rota.stores.dynamodb.clock import SECOND, ServerClock

THEN = microseconds(datetime(2026, 3, 29, 1, 0, tzinfo=UTC))
MINUTE = 60 * SECOND
FUZZ = 30_000


def dated(true: int) -> str:
    """The Date of an answer at that instant: floored to seconds."""
    return format_datetime(datetime.fromtimestamp(true // SECOND, UTC), usegmt=True)


def hear(clock: ServerClock, true: int, at: int, *, takes: int = 2_000) -> None:
    """An answer made at `true` on the server's clock, in the midst of `takes` microseconds around `at`."""
    clock.hear(dated(true), at - takes // 2, at + takes // 2)


def now_of(clock: ServerClock, at: int) -> int:
    now = clock.now(at)
    assert now is not None
    return microseconds(now)


def test_nothing_is_told_before_an_answer_or_long_after_the_last() -> None:
    clock = ServerClock()
    assert clock.now(0) is None
    hear(clock, THEN, 0)
    assert clock.now(60 * SECOND) is not None
    assert clock.now(61 * SECOND) is None


def test_nothing_is_told_by_an_answer_that_took_long() -> None:
    clock = ServerClock()
    hear(clock, THEN, 0, takes=SECOND)
    assert clock.now(SECOND) is None
    hear(clock, THEN + SECOND, SECOND)
    assert clock.now(SECOND) is not None


@given(
    some.integers(0, SECOND - 1),
    some.lists(
        some.tuples(some.integers(1, 50 * SECOND), some.integers(0, SECOND // 2)), min_size=1, max_size=20
    ),
)
def test_now_is_never_later_than_the_true_time_and_soon_close_to_it(
    start: int, answers: list[tuple[int, int]]
) -> None:
    """Whatever the answers take, however late in their second they come."""
    clock, at, latest = ServerClock(), 0, 0
    for pause, takes in answers:
        at += pause
        true = THEN + start + at
        hear(clock, true, at, takes=takes)
        now = now_of(clock, at + takes)
        assert now <= true + takes
        assert true + takes - now <= 2 * SECOND
        assert now >= latest
        at, latest = at + takes, now


def test_an_answer_early_in_its_second_tells_it_to_milliseconds() -> None:
    clock = ServerClock()
    hear(clock, THEN + SECOND - 1000, 0)
    assert THEN - now_of(clock, 0) <= 2_000 + FUZZ
    hear(clock, THEN + SECOND + 1000, 2_000)
    assert THEN + SECOND + 2000 - now_of(clock, 3_000) <= 3_000 + FUZZ
    # and that is kept, whatever comes
    hear(clock, THEN + 2 * SECOND - 1000, SECOND)
    assert THEN + 2 * SECOND - now_of(clock, SECOND) <= 6_000 + FUZZ


def test_it_goes_on_as_fast_as_the_boot_clock() -> None:
    clock = ServerClock()
    hear(clock, THEN, 0)
    before = now_of(clock, SECOND)
    assert now_of(clock, 2 * SECOND) - before == SECOND


def test_a_clock_that_steps_back_a_little_is_waited_for_and_one_that_steps_back_far_is_followed() -> None:
    clock = ServerClock()
    for n in range(100):
        hear(clock, THEN + n * SECOND // 50, n * SECOND // 50)
    before = now_of(clock, 2 * SECOND)
    hear(clock, THEN + 2 * SECOND - SECOND // 2, 2 * SECOND)
    assert now_of(clock, 2 * SECOND) == before
    hear(clock, THEN - MINUTE, 2 * SECOND)
    assert 0 <= THEN - MINUTE - now_of(clock, 2 * SECOND) <= SECOND + 2000 + FUZZ


def test_a_clock_that_steps_forward_is_followed() -> None:
    clock = ServerClock()
    hear(clock, THEN, 0)
    hear(clock, THEN + MINUTE, SECOND)
    assert 0 <= THEN + MINUTE - now_of(clock, SECOND) <= SECOND + 2000 + FUZZ


def test_an_instant_that_proves_to_be_more_than_a_second_behind_is_said_to_be() -> None:
    clock = ServerClock()
    hear(clock, THEN, 0)
    now = clock.now(SECOND)
    assert now is not None
    assert not clock.was_behind(now, SECOND)
    hear(clock, THEN + 3 * SECOND - 1000, 2 * SECOND)
    assert not clock.was_behind(now, SECOND)
    hear(clock, THEN + 12 * SECOND, 3 * SECOND)
    assert clock.was_behind(now, SECOND)


def test_front_ends_whose_clocks_differ_by_some_milliseconds_do_not_make_it_jump() -> None:
    clock, ahead = ServerClock(), timedelta(milliseconds=10) // timedelta(microseconds=1)
    instants = []
    for n in range(200):
        at = n * SECOND // 70
        hear(clock, THEN + at + (ahead if n % 2 else 0), at)
        instants.append(now_of(clock, at))
    assert instants == sorted(instants)
    assert abs(THEN + at - instants[-1]) < 60_000
