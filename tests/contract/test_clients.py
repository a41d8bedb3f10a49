"""Stores on what the application has: SQLAlchemy's engines, Django's databases, and what is neither."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections
from pymemcache.client.base import Client
from pymemcache.client.retrying import RetryingClient

from rota._core.errors import DefinitionError
from rota.stores import open_store
from rota.stores.base import RowQuery
from rota.stores.django_alias import url_of
from rota.stores.memcached import MemcachedStore
from rota.stores.sql.sqlite import SQLiteStore
from tests.servers.mariadb import mariadb_server
from tests.servers.postgresql import postgresql_server


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Django's DATABASES, to be filled before they are used."""
    if not settings.configured:
        settings.configure()
    engine = "django.db.backends"
    said = {
        "default": {"ENGINE": f"{engine}.sqlite3", "NAME": tmp_path / "django.db"},
        "other": {"ENGINE": f"{engine}.dummy"},
    }
    before = connections.settings
    connections._settings = connections.configure_settings(said)
    connections.settings = connections._settings
    yield said
    for alias in said:
        if hasattr(connections._connections, alias):
            del connections[alias]
    connections._settings = connections.settings = before


def test_a_database_of_django_is_used_by_its_alias(databases: object, tmp_path: Path) -> None:
    store = open_store("django://default?timeout=2", namespace="shop/test")
    assert isinstance(store, SQLiteStore)
    assert store.path == str(tmp_path / "django.db")
    assert store._file.limit == 2
    assert store.rows(RowQuery()).items == []
    store.close()


@pytest.mark.service
@pytest.mark.parametrize("vendor", ["postgresql", "mysql"])
def test_a_real_database_of_django_is_used(vendor: str, databases: dict[str, dict[str, Any]]) -> None:
    parts = urlsplit((postgresql_server() if vendor == "postgresql" else mariadb_server()).url)
    databases["default"] |= {
        "ENGINE": f"django.db.backends.{vendor}",
        "NAME": parts.path.strip("/"),
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    if vendor == "mysql":
        pymysql.install_as_MySQLdb()
    store = open_store("django://default?timeout=2", namespace="shop/django")
    assert vendor in type(store).__module__
    assert store.claim([]).items == []
    store.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("django://replica", ["there is no such alias", "replica", "default, other"]),
        ("django://other", ["no driver for this database", "unknown", "postgresql, mysql, sqlite"]),
        ("django://default?speed=1", ["sqlite has no such option", "speed"]),
    ],
)
def test_what_no_alias_can_mean_is_refused_with_what_exists(
    url: str, words: list[str], databases: object
) -> None:
    with pytest.raises(DefinitionError) as error:
        open_store(url, namespace="shop")
    assert [word for word in words if word not in str(error.value)] == []


@pytest.mark.parametrize(
    ("vendor", "said", "url"),
    [
        (
            "postgresql",
            {"NAME": "shop", "USER": "ann", "PASSWORD": "s3/cr@t", "HOST": "db", "PORT": 5433},
            "postgresql://ann:s3%2Fcr%40t@db:5433/shop",
        ),
        ("postgresql", {"NAME": "shop", "HOST": "/run/pg"}, "postgresql:///shop?host=%2Frun%2Fpg"),
        ("postgresql", {"NAME": "shop", "USER": "a", "HOST": "::1"}, "postgresql://a@[::1]/shop"),
        (
            "postgresql",
            {
                "NAME": "s",
                "HOST": "db",
                "OPTIONS": {"sslmode": "require", "pool": True, "isolation_level": 2},
            },
            "postgresql://db/s?sslmode=require",
        ),
        (
            "mysql",
            {"NAME": "shop", "USER": "a", "HOST": "/run/my.sock", "OPTIONS": {"charset": "utf8mb4"}},
            "mysql://a@/shop?unix_socket=%2Frun%2Fmy.sock",
        ),
        ("sqlite", {"NAME": "/var/a b.db"}, "sqlite:////var/a%20b.db"),
    ],
)
def test_the_settings_of_django_are_a_url(vendor: str, said: dict[str, Any], url: str) -> None:
    assert url_of(vendor, said) == url


def test_an_option_that_no_url_can_say_is_refused() -> None:
    with pytest.raises(DefinitionError, match="ssl"):
        url_of("mysql", {"NAME": "shop", "OPTIONS": {"ssl": {"ca": "/a"}}})


def test_an_engine_of_sqlalchemy_is_told_by_its_dialect(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/app.db")
    store = open_store(engine, namespace="shop")
    assert isinstance(store, SQLiteStore)
    assert store.path == f"{tmp_path}/app.db"
    with pytest.raises(DefinitionError, match="memory"):
        open_store(sqlalchemy.create_engine("sqlite://"), namespace="shop")


def test_a_client_that_answers_to_every_name_is_not_taken_for_a_store() -> None:
    store = open_store(RetryingClient(Client(("127.0.0.1", 1)), attempts=1), namespace="shop")
    assert isinstance(store, MemcachedStore)
    store.close()


@pytest.mark.service
def test_a_function_that_connects_is_told_by_its_library() -> None:
    mysql = urlsplit(mariadb_server().url)
    connects = [
        partial(psycopg.connect, postgresql_server().url),
        partial(
            pymysql.connect,
            host=mysql.hostname,
            port=mysql.port,
            user=mysql.username,
            password=mysql.password or "",
            database=mysql.path.strip("/"),
        ),
    ]
    for connect in connects:
        store = open_store(connect, namespace="shop/connects")
        assert store.claim([]).items == []
        store.close()
    with pytest.raises(DefinitionError, match="partial"):
        open_store(lambda: None, namespace="shop")


def test_a_store_that_is_open_is_taken_as_it_is(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "rota.db")
    assert open_store(store, namespace="shop") is store


def test_what_is_no_client_is_refused_with_what_is() -> None:
    with pytest.raises(DefinitionError) as error:
        open_store(object(), namespace="shop")
    assert "a builtins.object" in str(error.value)
    assert "a URL, a client of" in str(error.value)
    assert "an engine of SQLAlchemy" in str(error.value)


def test_django_without_settings_is_told_as_such() -> None:
    source = "from rota.stores import open_store; open_store('django://default', namespace='shop')"
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    process = [sys.executable, "-c", source]
    said = subprocess.run(process, env=env, capture_output=True, text=True, check=False).stderr
    assert "DefinitionError: Django has no settings" in said
