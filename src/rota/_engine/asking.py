"""Asking the store: every call is repeated with the same tokens until something is known, or given up.

StoreUnavailable means that nothing is known, so a repeated question must be the same question. Each
answer teaches the clock what time it is at the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from rota._core.errors import StoreError, StoreUnavailable
from rota._core.leases import Lease, Request
from rota._core.rows import Answer, Claim, End, Look, Refusal, Row, RowQuery, View
from rota._engine.clock import Clock
from rota._engine.events import Events, StoreTrouble
from rota.stores.base import Store

TRIES: Final = 3
_T = TypeVar("_T")


class Asking:
    """The store as the engine asks it. None stands for: nothing is known."""

    def __init__(self, store: Store, clock: Clock, events: Events) -> None:
        self._store, self._clock, self._events = store, clock, events

    def look(self, question: Look) -> View | None:
        def look() -> Answer[View]:
            view = self._store.look(question)
            return Answer(view.now, (view,))

        answer = self._ask("look", look)
        return None if answer is None else answer.items[0]

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal] | None:
        return self._ask("claim", lambda: self._store.claim(claims))

    def settle(self, ends: Sequence[End]) -> list[tuple[End, Row | None]]:
        """Each end with the row that stands; an empty list if nothing is known."""
        if not ends:
            return []
        answer = self._ask("settle", lambda: self._store.settle(ends))
        return [] if answer is None else list(zip(ends, answer.items, strict=True))

    def settle_surely(self, end: End) -> Row | None:
        """Settle until it is known what stands, for some minutes if need be."""
        wait = 0.5
        for _ in range(100):
            answer = self._ask("settle", lambda: self._store.settle([end]), tries=1)
            if answer is not None:
                return answer.items[0]
            self._clock.sleep(wait)
            wait = min(5.0, wait * 2)
        return None

    def acquire(self, requests: Sequence[Request]) -> list[tuple[Lease | Refusal | None, float]]:
        """Each answer with the boot-time instant at which it was last asked for: trust counts from there.

        A key goes into a call once, so several requests for one key take several calls.
        """
        found: dict[str, tuple[Lease | Refusal, float]] = {}
        waiting = list(requests)
        while waiting:
            batch = list({each.key: each for each in reversed(waiting)}.values())[::-1]
            tokens = {each.token for each in batch}
            waiting = [each for each in waiting if each.token not in tokens]
            sent = [0.0]

            def ask(batch: Sequence[Request] = batch, sent: list[float] = sent) -> Answer[Lease | Refusal]:
                sent[0] = self._clock.boot()
                return self._store.acquire(batch)

            answer = self._ask("acquire", ask)
            if answer is not None:
                found |= {each.token: (item, sent[0]) for each, item in zip(batch, answer.items, strict=True)}
        return [found.get(each.token, (None, 0.0)) for each in requests]

    def release(self, leases: Sequence[Lease]) -> None:
        if leases:
            self._ask("release", lambda: self._store.release(leases))

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> None:
        if marks:
            self._ask("advance", lambda: self._store.advance(marks, first=first))

    def rows(self, query: RowQuery) -> Sequence[Row] | None:
        answer = self._ask("rows", lambda: self._store.rows(query))
        return None if answer is None else answer.items

    def _ask(self, call: str, ask: Callable[[], Answer[_T]], *, tries: int = TRIES) -> Answer[_T] | None:
        for _ in range(tries):
            sent = self._clock.boot()
            try:
                answer = ask()
            except StoreUnavailable as error:
                self.tell_trouble(call, error)
                continue
            self._clock.learn(answer.now, sent=sent, answered=self._clock.boot())
            return answer
        return None

    def tell_trouble(self, call: str, error: StoreError) -> None:
        self._events.tell(StoreTrouble(call, str(error)))
