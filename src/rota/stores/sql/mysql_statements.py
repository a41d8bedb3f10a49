"""What the store says to MySQL and MariaDB: tables, and for each call the statements of one packet.

Each statement is whole and can be tried in a client. All text is binary and written as a hexadecimal literal,
so no collation takes one key for another, and no sql_mode and no character set of a connection changes what
is meant. A call that writes locks what it is about first, in the order of the keys, and reads the clock after
that: what was waited for is decided by the instant at which it was had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from rota.stores.base import (
    FORGOTTEN_AFTER,
    LEASE_COLUMNS,
    ROW_COLUMNS,
    STEP_BACK_ALLOWANCE,
    Claim,
    DefinitionError,
    End,
    Lease,
    Request,
    RowQuery,
    StoreMisused,
    microseconds,
    pruned_mark,
)
from rota.stores.sql.mysql_schema import SCHEMA_VERSION, tables

TEXT_LIMITS: Final = {"app": 255, "task": 1024, "token": 255, "server": 1024, "owner": 1024, "name": 2048}
LONG_TEXT: Final = 4 << 20

CLOCK: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
"""Exact in any time zone: UNIX_TIMESTAMP of a local time is not, in the hour that comes twice."""

READ_CLOCK: Final = f"SET @rota_now = {CLOCK}"
BEGIN: Final = ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION READ WRITE")
BEGIN_READING: Final = ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION READ ONLY")
SNAPSHOT: Final = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
COMMIT: Final = "COMMIT AND NO CHAIN NO RELEASE"

_LATEST: Final = 253_402_300_799_999_999
_UNSEEN: Final = -(2**62)
_PROVISIONAL: Final = -1
_RANGES: Final = 50
_MICROSECOND: Final = timedelta(microseconds=1)
_PRUNED: Final = f"x'{pruned_mark('').encode().hex()}'"
_ROW: Final = ", ".join(f"`{name}`" for name in ROW_COLUMNS)
_SHORT_ROW: Final = ", ".join(f"`{name}`" for name in ROW_COLUMNS[:-1])
_LEASE: Final = ", ".join(f"`{name}`" for name in LEASE_COLUMNS)
_OWN: Final = "(`token` <=> VALUES(`token`) AND `until` > @rota_now)"
_ENDS: Final = (
    "(`outcome` IS NULL AND `token` = VALUES(`token`)"
    " AND COALESCE(VALUES(`reason`) NOT IN ('missed', 'coalesced', 'store_lost'), TRUE))"
)


def text(value: str, name: str) -> str:
    """A literal of the text; StoreMisused where the column would cut it off."""
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise StoreMisused(f"{name}: it is no text that can be stored: {error}") from error
    if len(data) > (limit := TEXT_LIMITS.get(name, LONG_TEXT)):
        shown = value[:60] + "..."
        raise StoreMisused(f"{name}: {shown!r} has {len(data)} bytes in UTF-8; allowed: up to {limit}")
    return f"x'{data.hex()}'"


def number(value: int | None) -> str:
    if value is None:
        return "NULL"
    if not -(2**63) < value < 2**63:
        raise StoreMisused(f"{value} is too large to be stored")
    return f"{value:d}"


def at(instant: datetime | None) -> str:
    return "NULL" if instant is None else number(microseconds(instant))


def _length(duration: timedelta | None) -> str:
    return "NULL" if duration is None else number(duration // _MICROSECOND)


def _reason(end: End) -> str:
    return "NULL" if end.reason is None else f"'{end.reason.value}'"


def _until(ttl: timedelta) -> str:
    return f"LEAST(@rota_now + {min(ttl // _MICROSECOND, _LATEST)}, {_LATEST})"


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items)


class Statements:
    """The statements for one application, in tables of that prefix. `call` marks the rows of one call."""

    def __init__(self, prefix: str, namespace: str) -> None:
        self.tables = tuple(tables(prefix))
        self.names = tuple(f"{prefix}{name}" for name in ("row", "lease", "mark", "schema"))
        self.row, self.lease, self.mark, self.schema = (f"`{name}`" for name in self.names)
        try:
            self.app = text(namespace, "app")
        except StoreMisused as error:
            raise DefinitionError(
                "the namespace is too long for MySQL",
                argument="namespace",
                found=namespace[:60],
                allowed="255 bytes in UTF-8",
            ) from error
        # More than one row where a value is due is an error, so what another version wrote is left alone.
        self.guard = (
            f"SET @rota_version = (SELECT `version` FROM {self.schema} UNION ALL SELECT `version` FROM"
            f" {self.schema}"
            f" WHERE `version` NOT IN ({SCHEMA_VERSION - 1}, {SCHEMA_VERSION}))"
        )
        self.version = f"SELECT `version` FROM {self.schema}"

    # rows

    def claim(self, claims: Sequence[Claim], call: int) -> list[str]:
        """Answers now, the rows that stand, and the marks. A new row carries its window till it is judged."""
        ordered = sorted(claims, key=lambda each: (each.occurrence.task, each.occurrence.due, each.attempt))
        new = (
            f"({self.app}, {text(each.occurrence.task, 'task')}, {at(each.occurrence.due)},"
            f" {number(each.attempt)},"
            f" {text(each.token, 'token')}, {text(each.server, 'server')}, {_PROVISIONAL},"
            f" {_length(each.start_within)}, {at(each.keep_until)}, '{each.cause.value}', NULL, NULL,"
            f" {at(each.not_before)}, NULL, 1, {at(each.not_after)}, '', '', {call})"
            for each in ordered
        )
        return [
            *BEGIN,
            self.guard,
            (
                f"INSERT INTO {self.row} (`app`, {_ROW}, `open`) VALUES {_listed(new)}"
                " ON DUPLICATE KEY UPDATE `app` = VALUES(`app`)"
            ),
            READ_CLOCK,
            self._unwrite("@rota_now < r.`ended` OR @rota_now > r.`last`", call),
            (
                f"UPDATE {self.row} FORCE INDEX (`open_rows`) SET `since` = @rota_now,"
                " `start_by` = @rota_now + `start_by`, `ended` = NULL, `last` = NULL, `open` = 1"
                f" WHERE `app` = {self.app} AND `open` = {call}"
            ),
            "SELECT @rota_now",
            self._standing([(each.occurrence.task, each.occurrence.due, each.attempt) for each in ordered]),
            self.marks({pruned_mark(each.occurrence.task) for each in ordered}),
            COMMIT,
        ]

    def settle(self, ends: Sequence[End], call: int, now: datetime | None = None) -> list[str]:
        """Answers now, the rows that stand, and the marks. With `now` the clock is not asked again."""
        ordered = sorted(ends, key=lambda each: (each.occurrence.task, each.occurrence.due, each.attempt))
        new = (
            f"({self.app}, {text(each.occurrence.task, 'task')}, {at(each.occurrence.due)},"
            f" {number(each.attempt)},"
            f" {text(each.token, 'token')}, {text(each.server, 'server')}, {_PROVISIONAL}, NULL,"
            f" {at(each.keep_until)},"
            f" 'schedule', '{each.outcome.value}', {_reason(each)}, NULL,"
            f" {_length(each.took)}, {number(each.count)}, {at(each.last)},"
            f" {text(each.detail, 'detail')}, {text(each.output, 'output')}, {call})"
            for each in ordered
        )
        # Assignments see those before them: what the condition reads is assigned last.
        given = _listed(
            f"`{name}` = IF({_ENDS}, VALUES(`{name}`), `{name}`)"
            for name in ("reason", "took", "count", "last", "detail", "output", "open", "outcome")
        )
        moved = self._move_pruned(
            "r.`last`",
            f"{self.row} AS r FORCE INDEX (`open_rows`)"
            f" WHERE r.`app` = {self.app} AND r.`open` = {call} AND r.`last` IS NOT NULL",
        )
        return [
            *BEGIN,
            self.guard,
            (
                f"INSERT INTO {self.row} (`app`, {_ROW}, `open`) VALUES {_listed(new)} ON DUPLICATE KEY"
                " UPDATE"
                f" `keep_until` = IF({_ENDS}, GREATEST(`keep_until`, VALUES(`keep_until`)), `keep_until`),"
                f" {given}"
            ),
            READ_CLOCK if now is None else f"SET @rota_now = {at(now)}",
            self._unwrite(f"r.`since` = {_PROVISIONAL} AND r.`outcome` = 'lost'", call),
            *([moved] if any(each.last is not None for each in ends) else ()),
            (
                f"UPDATE {self.row} FORCE INDEX (`open_rows`) SET"
                f" `since` = IF(`since` = {_PROVISIONAL}, @rota_now, `since`), `ended` = @rota_now, `open`"
                " = NULL"
                f" WHERE `app` = {self.app} AND `open` = {call}"
            ),
            "SELECT @rota_now",
            self._standing([(each.occurrence.task, each.occurrence.due, each.attempt) for each in ordered]),
            self.marks({pruned_mark(each.occurrence.task) for each in ordered}),
            COMMIT,
        ]

    def _unwrite(self, refused: str, call: int) -> str:
        """Takes back new rows that are refused, or that lie at or before the pruned mark."""
        return (
            f"DELETE r FROM {self.row} AS r FORCE INDEX (`open_rows`) LEFT JOIN {self.mark} AS m"
            f" ON m.`app` = {self.app} AND m.`name` = CONCAT({_PRUNED}, r.`task`)"
            f" WHERE r.`app` = {self.app} AND r.`open` = {call}"
            f" AND (({refused}) OR (r.`since` = {_PROVISIONAL} AND COALESCE(m.`at` >= r.`due`, FALSE)))"
        )

    def _standing(self, keys: Sequence[tuple[str, datetime, int]]) -> str:
        listed = _listed(f"({text(task, 'task')}, {at(due)}, {number(n)})" for task, due, n in keys)
        return (
            f"SELECT {_ROW} FROM {self.row} FORCE INDEX (PRIMARY)"
            f" WHERE `app` = {self.app} AND (`task`, `due`, `attempt`) IN ({listed})"
        )

    def rows(self, query: RowQuery) -> list[str]:
        """Answers now and the rows."""
        conditions = [f"`app` = {self.app}"]
        if query.tasks:
            conditions.append(f"`task` IN ({_listed(text(task, 'task') for task in query.tasks)})")
        if query.since is not None:
            conditions.append(f"`due` >= {at(query.since)}")
        if query.outcome is not None:
            conditions.append(f"`outcome` = '{query.outcome.value}'")
        if query.server is not None:
            conditions.append(f"`server` = {text(query.server, 'server')}")
        if query.open_only:
            conditions.append("`open` = 1")
        return [
            *BEGIN_READING,
            self.guard,
            f"SELECT {CLOCK}",
            (
                f"SELECT {_ROW} FROM {self.row} WHERE {' AND '.join(conditions)}"
                f" ORDER BY `due` DESC, `task`, `attempt` DESC LIMIT {max(0, query.limit)}"
            ),
            COMMIT,
        ]

    def prunable(self, before: datetime, most: int | None, limit: int) -> list[str]:
        """Forgets keys that nobody needs; answers the keys of the `limit` oldest rows that may go."""
        too_many = "FALSE" if most is None else f"`place` > {number(most)}"
        allowance, memory = STEP_BACK_ALLOWANCE // _MICROSECOND, FORGOTTEN_AFTER // _MICROSECOND
        return [
            *BEGIN,
            self.guard,
            READ_CLOCK,
            f"DELETE FROM {self.lease} WHERE `app` = {self.app} AND `until` < @rota_now - {memory}",
            COMMIT,
            (
                "SELECT `task`, `due`, `attempt` FROM (SELECT `task`, `due`, `attempt`, `ended`,"
                " `keep_until`,"
                " ROW_NUMBER() OVER (PARTITION BY `task` ORDER BY `due` DESC, `attempt` DESC) AS `place`"
                f" FROM {self.row} WHERE `app` = {self.app} AND `outcome` IS NOT NULL) AS final"
                f" WHERE ({too_many} OR `ended` < {at(before)}) AND `keep_until` < @rota_now - {allowance}"
                f" ORDER BY `due`, `task`, `attempt` LIMIT {limit}"
            ),
            COMMIT,
        ]

    def prune(self, keys: Sequence[tuple[str, int, int]], call: int) -> list[str]:
        """Forgets these rows and moves the marks; answers how many there were. A final row never changes, so
        what could go when it was found can go now; what another server has forgotten is not counted."""
        values = (
            f"({self.app}, {text(task, 'task')}, {due}, {attempt}, '', '', {_PROVISIONAL}, 0, '', 1, '',"
            f" '', {call})"
            for task, due, attempt in sorted(keys)
        )
        mine = f"r.`app` = {self.app} AND r.`open` = {call}"
        standing = f"{self.row} AS r FORCE INDEX (`open_rows`) WHERE {mine} AND r.`since` <> {_PROVISIONAL}"
        return [
            *BEGIN,
            self.guard,
            (
                f"INSERT INTO {self.row} (`app`, `task`, `due`, `attempt`, `token`, `server`, `since`,"
                " `keep_until`,"
                f" `cause`, `count`, `detail`, `output`, `open`) VALUES {_listed(values)}"
                " ON DUPLICATE KEY UPDATE `open` = VALUES(`open`)"
            ),
            READ_CLOCK,
            self._move_pruned("r.`due`", standing),
            f"SELECT COUNT(*) FROM {standing}",
            f"DELETE r FROM {self.row} AS r FORCE INDEX (`open_rows`) WHERE {mine}",
            COMMIT,
        ]

    def _move_pruned(self, to: str, rows: str) -> str:
        return (
            f"INSERT INTO {self.mark} (`app`, `name`, `at`)"
            f" SELECT {self.app}, CONCAT({_PRUNED}, r.`task`), LEAST(MAX({to}), @rota_now) FROM {rows}"
            " GROUP BY r.`task` ORDER BY r.`task` ON DUPLICATE KEY UPDATE `at` = GREATEST(`at`, VALUES(`at`))"
        )

    # leases

    def acquire(self, requests: Sequence[Request]) -> list[str]:
        """Answers now, who holds the keys then, and the clock after that was committed."""
        ordered = sorted(requests, key=lambda each: each.key)
        return [
            *BEGIN,
            self.guard,
            self._lock_keys([each.key for each in ordered]),
            READ_CLOCK,
            *(statement for each in ordered for statement in self._take(each)),
            "SELECT @rota_now",
            self._held([each.key for each in ordered]),
            COMMIT,
            f"SELECT {CLOCK}",
        ]

    def renew(self, leases: Sequence[Lease], ttl: timedelta) -> list[str]:
        """Answers now, and who holds the keys then."""
        return [
            *BEGIN,
            self.guard,
            self._lock_keys(sorted({each.key for each in leases})),
            READ_CLOCK,
            *(
                f"UPDATE {self.lease} FORCE INDEX (PRIMARY) SET `until` = GREATEST(`until`, {_until(ttl)})"
                f" WHERE {self._holding(each)}"
                for each in leases
            ),
            "SELECT @rota_now",
            self._held([each.key for each in leases]),
            COMMIT,
        ]

    def release(self, leases: Sequence[Lease]) -> list[str]:
        """Answers now, and who held the keys before."""
        return [
            *BEGIN,
            self.guard,
            self._lock_keys(sorted({each.key for each in leases})),
            READ_CLOCK,
            "SELECT @rota_now",
            self._held([each.key for each in leases]),
            *(
                f"UPDATE {self.lease} FORCE INDEX (PRIMARY) SET `token` = NULL, `until` = @rota_now"
                f" WHERE {self._holding(each)}"
                for each in leases
            ),
            COMMIT,
        ]

    def _lock_keys(self, keys: Sequence[str]) -> str:
        """The first place of a key, empty where it is new, is the lock on all its places."""
        places = (f"({self.app}, {text(key, 'name')}, 0, NULL, '', 0, 0, 0, 0, '')" for key in keys)
        return (
            f"INSERT INTO {self.lease} (`app`, `name`, `slot`, `token`, `owner`, `since`, `until`,"
            " `fence`, `last_fence`,"
            f" `note`) VALUES {_listed(places)} ON DUPLICATE KEY UPDATE `app` = VALUES(`app`)"
        )

    def _take(self, request: Request) -> Iterator[str]:
        """Who holds the key, and then the place, if there is one for it. No statement reads what it writes:
        that would take a temporary table."""
        name, token = text(request.key, "name"), text(request.token, "token")
        here = f"FROM {self.lease} FORCE INDEX (PRIMARY) WHERE `app` = {self.app} AND `name` = {name}"
        held = "`token` IS NOT NULL AND `until` > @rota_now"
        yield (
            f"SELECT COUNT(IF({held}, 1, NULL)), MAX(`last_fence`),"
            f" MIN(IF({held} AND `token` = {token}, `slot`, NULL)) {here}"
            " INTO @rota_holders, @rota_fence, @rota_mine"
        )
        place, fence = "0", "GREATEST(@rota_fence + 1, @rota_now)"
        if request.slots > 1:
            place, fence = "@rota_place", "0"
            yield (
                f"SELECT MIN(`free`) FROM (SELECT 0 AS `free` UNION ALL SELECT `slot` + 1 {here} AND {held})"
                f" AS next WHERE `free` NOT IN (SELECT `slot` {here} AND {held}) INTO @rota_place"
            )
        window = ["TRUE"]
        if request.not_before is not None:
            window.append(f"@rota_now >= {at(request.not_before)}")
        if request.not_after is not None:
            window.append(f"@rota_now <= {at(request.not_after)}")
        kept = _listed(
            f"`{column}` = IF({_OWN}, `{column}`, VALUES(`{column}`))"
            for column in ("owner", "since", "fence")
        )
        # Assignments see those before them: what tells an own holding, until and token, is assigned last.
        yield (
            f"INSERT INTO {self.lease} (`app`, {_LEASE}, `last_fence`)"
            f" SELECT {self.app}, {name}, {token}, {text(request.owner, 'owner')}, @rota_now,"
            f" {_until(request.ttl)}, {fence}, COALESCE(@rota_mine, {place}),"
            f" {text(request.note, 'note')}, {fence}"
            f" FROM DUAL WHERE {' AND '.join(window)}"
            f" AND (@rota_mine IS NOT NULL OR @rota_holders < {number(request.slots)})"
            f" ON DUPLICATE KEY UPDATE {kept}, `note` = VALUES(`note`),"
            f" `last_fence` = IF({_OWN}, `last_fence`, GREATEST(`last_fence`, VALUES(`last_fence`))),"
            f" `until` = IF({_OWN}, GREATEST(`until`, VALUES(`until`)), VALUES(`until`)), `token` ="
            " VALUES(`token`)"
        )

    def _holding(self, lease: Lease) -> str:
        return (
            f"`app` = {self.app} AND `name` = {text(lease.key, 'name')}"
            f" AND `token` = {text(lease.token, 'token')} AND `until` > @rota_now"
        )

    def _held(self, keys: Iterable[str]) -> str:
        return (
            f"SELECT {_LEASE} FROM {self.lease} WHERE `app` = {self.app}"
            f" AND `name` IN ({_listed(text(key, 'name') for key in keys)})"
            " AND `token` IS NOT NULL AND `until` > @rota_now"
        )

    # marks and looks

    def advance(self, marks: Mapping[str, datetime], *, first: bool) -> list[str]:
        """Answers now and the marks. One that is new stands at no instant until it is locked."""
        names = sorted(marks)
        into = f"INSERT INTO {self.mark} (`app`, `name`, `at`) VALUES"
        unseen = _listed(f"({self.app}, {text(name, 'name')}, {_UNSEEN})" for name in names)
        values = _listed(f"({self.app}, {text(name, 'name')}, {at(marks[name])})" for name in names)
        moves = f"`at` = {_UNSEEN}" if first else "TRUE"
        return [
            *BEGIN,
            self.guard,
            f"{into} {unseen} ON DUPLICATE KEY UPDATE `app` = VALUES(`app`)",
            READ_CLOCK,
            (
                f"{into} {values} ON DUPLICATE KEY UPDATE"
                f" `at` = IF({moves}, GREATEST(`at`, LEAST(VALUES(`at`), @rota_now)), `at`)"
            ),
            "SELECT @rota_now",
            self.marks(names),
            COMMIT,
        ]

    def marks(self, names: Iterable[str]) -> str:
        listed = _listed(text(name, "name") for name in names)
        return f"SELECT `name`, `at` FROM {self.mark} WHERE `app` = {self.app} AND `name` IN ({listed})"

    def look(self, marks: Iterable[str], after: Mapping[str, datetime]) -> list[str]:
        """Answers now, leases, marks, and several lists of rows, of one snapshot that is younger than now."""
        tasks: dict[datetime, list[str]] = {}
        for task, due in after.items():
            tasks.setdefault(due, []).append(text(task, "task"))
        ranges = [
            f"(`task` IN ({_listed(some)}) AND `due` > {at(due)})"
            for due, all_ in tasks.items()
            for some in _chunks(all_, _RANGES)
        ]
        row = f"SELECT {_SHORT_ROW} FROM {self.row}"
        return [
            READ_CLOCK,
            *SNAPSHOT,
            self.guard,
            "SELECT @rota_now",
            (
                f"SELECT {_LEASE} FROM {self.lease}"
                f" WHERE `app` = {self.app} AND `until` > @rota_now AND `token` IS NOT NULL"
            ),
            self.marks(marks) if after else f"SELECT `name`, `at` FROM {self.mark} WHERE FALSE",
            f"{row} FORCE INDEX (`open_rows`) WHERE `app` = {self.app} AND `open` = 1",
            # The time to plan a list of ranges grows with its square, most where there are indexes to choose.
            *(
                f"{row} FORCE INDEX (PRIMARY) WHERE `app` = {self.app} AND ({' OR '.join(some)})"
                for some in _chunks(ranges, _RANGES)
            ),
            COMMIT,
        ]


def _chunks(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
