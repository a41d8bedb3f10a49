"""Where a Redis store leads to: addresses and clients, and what an operator should see to there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry
from redis.sentinel import Sentinel

from rota.stores.base import TIME_LIMIT, DefinitionError, StoreUnavailable
from rota.stores.redis.timed import timed
from rota.stores.redis.wire import Wire

_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379


class ServerRoute:
    """To one server, or to the primary that sentinels name; `make` makes the client when first needed."""

    def __init__(self, make: Callable[[], Any], *, ours: bool = True) -> None:
        self._make, self.ours = make, ours
        self._client: Any = None

    def pool(self, key: bytes) -> Any:
        if self._client is None:
            self._client = self._make()
        return self._client.connection_pool

    def mislead(self) -> None:
        """Nothing is kept here: the next connection asks for the address anew."""

    def close(self) -> None:
        client, self._client = self._client, None
        if self.ours and client is not None:
            client.close()
            for sentinel in getattr(
                getattr(client.connection_pool, "sentinel_manager", None), "sentinels", ()
            ):
                sentinel.close()


class ClusterRoute:
    """To the node of a cluster that has a key."""

    def __init__(self, make: Callable[[], Any], *, ours: bool = True) -> None:
        self._make, self.ours = make, ours
        self._client: Any = None
        self._stale = False

    def pool(self, key: bytes) -> Any:
        if self._client is None:
            self._client = self._make()
        elif self._stale:
            self._client.nodes_manager.initialize()
        self._stale = False
        node = self._client.get_node_from_key(key)
        if node is None:
            raise redis.ConnectionError("no node of the cluster has its keys")
        return self._client.get_redis_connection(node).connection_pool

    def mislead(self) -> None:
        if self.ours:
            self.close()
        self._stale = True

    def close(self) -> None:
        client, self._client = self._client, None
        if self.ours and client is not None:
            client.close()


def opened(address: str, *, limit: float, **options: str) -> Wire:
    """The wire to an address; the client is made, and nothing touched, at the first call."""
    parts = urlsplit(address)
    scheme, _, kind = parts.scheme.partition("+")
    user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
    common: dict[str, Any] = {"username": user or None, "password": password, "retry": Retry(NoBackoff(), 0)}
    common |= {"socket_timeout": limit, "socket_connect_timeout": limit, "protocol": 2}
    if scheme in ("rediss", "valkeys"):
        common |= {"ssl": True, **options}
    elif options:
        raise DefinitionError(
            "these options are for TLS", argument="store", found=", ".join(options), allowed="rediss://"
        )
    hosts = _hosts(parts.netloc.rpartition("@")[2], _SENTINEL_PORT if kind == "sentinel" else _PORT)
    path = unquote(parts.path).strip("/")
    where = f"{parts.scheme}://{','.join(f'{host}:{port}' for host, port in hosts)}"
    # Those who know where the primary is are asked one after the other, and the last may be the one alive.
    a_part = limit / (2 * len(hosts) + 2)
    quickly: dict[str, Any] = {"socket_timeout": a_part, "socket_connect_timeout": a_part}
    if kind == "cluster":
        if path not in ("", "0"):
            raise ValueError(address)
        nodes = [ClusterNode(host, port) for host, port in hosts]  # type: ignore[no-untyped-call]  # theirs
        said = {**common, **quickly}
        return Wire(ClusterRoute(lambda: redis.RedisCluster(startup_nodes=nodes, **said)), where, limit)
    if kind == "sentinel":
        service, _, number = path.partition("/")
        if not service:
            raise ValueError(address)
        common["db"] = _database(number, address)
        return Wire(
            ServerRoute(lambda: _by_sentinels(hosts, service, quickly, common)), f"{where}/{path}", limit
        )
    if kind == "unix":
        if not path:
            raise ValueError(address)
        common.pop("socket_connect_timeout")
        common |= {"unix_socket_path": unquote(parts.path)}
        return Wire(ServerRoute(lambda: redis.Redis(**common)), f"{parts.scheme}://{parts.path}", limit)
    if kind or len(hosts) != 1:
        raise ValueError(address)
    ((host, port),) = hosts
    common |= {"host": host, "port": port, "db": _database(path, address)}
    return Wire(ServerRoute(lambda: redis.Redis(**common)), f"{where}/{common['db']}", limit)


def wrapped(client: Any) -> Wire:
    """The wire to where a client of the application's own leads."""
    if hasattr(client, "get_primaries"):
        route = ClusterRoute(lambda: client, ours=False)
        return Wire(route, "the cluster of the application", TIME_LIMIT.total_seconds())
    pool = getattr(client, "connection_pool", None)
    if pool is None or not hasattr(pool, "connection_kwargs") or _is_asyncio(pool):
        raise DefinitionError(
            "no store works on that",
            argument="store",
            found=f"a {type(client).__module__}.{type(client).__qualname__}",
            allowed="a client of redis-py or valkey-py (not its asyncio one)",
        )
    said = pool.connection_kwargs
    where = said.get("path") or f"{said.get('host', 'sentinels')}:{said.get('port', _SENTINEL_PORT)}"
    return Wire(ServerRoute(lambda: client, ours=False), f"redis://{where}", TIME_LIMIT.total_seconds())


def concerns(wire: Wire, key: bytes, *, durable: bool) -> Sequence[str]:
    """What an operator should see to on the server that has this key, in words."""
    said: list[str] = []
    try:
        replication = _lines(wire.command(key, "INFO", "replication"))
    except StoreUnavailable as error:
        _only_if_denied(error)
        return ["INFO is not allowed: rota cannot notice what the server forgets, and starts nothing"]
    if replication.get("role") in ("slave", "replica"):
        said.append("it is a replica: give rota the address of the primary, or redis+sentinel://")
    try:
        settings = {
            name: value
            for asked in ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save")
            for name, value in _pairs(wire.command(key, "CONFIG", "GET", asked)).items()
        }
    except StoreUnavailable as error:
        _only_if_denied(error)
        return [*said, "CONFIG GET is not allowed: make sure that maxmemory-policy is noeviction"]
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        when = "" if settings.get("maxmemory") != "0" else ", once maxmemory is set"
        said.append(
            f"maxmemory-policy is {policy}: under pressure{when} it forgets locks and decisions without"
            " notice; set noeviction"
        )
    on_disk = settings.get("appendonly") == "yes"
    if durable and not (on_disk and settings.get("appendfsync") == "always"):
        said.append(
            "durable=true is said, but appendonly is not yes or appendfsync not always: a restart may forget,"
            " and would not be noticed"
        )
    if not on_disk and not settings.get("save"):
        said.append("it writes nothing to disk: a restart forgets everything (noticed, and starts wait)")
    return said


def _only_if_denied(error: StoreUnavailable) -> None:
    """Go on where the server answered, and refused."""
    if "ResponseError" not in {kind.__name__ for kind in type(error.__cause__).__mro__}:
        raise error


def _by_sentinels(
    hosts: Sequence[tuple[str, int]], service: str, quickly: Mapping[str, Any], common: Mapping[str, Any]
) -> Any:
    said = {**quickly, "retry": Retry(NoBackoff(), 0), "protocol": 2}
    if common["password"] is not None:
        # A sentinel without a password lets its user named default in with any; it refuses a bare one.
        said |= {"username": "default", "password": common["password"]}
    sentinels: Any = Sentinel(hosts, sentinel_kwargs=said)  # type: ignore[no-untyped-call]  # theirs
    for sentinel in sentinels.sentinels:
        sentinel.connection_pool.connection_class = timed(sentinel.connection_pool.connection_class)
    return sentinels.master_for(service, **common)


def _is_asyncio(pool: Any) -> bool:
    return any(".asyncio." in kind.__module__ for kind in type(pool).__mro__)


def _hosts(netloc: str, port: int) -> list[tuple[str, int]]:
    hosts = []
    for part in netloc.split(",") if netloc else ["localhost"]:
        parsed = urlsplit(f"//{part}")
        if not parsed.hostname:
            raise ValueError(netloc)
        hosts.append((parsed.hostname, parsed.port or port))
    return hosts


def _database(path: str, address: str) -> int:
    if path and not path.isdigit():
        raise ValueError(address)
    return int(path or 0)


def _lines(found: bytes) -> dict[str, str]:
    said = (line.partition(":") for line in found.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in said if colon}


def _pairs(found: Sequence[bytes]) -> dict[str, str]:
    texts = iter(part.decode(errors="replace") for part in found)
    return dict(zip(texts, texts, strict=True))
