"""Where the schedule is looked for, and what is said if it is not there."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import App

SCHEDULE = (
    'from rota import Schedule\n{name} = Schedule("{title}")\n{name}.command("true").name("x").daily()\n'
)


def schedule(title: str, name: str = "schedule") -> str:
    return SCHEDULE.format(name=name, title=title)


def title_of(app: App, *args: str, env: dict[str, str] | None = None) -> str:
    done = app.rota("list", "--json", *args, env=env)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["schedule"])


def error_of(app: App, *args: str, env: dict[str, str] | None = None) -> str:
    done = app.rota("list", *args, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rota: error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("rota: error: ").rstrip()


def test_the_option_goes_before_the_variable_the_project_file_and_the_folder(app: App) -> None:
    app.write(schedule("folder"))
    assert title_of(app) == "folder"
    app.write(schedule("project"), "inner/project.py")
    app.write('[tool.rota]\napp = "inner.project:schedule"\n', "pyproject.toml")
    assert title_of(app) == "project"
    app.write(schedule("variable", "plan"), "variable.py")
    env = {"ROTA_APP": "variable:plan"}
    assert title_of(app, env=env) == "variable"
    app.write(schedule("option", "plan"), "option.py")
    assert title_of(app, "--app", "option:plan", env=env) == "option"


def test_a_project_file_that_says_nothing_of_rota_is_passed_over(app: App) -> None:
    app.write("this is [not toml", "pyproject.toml")
    app.write(schedule("folder"))
    assert title_of(app) == "folder"


def test_the_only_schedule_of_a_module_needs_no_name(app: App) -> None:
    app.write(schedule("only", "nightly"))
    assert title_of(app) == "only"


def test_several_schedules_must_be_told_apart(app: App) -> None:
    app.write(schedule("a", "first") + schedule("b", "second"))
    assert error_of(app).endswith("has several schedules; say which: schedule:first or schedule:second")
    assert title_of(app, "--app", "schedule:second") == "b"


def test_no_schedule_at_all(app: App) -> None:
    assert error_of(app).startswith(
        "there is no schedule here: no ./schedule.py; name one with --app MODULE:NAME"
    )


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("nowhere", "--app: there is no module 'nowhere' in "),
        ("nowhere.inner:x", "--app: there is no module 'nowhere' in "),
        ("inner.nowhere:x", "--app: there is no module 'inner.nowhere' in "),
        (
            "inner.plan:schedul",
            "--app: inner.plan has no 'schedul'; did you mean schedule?; schedules there: schedule",
        ),
        ("inner.plan:NUMBER", "--app: inner.plan:NUMBER is a int; allowed: a rota.Schedule"),
        ("inner.empty:plan", "--app: inner.empty has no 'plan'; it has no schedule at all"),
        ("inner.empty", "--app: inner.empty (inner/empty.py) has no Schedule in it"),
        ("inner/plan.py", "--app: 'inner/plan.py' is not MODULE:NAME, as in shop.schedule:schedule"),
        (":schedule", "--app: ':schedule' is not MODULE:NAME"),
        ("inner..plan", "--app: 'inner..plan' is not MODULE:NAME"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(app: App, named: str, told: str) -> None:
    app.write(schedule("inner") + "NUMBER = 1\n", "inner/plan.py")
    app.write("", "inner/empty.py")
    assert error_of(app, "--app", named).startswith(told)


def test_who_named_it_is_said(app: App) -> None:
    assert error_of(app, env={"ROTA_APP": "nowhere"}).startswith("ROTA_APP: there is no module 'nowhere'")
    app.write('[tool.rota]\napp = "nowhere"\n', "pyproject.toml")
    assert error_of(app).startswith("pyproject.toml: there is no module 'nowhere'")


def test_a_broken_project_file(app: App) -> None:
    app.write('[tool.rota\napp = "x"\n', "pyproject.toml")
    assert error_of(app).startswith("pyproject.toml is not TOML: ")
    app.write("[tool.rota]\napp = 3\n", "pyproject.toml")
    assert (
        error_of(app)
        == 'pyproject.toml: [tool.rota] app is 3; allowed: a text such as "shop.schedule:schedule"'
    )


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import helper", "importing schedule failed at helper.py:2: ValueError: no such thing"),
        (
            "import missing_library",
            "importing schedule failed at schedule.py:1: ModuleNotFoundError: No module named",
        ),
        ("from helper2 import", "importing schedule failed at schedule.py:1: SyntaxError: "),
        ("1 / 0", "importing schedule failed at schedule.py:1: ZeroDivisionError: division by zero"),
        ("raise KeyError", "importing schedule failed at schedule.py:1: KeyError"),
        ("raise SystemExit(3)", "importing schedule called exit(3) at schedule.py:1"),
    ],
)
def test_an_application_that_cannot_be_imported(app: App, body: str, told: str) -> None:
    app.write("# helper\nraise ValueError('no such\\nthing')\n", "helper.py")
    app.write(f"{body}\n")
    assert error_of(app).startswith(told)
    shown = app.rota("list", "--debug").stderr
    assert shown.startswith("Traceback")
    assert told in shown.splitlines()[-1]


def test_a_schedule_that_contradicts_itself(app: App) -> None:
    app.write(schedule("twice") + schedule("x").splitlines()[2] + "\n")
    told = error_of(app)
    assert "task 'x'" in told
    assert "schedule.py:4" in told
    app.write('from rota import Schedule\nschedule = Schedule("x")\nschedule.daily(at="25:00")\n')
    assert "schedule.py:3" in error_of(app)


def test_a_store_that_is_unknown(app: App) -> None:
    app.write(schedule("x"))
    assert "no such store (store='mongodb://h:***" not in error_of(
        app, env={"ROTA_STORE": "mongodb://me:secret@h/x"}
    )
    told = error_of(app, env={"ROTA_STORE": "mongodb://me:secret@h/x"})
    assert "no such store" in told
    assert "secret" not in told


def test_what_the_application_prints_does_not_spoil_json(app: App) -> None:
    app.write("print('loading')\n" + schedule("talks"))
    done = app.rota("list", "--json")
    assert json.loads(done.stdout)["schedule"] == "talks"
    assert done.stderr == "loading\n"
