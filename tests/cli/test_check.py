"""`rota check` and `rota schema`, as processes; the mistake of three servers with a store of their own."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from rota.stores.base import RowQuery
from rota.stores.sql.sqlite import SQLiteStore
from tests.cli.conftest import App

ONE_SERVER = 'schedule.command("true").name("invoices").every(minutes=5).on_one_server()'
ANY_SERVER = 'schedule.command("true").name("invoices").every(minutes=5)'


def server(app: App, name: str, *, own_store: bool) -> dict[str, str]:
    """The environment of one of several hosts: a name, a state folder, and the store it was given."""
    store = app.path / (f"{name}.db" if own_store else "shared.db")
    state = app.path / f"state of {name}"
    return {"ROTA_SERVER": name, "ROTA_STATE_DIR": str(state), "ROTA_STORE": f"sqlite:///{store}"}


def test_three_servers_on_one_store_are_told_from_three_with_a_store_each(app: App) -> None:
    app.schedule(ANY_SERVER)
    names = ["web-1", "web-2", "web-3"]
    for own_store in (True, False):
        hosts = [server(app, name, own_store=own_store) for name in names]
        for host in hosts:
            assert app.rota("run", env=host).returncode == 0
        checks = [app.rota("check", "--expect-servers", "3", env=host) for host in hosts]
        assert [check.returncode for check in checks] == [int(own_store)] * 3
        for name, check in zip(names, checks, strict=True):
            alone = f"error: servers: only 1 of 3 expected servers is on this store: {name}; this looks like"
            assert (alone in check.stdout) is own_store
            assert ("3 are on this store: web-1, web-2, web-3" in check.stdout) is not own_store


def test_one_server_promised_on_a_store_of_this_host_is_an_error(app: App) -> None:
    app.schedule(ONE_SERVER)
    check = app.rota("check")
    assert check.returncode == 1
    assert "error: store: on_one_server() of invoices is promised on this host only" in check.stdout


def test_a_check_is_data_for_programs(app: App) -> None:
    app.schedule(ANY_SERVER)
    host = server(app, "web-1", own_store=True)
    assert app.rota("run", env=host).returncode == 0
    check = app.rota("check", "--json", env=host)
    data = json.loads(check.stdout)
    (seen,) = data["servers"]
    assert (seen["name"], seen["this"], seen["tasks"]) == ("web-1", True, 1)
    assert seen["ticked"].endswith("Z")
    assert data["namespace"] == "shop/production"
    assert data["guarantees"]["shared"] == "host"
    assert {finding["level"] for finding in data["findings"]} == {"fine"}


def test_before_the_first_tick_a_check_asks_for_the_line_of_cron(app: App) -> None:
    app.schedule(ANY_SERVER)
    check = app.rota("check")
    assert check.returncode == 0
    assert "warning: cron: rota run has not ticked on this host" in check.stdout


def test_a_store_that_does_not_answer_is_told_as_such(app: App) -> None:
    app.schedule(ANY_SERVER)
    check = app.rota("check", env={"ROTA_STORE": f"sqlite:///{app.path}/nowhere/rota.db"})
    assert check.returncode == 3
    assert "the store does not answer" in check.stderr


def test_locks_do_not_show_servers(app: App) -> None:
    app.schedule(ANY_SERVER)
    app.rota("run")
    assert app.rota("locks").stdout == "no lease is in force\n"


def test_tables_made_by_hand_from_the_schema_are_used(app: App, tmp_path: Path) -> None:
    schema = app.rota("schema", "sqlite")
    assert schema.returncode == 0
    made = sqlite3.connect(tmp_path / "rota.db")
    made.executescript(schema.stdout)
    made.close()
    store = SQLiteStore(tmp_path / "rota.db", create=False)
    assert store.rows(RowQuery()).items == []
    assert store.claim([]).items == []
    store.close()


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "sqlite", "dynamodb"])
def test_every_store_with_tables_prints_them(app: App, kind: str) -> None:
    schema = app.rota("schema", kind)
    assert schema.returncode == 0
    assert schema.stdout.endswith("\n")
    wanted = '"TableName"' if kind == "dynamodb" else "CREATE TABLE"
    assert wanted in schema.stdout


@pytest.mark.parametrize("kind", ["redis", ""])
def test_a_store_without_tables_has_no_schema(app: App, kind: str) -> None:
    schema = app.rota("schema", kind)
    assert schema.returncode == 2
    assert "postgresql" in schema.stderr
