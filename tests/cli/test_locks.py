"""`rota locks` and `rota unlock`: who holds what, and releasing exactly what was seen."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

from rota._core.leases import Request
from rota.stores import Store
from tests.cli.conftest import App


@pytest.fixture
def store(app: App) -> Iterator[Store]:
    app.schedule('schedule.command("true").name("a").daily()')
    opened = app.store()
    yield opened
    opened.close()


def hold(store: Store, key: str, token: str = "theirs", slots: int = 1) -> None:
    request = Request(key, token, "web-2", timedelta(minutes=2), slots=slots, note="a@2026-12-01T01:00:00Z")
    store.acquire([request])


def keys(app: App) -> list[str]:
    return [lease["key"] for lease in json.loads(app.rota("locks", "--json").stdout)]


def test_no_lease_is_said(app: App, store: Store) -> None:
    assert app.rota("locks").stdout == "no lease is in force\n"
    assert keys(app) == []


def test_leases_are_shown_with_their_owners_and_without_pauses(app: App, store: Store) -> None:
    hold(store, "run:b")
    hold(store, "run:a")
    app.rota("pause")
    columns, first, second = app.rota("locks").stdout.splitlines()
    assert columns.split() == ["KEY", "OWNER", "SINCE", "UNTIL", "NOTE"]
    assert first.split()[:2] == ["run:a", "web-2"]
    assert first.endswith("a@2026-12-01T01:00:00Z")
    assert second.split()[0] == "run:b"
    (found, _) = json.loads(app.rota("locks", "--json").stdout)
    assert found.keys() == {"key", "owner", "since", "until", "note"}
    assert found["owner"] == "web-2"


def test_unlocking_shows_the_holder_and_releases_it(app: App, store: Store) -> None:
    hold(store, "run:a")
    done = app.rota("unlock", "run:a", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    held, released = done.stdout.splitlines()
    assert held.startswith("run:a: held by web-2 for a@2026-12-01T01:00:00Z, since ")
    assert released == "run:a: released (web-2)"
    assert keys(app) == []


def test_every_place_of_a_key_is_released(app: App, store: Store) -> None:
    hold(store, "run:a", "one", slots=2)
    hold(store, "run:a", "two", slots=2)
    assert app.rota("unlock", "run:a", "--yes").stdout.count("released (web-2)") == 2
    assert keys(app) == []


def test_nobody_to_ask_releases_nothing(app: App, store: Store) -> None:
    hold(store, "run:a")
    done = app.rota("unlock", "run:a", given="y\n")
    assert done.returncode == 2
    assert done.stderr == "rota: error: there is nobody to ask; --yes releases it without asking\n"
    assert keys(app) == ["run:a"]


@pytest.mark.parametrize(
    ("answer", "told", "left"),
    [
        ("y", "run:a: released (web-2)", []),
        ("n", "nothing was changed", ["run:a"]),
        ("", "nothing was changed", ["run:a"]),
    ],
)
def test_who_sits_at_a_terminal_is_asked(
    app: App, store: Store, answer: str, told: str, left: list[str]
) -> None:
    hold(store, "run:a")
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "-m", "rota", "unlock", "run:a"],
        cwd=app.path,
        env=app.env,
        stdin=theirs,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(theirs)
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, "")
    assert "[y/N] " in done.stdout
    assert done.stdout.rstrip().endswith(told)
    assert keys(app) == left


def test_a_key_that_nobody_holds(app: App, store: Store) -> None:
    hold(store, "run:invoices")
    done = app.rota("unlock", "run:invoice", "--yes")
    assert done.returncode == 2
    assert done.stderr == (
        "rota: error: nobody holds 'run:invoice'; did you mean run:invoices?; rota locks shows all keys\n"
    )
    app.rota("pause")
    done = app.rota("unlock", "pause:*", "--yes")
    assert (done.returncode, done.stderr) == (2, "rota: error: pause:* is a pause; rota resume ends it\n")


def test_what_has_passed_to_another_is_left_alone(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lease passes on while the person thinks about the question."""
    from rota.cli import main, unlock

    hold(store, "run:a")

    def think() -> bool:
        (lease,) = store.look(question()).leases
        store.release([lease])
        hold(store, "run:a", "successor")
        return True

    monkeypatch.setattr(unlock, "_agreed", think)
    monkeypatch.chdir(app.path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, value in app.env.items():
        monkeypatch.setenv(name, value)
    assert main(["unlock", "run:a"]) == 0
    sys.modules.pop("schedule")
    assert "run:a: not released: it had ended or passed on already (web-2)" in capsys.readouterr().out
    assert keys(app) == ["run:a"]


def question() -> object:
    from datetime import UTC, datetime

    from rota._core.rows import Look

    return Look({}, datetime.now(UTC))
