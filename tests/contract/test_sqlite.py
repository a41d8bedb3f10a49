"""The SQLite store keeps the contract."""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from rota.stores.base import Claim, Look, Occurrence, RowQuery, Store
from rota.stores.sql.sqlite import SQLiteStore
from rota.testing import StoreClock, StoreContract


class TestSQLite(StoreContract):
    clock = StoreClock()
    folder: Path

    def open(self) -> Store:
        self.folder = Path(tempfile.mkdtemp())
        return self.open_again()

    def open_again(self) -> Store:
        assert self.clock is not None
        return SQLiteStore(self.folder / "rota.db", "shop/test", clock=self.clock)

    def teardown_method(self, method: object = None) -> None:
        super().teardown_method(method)
        shutil.rmtree(self.folder)


class TestSQLiteWithTheHostsClock(TestSQLite):
    clock = None  # type: ignore[assignment]  # the subclass has no clock to drive

    def open_again(self) -> Store:
        return SQLiteStore(self.folder / "rota.db", "shop/test")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rota.db"


def test_applications_and_environments_in_one_file_do_not_see_each_other(path: Path) -> None:
    clock = StoreClock()
    shops = [SQLiteStore(path, name, clock=clock) for name in ("shop", "shop/test", "shop%", "SHOP")]
    now, minute = clock.now, timedelta(minutes=1)
    for shop in shops:
        claim = Claim(Occurrence("a", now), 1, shop.namespace, "s", now, now, minute, now - timedelta(days=1))
        (row,) = shop.claim([claim]).items
        assert row.token == shop.namespace  # type: ignore[union-attr]  # a refusal would fail here
        shop.advance({"m": now})
    for shop in shops:
        assert [row.token for row in shop.rows(RowQuery()).items] == [shop.namespace]
        assert len(shop.look(Look({"a": "m"}, now - minute)).rows) == 1
        shop.close()


def test_what_was_written_is_there_when_it_is_opened_again(path: Path) -> None:
    store = SQLiteStore(path)
    (at,) = store.advance({"m": store.claim([]).now}).items
    store.close()
    again = SQLiteStore(path)
    assert again.look(Look({"a": "m"}, at)).marks == {"m": at}
    again.close()


def test_a_closed_store_opens_itself_again(path: Path) -> None:
    store = SQLiteStore(path)
    store.claim([])
    store.close()
    assert store.rows(RowQuery()).items == []
    store.close()


def test_a_clock_that_steps_back_by_more_than_the_allowance_is_told_once(path: Path) -> None:
    clock = StoreClock()
    store = SQLiteStore(path, clock=clock)
    store.claim([])
    clock.advance(-timedelta(minutes=10))
    store.claim([])
    clock.advance(-timedelta(seconds=1))
    with pytest.warns(RuntimeWarning, match="stepped back by 0:10:01"):
        store.claim([])
    store.claim([])
    store.close()
