"""The Redis store keeps the contract: on Redis and Valkey, as one that forgets, in clusters, by sentinels."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import ClassVar

import pytest

from rota.stores import open_store
from rota.stores.base import Store
from rota.stores.redis import RedisStore
from rota.testing import StoreContract, VolatileStoreContract
from tests.servers import shared
from tests.servers.redis import (
    Redis,
    age,
    redis_server,
    start_cluster,
    start_redis,
    start_sentinel,
    valkey_server,
)

pytestmark = pytest.mark.service


class TestRedis(StoreContract):
    clock = None
    namespace: str

    def server(self) -> Redis:
        return redis_server()

    def url(self) -> str:
        return self.server().url

    def open(self) -> Store:
        self.namespace = uuid.uuid4().hex
        return age(self.open_again())

    def open_again(self) -> RedisStore:
        store = open_store(self.url(), namespace=self.namespace)
        assert isinstance(store, RedisStore)
        return store


class TestValkey(TestRedis):
    def server(self) -> Redis:
        return valkey_server()


own_server = shared(lambda: start_redis("--databases", "2"))
one_node = shared(start_cluster)


class TestCluster(TestRedis):
    def server(self) -> Redis:
        return one_node()

    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.server().port}"


_sentinel = shared(lambda: start_sentinel(redis_server()))


class TestSentinel(TestRedis):
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{_sentinel().port}/shop/0"


class TestRedisThatIsFlushed(VolatileStoreContract):
    clock = None
    longest_lease = timedelta(seconds=2)
    namespace: str
    server: ClassVar[Redis]

    def open(self) -> Store:
        self.namespace = uuid.uuid4().hex
        return age(self.open_again())

    def open_again(self) -> RedisStore:
        store = open_store(own_server().url, namespace=self.namespace)
        assert isinstance(store, RedisStore)
        store.longest_lease = self.longest_lease
        return store

    def forget(self) -> None:
        own_server().command_line("FLUSHALL")


class TestRedisThatIsRestarted(TestRedisThatIsFlushed):
    def forget(self) -> None:
        own_server().restart()
