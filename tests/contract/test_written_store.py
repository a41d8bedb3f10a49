"""The store of the page "Write a store" keeps the contract, and what the page says of it is so."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from rota import Schedule
from rota._core.value import replace
from rota.stores import open_store
from rota.stores.base import (
    Claim,
    End,
    Look,
    Occurrence,
    Outcome,
    Refusal,
    Refused,
    Row,
    RowQuery,
    Store,
    StoreUnavailable,
)
from rota.testing import StoreClock, StoreContract
from tests.contract.one_process import OCCASIONS
from tests.docs.blocks import ROOT, blocks_of

pytestmark = pytest.mark.slow  # each call waits for the disk

PAGE = ROOT / "docs/how-to/write-a-store.md"
FILES = {block.marks["file"]: block for block in blocks_of(PAGE) if "file" in block.marks}
PROCESSES = 6
DUE = datetime(2026, 3, 29, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def written(name: str) -> ModuleType:
    """The module that the page writes into the file `name`; tracebacks point into the page."""
    block = FILES[name]
    module = ModuleType(name.removesuffix(".py"))
    exec(compile("\n" * block.line + block.text, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    return module


_driver = written("folder_store.py")
FolderStore: Callable[..., Any] = _driver.FolderStore
with patch.dict(sys.modules, folder_store=_driver):
    TestFolder: type[StoreContract] = written("test_folder_store.py").TestFolder


class TestFolderWithTheHostsClock(StoreContract):
    def open(self) -> Store:
        self.folder = tempfile.TemporaryDirectory()
        return self.open_again()

    def open_again(self) -> Store:
        store: Store = FolderStore(self.folder.name, "shop/test")
        return store

    def teardown_method(self, method: object = None) -> None:
        super().teardown_method(method)
        self.folder.cleanup()


def a_claim(task: str = "a", token: str = "t") -> Claim:
    return Claim(
        occurrence=Occurrence(task, DUE),
        attempt=1,
        token=token,
        server="web-1",
        not_before=DUE,
        not_after=DUE + timedelta(days=10_000),
        start_within=MINUTE,
        keep_until=DUE,
    )


def tokens(store: Store) -> list[str]:
    return sorted(row.token for row in store.rows(RowQuery()).items)


# several processes

ONE_OF_MANY = """
import json, sys
from pathlib import Path

sys.path[:0] = sys.argv[1:3]
from folder_store import FolderStore
from tests.contract.one_process import Process, after_the_epoch

store = FolderStore(sys.argv[3], "shop/test")
what, number, ready = sys.argv[4:]
process = Process(store, int(number), after_the_epoch(store), float(ready), Path(sys.argv[3]))
print(json.dumps(getattr(process, what)()))
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with the driver as a file, for other processes."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "folder_store.py").write_text(FILES["folder_store.py"].text, encoding="utf-8")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def together(code: Path, data: Path, what: str) -> list[list[Any]]:
    """What each process answers that starts at the same moment on the store in `data`."""
    ready = time.time() + 0.3 * PROCESSES
    python = [sys.executable, "-W", "error", "-c", ONE_OF_MANY, str(ROOT), str(code), str(data), what]
    processes = [
        subprocess.Popen([*python, f"{number}", f"{ready}"], stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    try:
        answers = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * PROCESSES
    return [json.loads(answer) for answer in answers]


@pytest.mark.parametrize("what", ["claims", "claims_batches"], ids=["one by one", "in batches"])
def test_each_occurrence_is_claimed_once_by_six_processes(what: str, code: Path, data: Path) -> None:
    won = [key for answer in together(code, data, what) for key in answer]
    assert sorted(won) == sorted(occurrence.key for occurrence in OCCASIONS)
    assert len(FolderStore(data, "shop/test").rows(RowQuery()).items) == len(OCCASIONS)


def test_each_place_is_given_to_one_of_six_processes(code: Path, data: Path) -> None:
    given = [tuple(place) for answer in together(code, data, "takes_places") for place in answer]
    assert sorted(given) == [(f"k{k}", slot) for k in range(10) for slot in range(3)]
    holders = Counter(lease.key for lease in FolderStore(data, "shop/test").look(Look({}, DUE)).leases)
    assert holders == {f"k{k}": 3 for k in range(10)}


def test_what_is_done_under_a_lease_is_done_by_one_process_at_a_time(code: Path, data: Path) -> None:
    (data / "count").write_text("0")
    assert together(code, data, "counts") == [[3]] * PROCESSES
    assert (data / "count").read_text() == f"{3 * PROCESSES}"


@contextmanager
def another_process(source: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another process, once it has printed "ready"; killed at the end."""
    python = [sys.executable, "-W", "error", "-c", source, *map(str, arguments)]
    with subprocess.Popen(python, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


HOLDS_THE_LOCK = """
import sys

sys.path.insert(0, sys.argv[1])
from folder_store import FolderStore


def clock():
    print("ready", flush=True)
    sys.stdin.read()


FolderStore(sys.argv[2], clock=clock).advance({})
"""


def test_a_frozen_process_ends_a_call_at_the_limit_and_a_killed_one_lets_go(code: Path, data: Path) -> None:
    store = FolderStore(data, limit=timedelta(seconds=0.3))
    with another_process(HOLDS_THE_LOCK, code, data) as process:
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"\.json: locked for longer than 0\.3 s"):
            store.claim([a_claim()])
        assert 0.3 <= time.monotonic() - begun < 3
        process.kill()
        process.wait(30)
        assert isinstance(store.claim([a_claim()]).items[0], Row)


KILLED_BEFORE_IT_REPLACES = """
import os, signal, sys
from datetime import UTC, datetime

sys.path.insert(0, sys.argv[1])
from folder_store import FolderStore

os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
print("ready", flush=True)
FolderStore(sys.argv[2]).advance({"m": datetime(2026, 3, 29, tzinfo=UTC)})
"""


def test_a_process_killed_while_it_writes_leaves_what_stood(code: Path, data: Path) -> None:
    store = FolderStore(data)
    store.claim([a_claim()])
    with another_process(KILLED_BEFORE_IT_REPLACES, code, data) as process:
        assert process.wait(30) == -signal.SIGKILL
    assert (data / ".part").read_bytes() != (data / ".json").read_bytes()
    view = store.look(Look({"a": "m"}, DUE - MINUTE))
    assert ([row.token for row in view.rows], view.marks) == (["t"], {})
    assert list(store.advance({"m": DUE}).items) == [DUE]


FORKS_UNDER_THE_LOCK = """
import os, sys, time
from datetime import UTC, datetime, timedelta

sys.path.insert(0, sys.argv[1])
from folder_store import FolderStore


def clock():
    global child
    if child is None:
        child = os.fork()
        if child == 0:
            sys.stdin.read()
            os._exit(0)
    return datetime.now(UTC)


child = None
store = FolderStore(sys.argv[2], clock=clock, limit=timedelta(seconds=0.3))
store.advance({})
store.advance({})
print("ready", flush=True)
os.waitpid(child, 0)
"""


def test_a_child_forked_under_the_lock_does_not_keep_it(code: Path, data: Path) -> None:
    with another_process(FORKS_UNDER_THE_LOCK, code, data) as process:
        assert process.communicate("")[0] == ""
        assert process.returncode == 0


def test_a_claim_that_waited_for_the_lock_is_judged_by_the_clock_after_it(data: Path) -> None:
    clock, waits, answers = StoreClock(DUE), threading.Event(), []
    store, late = FolderStore(data, clock=clock), replace(a_claim(), not_after=DUE)

    def sleep(seconds: float) -> None:
        waits.set()
        time.sleep(seconds)

    claimer = threading.Thread(target=lambda: answers.extend(store.claim([late]).items))
    with patch.object(_driver, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep)):
        with open(store.lock, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            claimer.start()
            assert waits.wait(30)
            clock.advance(MINUTE)
        claimer.join()
    assert answers == [Refusal(Refused.TOO_LATE)]


# what stands on the disk


def test_applications_and_environments_in_one_folder_do_not_see_each_other(data: Path) -> None:
    names = ("shop", "shop/test", "SHOP", "shop%2f.test", "..", "../shop", "", "ä", "a\u0308", "shop.lock")
    shops = [FolderStore(data, name) for name in names]
    for name, shop in zip(names, shops, strict=True):
        assert shop.claim([a_claim(token=name)]).items[0].token == name
    assert [tokens(shop) for shop in shops] == [[name] for name in names]
    files = [name.lower() for name in os.listdir(data)]
    assert len(set(files)) == 2 * len(names)
    assert os.listdir(data.parent) == ["data"]


def test_what_was_written_is_there_when_it_is_opened_again(data: Path) -> None:
    FolderStore(data, "shop").claim([a_claim("\ud800 half a character")])
    (row,) = FolderStore(data, "shop").rows(RowQuery()).items
    assert row.occurrence.task == "\ud800 half a character"


def test_opening_touches_nothing_and_a_missing_folder_is_told(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "none", "shop")
    assert os.listdir(tmp_path) == []
    with pytest.raises(StoreUnavailable, match=r"none/shop\.json: No such file or directory"):
        store.claim([a_claim()])
    (tmp_path / "none").mkdir()
    assert isinstance(store.claim([a_claim()]).items[0], Row)


@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"[]", b"[1, 5]", b'["x"]', b"[1, [[1]]]", b"\xff"])
def test_a_file_that_is_something_else_is_told_and_left_alone(content: bytes, data: Path) -> None:
    (data / ".json").write_bytes(content)
    with pytest.raises(StoreUnavailable, match="no sheet"):
        FolderStore(data).claim([a_claim()])
    assert (data / ".json").read_bytes() == content


def test_what_a_newer_rota_wrote_is_refused(data: Path) -> None:
    (data / ".json").write_text("[2, [], [], [], []]")
    with pytest.raises(StoreUnavailable, match="written by a newer rota"):
        FolderStore(data).look(Look({}, DUE))


# what the page says of concerns and of the row


def test_a_file_that_has_grown_is_a_concern(data: Path) -> None:
    store = FolderStore(data)
    ends = [End(Occurrence("a", DUE + k * MINUTE), 1, f"{k}", Outcome.SUCCEEDED, DUE) for k in range(10_001)]
    store.settle(ends[:-1])
    assert store.concerns() == []
    store.settle(ends[-1:])
    assert store.concerns() == ["it holds 10001 rows, and each call reads all of them"]


def test_the_schedule_takes_the_store_as_it_is(data: Path) -> None:
    store = FolderStore(data, "shop/test")
    assert isinstance(store, Store)
    assert open_store(store, namespace="another") is store
    assert Schedule("shop", store=store).store is store
    assert store.guarantees.needs
    assert store.guarantees.cannot
