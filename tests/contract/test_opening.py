"""A store is opened by its URL, in words that help, without showing what is secret."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from rota._core.errors import DefinitionError
from rota.stores import DRIVERS, open_store, shown
from rota.stores.base import Store
from rota.stores.memory import MemoryStore
from rota.stores.sql.sqlite import SQLiteStore


def test_the_scheme_picks_the_driver() -> None:
    assert isinstance(open_store("memory:", namespace="shop"), MemoryStore)
    assert isinstance(open_store("sqlite:///rota.db", namespace="shop"), SQLiteStore)


@pytest.mark.parametrize("url", [driver.example for name, driver in DRIVERS.items() if name != "django"])
def test_every_example_opens_a_store_of_its_namespace(url: str) -> None:
    store = open_store(url, namespace="shop/test")
    assert isinstance(store, Store)
    assert "shop/test" in repr(store)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///var/rota.db", "var/rota.db"),
        ("sqlite:////var/lib/rota.db", "/var/lib/rota.db"),
        ("sqlite:///with%20space%3F.db", "with space?.db"),
        ("sqlite:///rota.db?create=false&timeout=2", "rota.db"),
    ],
)
def test_three_slashes_are_relative_and_four_absolute(url: str, path: str) -> None:
    store = open_store(url, namespace="shop")
    assert isinstance(store, SQLiteStore)
    assert store.path == os.path.abspath(path)


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/rota.db", namespace="shop").close()
    assert list(tmp_path.iterdir()) == []


def test_names_with_marks_of_urls_are_names_of_files(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a?b#c%20.db")
    store.claim([])
    assert "a?b#c%20.db" in os.listdir(tmp_path)
    store.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("carrier-pigeon://loft", ["no such store", "carrier-pigeon://loft", "memory:", "sqlite:///rota.db"]),
        ("", ["no such store", "memory:"]),
        ("rota.db", ["no such store", "rota.db", "sqlite:///rota.db"]),
        ("sqlite:rota.db", ["not a sqlite address", "sqlite:///rota.db"]),
        ("sqlite://host/rota.db", ["not a sqlite address", "sqlite:///rota.db"]),
        ("sqlite:///", ["not a sqlite address"]),
        ("memory:somewhere", ["not a memory address"]),
        ("sqlite:///rota.db?speed=11", ["sqlite has no such option", "speed", "timeout, create"]),
        ("memory:?timeout=1", ["memory has no such option", "timeout", "namespace"]),
        ("sqlite:///rota.db?timeout=soon", ["timeout", "more than 0, at most 5 seconds"]),
        ("sqlite:///rota.db?timeout=0", ["timeout", "more than 0, at most 5 seconds"]),
        ("sqlite:///rota.db?timeout=nan", ["timeout", "more than 0, at most 5 seconds"]),
        ("sqlite:///rota.db?create=perhaps", ["create", "true or false"]),
    ],
)
def test_a_url_that_means_no_store_is_refused_with_what_exists(url: str, words: list[str]) -> None:
    with pytest.raises(DefinitionError) as error:
        open_store(url, namespace="shop")
    assert [word for word in words if word not in str(error.value)] == []


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("sqlite:///a@b:c.db", "sqlite:///a@b:c.db"),
        ("redis://user:s3cret@host:6379/0", "redis://user:***@host:6379/0"),
        ("redis://:s3cret@host/0", "redis://:***@host/0"),
        ("redis://user:s3/cr@et@host/0", "redis://user:***@host/0"),
        ("postgresql://host/db?user=a&password=s3cret&x=1", "postgresql://host/db?user=a&password=***&x=1"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("redis://host:6379/0", "redis://host:6379/0"),
    ],
)
def test_no_password_is_shown(url: str, safe: str) -> None:
    assert shown(url) == safe


def test_a_refused_url_does_not_show_its_password() -> None:
    with pytest.raises(DefinitionError) as error:
        open_store("carrier-pigeon://user:s3cret@loft", namespace="shop")
    assert "s3cret" not in f"{error.value!r} {error.value}"


def test_no_driver_is_imported_before_it_is_asked_for() -> None:
    source = (
        "import sys, rota.stores; print([name for name in sys.modules if 'sql' in name or 'memory' in name])"
    )
    assert subprocess.check_output([sys.executable, "-c", source], text=True).strip() == "[]"


def test_an_empty_part_of_a_query_shifts_no_option_onto_another() -> None:
    store = open_store("postgresql://host/shop?&timeout=2&sslmode=require&&namespace=other", namespace="shop")
    assert "other" in repr(store)
    assert store._calls.limit == 2  # type: ignore[attr-defined]  # of the PostgreSQL store
    store.close()


def test_the_time_limit_of_the_url_is_that_of_the_store() -> None:
    assert SQLiteStore("a", limit=timedelta(seconds=2))._file.limit == 2
    store = open_store("sqlite:///rota.db?timeout=0.25", namespace="shop")
    assert isinstance(store, SQLiteStore)
    assert store._file.limit == 0.25
