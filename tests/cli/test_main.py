"""rota as a whole: commands, errors in one line, exit codes, and output that does no harm."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

from rota.cli import main
from rota.cli.commands import COMMANDS
from tests.cli.conftest import App

HELLO = '@schedule.every(minutes=5)\ndef hello():\n    print("hello")'


def error_of(capsys: pytest.CaptureFixture[str], *args: str, code: int = 2) -> str:
    """The one line that a wrong call prints."""
    assert main(args) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("rota: error: ")
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("rota: error: ").rstrip()


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rota {version('rota')}\n"


def test_help_names_every_command_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert f"  {name:<9}{summary}" in shown
    for code in range(4):
        assert f"\n  {code}  " in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_documents_its_exit_codes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: rota {name}")
    documented = import_module(f"rota.cli.{name}").__doc__
    assert documented is not None
    assert documented.splitlines()[0] in shown
    codes = {0, 1, 2, 3} - ({3} if name in ("init", "next", "explain", "schema") else set())
    assert {code for code in range(10) if f"\n  {code}  " in shown.partition("exit codes:")[2]} == codes


def test_no_command_is_an_error_that_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "usage: rota COMMAND" in printed.err
    assert printed.err.endswith("rota: error: no command is given\n")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["lst"], "there is no command 'lst'; did you mean list?"),
        (["frobnicate"], "there is no command 'frobnicate'; there are init, run, list"),
        (["--app", "x", "run"], "--app stands before the command"),
        (["run", "--nonsense"], "unrecognized arguments: --nonsense; see rota run --help"),
        (["run", "--exit"], "unrecognized arguments: --exit; see rota run --help"),
        (["call"], "the following arguments are required: TASK; see rota call --help"),
        (["history", "-n", "0"], "'0' is not a number from 1 to 10000"),
        (["next", "-n", "many"], "'many' is not a number from 1 to 10000"),
    ],
)
def test_a_wrong_call_is_one_line_and_2(
    args: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in error_of(capsys, *args)


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nonsense", "--debug"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback (most recent call last):")
    assert printed.splitlines()[-1].startswith("rota: error: ")


def test_every_way_to_start_it_is_the_same(app: App) -> None:
    script = Path(sys.executable).with_name("rota")
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert shown == app.rota("--version").stdout


def test_a_reader_who_leaves_is_no_trouble(app: App) -> None:
    app.schedule(HELLO)
    command = f"{sys.executable} -m rota next -n 5000 | head -n 1"
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {command}"],
        cwd=app.path,
        env=app.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


def test_a_reader_who_leaves_does_not_hurt_a_run(app: App) -> None:
    app.schedule(
        'schedule.command("echo a; sleep 0.3; yes | head -n 50000; echo z").name("talks")'
        '.daily(at="00:00").output_to("-")'
    )
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "rota", "call", "talks"],
        cwd=app.path,
        env=app.env,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 0, told
    assert "Traceback" not in told
    assert "Exception ignored" not in told
    (row,) = app.rows("talks")
    assert row.outcome == "succeeded"
    assert row.output.endswith("z\n")


def test_closed_output_is_no_trouble(app: App) -> None:
    app.schedule(HELLO)
    command = f"exec {sys.executable} -m rota list >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", command], cwd=app.path, env=app.env, check=False).returncode == 0


ODD = 'schedule.call(print, "größer ☃").name("aufräumen ☃").daily(at="02:00")'


@pytest.mark.parametrize(
    "locale",
    [
        {"LANG": "C"},
        {"LC_ALL": "POSIX"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"},
    ],
)
def test_no_locale_breaks_the_output(app: App, locale: dict[str, str]) -> None:
    app.schedule(ODD)
    for name in ("LANG", "LC_ALL", "PYTHONIOENCODING", "PYTHONUTF8"):
        app.env.pop(name, None)
    for args in (
        ["list"],
        ["next"],
        ["run"],
        ["call", "aufräumen ☃"],
        ["history"],
        ["pause", "--reason", "ü"],
    ):
        done = app.rota(*args, env=locale)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


def test_a_bare_environment_is_enough(app: App) -> None:
    app.schedule(HELLO)
    for name in ("run", "list", "history", "locks"):
        done = subprocess.run(
            [sys.executable, "-m", "rota", name],
            cwd=app.path,
            env={"ROTA_STATE_DIR": app.env["ROTA_STATE_DIR"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def on_a_terminal(app: App, *args: str) -> str:
    """What rota prints to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rota", *args],
        cwd=app.path,
        env={**app.env, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the terminal is gone with the process
        pass
    os.close(ours)
    assert process.wait() == 0
    return shown.decode()


def test_a_table_is_drawn_on_a_terminal_and_plain_without_rich(app: App) -> None:
    app.schedule(HELLO)
    assert "━" in on_a_terminal(app, "list") or "─" in on_a_terminal(app, "list")
    app.write("raise ImportError('not installed')", "elsewhere/rich/__init__.py")
    app.env["PYTHONPATH"] = str(app.path / "elsewhere")
    shown = on_a_terminal(app, "list")
    assert "TASK   WHEN" in shown
    assert "─" not in shown
