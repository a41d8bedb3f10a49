"""`rota run`: what it starts, what it says, its exit codes, and what signals and rivals do to it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from rota._core.leases import Request
from rota._core.rows import Claim, Occurrence, Refusal, Row
from rota._core.task import run_key
from tests.cli.conftest import App, ago


def lines_of(app: App, *args: str, code: int = 0, **env: str) -> list[str]:
    done = app.rota("run", *args, env=env)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout.splitlines()


# -- nothing to do


def test_the_first_sight_of_a_schedule_says_when_its_tasks_begin(app: App) -> None:
    tasks = [
        f'schedule.command("true").name("task-{number}").yearly(on="01-{number:02}")'
        for number in range(1, 13)
    ]
    app.schedule("\n".join(tasks), timezone="Europe/Berlin")
    shown = lines_of(app)
    assert shown[0] == "first sight: 12 tasks start with the next due time"
    assert shown[1].startswith("  task-1: ")
    assert shown[1].endswith("-01-01 00:00 CET")
    assert shown[11:] == ["  and 2 more"]
    assert len(lines_of(app)) == 1


def test_nothing_due_is_one_calm_line_or_none(app: App) -> None:
    app.schedule('schedule.command("true").name("a").yearly(on="01-02")')
    lines_of(app)
    (line,) = lines_of(app)
    assert line.startswith("nothing due; next: a at ")
    assert lines_of(app, "--quiet") == []
    app.schedule(f'schedule.command("true").name("a").once(at="{ago(1000)}")')
    lines_of(app)
    assert lines_of(app) == ["nothing due; nothing ever will be"]


def test_if_nothing_is_due_the_store_is_not_opened(app: App) -> None:
    app.schedule('schedule.command("true").name("a").yearly(on="01-02")')
    lines_of(app)
    app.store_file.unlink()
    lines_of(app)
    assert not app.store_file.exists()


def test_a_note_of_one_application_says_nothing_of_another_in_the_same_process(app: App) -> None:
    for name in ("a", "b"):
        line = f'schedule.command("true").name("{name}").yearly(on="01-02")'
        app.write(f'from rota import Schedule\nschedule = Schedule("{name}")\n{line}\n', f"{name}.py")
    calls = "; ".join(f"main(['run', '--app', '{name}'])" for name in ("a", "a", "b"))
    done = subprocess.run(
        [sys.executable, "-c", f"from rota.cli import main; {calls}"],
        cwd=app.path,
        env=app.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line[0] != " "] == [
        "first sight",
        "nothing due; next",
        "first sight",
    ]


UNUSED = [
    "asyncio",
    "subprocess",
    "sqlite3",
    "rich",
    "tomllib",
    "rota.cli.messages",
    "rota.cli.list",
]


def test_if_nothing_is_due_nothing_is_imported_that_is_not_used(app: App) -> None:
    app.schedule('schedule.command("true").name("a").yearly(on="01-02")')
    lines_of(app)
    script = (
        "import sys; from rota.cli import main; code = main(['run']); print(*sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=app.path, env=app.env, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.splitlines()[-1].split()
    assert "rota.cli.run" in loaded
    assert [name for name in UNUSED if name in loaded] == []


# -- what is due


def test_what_is_due_is_started_and_its_end_is_told(app: App) -> None:
    app.schedule(f'@schedule.once(at="{ago(5)}")\ndef hello():\n    print("hello")')
    app.has_seen_it()
    started, ended = lines_of(app)
    assert started.startswith("hello, due ")
    assert "UTC: started, " in started
    assert started.endswith(" s late")
    assert ": succeeded in " in ended
    (row,) = app.rows()
    assert (row.outcome, row.output, row.server) == ("succeeded", "hello\n", "web-1")
    assert lines_of(app) == ["nothing due; nothing ever will be"]


def test_a_failed_task_makes_1_and_shows_the_end_of_its_output(app: App) -> None:
    app.schedule(f'schedule.command("seq 30; exit 3").name("fails").once(at="{ago(5)}")')
    app.has_seen_it()
    shown = lines_of(app, code=1)
    assert ": failed in " in shown[1]
    assert shown[1].endswith(": exit code 3")
    assert shown[2:] == ["  | ... 20 lines before", *(f"  | {number}" for number in range(21, 31))]


def test_exit_zero_makes_a_failed_task_0_and_nothing_else(app: App) -> None:
    app.schedule(f'schedule.command("false").name("fails").once(at="{ago(5)}")')
    app.has_seen_it()
    assert ": failed in " in lines_of(app, "--exit-zero", code=0)[1]
    assert app.rota("run", "--exit-zero", env={"ROTA_STORE": "sqlite:////nowhere/x"}).returncode == 3
    app.write("1 / 0")
    assert app.rota("run", "--exit-zero").returncode == 2


def test_a_store_that_does_not_answer_makes_3_and_one_line(app: App) -> None:
    app.schedule('schedule.command("true").name("a").yearly()')
    for name in ("run", "list", "history", "locks", "pause", "resume"):
        done = app.rota(name, env={"ROTA_STORE": "sqlite:////nowhere/x.db"})
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == (
            "rota: error: the store does not answer: /nowhere/x.db: the folder /nowhere does not exist\n"
        )


def test_why_something_was_not_started_is_told(app: App) -> None:
    app.schedule(
        f"""
def never():
    return False
def broken():
    raise RuntimeError("no idea")
schedule.command("true").name("filtered").once(at="{ago(5)}").when(never)
schedule.command("true").name("missed").once(at=["{ago(500)}", "{ago(490)}"])
"""
    )
    app.has_seen_it(ago=600)
    shown = "\n".join(lines_of(app))
    assert ": not started: skipped(filtered): when(never)" in shown
    assert shown.count(": not started: skipped(missed): no server started it by ") == 2
    app.schedule(
        f"""
def broken():
    raise RuntimeError("no idea")
schedule.command("true").name("broken").once(at="{ago(5)}").when(broken)
"""
    )
    app.has_seen_it()
    (line,) = lines_of(app, code=1)
    assert ": not started: skipped(broken): a filter raised RuntimeError: no idea" in line


def test_warnings_are_shown_unless_quiet(app: App) -> None:
    app.schedule('schedule.command("true").name("a").cron("*/45 1 1 1 *")')
    assert lines_of(app)[0].startswith("warning: task 'a'")
    assert lines_of(app)[0].startswith("warning: task 'a'")
    assert lines_of(app, "--quiet") == []


def test_one_server_on_a_store_of_one_host_is_remarked_upon(app: App) -> None:
    app.schedule('schedule.command("true").name("a").cron("* * * * *").on_one_server()')
    note = "note: on_one_server() of a holds on this host only: its servers share this store and no others do"
    assert lines_of(app, "--quiet")[0] == note
    app.schedule('schedule.command("true").name("a").cron("* * * * *")')
    assert [line for line in lines_of(app) if line.startswith("note")] == []


def test_losing_the_race_is_one_calm_line(app: App) -> None:
    app.schedule(f'schedule.command("true").name("a").once(at="{ago(5)}")')
    app.has_seen_it()
    task = app.tasks()["a"]
    due = task.trigger.next(datetime.now(UTC) - timedelta(minutes=1))
    assert due is not None
    store = app.store()
    minute = timedelta(minutes=1)
    now = datetime.now(UTC)
    claim = Claim(Occurrence("a", due), 1, "theirs", "web-2", due, now + minute, minute, now + minute)
    (row,) = store.claim([claim]).items
    store.close()
    assert isinstance(row, Row)
    (line,) = lines_of(app)
    assert line.startswith("not started here: a, due ")
    assert line.endswith(" (claimed by web-2)")
    assert lines_of(app, "--quiet") == []


def test_output_that_is_not_utf_8_does_no_harm(app: App) -> None:
    command = r"printf 'caf\\351 \\377\\000\\033[31m\n'; exit 1"
    app.schedule(f'schedule.command("{command}").name("odd").once(at="{ago(5)}")')
    app.has_seen_it()
    for env in ({}, {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}):
        app.env |= env
        done = app.rota("run", "--exit-zero")
        assert (done.returncode, done.stderr) == (0, "")
        for args in (["history"], ["history", "--json"], ["history", "--output"], ["list"]):
            assert app.rota(*args).returncode == 0
        assert "\x1b" not in done.stdout


def test_a_bare_environment_runs_tasks(app: App) -> None:
    app.schedule(f'schedule.command("echo grüße").name("a").once(at="{ago(5)}").output_to("-")')
    app.has_seen_it()
    app.env = {"ROTA_STATE_DIR": app.env["ROTA_STATE_DIR"]}
    done = app.rota("run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "grüße" in done.stdout


# -- others


EACH_SECOND = """
@schedule.every(seconds=1)
def tick():
    from rota._engine.run import current_run
    with open("done", "a") as file:
        file.write(current_run().key + "\\n")
"""


def test_three_servers_start_each_occurrence_once(app: App) -> None:
    app.schedule(EACH_SECOND)
    app.has_seen_it(ago=1)
    done = app.path / "done"
    servers = [app.start("run", env={"ROTA_SERVER": f"web-{number}"}) for number in range(3)]
    app.wait_for(lambda: done.exists() and done.read_text().count("\n") >= 4, "four occurrences")
    for server in servers:
        server.send_signal(signal.SIGTERM)
    printed = [server.communicate(timeout=30) for server in servers]
    assert [server.returncode for server in servers] == [0, 0, 0], printed
    assert [error for _, error in printed] == ["", "", ""]
    keys = done.read_text().split()
    assert max(Counter(keys).values()) == 1
    rows = app.rows("tick")
    started = {row.occurrence.key for row in rows if row.outcome == "succeeded"}
    assert started == set(keys)
    gaps = {later.occurrence.due - earlier.occurrence.due for later, earlier in pairwise(rows)}
    assert gaps == {timedelta(seconds=1)}


@pytest.mark.slow
def test_a_killed_server_is_found_out(app: App) -> None:
    app.schedule(
        f'schedule.command("touch began; exec sleep 60").name("long").once(at="{ago(5)}").lease(seconds=10)'
        ".without_overlapping()"
    )
    app.has_seen_it()
    victim = app.start("run")
    app.wait_for((app.path / "began").exists, "the command begins")
    victim.kill()
    victim.wait()
    found: list[str] = []

    def is_found() -> bool:
        found[:] = app.rota("run", env={"ROTA_SERVER": "web-2"}).stdout.splitlines()
        return not any("claimed by web-1" in line for line in found)

    app.wait_for(is_found, "the run is found lost")
    assert (
        ": found lost: web-1 holds no lease for it any more: killed, frozen or cut off (found by web-2)"
        in found[0]
    )
    (row,) = app.rows()
    assert (row.outcome, row.server) == ("lost", "web-1")
    assert "lost" in app.rota("history").stdout


# -- signals


def long_run(app: App, body: str) -> subprocess.Popen[str]:
    app.schedule(f'schedule.command("{body}").name("long").once(at="{ago(5)}")')
    app.has_seen_it()
    process = app.start("run")
    app.wait_for((app.path / "began").exists, "the command begins")
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_runs_end(app: App, number: signal.Signals) -> None:
    process = long_run(app, "touch began; while ! test -e go; do sleep 0.05; done; echo all")
    process.send_signal(number)
    assert process.stdout is not None
    told = iter(process.stdout.readline, "")
    assert any(
        line == f"{number.name}: nothing new is started; waiting for 1 run; again to stop them\n"
        for line in told
    )
    (app.path / "go").touch()
    assert process.wait(timeout=30) == 0
    (row,) = app.rows()
    assert (row.outcome, row.output) == ("succeeded", "all\n")


def test_the_second_signal_stops_them(app: App) -> None:
    process = long_run(app, "touch began; exec sleep 60")
    assert process.stdout is not None
    process.send_signal(signal.SIGTERM)
    assert any("again to stop them" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 1
    (row,) = app.rows()
    assert (row.outcome, row.detail) == ("cancelled", "stopped by SIGTERM")


def test_a_signal_while_nothing_runs_ends_it_at_once(app: App) -> None:
    app.schedule(EACH_SECOND.replace("seconds=1", "seconds=4"))
    app.has_seen_it(ago=0)
    process = app.start("run")
    app.wait_for(lambda: catches_sigterm(process.pid), "it watches for signals")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=5) == 0


def catches_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


# -- pauses, and what is held


def test_what_is_due_in_a_pause_is_recorded_and_not_started(app: App) -> None:
    app.schedule(f'schedule.command("true").name("a").once(at="{ago(5)}")')
    app.has_seen_it()
    app.env["LOGNAME"] = "ann"
    app.env.pop("SUDO_USER", None)
    assert app.rota("pause", "a", "--reason", "moving house").returncode == 0
    (line,) = lines_of(app)
    assert line.endswith(": not started: skipped(paused): paused by ann@web-1: moving house")


def test_what_is_held_is_not_started(app: App) -> None:
    app.schedule(f'schedule.command("true").name("a").once(at="{ago(5)}").without_overlapping()')
    app.has_seen_it()
    store = app.store()
    (lease,) = store.acquire([Request(run_key("a"), "theirs", "web-2", timedelta(minutes=1))]).items
    store.close()
    assert not isinstance(lease, Refusal)
    (line,) = lines_of(app)
    assert line.endswith(": not started: skipped(overlapping): web-2 still runs it")
