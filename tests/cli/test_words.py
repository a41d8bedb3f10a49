"""init, explain and the reference page; and how spans are said."""

from __future__ import annotations

import json
import shlex
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from rota.cli import main, saying
from rota.cli.reference import page
from tests.cli.conftest import App

ROOT = Path(__file__).parents[2]


def test_init_writes_a_schedule_that_works(app: App) -> None:
    done = app.rota("init")
    assert (done.returncode, done.stderr) == (0, "")
    listed = json.loads(app.rota("list", "--json").stdout)
    assert listed["schedule"] == "shop"
    assert [task["name"] for task in listed["tasks"]] == ["say_hello", "disk-space"]
    called = app.rota("call", "say_hello")
    assert (called.returncode, called.stdout) == (0, "hello from rota\n")


def test_the_line_for_cron_runs_as_cron_would_run_it(app: App) -> None:
    app.path = app.path.rename(app.path.with_name("my 100% 'shop'"))
    line = next(line.strip() for line in app.rota("init").stdout.splitlines() if "* * * * *" in line)
    command = line.removeprefix("* * * * * ")
    assert command.count("%") == command.count("\\%") == 1
    done = subprocess.run(
        ["/bin/sh", "-c", command.replace("\\%", "%")],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "ROTA_STATE_DIR": app.env["ROTA_STATE_DIR"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("first sight: 2 tasks")
    assert shlex.split(command)[-3:] == ["run", "--exit-zero", "--quiet"]


def test_init_leaves_a_schedule_alone(app: App) -> None:
    app.write("mine")
    done = app.rota("init")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"rota: error: {app.path}/schedule.py is there already, and was left alone\n"
    assert (app.path / "schedule.py").read_text() == "mine"


def test_explain_says_what_a_line_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "*/45 9-17 * * 1-5", "--timezone", "Europe/Berlin", "-n", "2"]) == 0
    sentence, warning, *instants = capsys.readouterr().out.splitlines()
    assert sentence == "at minutes 0 and 45 of hours 9 to 17 on Monday to Friday (Europe/Berlin)"
    assert warning.startswith("warning: */45 ")
    assert len(instants) == 2
    assert all(" CE" in instant for instant in instants)


def test_explain_takes_aliases_and_lines_that_nobody_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "@daily"]) == 0
    assert main(["explain", "0", "0", "*", "*", "*"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:6] == shown[6:]
    assert shown[0] == "at 00:00 every day"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["61 * * * *"], "minute 61"),
        (["nonsense"], "nonsense"),
        (["* * * * *", "--timezone", "Europe/Berln"], "did you mean Europe/Berlin"),
    ],
)
def test_explain_refuses_nonsense(args: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *args]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("rota: error: ")
    assert printed.err.count("\n") == 1
    assert told in printed.err


def test_the_reference_page_is_up_to_date() -> None:
    written = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m rota.cli.reference > docs/reference/command-line.md"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.0344, "34 ms"),
        (2, "2 s"),
        (2.46, "2.5 s"),
        (12.9, "12 s"),
        (60, "1 min"),
        (3725, "1 h 2 min"),
        (90000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_spans_are_said_in_two_units(seconds: float, said: str) -> None:
    assert saying.span(timedelta(seconds=seconds)) == said


def test_what_cannot_be_printed_steers_no_terminal() -> None:
    assert saying.one_line("a\nb\x1b[31m\tc\u202ed") == "a b\\x1b[31m c\\u202ed"
