"""What weakens a MySQL or MariaDB server as a store, asked of the server itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rota.stores.sql.mysql_connection import Rows
from rota.stores.sql.mysql_statements import BEGIN_READING, COMMIT

_ASKED_ABOUT: Final = (
    *("innodb_flush_log_at_trx_commit", "read_only", "super_read_only", "wsrep_on", "wsrep_cluster_size"),
    *("log_bin", "binlog_format", "rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled"),
    *("sql_mode", "rpl_semi_sync_slave_enabled", "wsrep_sync_wait"),
)


def concerns(ask: Callable[[Sequence[str]], list[Rows]], tables: Sequence[str]) -> Iterator[str]:
    """What an operator should know, a sentence each."""
    listed = ", ".join(f"'{name}'" for name in _ASKED_ABOUT)
    named = ", ".join(f"'{name}'" for name in tables)
    variables, engines = ask(
        [
            *BEGIN_READING,
            f"SHOW VARIABLES WHERE `Variable_name` IN ({listed})",
            (
                "SELECT `TABLE_NAME`, `ENGINE` FROM `information_schema`.`TABLES`"
                f" WHERE `TABLE_SCHEMA` = DATABASE() AND `TABLE_NAME` IN ({named})"
            ),
            COMMIT,
        ]
    )
    said = {name: value.upper() for name, value in map(_texts, variables)}
    if said.get("innodb_flush_log_at_trx_commit") != "1":
        yield (
            "innodb_flush_log_at_trx_commit is not 1: a power cut may take the last second of decisions,"
            " and what they started may start again"
        )
    if "ON" in (said.get("read_only"), said.get("super_read_only")):
        yield "the server is read-only, as a replica is: rota must write to the primary"
    if said.get("wsrep_on") == "ON":
        yield (
            "the server is a node of a Galera cluster: all servers of rota must use the same node, for"
            " each node has"
            " a clock of its own and (with wsrep_sync_wait=0) may look at what is out of date"
        )
    elif said.get("log_bin") == "ON" and "ON" not in (
        said.get("rpl_semi_sync_master_enabled"),
        said.get("rpl_semi_sync_source_enabled"),
    ):
        yield (
            "replicas, if there are any, are fed asynchronously: when one takes over, the last decisions"
            " may be lost"
            " and what they started may start again"
        )
    if said.get("log_bin") == "ON" and said.get("binlog_format") == "STATEMENT":
        yield "binlog_format is STATEMENT: the server will refuse to write; it must be ROW or MIXED"
    if "STRICT_TRANS_TABLES" not in said["sql_mode"] and "STRICT_ALL_TABLES" not in said["sql_mode"]:
        yield "the connection that the application lends is not in strict mode (rota checks lengths itself)"
    for name, engine in map(_texts, engines):
        if (engine or "").upper() != "INNODB":
            yield f"the table {name} is kept by {engine}: it must be InnoDB, or nothing is atomic"


def _texts(columns: Sequence[Any]) -> list[str]:
    return [column.decode() if isinstance(column, bytes) else f"{column or ''}" for column in columns]
