"""The PostgreSQL store keeps the contract, also through PgBouncer and on what an application lends."""

from __future__ import annotations

import uuid

import pytest

from rota.stores import open_store
from rota.stores.base import Store
from rota.testing import StoreContract
from tests.servers.postgresql import pgbouncer_server, postgresql_server

pytestmark = pytest.mark.service


def fresh() -> str:
    return f"shop/{uuid.uuid4().hex}"


class TestPostgreSQL(StoreContract):
    clock = None
    namespace: str

    def url(self) -> str:
        return postgresql_server().url

    def open(self) -> Store:
        self.namespace = fresh()
        return self.open_again()

    def open_again(self) -> Store:
        return open_store(self.url(), namespace=self.namespace)


class TestPgBouncer(TestPostgreSQL):
    def url(self) -> str:
        return pgbouncer_server().url
