"""The note that saves an import: it holds while nothing that it rests on has changed, and not for long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rota._engine import memo

NOW = 1_000_000.0


@pytest.fixture
def basis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one module that has been imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    source = tmp_path / "shop_schedule.py"
    source.write_text("TASKS = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shop_schedule", raising=False)
    __import__("shop_schedule")
    return tmp_path


def leave(until: float = NOW + 200) -> str:
    """A note that holds, and where it is; the environment of a test changes from phase to phase."""
    path = memo.path()
    memo.leave(path, "nothing due", NOW, until)
    assert memo.recall(path, NOW) == "nothing due"
    return path


def test_it_says_again_what_was_said_until_its_time_is_over(basis: Path) -> None:
    path = leave()
    assert memo.recall(path, NOW + 199) == "nothing due"
    assert memo.recall(path, NOW + 200) is None


def test_it_never_holds_longer_than_five_minutes(basis: Path) -> None:
    path = leave(NOW + 3600)
    assert memo.recall(path, NOW + 299) == "nothing due"
    assert memo.recall(path, NOW + 301) is None


def test_a_clock_that_was_set_back_makes_it_void(basis: Path) -> None:
    assert memo.recall(leave(), NOW - 1) is None


def edit(folder: Path) -> None:
    (folder / "shop_schedule.py").write_text("TASKS = 2\n")


def edit_in_place(folder: Path) -> None:
    source = folder / "shop_schedule.py"
    before = source.stat()
    with source.open("r+") as file:
        file.write("TASKS = 3")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def remove(folder: Path) -> None:
    (folder / "shop_schedule.py").unlink()


def replace(folder: Path) -> None:
    source = folder / "shop_schedule.py"
    before = source.stat()
    (folder / "new.py").write_text("TASKS = 9\n")
    os.utime(folder / "new.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    (folder / "new.py").replace(source)


def add_a_module_that_could_come_first(folder: Path) -> None:
    (folder / "shop.py").write_text("")


def add_settings(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.rota]\n")


@pytest.mark.parametrize(
    "change", [edit, edit_in_place, remove, replace, add_a_module_that_could_come_first, add_settings]
)
def test_a_change_of_what_it_rests_on_makes_it_void(basis: Path, change: Callable[[Path], None]) -> None:
    path = leave()
    change(basis)
    assert memo.recall(path, NOW + 1) is None


def test_another_environment_makes_it_void_but_not_what_systemd_sets_at_each_start(
    basis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = leave()
    monkeypatch.setenv("INVOCATION_ID", "0001")
    assert memo.recall(path, NOW + 1) == "nothing due"
    monkeypatch.setenv("ROTA_ENV", "staging")
    assert memo.recall(path, NOW + 1) is None


def test_a_file_that_it_was_told_to_rest_on_makes_it_void_when_it_goes(basis: Path) -> None:
    state = basis / "state" / "shop.state"
    state.write_text("")
    path = memo.path()
    memo.leave(path, "nothing due", NOW, NOW + 200, str(state))
    assert memo.recall(path, NOW + 1) == "nothing due"
    state.unlink()
    assert memo.recall(path, NOW + 1) is None


def test_another_folder_or_command_line_has_another_note(
    basis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = memo.path()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["rota", "run", "--quiet"])
        assert memo.path() != mine
    with monkeypatch.context() as patch:
        (basis / "other").mkdir()
        patch.chdir(basis / "other")
        assert memo.path() != mine


@pytest.mark.parametrize("text", ["", "x", "1 2", "a b\nsaid", "\0"])
def test_a_note_that_makes_no_sense_is_none(basis: Path, text: str) -> None:
    path = leave()
    Path(path).write_text(text)
    assert memo.recall(path, NOW) is None


def test_a_folder_that_cannot_be_written_to_costs_time_only(basis: Path) -> None:
    (basis / "file").write_text("")
    memo.leave(str(basis / "file" / "note"), "nothing due", NOW, NOW + 60)
    assert memo.recall(str(basis / "file" / "note"), NOW) is None


SCHEDULE = """
print("imported")
from rota import Schedule
schedule = Schedule("shop")
schedule.command("echo").name("tidy").yearly(on="{day}"){more}
"""


class Shop:
    """A folder whose schedule says when it is imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = os.environ | {"ROTA_STATE_DIR": str(folder / "state")}

    def write(self, *, day: str = "01-01", more: str = "") -> None:
        (self.folder / "schedule.py").write_text(SCHEDULE.format(day=day, more=more))

    def run(self, **env: str) -> str:
        command = [sys.executable, "-B", "-m", "rota", "run"]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env | env,
            text=True,
            capture_output=True,
            timeout=60,
            check=True,
        )
        return done.stdout


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.write()
    return shop


def test_a_tick_with_nothing_due_is_repeated_without_importing_the_application(shop: Shop) -> None:
    assert "first sight" in shop.run()
    said = shop.run()
    assert said.startswith("imported\nnothing due; next: tidy at ")
    assert f"imported\n{shop.run()}" == said


def test_an_edited_schedule_is_read_at_the_very_next_tick(shop: Shop) -> None:
    shop.run()
    shop.run()
    shop.write(day="01-02")
    assert "imported" in shop.run()


def test_another_environment_is_read_at_once(shop: Shop) -> None:
    shop.run()
    shop.run()
    assert "imported" in shop.run(ROTA_ENV="staging")


def test_no_note_is_left_where_a_task_may_wait(shop: Shop) -> None:
    shop.write(more='.overlap("queue_one")')
    for _ in range(3):
        assert "imported" in shop.run()
