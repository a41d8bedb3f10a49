"""A store on one memcached server, by compare-and-swap.

memcached lists nothing and judges nothing, so what must be judged together is kept together: each namespace
has a fixed number of sheets, items that hold the rows and marks (or the leases and fences) of all names
whose hash falls on them. A call reads the sheets it needs and the server's clock in one trip, decides, and
writes what changed in another, if nobody else has written them meanwhile; else it decides anew.

A sheet that is missing was lost, be it by a flush, a restart or an eviction. It begins anew with an epoch of
its own, so the loss of a single one is noticed too.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from rota.stores.base import (
    LONGEST_LEASE,
    TIME_LIMIT,
    Answer,
    Claim,
    DefinitionError,
    End,
    Guarantees,
    Lease,
    Look,
    Refusal,
    Request,
    Row,
    RowQuery,
    Shared,
    StoreUnavailable,
    View,
    acquired,
    check_claims,
    check_ends,
    check_leases,
    check_requests,
    claimed,
    instant,
    microseconds,
    pruned_mark,
    renewed,
    row_of,
    settled,
    shown_after,
)
from rota.stores.memcached.sheets import Sheet, is_open
from rota.stores.memcached.wire import Wire, Wires

Asked = TypeVar("Asked")
Said = TypeVar("Said")

SHEETS: Final = 16
"""How many sheets of rows a namespace has, and as many of leases. All servers must agree on it."""

GRAIN: Final = timedelta(seconds=2)
"""The server counts seconds, by a timer that comes 1 ms later each time: every quarter of an hour it has to
skip one. So what it shows is up to two seconds behind, and a lease may end as much too soon."""

SETTLED: Final = timedelta(seconds=6)
"""The uptime (it begins at two seconds) until which an epoch lies ahead. The server's clock is set from the
host's at its start and counts on its own from then on, so the next process may show less than the last one
did: by up to a second, and by what the host's clock was put back meanwhile. This covers four seconds."""

PROMPT: Final = 0.1
"""An answer that took longer (in seconds) is asked for once more. A server that was frozen answers what was
asked meanwhile by the clock of before, and a lease of then would be over at once: measured for up to 1 ms."""

_A_MOMENT: Final = 0.02
_ITEM_HEADER: Final = 128
_PRUNED: Final = pruned_mark("")
_ONE: Final = "one memcached server only; of two, each would say yes after the other fails"


class MemcachedStore:
    """Rows, leases and marks on the memcached server at `address`, a (host, port) or the path of a socket.

    No call takes longer than `limit`. `clock` is the store's clock: the server's, unless a test drives it.
    `client` is a pymemcache client of the application's: its kind of connection is used, not itself.
    """

    def __init__(
        self,
        address: tuple[str, int] | str,
        namespace: str = "",
        *,
        limit: timedelta = TIME_LIMIT,
        clock: Callable[[], datetime] | None = None,
        longest_lease: timedelta = LONGEST_LEASE,
        client: Any = None,
    ) -> None:
        self.namespace = namespace
        self.longest_lease = longest_lease
        self._clock = clock
        self._wires = Wires(address, limit=limit.total_seconds(), client=client)
        self._where = self._wires.where
        digest = hashlib.sha256(namespace.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self._row_sheets = [f"rota:{digest}:r{n:02}" for n in range(SHEETS)]
        self._lease_sheets = [f"rota:{digest}:l{n:02}" for n in range(SHEETS)]

    def __repr__(self) -> str:
        return f"MemcachedStore({self._where!r}, {self.namespace!r})"

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            shared=Shared.NETWORK,
            durable=False,
            clock="the memcached server",
            grain=GRAIN,
            fenced=True,
            lists_rows=False,
            epoch=True,
            primitive="compare-and-swap",
            trips="2, pipelined; 1 where nothing is written",
            needs=("one server, not several", "memory enough that nothing is evicted"),
            cannot=(
                "remember anything after a restart, a flush or an eviction: it notices, and refuses",
                "keep a history",
            ),
        )

    def look(self, question: Look) -> View:
        return self._wires.use(partial(self._look, question))

    def _look(self, question: Look, wire: Wire, deadline: float) -> View:
        names = [*self._row_sheets, *self._lease_sheets]  # rows are read before leases
        attempt = 0
        while True:
            now, sheets = self._read(wire, names, deadline)
            begun_anew = [sheet for sheet in sheets.values() if sheet.changed]
            if not self._write(wire, begun_anew, now, deadline):
                return self._view(question, now, sheets)
            attempt = self._wait(attempt, deadline)

    def _view(self, question: Look, now: datetime, sheets: Mapping[str, Sheet]) -> View:
        epoch = instant(max(sheet.epoch for sheet in sheets.values()))
        names = [*question.marks.values(), *map(pruned_mark, question.marks)]
        standing = {name: sheets[self._sheet_of_mark(name)].mark(name) for name in names}
        marks = {name: at for name, at in standing.items() if at is not None}
        starts = {task: microseconds(start) for task, start in shown_after(question, marks).items()}
        return View(
            now,
            marks,
            [
                row_of(row)
                for name in self._row_sheets
                for (task, due, _), row in sheets[name].rows.items()
                if is_open(row) or (task in starts and due > starts[task])
            ],
            [
                lease
                for name in self._lease_sheets
                for key in sheets[name].leases
                for lease in sheets[name].holders(key, now)
            ],
            epoch,
            epoch + self.longest_lease,
        )

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        check_claims(claims)
        return self._decided(claims, lambda claim: self._sheet_of_task(claim.occurrence.task), self._claim)

    def _claim(self, claim: Claim, sheet: Sheet, now: datetime, latest: datetime) -> Row | Refusal:
        task = claim.occurrence.task
        row = sheet.row(task, claim.occurrence.due, claim.attempt)
        at = latest if latest > claim.not_after else now
        answer = claimed(claim, row, at, epoch=instant(sheet.epoch), pruned=sheet.mark(pruned_mark(task)))
        if row is None and isinstance(answer, Row):
            sheet.put(answer)
        return answer

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        check_ends(ends)
        return self._decided(ends, lambda end: self._sheet_of_task(end.occurrence.task), self._settle)

    def _settle(self, end: End, sheet: Sheet, now: datetime, latest: datetime) -> Row | None:
        task = end.occurrence.task
        row = sheet.row(task, end.occurrence.due, end.attempt)
        pruned = pruned_mark(task)
        answer = settled(end, row, now, epoch=instant(sheet.epoch), pruned=sheet.mark(pruned))
        if answer is not None and answer is not row:
            answer = sheet.put(answer)
            if end.last is not None:
                sheet.move(pruned, end.last, now)
        return answer

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        check_requests(requests, self.longest_lease)
        return self._decided(requests, lambda request: self._sheet_of_key(request.key), self._acquire)

    def _acquire(self, request: Request, sheet: Sheet, now: datetime, latest: datetime) -> Lease | Refusal:
        late = request.not_after is not None and latest > request.not_after
        answer = acquired(
            request,
            sheet.holders(request.key, now),
            latest if late else now,
            fence_before=sheet.fences.get(request.key, (0, 0))[0],
            epoch=instant(sheet.epoch),
            quiet_until=instant(sheet.epoch) + self.longest_lease,
        )
        if isinstance(answer, Lease):
            sheet.hold(answer)
        return answer

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        check_leases(leases, ttl, self.longest_lease)

        def renew(lease: Lease, sheet: Sheet, now: datetime, latest: datetime) -> Lease | Refusal:
            answer = renewed(lease, sheet.holders(lease.key, now), now, ttl)
            if isinstance(answer, Lease):
                sheet.hold(answer)
            return answer

        return self._decided(leases, lambda lease: self._sheet_of_key(lease.key), renew)

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        check_leases(leases)
        return self._decided(leases, lambda lease: self._sheet_of_key(lease.key), self._release)

    def _release(self, lease: Lease, sheet: Sheet, now: datetime, latest: datetime) -> bool:
        for holder in sheet.holders(lease.key, now):
            if holder.token == lease.token:
                sheet.let_go(holder, now)
                return True
        return False

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        def move(mark: tuple[str, datetime], sheet: Sheet, now: datetime, latest: datetime) -> datetime:
            return sheet.move(*mark, now, first=first)

        return self._decided(list(marks.items()), lambda mark: self._sheet_of_mark(mark[0]), move)

    def rows(self, query: RowQuery) -> Answer[Row]:
        """Nothing: no history is kept. The answer carries the store's now all the same."""
        return Answer(self.claim(()).now, [])

    def prune(self, before: datetime, *, most: int | None = None) -> int:
        def prune(name: str, sheet: Sheet, now: datetime, latest: datetime) -> int:
            return sheet.prune(before, now, most=most)

        return sum(self._decided([*self._row_sheets, *self._lease_sheets], lambda name: name, prune).items)

    def close(self) -> None:
        self._wires.close()

    def concerns(self) -> Sequence[str]:
        """What an operator should see to, in words; the most pressing first."""
        told, settings, item_size = self._wires.use(
            lambda wire, deadline: (wire.read((), deadline)[0], wire.settings, wire.item_size)
        )
        evicts = settings.get(b"evictions") != b"off"
        evicted, megabytes = int(told.get("evictions", 0)), int(told.get("limit_maxbytes", 0)) / (1 << 20)
        found = {
            f"it has evicted {evicted} items since it started: its memory is short (-m)": evicted > 0,
            "it evicts when its memory is short (-M is not set), and then refuses starts": evicts,
            f"it has {megabytes:g} MB of memory (-m), less than its own default of 64": megabytes < 64,
            f"what runs and was decided lately must fit into {SHEETS} items of {item_size} bytes (-I)": True,
            "it keeps no history": True,
        }
        return [concern for concern, holds in found.items() if holds]

    def _sheet_of_task(self, task: str) -> str:
        return self._row_sheets[_hash(task) % SHEETS]

    def _sheet_of_mark(self, mark: str) -> str:
        """`pruned:<task>` is judged together with the rows of the task."""
        return self._row_sheets[_hash(mark.removeprefix(_PRUNED)) % SHEETS]

    def _sheet_of_key(self, key: str) -> str:
        return self._lease_sheets[_hash(key) % SHEETS]

    def _decided(
        self,
        items: Sequence[Asked],
        sheet_of: Callable[[Asked], str],
        decide: Callable[[Asked, Sheet, datetime, datetime], Said],
    ) -> Answer[Said]:
        """The answers to a list: each item decided on its sheet, and the sheets written that changed.

        Only what lies on a sheet that others have written meanwhile is decided again.
        """
        answers: dict[int, Said] = {}
        now: datetime | None = None

        def work(wire: Wire, deadline: float) -> Answer[Said]:
            nonlocal now
            attempt = 0
            while True:
                waiting = defaultdict(list)
                for place, item in enumerate(items):
                    if place not in answers:
                        waiting[sheet_of(item)].append(place)
                latest, sheets = self._read(wire, list(waiting), deadline)
                if now is None or not answers:
                    now = latest
                drafts = {
                    name: {place: decide(items[place], sheets[name], now, latest) for place in places}
                    for name, places in waiting.items()
                }
                changed = [sheet for sheet in sheets.values() if sheet.changed]
                lost = self._write(wire, changed, now, deadline)
                for name, draft in drafts.items():
                    if name not in lost:
                        answers.update(draft)
                if len(answers) == len(items):
                    return Answer(now, [answers[place] for place in range(len(items))])
                attempt = self._wait(attempt, deadline)

        return self._wires.use(work)

    def _wait(self, attempt: int, deadline: float) -> int:
        """Let a random moment pass after a write that came too late; longer after each, but not too long."""
        pause = random.random() * min(0.05, 0.002 * 2**attempt)
        if time.monotonic() + pause > deadline:
            raise StoreUnavailable(
                f"{self._where}: others wrote the same sheet again and again for {self._wires.limit:g} s"
            )
        time.sleep(pause)
        return attempt + 1

    def _read(self, wire: Wire, names: Sequence[str], deadline: float) -> tuple[datetime, dict[str, Sheet]]:
        """The store's now and these sheets, in one trip; those that were lost begin anew."""
        driven = None if self._clock is None else self._clock()
        asked = time.monotonic()
        told, items = wire.read(names, deadline)
        if time.monotonic() - asked > PROMPT:
            time.sleep(_A_MOMENT)
            told, items = wire.read(names, deadline)
        now = driven or instant(int(told["time"]) * 1_000_000)
        uptime = timedelta(seconds=int(told["uptime"]))
        born = f"{told['pid']} {int(told['time']) - int(told['uptime'])}"
        epoch = microseconds(now + max(SETTLED - uptime, timedelta(0)))
        sheets = {}
        for name in names:
            sheet = sheets[name] = Sheet(name, born, epoch)
            if name in items:
                sheet.read(*items[name], self._where)
        return now, sheets

    def _write(self, wire: Wire, sheets: Sequence[Sheet], now: datetime, deadline: float) -> set[str]:
        """Write these sheets in one trip, and answer which of them others have written meanwhile."""
        if not sheets:
            return set()
        commands = []
        for sheet in sheets:
            sheet.sweep(now)
            flags, value = sheet.written()
            if len(value) + _ITEM_HEADER > wire.item_size:
                raise StoreUnavailable(
                    f"{self._where}: a sheet has {len(value)} bytes, and an item may have {wire.item_size}"
                    " (-I): too much is running or was decided in the last minutes"
                )
            verb, number = ("cas", f" {sheet.number}") if sheet.number else ("add", "")
            commands.append(
                f"{verb} {sheet.name} {flags} 0 {len(value)}{number}\r\n".encode() + value + b"\r\n"
            )
        stored = wire.write(commands, deadline)
        return {sheet.name for sheet, well in zip(sheets, stored, strict=True) if not well}


def _hash(name: str) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))


def open_memcached(address: str, *, namespace: str, timeout: timedelta = TIME_LIMIT) -> MemcachedStore:
    """What `memcached://host:port` opens; nothing is touched before the first call."""
    if "," in address:
        raise DefinitionError(_ONE, argument="store", found="a list of servers")
    found = re.fullmatch(r"memcached://(?:\[([0-9A-Fa-f:.]+)\]|([^\s/:@\[\]]+))(?::([0-9]{1,5}))?/?", address)
    if found is None or not 0 < int(found[3] or 11211) < 65536:
        raise ValueError(address)
    return MemcachedStore((found[1] or found[2], int(found[3] or 11211)), namespace, limit=timeout)


def wrap(client: Any, *, namespace: str) -> MemcachedStore:
    """The store on the server of a pymemcache client. It opens connections of its own, of the same kind: the
    client's options (prefixes, serializers, ignored errors, no replies) would change what is meant."""
    inner = getattr(client, "_client", client)  # RetryingClient
    servers = [each.server for each in getattr(inner, "clients", {}).values()]
    if hasattr(inner, "server"):
        servers.append(inner.server)
    if len(servers) != 1:
        raise DefinitionError(_ONE, argument="store", found=f"a client of {len(servers)} servers")
    return MemcachedStore(servers[0], namespace, client=inner)
