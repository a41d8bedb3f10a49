"""The commands about tasks: list, next, call, history, pause and resume."""

from __future__ import annotations

import json
import signal
from datetime import datetime, timedelta

import pytest

from rota import Schedule
from rota._core.leases import Request
from rota._core.rows import Cause
from rota._core.task import run_key
from rota._engine.server import Server
from rota.cli.header import store_of
from tests.cli.conftest import App, ago

SHOP = """
@schedule.daily(at="02:00").on_one_server().without_overlapping()
def send_invoices():
    "Send what is to be paid."
    print("sent")

schedule.command("echo out; echo err >&2; exit 4").name("fails").hourly()
schedule.command("true").name("tidy").weekly(on="monday", at="03:30").on_every_server().time_limit(minutes=5)
schedule.command("true").name("elsewhere").daily().environments("staging")
"""


@pytest.fixture
def shop(app: App) -> App:
    app.schedule(SHOP, timezone="Europe/Berlin")
    app.env["LOGNAME"] = "ann"
    app.env.pop("SUDO_USER", None)
    return app


def shown(app: App, *args: str, code: int = 0) -> str:
    done = app.rota(*args)
    assert (done.returncode, done.stderr) == (code, ""), done
    return done.stdout


def error_of(app: App, *args: str, code: int = 2) -> str:
    done = app.rota(*args)
    assert (done.returncode, done.stdout) == (code, ""), done
    assert done.stderr.startswith("rota: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("rota: error: ").rstrip()


def is_instant(text: str) -> bool:
    return text.endswith("Z") and datetime.fromisoformat(text).utcoffset() == timedelta(0)


# -- list


def test_a_list_says_of_each_task_when_how_and_where(shop: App) -> None:
    header, columns, *lines = shown(shop, "list").splitlines()
    assert header == f"shop (production) on web-1, store sqlite:///{shop.store_file}"
    assert columns.split() == ["TASK", "WHEN", "NEXT", "DUE", "POLICIES", "LAST", "STATE", "SOURCE"]
    assert [line.split()[0] for line in lines] == ["send_invoices", "fails", "tidy"]
    assert "at 02:00 every day (Europe/Berlin)" in lines[0]
    assert " 02:00 CE" in lines[0]
    assert "one server, no overlap" in lines[0]
    assert lines[0].endswith("  shop/schedule.py:6")
    assert "every server, limit 5 min" in lines[2]
    starts = [columns.index(name) for name in ("WHEN", "NEXT", "POLICIES", "LAST", "STATE", "SOURCE")]
    assert all(line[start - 1] == " " and line[start] != " " for line in lines for start in starts)


def test_a_list_shows_the_last_run_what_runs_and_what_is_paused(shop: App) -> None:
    shop.rota("call", "fails")
    shop.rota("pause", "fails", "--reason", "broken", "--for", "1h")
    line = shown(shop, "list").splitlines()[3]
    assert "  failed, due " in line
    assert "  paused by ann@web-1 until " in line
    assert ": broken  " in line
    shop.rota("pause")
    assert shown(shop, "list").splitlines()[1] == "everything is paused by ann@web-1 until resumed"


def test_a_list_for_programs(shop: App) -> None:
    shop.rota("call", "fails")
    shop.rota("pause", "fails", "--reason", "broken")
    found = json.loads(shown(shop, "list", "--json"))
    assert {key: found[key] for key in found if key not in ("now", "tasks")} == {
        "schedule": "shop",
        "environment": "production",
        "timezone": "Europe/Berlin",
        "store": f"sqlite:///{shop.store_file}",
        "server": "web-1",
        "paused": None,
        "warnings": [],
    }
    assert is_instant(found["now"])
    invoices, fails, tidy = found["tasks"]
    assert is_instant(invoices.pop("next_due"))
    assert invoices == {
        "name": "send_invoices",
        "description": "Send what is to be paid.",
        "when": "at 02:00 every day (Europe/Berlin)",
        "policies": ["one server", "no overlap"],
        "last": None,
        "running": [],
        "paused": None,
        "source": "shop/schedule.py:6",
    }
    assert fails["paused"].keys() == {"by", "reason", "since", "until"}
    assert (fails["paused"]["by"], fails["paused"]["reason"]) == ("ann@web-1", "broken")
    assert (fails["last"]["outcome"], fails["last"]["detail"]) == ("failed", "exit code 4")
    assert tidy["policies"] == ["every server", "limit 5 min"]


def test_no_password_is_shown(shop: App) -> None:
    remote = Schedule("shop", store="redis://me:secret@redis.example:6379/0")
    assert store_of(Server(remote)) == "redis://me:***@redis.example:6379/0"
    shop.schedule("from rota.stores.memory import MemoryStore\nschedule.store = MemoryStore()")
    assert "MemoryStore" in shown(shop, "list").splitlines()[0]


# -- next


def test_next_shows_what_is_due_in_the_zone_of_the_schedule(shop: App) -> None:
    lines = shown(shop, "next", "send_invoices", "-n", "3").splitlines()
    assert len(lines) == 3
    assert all(" 02:00 CE" in line and line.endswith("T  send_invoices") for line in lines)
    assert [line.split()[-1] for line in shown(shop, "next", "-n", "2").splitlines()].count("fails") >= 1
    assert len(shown(shop, "next").splitlines()) == 5
    assert not shop.store_file.exists()
    assert error_of(shop, "next", "send_invoice").startswith(
        "schedule 'shop' has no task 'send_invoice'; did you mean send_invoices?"
    )
    shop.schedule(f'schedule.command("true").name("a").once(at="{ago(100)}")')
    assert shown(shop, "next") == "nothing is ever due\n"


# -- call


def test_a_call_shows_the_output_and_is_recorded_as_manual(shop: App) -> None:
    done = shop.rota("call", "send_invoices")
    assert (done.returncode, done.stdout) == (0, "sent\n")
    assert done.stderr.startswith("rota: send_invoices: succeeded in ")
    (row,) = shop.rows()
    assert (row.cause, row.outcome, row.output, row.server) == (Cause.MANUAL, "succeeded", "sent\n", "web-1")
    assert "by hand" in shown(shop, "history")


def test_a_failed_call_makes_1(shop: App) -> None:
    done = shop.rota("call", "fails")
    assert (done.returncode, done.stdout) == (1, "out\nerr\n")
    assert "rota: fails: failed in " in done.stderr
    assert done.stderr.endswith(": exit code 4\n")


def test_a_call_is_refused_while_another_run_goes_on_and_says_who_holds_it(shop: App) -> None:
    store = shop.store()
    store.acquire([Request(run_key("send_invoices"), "theirs", "web-2", timedelta(minutes=1))])
    store.close()
    assert error_of(shop, "call", "send_invoices", code=1) == (
        "send_invoices was not started: web-2 still runs it"
    )
    (row,) = shop.rows()
    assert (row.outcome, row.reason) == ("skipped", "overlapping")


def test_a_call_of_what_is_not_there(shop: App) -> None:
    assert "has no task 'tiddy'; did you mean tidy?" in error_of(shop, "call", "tiddy")
    assert error_of(shop, "call", "elsewhere") == (
        "task 'elsewhere' does not exist in production, only in staging (ROTA_ENV)"
    )
    shop.env["ROTA_STORE"] = "sqlite:////nowhere/x"
    assert error_of(shop, "call", "tidy", code=3) == (
        "the store does not answer: /nowhere/x: the folder /nowhere does not exist"
    )


def test_a_signal_stops_a_call(app: App) -> None:
    app.schedule('schedule.command("touch began; exec sleep 60").name("long").daily()')
    process = app.start("call", "long")
    app.wait_for((app.path / "began").exists, "the command begins")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 1
    assert told.splitlines()[0] == "rota: SIGINT: long is told to stop; again to leave it alone"
    assert ": cancelled in " in told
    (row,) = app.rows()
    assert (row.outcome, row.detail) == ("cancelled", "stopped by SIGINT")


def test_the_second_signal_leaves_a_call_alone(app: App) -> None:
    app.schedule(
        """
@schedule.daily()
def stubborn():
    open("began", "w").close()
    time.sleep(60)
"""
    )
    process = app.start("call", "stubborn")
    app.wait_for((app.path / "began").exists, "the function begins")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "told to stop" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 1
    (row,) = app.rows()
    assert row.is_open
    assert "running on web-1 since " in shown(app, "list")
    assert "running" in shown(app, "history")


# -- history


def test_a_history_is_newest_first(shop: App) -> None:
    assert shown(shop, "history") == "nothing has been decided yet\n"
    for name in ("send_invoices", "fails", "tidy"):
        shop.rota("call", name)
    columns, *lines = shown(shop, "history").splitlines()
    assert columns.split() == ["TASK", "DUE", "ATTEMPT", "OUTCOME", "SERVER", "TOOK", "DETAIL"]
    assert [line.split()[0] for line in lines] == ["tidy", "fails", "send_invoices"]
    assert lines[1].endswith("by hand: exit code 4")
    assert len(shown(shop, "history", "-n", "1").splitlines()) == 2
    assert len(shown(shop, "history", "fails").splitlines()) == 2
    assert len(shown(shop, "history", "tidy").splitlines()) == 2


def test_a_history_with_what_was_printed(shop: App) -> None:
    shop.rota("call", "fails")
    head, *output = shown(shop, "history", "--output").splitlines()
    assert head.startswith("fails, due ")
    assert head.endswith(" on web-1: by hand: exit code 4")
    assert output == ["  | out", "  | err"]


def test_a_history_for_programs(shop: App) -> None:
    assert json.loads(shown(shop, "history", "--json")) == []
    shop.rota("call", "fails")
    (row,) = json.loads(shown(shop, "history", "--json"))
    assert all(is_instant(row.pop(name)) for name in ("due", "since", "ended"))
    assert 0 < row.pop("took") < 30
    assert row == {
        "task": "fails",
        "attempt": 1,
        "outcome": "failed",
        "reason": None,
        "cause": "manual",
        "server": "web-1",
        "count": 1,
        "last": None,
        "detail": "exit code 4",
        "output": "out\nerr\n",
    }


def test_the_history_of_a_task_that_left_the_schedule_is_there(shop: App) -> None:
    shop.rota("call", "fails")
    shop.schedule('schedule.command("true").name("other").daily()')
    assert shown(shop, "history", "fails").splitlines()[1].startswith("fails ")
    assert shown(shop, "history", "other") == "nothing has been decided yet\n"
    assert "has no task 'othr'; did you mean other?" in error_of(shop, "history", "othr")


def test_the_history_of_a_renamed_task_goes_on_under_its_new_name(shop: App) -> None:
    shop.rota("call", "fails")
    shop.schedule('schedule.command("true").name("new").formerly("fails").daily()')
    assert shown(shop, "history", "new").splitlines()[1].startswith("new ")


# -- pause and resume


def test_a_pause_holds_until_it_is_ended(app: App) -> None:
    app.schedule(f'schedule.command("true").name("a").once(at=["{ago(5)}", "2999-01-01T00:00"])')
    app.has_seen_it()
    app.env["LOGNAME"] = "ann"
    app.env.pop("SUDO_USER", None)
    assert shown(app, "pause", "a", "--reason", "moving house") == (
        "a is paused by ann@web-1 until resumed: moving house\n"
    )
    assert "skipped(paused)" in shown(app, "run")
    assert shown(app, "resume", "a") == "a goes on; it was paused by ann@web-1 until resumed: moving house\n"
    assert shown(app, "resume", "a") == "a was not paused\n"
    assert "skipped(paused)" in shown(app, "history")
    assert [row.outcome for row in app.rows()] == ["skipped"]


def test_a_pause_of_everything(shop: App) -> None:
    assert shown(shop, "resume") == "everything was not paused as a whole\n"
    assert shown(shop, "pause", "--for", "2h").startswith("everything is paused by ann@web-1 until ")
    found = json.loads(shown(shop, "list", "--json"))
    since, until = (datetime.fromisoformat(found["paused"][key]) for key in ("since", "until"))
    assert until - since == timedelta(hours=2)
    assert all(task["paused"] == found["paused"] for task in found["tasks"])
    assert "note: everything is paused by ann@web-1" in shown(shop, "resume", "fails")
    assert shown(shop, "resume").startswith("everything goes on")


def test_a_pause_that_stands_is_not_replaced(shop: App) -> None:
    shop.rota("pause", "fails", "--reason", "first")
    assert error_of(shop, "pause", "fails", "--for", "1h", code=1) == (
        "fails is paused already by ann@web-1 until resumed; rota resume ends that pause"
    )


def test_a_pause_of_a_task_of_every_server_is_that_of_one(shop: App) -> None:
    assert shown(shop, "pause", "tidy").splitlines()[1] == (
        "note: every server runs tidy for itself; this pause is that of web-1 only"
    )


@pytest.mark.parametrize(
    "text", ["", "2", "h", "2 hours", "-1h", "0s", "1h 2x", "101w9999999999d", "200000w"]
)
def test_a_length_that_makes_no_sense(shop: App, text: str) -> None:
    assert "argument --for: " in error_of(shop, "pause", f"--for={text}")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("5min", 300), ("2H", 7200), ("1d", 86400), ("1h 30m", 5400)],
)
def test_a_length_as_it_is_typed(text: str, seconds: int) -> None:
    from rota.cli.pause import length

    assert length(text) == timedelta(seconds=seconds)


def test_a_pause_of_what_is_not_there(shop: App) -> None:
    for name in ("pause", "resume"):
        assert "has no task 'send_invoice'; did you mean send_invoices?" in error_of(
            shop, name, "send_invoice"
        )
