"""The tables of the store in MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

SCHEMA_VERSION: Final = 1

SCHEMA: Final = (
    """
    CREATE TABLE IF NOT EXISTS `rota_row` (
        `app` VARBINARY(255) NOT NULL, `task` VARBINARY(1024) NOT NULL,
        `due` BIGINT NOT NULL, `attempt` BIGINT NOT NULL,
        `token` VARBINARY(255) NOT NULL, `server` VARBINARY(1024) NOT NULL,
        `since` BIGINT NOT NULL, `start_by` BIGINT NULL, `keep_until` BIGINT NOT NULL,
        `cause` VARBINARY(32) NOT NULL, `outcome` VARBINARY(32) NULL, `reason` VARBINARY(32) NULL,
        `ended` BIGINT NULL, `took` BIGINT NULL, `count` BIGINT NOT NULL, `last` BIGINT NULL,
        `detail` MEDIUMBLOB NOT NULL, `output` MEDIUMBLOB NOT NULL, `open` BIGINT NULL,
        PRIMARY KEY (`app`, `task`, `due`, `attempt`),
        KEY `open_rows` (`app`, `open`),
        KEY `due_rows` (`app`, `due`)
    ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4
    """,
    """
    CREATE TABLE IF NOT EXISTS `rota_lease` (
        `app` VARBINARY(255) NOT NULL, `name` VARBINARY(2048) NOT NULL, `slot` BIGINT NOT NULL,
        `token` VARBINARY(255) NULL, `owner` VARBINARY(1024) NOT NULL,
        `since` BIGINT NOT NULL, `until` BIGINT NOT NULL,
        `fence` BIGINT NOT NULL, `last_fence` BIGINT NOT NULL,
        `note` MEDIUMBLOB NOT NULL,
        PRIMARY KEY (`app`, `name`, `slot`),
        KEY `lapsing` (`app`, `until`)
    ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4
    """,
    """
    CREATE TABLE IF NOT EXISTS `rota_mark` (
        `app` VARBINARY(255) NOT NULL, `name` VARBINARY(2048) NOT NULL, `at` BIGINT NOT NULL,
        PRIMARY KEY (`app`, `name`)
    ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4
    """,
    """
    CREATE TABLE IF NOT EXISTS `rota_schema` (
        `only` BIGINT NOT NULL, `version` BIGINT NOT NULL, PRIMARY KEY (`only`)
    ) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4
    """,
    (
        f"INSERT INTO `rota_schema` (`only`, `version`) VALUES (1, {SCHEMA_VERSION}) ON DUPLICATE KEY UPDATE"
        " `only` = 1"
    ),
)
"""The tables, each created only where it is missing. `open` is 1 in an open row and NULL in a final one, and
stands for the index on part of a table that MySQL does not have; within a call it marks the rows in hand."""


def schema(prefix: str = "rota_") -> str:
    """The tables as SQL, for those who create them themselves."""
    return "".join(f"{' '.join(statement.split())};\n" for statement in tables(prefix))


def tables(prefix: str) -> Iterator[str]:
    for statement in SCHEMA:
        yield statement.replace("`rota_", f"`{prefix}")
