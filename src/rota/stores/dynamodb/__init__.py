"""A store in one DynamoDB table, by conditional writes.

Every read is consistent, every write names what it expects to find, and the clock is DynamoDB's (see
`clock.py`). There are no transactions: where two items change in one step of the contract, they are written
in an order in which whatever stands in between is safe, and the place says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from rota.stores.base import (
    LONGEST_LEASE,
    TIME_LIMIT,
    Answer,
    Claim,
    End,
    Guarantees,
    Lease,
    Look,
    Refusal,
    Refused,
    Request,
    Row,
    RowQuery,
    Shared,
    StoreUnavailable,
    View,
    check_claims,
    check_ends,
    check_leases,
    check_requests,
    claimed,
    microseconds,
    pruned_mark,
    settled,
    shown_after,
)
from rota.stores.dynamodb.history import History
from rota.stores.dynamodb.keys import HOPED_FREE, Decision, Keys, acquire_in, if_asked, release_in, renew_in
from rota.stores.dynamodb.opening import schema, wire_on, wire_to, worries
from rota.stores.dynamodb.partition import Job, Partition, by_key
from rota.stores.dynamodb.table import (
    BY_DUE,
    HELD_FOR_EVER,
    THIN,
    Item,
    held,
    leases_at,
    mark_at,
    mark_key,
    row_at,
    row_key,
    span,
)
from rota.stores.dynamodb.wire import READ_AT_ONCE, Call, Reply, Wire, host_ahead

__all__ = ["DynamoDBStore", "open_dynamodb", "schema", "wrap"]

T = TypeVar("T")
R = TypeVar("R")

GRAIN: Final = timedelta(seconds=1)
_RECENT: Final = timedelta(minutes=10)
_MICROSECOND: Final = timedelta(microseconds=1)
_TRIES: Final = 3


class DynamoDBStore:
    """Rows, leases and marks of one namespace in a DynamoDB table.

    `wire` is the way to it. No call takes longer than its limit. It may be used from any thread, and after
    a fork.
    """

    def __init__(self, wire: Wire, namespace: str = "", *, longest_lease: timedelta = LONGEST_LEASE) -> None:
        self.namespace = namespace
        self.longest_lease = longest_lease
        self._wire = wire
        self._items = Partition(wire, namespace)
        self._keys = Keys(self._items)
        self._history = History(self._items)

    def __repr__(self) -> str:
        return f"DynamoDBStore({self._wire.where!r}, {self.namespace!r})"

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            shared=Shared.NETWORK,
            durable=True,
            clock="DynamoDB's Date header",
            grain=GRAIN,
            fenced=True,
            lists_rows=True,
            epoch=False,
            primitive="conditional PutItem",
            trips="ceil(n/25), in parallel",
            needs=(
                "host clocks within 5 minutes of AWS's, or it refuses their requests",
                "answers within a second, as the time is told by them",
                "one region: in a global table the last writer wins, unless it is strongly consistent",
                "history pruned before an application has 10 GB of it, the limit of local indexes",
            ),
            cannot=(
                "run more than about 80 occurrences a second for one application, the limit of a partition",
                "tell instants closer than a second apart before a few answers have come",
            ),
        )

    def look(self, question: Look) -> View:
        call = self._wire.call()
        names = {name for task, mark in question.marks.items() for name in (mark, pruned_mark(task))}
        # Open rows do not depend on the marks, so both are read at once. Leases come last: a row that is
        # shown open was so before its lease was looked for.
        opened, *found = call.run(
            [self._items.open_rows(call), *self._items.reads(call, map(mark_key, names))]
        )
        stand = by_key(found)
        marks = {
            name: mark_at(stand[mark_key(name)], self._items.where)
            for name in names
            if mark_key(name) in stand
        }
        starts = shown_after(question, marks)
        rows = {row.key: row for row in self._items.rows_at(opened)}
        for items in call.run(self._rows_after(call, starts)):
            for row in self._items.rows_at(items):
                start = starts.get(row.occurrence.task, row.occurrence.due)
                if row.occurrence.due > start:
                    rows[row.key] = row
        now = call.tell()
        (items,) = call.run([self._items.by_state(call, held(microseconds(now) + 1), HELD_FOR_EVER)])
        leases = [
            lease for item in items for lease in leases_at(item, self._items.where) if lease.until > now
        ]
        return View(now, marks, list(rows.values()), leases)

    def _rows_after(self, call: Call, starts: Mapping[str, datetime]) -> list[Job[list[Item]]]:
        """The jobs that read the rows after these instants: one for each task, but one only for all tasks
        whose instant is not long ago, as it is of most that run often."""
        recently = call.tell() - _RECENT
        recent = {task: start for task, start in starts.items() if start >= recently}
        jobs = []
        if len(recent) > 1:
            first = microseconds(min(recent.values()))
            jobs.append(self._items.query(call, "#due > :first", index=BY_DUE, first=first))
            starts = {task: start for task, start in starts.items() if task not in recent}
        for task, start in starts.items():
            among = span(task, start + _MICROSECOND)
            jobs.append(self._items.query(call, "#sk BETWEEN :first AND :last", what=THIN, **among))
        return jobs

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        check_claims(claims)
        return self._in_time(claims, self._claim)

    def _claim(self, call: Call, claims: Sequence[Claim]) -> list[Row | Refusal] | None:
        now = call.now
        answers: dict[int, Row | Refusal] = {}
        created: dict[int, Row] = {}
        late: set[int] = set()
        keys = [row_key(claim.occurrence, claim.attempt) for claim in claims]
        marks = [mark_key(pruned_mark(claim.occurrence.task)) for claim in claims]
        pending = sorted(range(len(claims)), key=keys.__getitem__)
        if len(claims) > READ_AT_ONCE:
            # What stands is read first, a hundred at a time: who comes second is spared as many writes, and a
            # list too long for one call is done by asking again.
            items = self._items.read(call, keys)
            answers = {n: row for n in pending if (row := self._items.row_in(items, keys[n])) is not None}
        while pending := [n for n in pending if n not in answers]:
            would = {n: claimed(claims[n], None, now, epoch=None, pruned=None) for n in pending}
            writes = {n: row for n, row in would.items() if isinstance(row, Row)}
            wanted = {marks[n] for n in pending} | {keys[n] for n in pending if n not in writes}
            # The marks are read beside the writes. Who moves one meanwhile and prunes this very row has found
            # its keep_until ten minutes past, which is not before not_after: so the Date below is too late.
            puts = [partial(self._items.put, call, row) for row in writes.values()]
            replies, items = self._items.write_and_read(call, puts, wanted)
            beaten = []
            for (n, row), reply in zip(writes.items(), replies, strict=True):
                if reply.met:
                    answers[n] = created[n] = row
                    due, pruned = row.occurrence.due, self._items.mark_in(items, marks[n])
                    # A grant dated after its window does not count.
                    if reply.date > microseconds(claims[n].not_after) or (pruned and due <= pruned):
                        late.add(n)
                else:
                    beaten.append(n)
            items |= self._items.read(call, [keys[n] for n in beaten])
            for n in pending:
                if n not in answers and (n not in writes or keys[n] in items):
                    stands, pruned = self._items.row_in(items, keys[n]), self._items.mark_in(items, marks[n])
                    answers[n] = claimed(claims[n], stands, now, epoch=None, pruned=pruned)
            call.must_go_on()
        behind = call.was_behind
        # Nobody has been told of these rows, so nobody has started anything upon them: they may go.
        call.run(
            [partial(self._items.take_back, call, row) for n, row in created.items() if behind or n in late]
        )
        if behind:
            return None
        return [Refusal(Refused.TOO_LATE) if n in late else answers[n] for n in range(len(claims))]

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        check_ends(ends)
        call = self._begin(ends)
        now = call.now
        answers: dict[int, Row | None] = {}
        keys = [row_key(end.occurrence, end.attempt) for end in ends]
        marks = [mark_key(pruned_mark(end.occurrence.task)) for end in ends]
        pending = sorted(range(len(ends)), key=keys.__getitem__)
        # Most ends are of rows that stand open with their token, so that is tried before anything is read.
        # A list too long for one call is read first, so that it is done by asking again.
        few = len(ends) <= READ_AT_ONCE
        closing = [n for n in pending if few and not ends[n].needs_no_row]
        replies = call.run([partial(self._items.close, call, ends[n], now) for n in closing])
        for n, reply in zip(closing, replies, strict=True):
            if reply.met:
                row = row_at(reply.body["Attributes"], self._items.where)
                answers[n] = settled(ends[n], row, now, epoch=None, pruned=None)
        while pending := [n for n in pending if n not in answers]:
            call.must_go_on()
            items = self._items.read(call, {key for n in pending for key in (keys[n], marks[n])})
            writes: dict[int, tuple[Row, Job[Reply]]] = {}
            for n in pending:
                stands, pruned = self._items.row_in(items, keys[n]), self._items.mark_in(items, marks[n])
                end = settled(ends[n], stands, now, epoch=None, pruned=pruned)
                if end is None or end is stands:
                    answers[n] = end
                elif stands is None:
                    writes[n] = end, partial(self._items.put, call, end)
                else:
                    writes[n] = end, partial(self._items.close, call, ends[n], now)
            replies = call.run([write for _, write in writes.values()])
            answers |= {
                n: row for (n, (row, _)), reply in zip(writes.items(), replies, strict=True) if reply.met
            }
        # The row first, then the mark. In between, what the row speaks for has neither rows nor a mark; but
        # as its windows are over it cannot be started, only written as missed once more. The other way
        # round it would be decided without a word. Whoever finds such a row moves the mark after it.
        lasts = {
            pruned_mark(row.occurrence.task): row.last
            for n, row in answers.items()
            if row is not None and row.last is not None and ends[n].last is not None
        }
        self._items.move(call, lasts)
        return Answer(now, [answers[n] for n in range(len(ends))])

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        check_requests(requests, self.longest_lease)
        return self._in_time(requests, self._acquire)

    def _acquire(self, call: Call, requests: Sequence[Request]) -> list[Lease | Refusal] | None:
        now = call.now
        answers: dict[str, Lease | Refusal] = {}
        decisions: dict[str, Decision] = {}
        for request in requests:
            if_free = if_asked(request, HOPED_FREE, now)
            if isinstance(if_free, Refusal):
                answers[request.key] = if_free
            else:
                decisions[request.key] = partial(acquire_in, request, now)
        not_after = {request.key: request.not_after for request in requests}
        undone = []
        for key, change in self._keys.change(call, decisions, hope=len(requests) <= READ_AT_ONCE).items():
            (answers[key],) = change.answers
            limit = not_after[key]
            if limit is not None and change.date > microseconds(limit):
                # A grant dated after its window does not count. Nobody has been told of it.
                undone.append(partial(self._keys.write_back, call, key, change))
                answers[key] = Refusal(Refused.TOO_LATE)
        call.run(undone)
        return None if call.was_behind else [answers[request.key] for request in requests]

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        check_leases(leases, ttl, self.longest_lease)
        return self._in_time(leases, partial(self._renew, ttl))

    def _renew(self, ttl: timedelta, call: Call, leases: Sequence[Lease]) -> list[Lease | Refusal] | None:
        answers = self._keys.each(call, leases, partial(renew_in, ttl, call.now))
        return None if call.was_behind else answers

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        check_leases(leases)
        call = self._begin(leases)
        return Answer(call.now, self._keys.each(call, leases, partial(release_in, call.now)))

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        call = self._begin(marks)
        stand = self._items.move(call, marks, first=first)
        return Answer(call.now, [stand[name] for name in marks])

    def rows(self, query: RowQuery) -> Answer[Row]:
        call = self._wire.call()
        rows = self._history.rows(call, query)
        return Answer(call.now, rows)

    def prune(self, before: datetime, *, most: int | None = None) -> int:
        """As many as there is time for; what is left is pruned the next time."""
        call = self._wire.call()
        self._keys.prune(call)
        count = self._history.prune(call, before)
        return count if most is None else count + self._history.prune_beyond(call, most)

    def close(self) -> None:
        """End the threads and give back the connections; the next call opens them again."""
        self._wire.close()

    def concerns(self) -> Sequence[str]:
        """What an operator should know of this table, in sentences."""
        call = self._wire.call()
        (reply,) = call.run([partial(call.send, "describe_table")])
        return list(worries(reply.body["Table"], host_ahead(reply)))

    def _begin(self, items: Sized) -> Call:
        """A call; its instant is asked of the server where nothing else is."""
        call = self._wire.call()
        if not items:
            call.hear()
        return call

    def _in_time(
        self, items: Sequence[T], decide: Callable[[Call, Sequence[T]], list[R] | None]
    ) -> Answer[R]:
        """What is decided at the instant of the call. Where that instant turns out to be more than a grain
        behind, it is decided anew: who trusts in a lease subtracts one grain and no more."""
        call = self._begin(items)
        for _ in range(_TRIES):
            answers = decide(call, items)
            if answers is not None:
                return Answer(call.now, answers)
            call.begin_again()
        raise StoreUnavailable(f"{self._items.where}: its clock, or this host's, jumps")


def wrap(
    client: Any, *, namespace: str, table: str = "rota", timeout: timedelta = TIME_LIMIT, create: bool = True
) -> DynamoDBStore:
    """The store on a client of boto3 or botocore, or on a Table resource, whose table it then is.

    It keeps its own time-outs and retries: a call ends in time, what it has sent may end later. After a fork
    it is as safe as that client is."""
    return DynamoDBStore(wire_on(client, table, timeout, create=create), namespace)


def open_dynamodb(
    address: str,
    *,
    namespace: str,
    timeout: timedelta = TIME_LIMIT,
    endpoint_url: str | None = None,
    create: bool = True,
) -> DynamoDBStore:
    """What `dynamodb://region/table` opens, with the credentials that boto3 would find; nothing is touched
    before the first call."""
    return DynamoDBStore(wire_to(address, endpoint_url, timeout, create=create), namespace)
