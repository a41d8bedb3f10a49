"""The seam: what rota asks of a store. Every sentence here is a test in `rota.testing.contract`.

Three things live in a store and nothing else: rows (what was decided; written first stands), leases
(who is alive) and marks (up to where everything is decided). A store knows nothing of schedules,
catch-up or overlap. A driver is one file that imports this module only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from rota._core.errors import DefinitionError, StoreError, StoreMisused, StoreUnavailable
from rota._core.leases import (
    LONGEST_LEASE,
    PAUSE_PREFIX,
    SERVER_PREFIX,
    Lease,
    Request,
    is_notice,
)
from rota._core.rows import (
    STEP_BACK_ALLOWANCE,
    Answer,
    Cause,
    Claim,
    End,
    Look,
    Occurrence,
    Refusal,
    Refused,
    Row,
    RowQuery,
    View,
    pruned_mark,
)
from rota._core.runs import Outcome, SkipReason
from rota._core.value import value
from rota.stores.deciding import (
    acquired,
    check_claims,
    check_ends,
    check_leases,
    check_requests,
    claimed,
    distinct,
    moved,
    renewed,
    settled,
    shown_after,
)
from rota.stores.records import (
    LEASE_COLUMNS,
    RECORD_VERSION,
    ROW_COLUMNS,
    check_version,
    instant,
    lease_columns,
    lease_of,
    microseconds,
    row_columns,
    row_of,
)

__all__ = [
    "FORGOTTEN_AFTER",
    "LEASE_COLUMNS",
    "LONGEST_LEASE",
    "PAUSE_PREFIX",
    "RECORD_VERSION",
    "ROW_COLUMNS",
    "SERVER_PREFIX",
    "STEP_BACK_ALLOWANCE",
    "TIME_LIMIT",
    "Answer",
    "Cause",
    "Claim",
    "DefinitionError",
    "End",
    "Guarantees",
    "Lease",
    "Look",
    "Occurrence",
    "Outcome",
    "Refusal",
    "Refused",
    "Request",
    "Row",
    "RowQuery",
    "Shared",
    "SkipReason",
    "Store",
    "StoreError",
    "StoreMisused",
    "StoreUnavailable",
    "View",
    "acquired",
    "check_claims",
    "check_ends",
    "check_leases",
    "check_requests",
    "check_version",
    "claimed",
    "distinct",
    "instant",
    "is_notice",
    "lease_columns",
    "lease_of",
    "microseconds",
    "moved",
    "pruned_mark",
    "renewed",
    "row_columns",
    "row_of",
    "settled",
    "shown_after",
]

TIME_LIMIT: Final = timedelta(seconds=5)
"""No call of a store takes longer (promise 12); a URL may ask for less."""

FORGOTTEN_AFTER: Final = timedelta(hours=1)
"""How long after a key has lapsed its fence is remembered at least."""


class Shared(StrEnum):
    """How far the store reaches: servers beyond that do not see each other."""

    PROCESS = "process"
    HOST = "host"
    NETWORK = "network"


@value
class Guarantees:
    """What a store promises beyond the contract, as data for `rota check`, the tests and the docs.

    `durable`: what it answered survives a restart of its server. `clock`: whose clock decides; `grain`: its
    step. `fenced`: leases carry a fence. `lists_rows`: it keeps a history. `epoch`: it can forget, and
    notices (promise 13). `primitive`: what makes a claim atomic. `trips`: round trips of one call on n items.
    `needs`: what an operator must see to. `cannot`: what no driver could promise on such a store.
    """

    shared: Shared
    durable: bool
    clock: str
    grain: timedelta
    fenced: bool
    lists_rows: bool
    epoch: bool = False
    primitive: str = ""
    trips: str = ""
    needs: tuple[str, ...] = ()
    cannot: tuple[str, ...] = ()


@runtime_checkable
class Store(Protocol):
    """Rows, leases and marks of one application in one environment.

    1. A call has one `now`, the store's, used for every decision in it and returned with the answer
       (for look: that of its last read). Host clocks decide nothing.
    2. A list is answered item by item, in its order. A key that stands twice in one list is StoreMisused,
       and then nothing is done. The key of a claim and of an end is (occurrence, attempt), that of a
       request its key, that of a lease (key, token): one server may hold several places of a key.
    11. A refusal is an answer. StoreUnavailable means that nothing is known: the caller treats it as
        either, and asks again with the same token.
    12. Any method may be called from any thread; no call outlasts the store's time limit (5 s); no
        secret appears in an error, a repr or a log.
    13. A store that can forget carries an epoch: when its memory began. After it has forgotten, claims
        with not_before at or before the epoch are refused as store_lost, missed and coalesced are not
        written for occurrences due at or before it (None), and requests without not_before, or with
        one at or before the epoch, are refused as store_lost until the epoch plus the longest lease.
        Pauses and servers that sign in are exempt. So a flush never starts anything twice.

    A driver that can tell its operator something (it evicts, it is a standby) may have a method
    `concerns()` that answers sentences; `rota check` shows them. It is no part of the contract.

    There is no clear, no exists and no release by force: to unlock is to release what was seen.
    """

    @property
    def guarantees(self) -> Guarantees:
        """What this store promises, needs and cannot do."""
        ...

    def look(self, question: Look) -> View:
        """Everything a tick must know.

        10. Rows are read before leases, or both in one step. It shows all rows due after each asked
            mark, final ones too, and every open row of the application, also of tasks that were not
            asked about; unexpired leases only. A lease that is renewed while look reads is not left
            out. Keys are exact, never a prefix. Rows and leases come in no particular order; `output`
            may be left out here, `rows` shows it.
        """
        ...

    def claim(self, claims: Sequence[Claim]) -> Answer[Row | Refusal]:
        """Write an open row for each occurrence nobody has decided.

        3. Where no row stands and not_before <= now <= not_after: an open row with the asker's token,
           since = now and start_by = since + start_within. A row that stands is answered as it is,
           whoever asks, be it open or final, inside the window or not.
           Asking again with the same token is the same claim, so a lost reply is repaired by asking
           again. Checked in this order: row, epoch, window (early, too_late), pruned mark (too_late).
           Attempts are rows of their own.
        """
        ...

    def settle(self, ends: Sequence[End]) -> Answer[Row | None]:
        """Write the one end of each attempt.

        4. No row, or an open row with the same token, becomes final. `lost` ends only the open row
           whose token it names and never creates one (no row: None); missed, coalesced and store_lost
           are written only where no row stands. A final row never changes. The answer is the row that
           stands, so every attempt has exactly one end, whoever writes it and however often.
           What the claim said stays: since, start_by, cause, and the server that claimed (whoever
           finds it lost). A row that was never claimed has since = ended = now and no start_by.
           Output of up to 65,536 characters is kept whole where rows are listed.
        5. The larger keep_until of Claim and End stands. At or before `pruned:<task>` nothing is
           written where no row stands (None). An end with `last`, once it stands, moves `pruned:<task>`
           to `last` in the same step.
        """
        ...

    def acquire(self, requests: Sequence[Request]) -> Answer[Lease | Refusal]:
        """Give each key to the token that asks for it, unless another token holds it.

        6. A key has at most one unexpired holder (now < until; with slots=n: at most n, the first free
           place is given, atomically). Only tokens are compared, never owners. The same token asking again is
           one holding, now until now + ttl, or until when it stood if that is later, with the newer
           note. Windows as in
           claim, and checked first (epoch, window, holder), so whatever is granted is granted inside
           its window. A ttl that is not positive, or longer than the longest lease, is StoreMisused (a
           pause and a server that signs in may be as long as they like), and so are fewer slots than one.
        7. A refused acquire changes nothing. Held names the owner, and until when, of the holder who
           goes first.
        8. The fence of a key (not of a slot) grows with every new holding: max(previous + 1, now in
           microseconds); a key may be forgotten one hour after it lapsed.
        """
        ...

    def renew(self, leases: Sequence[Lease], *, ttl: timedelta) -> Answer[Lease | Refusal]:
        """Prolong each lease to now + ttl; never to less than it had.

        7. Only the token renews. What has lapsed is not renewed (held by its new holder, or too_late):
           in between it may have been somebody else's. The ttl is limited as in acquire.
        """
        ...

    def release(self, leases: Sequence[Lease]) -> Answer[bool]:
        """Give each lease back, so that it is free at once; False where it was no longer ours.

        7. Only the token releases; a late holder touches neither its successor nor a key that lapsed.
        """
        ...

    def advance(self, marks: Mapping[str, datetime], *, first: bool = False) -> Answer[datetime]:
        """Move each mark forward, and answer where it stands.

        9. A mark only moves forward, and never beyond the store's now: what lies later is taken for
           now. `first=True` writes only where none stands and moves nothing.
        """
        ...

    def rows(self, query: RowQuery) -> Answer[Row]:
        """The history, newest due instant first, then by task, the later attempt first; at most `limit`.
        Every condition of the query holds for each row. Empty where `guarantees.lists_rows` is false.
        """
        ...

    def prune(self, before: datetime, *, most: int | None = None) -> int:
        """Forget final rows that ended before `before`, and answer how many.

        With `most`, of each task also those that are not among its `most` newest final rows, by due instant
        and attempt.
        5. A row is kept until its keep_until plus the step-back allowance (10 min) by the store's clock,
           whatever `before` and `most` say, and an open row is never pruned. In the same step `pruned:<task>`
           moves to the last due instant removed: what lies at or before it is decided though its row
           is gone (claim: too_late; settle: nothing). A row that stands there still stands.
        """
        ...

    def close(self) -> None:
        """Give back what the store holds open. It may be called twice."""
        ...
