"""PostgreSQL servers of the tests' own: alone, as a streaming standby, and behind PgBouncer."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq

from tests.servers import Process, free_port, need, new_folder, shared, until

VERSIONS = ("17", "16", "15", "14", "13")
PLACES = tuple(f"/usr/lib/postgresql/{version}/bin" for version in VERSIONS)
READY_WITHIN = 30.0
STOPS_WITHIN = 10.0


class PostgreSQL(Process):
    """A server that trusts everybody; `settings` are those of postgresql.conf. `fill` makes its files."""

    def __init__(self, *settings: str, fill: Callable[[Path], None] | None = None) -> None:
        folder, port = new_folder("postgresql"), free_port()
        self.data = folder / "data"
        self.data.mkdir(mode=0o700)
        if os.getuid() == 0:
            shutil.chown(self.data, "postgres", "postgres")
        (fill or _initdb)(self.data)
        said = (f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off")
        command = [*_as_postgres(), _program("postgres"), "-D", str(self.data)]
        for setting in (*said, *settings):
            command += ["-c", setting]
        super().__init__(command, port=port, folder=folder, answers=_is_ready)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def connect(self, **how: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, **how)

    def do(self, *statements: str) -> None:
        """As the superuser, each statement on its own."""
        with self.connect() as sql:
            for statement in statements:
                sql.execute(statement.encode())

    def ask(self, statement: str, *values: object) -> Any:
        """The first value of the first row, as the superuser."""
        with self.connect() as sql:
            row = sql.execute(statement.encode(), values or None).fetchone()
            assert row is not None
            return row[0]

    def stop(self) -> None:
        """End it with its connections: a plain SIGTERM would wait for them to go."""
        if self.runs:
            os.kill(self.pid, signal.SIGINT)
            until(lambda: not self.runs, STOPS_WITHIN, "PostgreSQL to stop")

    def demand_passwords(self, user: str) -> None:
        """From now on this user has to name a password."""
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        os.kill(self.pid, signal.SIGHUP)
        until(lambda: self._rules(user), READY_WITHIN, "the new rules")

    def _rules(self, user: str) -> bool:
        try:
            psycopg.connect(f"postgresql://{user}@127.0.0.1:{self.port}/postgres").close()
        except psycopg.OperationalError as error:
            return "password" in str(error)
        return False


class Standby(PostgreSQL):
    """A copy of the primary that follows it, and may be read only until it is promoted."""

    def __init__(self, primary: PostgreSQL, *settings: str) -> None:
        def copy(data: Path) -> None:
            command = [*_as_postgres(), _program("pg_basebackup"), "-D", str(data), "-R", "--no-sync"]
            command += ["-c", "fast", "-h", "127.0.0.1", "-p", f"{primary.port}", "-U", "postgres"]
            subprocess.run(command, check=True, capture_output=True, cwd="/")

        super().__init__(*settings, fill=copy)

    def promote(self) -> None:
        self.do("SELECT pg_promote(true, 30)")


class PgBouncer(Process):
    """PgBouncer in transaction mode in front of the server on `target`; `settings` are lines of its file."""

    def __init__(self, target: int, *settings: str) -> None:
        folder, port = new_folder("pgbouncer"), free_port()
        file = folder / "pgbouncer.ini"
        users = folder / "users.txt"
        users.write_text('"postgres" ""\n')
        said = ["[databases]", f"* = host=127.0.0.1 port={target}", "[pgbouncer]", "pool_mode = transaction"]
        said += ("listen_addr = 127.0.0.1", f"listen_port = {port}", "unix_socket_dir =", "auth_type = trust")
        said += (f"auth_file = {users}", "max_client_conn = 500", "default_pool_size = 20")
        file.write_text("\n".join((*said, *settings, "")))
        command = [*_as_postgres(), need("pgbouncer", "pgbouncer"), str(file)]
        super().__init__(command, port=port, folder=folder)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"


def _program(name: str) -> str:
    return need(name, "postgresql", *PLACES)


def _as_postgres() -> list[str]:
    """PostgreSQL and PgBouncer refuse to run as root."""
    if os.getuid() != 0:
        return []
    user = pwd.getpwnam("postgres")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _initdb(data: Path) -> None:
    command = [*_as_postgres(), _program("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"]
    command += ["--no-sync", "-E", "UTF8", "--locale=C.UTF-8"]
    subprocess.run(command, check=True, capture_output=True, cwd="/")


def _is_ready(server: Process) -> bool:
    return pq.PGconn.ping(f"host=127.0.0.1 port={server.port}".encode()) == pq.Ping.OK


def start() -> PostgreSQL:
    return PostgreSQL("max_connections=200")


def start_bouncer() -> PgBouncer:
    return PgBouncer(postgresql_server().port)


postgresql_server = shared(start)
pgbouncer_server = shared(start_bouncer)
