"""Marks and looks: promises 9 and 10."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from rota.stores.base import (
    Lease,
    Look,
    Row,
    SkipReason,
    View,
    pruned_mark,
)
from rota.testing._tools import (
    DAY,
    HOUR,
    MINUTE,
    NAMES,
    SECOND,
    StoreTools,
    at_once,
    by_key,
    dues_of,
    is_a,
    key_of,
)


class LooksContract(StoreTools):
    """What a tick is told."""

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
        other = self.another_server()
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
        other = self.another_server()
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

            at_once(2, server)
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
        assert dues_of(self.look("a").rows) == [dues[1], dues[0]]
        assert self.look("a").marks == {"mark:a": dues[2]}

    def test_where_there_is_no_mark_a_look_shows_the_rows_due_after_since(self) -> None:
        """10. ... after each asked mark (Look: where there is no mark, those due after `since`)."""
        dues = [self.start - n * MINUTE for n in range(4)]
        for due in dues:
            self.settled(due=due)
        view = self.look("a", "b", since=dues[2])
        assert (dues_of(view.rows), view.marks) == ([dues[1], dues[0]], {})

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
        assert by_key(self.look("a").rows) == by_key(rows)
        assert by_key(self.look().rows) == by_key(rows)

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
        assert sorted(self.look().leases, key=key_of) == [place, long]

    def test_keys_are_exact_never_a_prefix(self) -> None:
        """10. Keys are exact, never a prefix."""
        self.claim(*[self.a_claim(name, token=name) for name in NAMES])
        fences = [self.acquired(name, token=name, ttl=self.longest_lease).key for name in NAMES]
        self.store.advance({f"mark:{name}": self.start - n * SECOND for n, name in enumerate(NAMES)})
        assert fences == list(NAMES)
        assert len(self.look().rows) == len(self.look().leases) == len(NAMES)
        for n, name in enumerate(NAMES):
            (row,) = self.settle(self.an_end(name, token=name))
            assert is_a(Row, row).occurrence.task == name
            assert [row.occurrence.task for row in self.standing(name)] == [name]
            assert self.look(name).marks == {f"mark:{name}": self.start - n * SECOND}
            shown = [
                row.occurrence.task for row in self.look(name, since=self.start - DAY).rows if row.outcome
            ]
            assert shown == ([name] if n else [])
            self.release(Lease(name, name, "", self.start, self.start, 0))
            assert len(self.look().leases) == len(NAMES) - n - 1
