"""A MariaDB server of the tests' own, which stands for MySQL as well."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pymysql

from tests.servers import Process, free_port, need, new_folder, shared

ANSWERS_WITHIN = 2


class MariaDB(Process):
    """mariadbd with a database `rota` and the user root without a password; `options` come last.

    Nothing is synced to the disk: it is as durable as the machine is, and quick.
    """

    def __init__(self, *options: str) -> None:
        install, server = need("mariadb-install-db", "mariadb-server"), need("mariadbd", "mariadb-server")
        folder = new_folder("mariadb")
        data, user = folder / "data", ["--user=mysql"] if os.getuid() == 0 else []
        made = subprocess.run(
            [
                install,
                "--no-defaults",
                *user,
                f"--datadir={data}",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
            ],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise RuntimeError(f"mariadb-install-db: {made.stdout[-2000:]}{made.stderr[-2000:]}")
        port = free_port()
        self.socket = data / "s.sock"
        command = [server, "--no-defaults", *user, f"--datadir={data}", "--bind-address=127.0.0.1"]
        command += [f"--port={port}", f"--socket={self.socket}", f"--pid-file={data / 'm.pid'}"]
        command += ["--skip-log-bin", "--innodb-buffer-pool-size=64M", *options]
        super().__init__(command, port=port, folder=folder, answers=_answers)
        self.run("CREATE DATABASE IF NOT EXISTS rota")

    @property
    def url(self) -> str:
        return self.url_of()

    def url_of(self, user: str = "root", *, port: int | None = None, database: str = "rota") -> str:
        return f"mysql://{user}@127.0.0.1:{port or self.port}/{database}"

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """A connection of the test's own, which closes it."""
        given = {"host": "127.0.0.1", "port": self.port, "user": "root", "autocommit": True, **options}
        return pymysql.connect(**given)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """What the last of the statements answers."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()


def _answers(server: Process) -> bool:
    try:
        pymysql.connect(
            host="127.0.0.1", port=server.port, user="root", connect_timeout=ANSWERS_WITHIN, read_timeout=5
        ).close()
    except pymysql.Error:
        return False
    return True


mariadb_server = shared(MariaDB)
