"""The statements of the PostgreSQL store, each to be read from the top down and copied into psql.

`rota.now` is the instant of the call, a setting of the transaction: all its statements decide by it. $1 is
the application. Lists come as arrays, one for each column, and are written in the order of their key, so two
calls never wait for each other in a circle. OFFSET 0 keeps the planner from reading a whole table where it is
to look up each key: it knows nothing yet of tables that are new, and all that is due is due at one instant.
"""

from __future__ import annotations

from typing import Final

from rota.stores.base import LEASE_COLUMNS, RECORD_VERSION, ROW_COLUMNS

SCHEMA_VERSION: Final = RECORD_VERSION

SCHEMA: Final = (
    """
    CREATE TABLE IF NOT EXISTS rota_row (
        app text COLLATE "C" NOT NULL, task text COLLATE "C" NOT NULL,
        due bigint NOT NULL, attempt bigint NOT NULL,
        token text NOT NULL, server text NOT NULL,
        since bigint NOT NULL, start_by bigint, keep_until bigint NOT NULL,
        cause text NOT NULL, outcome text, reason text, ended bigint, took bigint,
        count bigint NOT NULL, last bigint, detail text NOT NULL, output text NOT NULL,
        PRIMARY KEY (app, task, due, attempt)
    )
    """,
    "CREATE INDEX IF NOT EXISTS rota_row_open ON rota_row (app) WHERE outcome IS NULL",
    "CREATE INDEX IF NOT EXISTS rota_row_due ON rota_row (app, due, task, attempt)",
    """
    CREATE TABLE IF NOT EXISTS rota_lease (
        app text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, slot bigint NOT NULL,
        token text, owner text NOT NULL, since bigint NOT NULL, until bigint NOT NULL,
        fence bigint NOT NULL, last_fence bigint NOT NULL, note text NOT NULL,
        PRIMARY KEY (app, name, slot)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS rota_mark (
        app text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, at bigint NOT NULL,
        PRIMARY KEY (app, name)
    )
    """,
    "CREATE TABLE IF NOT EXISTS rota_schema (version bigint NOT NULL)",
    f"""
    INSERT INTO rota_schema (version)
    SELECT {SCHEMA_VERSION} WHERE NOT EXISTS (SELECT FROM rota_schema)
    """,
)

_ROW: Final = ", ".join(f"r.{column}" for column in ROW_COLUMNS)
_SHORT_ROW: Final = ", ".join(f"r.{column}" for column in ROW_COLUMNS[:-1])
_LEASE: Final = ", ".join(f"l.{column}" for column in LEASE_COLUMNS)
_NOW: Final = "current_setting('rota.now')::bigint"
_STANDS: Final = """LATERAL (
        SELECT * FROM rota_row AS k
        WHERE k.app = $1 AND k.task = a.task AND k.due = a.due AND k.attempt = a.attempt OFFSET 0
    )"""
_PRUNED: Final = """LATERAL (
        SELECT k.at FROM rota_mark AS k WHERE k.app = $1 AND k.name = 'pruned:' || a.task OFFSET 0
    )"""

LOCK: Final = "SELECT pg_advisory_xact_lock($1::int, k) FROM unnest($2::int[]) AS k"
"""Wait for whoever is busy with the same leases. What is asked next sees all that they have written."""

CREATING: Final = "SELECT pg_advisory_xact_lock($1::int, 0)"

CLOCK: Final = f"""
    SELECT version, set_config('rota.now', CASE WHEN version BETWEEN {SCHEMA_VERSION - 1} AND {SCHEMA_VERSION}
        THEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint::text END, true)
    FROM rota_schema LIMIT 1"""
"""The instant of the call. Where the tables are of a version that is not ours there is none, and so whatever
follows fails."""

CLOCK_BEFORE_THE_SNAPSHOT: Final = """
    SELECT version, (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint
    FROM rota_schema LIMIT 1"""
"""The transaction begins before its first statement takes the snapshot, so no lease is judged by a later
instant than the one it was read at."""

MARKS: Final = "SELECT name, at FROM rota_mark WHERE app = $1 AND name = ANY ($2::text[])"

ROWS_AFTER: Final = f"""
    SELECT {_SHORT_ROW} FROM unnest($2::text[], $3::text[]) AS a (task, mark)
    LEFT JOIN rota_mark AS m ON m.app = $1 AND m.name = a.mark
    LEFT JOIN rota_mark AS p ON p.app = $1 AND p.name = 'pruned:' || a.task
    CROSS JOIN LATERAL (
        SELECT * FROM rota_row AS k
        WHERE k.app = $1 AND k.task = a.task AND k.due > GREATEST(COALESCE(m.at, $4::bigint), p.at) OFFSET 0
    ) AS r"""

ROWS_OPEN: Final = f"SELECT {_SHORT_ROW} FROM rota_row AS r WHERE r.app = $1 AND r.outcome IS NULL"

LEASES: Final = f"""
    SELECT {_LEASE} FROM rota_lease AS l
    WHERE l.app = $1 AND l.token IS NOT NULL
        AND l.until > (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint"""

CLAIM: Final = f"""
    WITH won AS (
        INSERT INTO rota_row (app, task, due, attempt, token, server, since, start_by, keep_until, cause,
            count, detail, output)
        SELECT $1, a.task, a.due, a.attempt, a.token, a.server, {_NOW}, {_NOW} + a.start_within, a.keep_until,
            a.cause, 1, '', ''
        FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[],
                $8::bigint[], $9::bigint[], $10::bigint[], $11::text[])
            AS a (task, due, attempt, token, server, not_before, not_after, start_within, keep_until, cause)
        LEFT JOIN {_STANDS} AS s ON true LEFT JOIN {_PRUNED} AS p ON true
        WHERE s.app IS NULL AND {_NOW} BETWEEN a.not_before AND a.not_after AND (p.at IS NULL OR a.due > p.at)
        ORDER BY a.task COLLATE "C", a.due, a.attempt
        ON CONFLICT DO NOTHING
        RETURNING attempt
    )
    SELECT set_config('rota.won', (SELECT count(*) FROM won)::text, true)"""
"""A row that this statement sees is left out before the conflict is looked for: were it pruned meanwhile, the
key would be free and the mark that says so not yet seen."""

STANDING: Final = f"""
    SELECT {_ROW} FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS a (task, due, attempt)
    JOIN {_STANDS} AS r ON true"""

STANDING_UNLESS_ALL_WERE_WON: Final = f"{STANDING} WHERE current_setting('rota.won')::bigint < $5::bigint"

SETTLE: Final = f"""
    INSERT INTO rota_row AS r (app, task, due, attempt, token, server, since, keep_until, cause, outcome,
        reason, ended, took, count, last, detail, output)
    SELECT $1, a.task, a.due, a.attempt, a.token, a.server, {_NOW}, a.keep_until, 'schedule', a.outcome,
        a.reason, {_NOW}, a.took, a.count, a.last, a.detail, a.output
    FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[],
            $9::text[], $10::bool[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[], $15::text[])
        AS a (task, due, attempt, token, server, keep_until, outcome, reason, needs_no_row, took, count, last,
            detail, output)
    LEFT JOIN {_STANDS} AS s ON true LEFT JOIN {_PRUNED} AS p ON true
    WHERE CASE WHEN s.app IS NULL THEN a.outcome <> 'lost' AND (p.at IS NULL OR a.due > p.at)
        ELSE s.outcome IS NULL AND s.token = a.token AND NOT a.needs_no_row END
    ORDER BY a.task COLLATE "C", a.due, a.attempt
    ON CONFLICT (app, task, due, attempt) DO UPDATE SET
        outcome = excluded.outcome, reason = excluded.reason, ended = excluded.ended, took = excluded.took,
        count = excluded.count, last = excluded.last, detail = excluded.detail, output = excluded.output,
        keep_until = GREATEST(r.keep_until, excluded.keep_until)
    WHERE r.outcome IS NULL AND r.token = excluded.token
        AND COALESCE(excluded.reason, '') <> ALL ($16::text[])"""
"""The conditions of DO UPDATE are judged on the newest version of the row, after whoever held it is done."""

SETTLED_UP_TO: Final = f"""
    INSERT INTO rota_mark AS m (app, name, at)
    SELECT $1, 'pruned:' || r.task, LEAST(max(a.last), {_NOW})
    FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[])
        AS a (task, due, attempt, token, last)
    JOIN {_STANDS} AS r ON r.token = a.token AND r.last = a.last AND r.ended = {_NOW}
    GROUP BY r.task ORDER BY r.task
    ON CONFLICT (app, name) DO UPDATE SET at = excluded.at WHERE m.at < excluded.at"""

ACQUIRE: Final = f"""
    INSERT INTO rota_lease AS l (app, name, slot, token, owner, since, until, fence, last_fence, note)
    SELECT $1, a.key, g.slot, a.token, g.owner, g.since, g.until, g.fence, g.fence, a.note
    FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::text[])
        AS a (key, token, owner, ttl, not_before, not_after, slots, note)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE h.until > {_NOW} AND h.token IS NOT NULL) AS holders,
            max(h.last_fence) AS last_fence
        FROM rota_lease AS h WHERE h.app = $1 AND h.name = a.key
    ) AS k
    CROSS JOIN LATERAL (
        (
            SELECT h.slot, h.owner, h.since, GREATEST(h.until, LEAST({_NOW} + a.ttl, $10)) AS until, h.fence
            FROM rota_lease AS h
            WHERE h.app = $1 AND h.name = a.key AND h.token = a.token AND h.until > {_NOW}
        ) UNION ALL (
            SELECT s.slot, a.owner, {_NOW}, LEAST({_NOW} + a.ttl, $10),
                CASE WHEN a.slots = 1 THEN GREATEST(k.last_fence + 1, {_NOW}) ELSE 0 END
            FROM generate_series(0, LEAST(k.holders, a.slots - 1)) AS s (slot)
            WHERE k.holders < a.slots AND NOT EXISTS (
                SELECT FROM rota_lease AS h WHERE h.app = $1 AND h.name = a.key AND h.until > {_NOW}
                    AND h.token IS NOT NULL AND (h.slot = s.slot OR h.token = a.token)
            ) ORDER BY s.slot LIMIT 1
        )
    ) AS g
    WHERE {_NOW} BETWEEN COALESCE(a.not_before, {_NOW}) AND COALESCE(a.not_after, {_NOW})
    ORDER BY a.key COLLATE "C"
    ON CONFLICT (app, name, slot) DO UPDATE SET
        token = excluded.token, owner = excluded.owner, since = excluded.since, until = excluded.until,
        fence = excluded.fence, last_fence = GREATEST(l.last_fence, excluded.last_fence),
        note = excluded.note"""

RENEW: Final = f"""
    UPDATE rota_lease AS l SET until = GREATEST(l.until, LEAST({_NOW} + $4::bigint, $5))
    FROM unnest($2::text[], $3::text[]) AS a (key, token)
    WHERE l.app = $1 AND l.name = a.key AND l.token = a.token AND l.until > {_NOW}"""

HOLDERS: Final = f"""
    SELECT {_LEASE} FROM rota_lease AS l
    WHERE l.app = $1 AND l.name = ANY ($2::text[]) AND l.token IS NOT NULL AND l.until > {_NOW}"""

RELEASE: Final = f"""
    UPDATE rota_lease AS l SET token = NULL, until = {_NOW}
    FROM unnest($2::text[], $3::text[]) AS a (key, token)
    WHERE l.app = $1 AND l.name = a.key AND l.token = a.token AND l.until > {_NOW}
    RETURNING a.key, a.token"""

ADVANCE: Final = f"""
    INSERT INTO rota_mark AS m (app, name, at)
    SELECT $1, a.name, LEAST(a.at, {_NOW})
    FROM unnest($2::text[], $3::bigint[]) AS a (name, at)
    ORDER BY a.name COLLATE "C"
    ON CONFLICT (app, name) DO UPDATE SET at = excluded.at WHERE m.at < excluded.at AND NOT $4::bool"""

HISTORY: Final = f"""
    SELECT {_ROW} FROM rota_row AS r
    WHERE r.app = $1 AND ($2::text[] IS NULL OR r.task = ANY ($2)) AND ($3::bigint IS NULL OR r.due >= $3)
        AND ($4::text IS NULL OR r.outcome = $4) AND ($5::text IS NULL OR r.server = $5)
        AND (NOT $6::bool OR r.outcome IS NULL)
    ORDER BY r.due DESC, r.task, r.attempt DESC LIMIT $7::bigint"""

_PRUNE: Final = f"""
    WITH gone AS (
        DELETE FROM rota_row AS r
        USING (
            SELECT d.task, d.due, d.attempt FROM rota_row AS d
            WHERE d.app = $1 AND d.outcome IS NOT NULL AND d.keep_until < {_NOW} - $3::bigint AND (%s)
            ORDER BY d.due, d.task, d.attempt LIMIT $4::bigint
            FOR UPDATE SKIP LOCKED
        ) AS d
        WHERE r.app = $1 AND r.task = d.task AND r.due = d.due AND r.attempt = d.attempt
        RETURNING r.task, r.due
    ), moved AS (
        INSERT INTO rota_mark AS m (app, name, at)
        SELECT $1, 'pruned:' || task, LEAST(max(due), {_NOW}) FROM gone GROUP BY task ORDER BY task
        ON CONFLICT (app, name) DO UPDATE SET at = excluded.at WHERE m.at < excluded.at
    )
    SELECT count(*) FROM gone"""

PRUNE: Final = _PRUNE % "d.ended < $2::bigint"

PRUNE_TO_MOST: Final = (
    _PRUNE
    % """d.ended < $2::bigint OR (d.task, d.due, d.attempt) IN (
                SELECT f.task, f.due, f.attempt FROM (
                    SELECT n.task, n.due, n.attempt, row_number() OVER (
                        PARTITION BY n.task ORDER BY n.due DESC, n.attempt DESC) AS place
                    FROM rota_row AS n WHERE n.app = $1 AND n.outcome IS NOT NULL
                ) AS f WHERE f.place > $5::bigint)"""
)

FORGET: Final = f"""
    DELETE FROM rota_lease AS l
    USING (
        SELECT name, slot FROM rota_lease WHERE app = $1 AND until < {_NOW} - $2::bigint
        ORDER BY name, slot FOR UPDATE SKIP LOCKED
    ) AS d
    WHERE l.app = $1 AND l.name = d.name AND l.slot = d.slot"""

STATE: Final = """
    SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('fsync') = 'on',
        current_setting('synchronous_commit'), current_setting('synchronous_standby_names') <> '',
        (SELECT count(*) FROM pg_stat_replication)"""
