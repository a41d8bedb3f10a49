"""What a decision costs on each store: n occurrences claimed in one call, one by one, and as n primitives.

The primitive is what a hand-written lock would use: SET NX, INSERT, add, PutItem. Both go over loopback to
the same server, in turns, and the median of each is taken. Round trips are counted by a proxy. The last table
is the cold start of `rota run` with one task due, split into its parts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from rota import Schedule  # noqa: E402 - the path comes first
from rota.stores import DRIVERS, Store, open_store  # noqa: E402
from rota.stores.base import Claim, Look, Occurrence  # noqa: E402
from tests.servers import stop_all  # noqa: E402
from tests.servers.proxy import Proxy  # noqa: E402
from tests.servers.stores import NETWORK, server_url  # noqa: E402

SIZES = (1, 10, 100, 1000)
ROUNDS = 5
COLD = 5
LONG = timedelta(days=10_000)


def claims(store: Store, number: int) -> list[Claim]:
    """As many claims of occurrences that nobody has seen."""
    now = store.look(Look({}, datetime.now(UTC))).now
    since = now - LONG if store.look(Look({}, now)).epoch is None else now
    task = uuid.uuid4().hex
    until = now + LONG
    return [
        Claim(Occurrence(f"{task}-{k}", now), 1, "token", "web-1", since, until, timedelta(minutes=1), until)
        for k in range(number)
    ]


def primitive(kind: str, url: str, folder: Path) -> Callable[[], object]:
    """One single-key lock of that server, on a key that nobody holds."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 0

    def key() -> str:
        return f"lock:{uuid.uuid4().hex}"

    if kind in ("redis", "valkey"):
        import redis

        client = redis.Redis(host=host, port=port)
        return lambda: client.set(key(), "token", nx=True, px=60_000)
    if kind == "postgresql":
        import psycopg

        sql: Any = psycopg.connect(urlunsplit(parts._replace(query="")), autocommit=True)
        sql.execute("CREATE TABLE IF NOT EXISTS plain_lock (name text PRIMARY KEY, token text)")
        insert = "INSERT INTO plain_lock VALUES (%s, 'token') ON CONFLICT DO NOTHING"
        return lambda: sql.execute(insert, (key(),))
    if kind == "mysql":
        import pymysql

        connection = pymysql.connect(
            host=host,
            port=port,
            user=parts.username or "root",
            password=parts.password or "",
            database=parts.path.strip("/"),
            autocommit=True,
        )
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE IF NOT EXISTS plain_lock (name varchar(99) PRIMARY KEY, token text)")
        return lambda: cursor.execute("INSERT INTO plain_lock VALUES (%s, 'token')", (key(),))
    if kind == "memcached":
        from pymemcache.client.base import Client

        cache = Client((host, port), default_noreply=False)
        return lambda: cache.add(key(), b"token", expire=60)
    if kind == "dynamodb":
        return dynamodb_primitive(url, key)
    import sqlite3

    file = sqlite3.connect(folder / "plain.db", isolation_level=None)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = FULL")
    file.execute("CREATE TABLE IF NOT EXISTS plain_lock (name TEXT PRIMARY KEY, token TEXT)")
    return lambda: file.execute("INSERT OR IGNORE INTO plain_lock VALUES (?, 'token')", (key(),))


def dynamodb_primitive(url: str, key: Callable[[], str]) -> Callable[[], object]:
    import boto3

    endpoint = dict(part.split("=", 1) for part in urlsplit(url).query.split("&"))["endpoint_url"]
    client: Any = boto3.client(
        "dynamodb",
        region_name="eu-central-1",
        endpoint_url=endpoint.replace("%3A", ":").replace("%2F", "/"),
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    if "plain" not in client.list_tables()["TableNames"]:
        client.create_table(
            TableName="plain",
            KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        client.get_waiter("table_exists").wait(TableName="plain", WaiterConfig={"Delay": 1})
    return lambda: client.put_item(
        TableName="plain",
        Item={"name": {"S": key()}},
        ConditionExpression="attribute_not_exists(#n)",
        ExpressionAttributeNames={"#n": "name"},
    )


def took(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def repeated(work: Callable[[], object], number: int) -> Callable[[], None]:
    def all_of_them() -> None:
        for _ in range(number):
            work()

    return all_of_them


def through(proxy: Proxy, url: str, port: int) -> str:
    """The same URL by way of the proxy."""
    return url.replace(f":{port}", f":{proxy.port}").replace(f"%3A{port}", f"%3A{proxy.port}")


def port_of(url: str) -> int:
    parts = urlsplit(url)
    if parts.port:
        return parts.port
    return int(url.replace("%3A", ":").rpartition(":")[2].partition("&")[0].rstrip("/"))


def fresh(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}namespace=bench/{uuid.uuid4().hex}"


def decide(kind: str, folder: Path) -> None:
    url = server_url(kind, folder)
    store = open_store(fresh(url), namespace="")
    single = primitive(kind, url, folder)
    store.claim(claims(store, 1))
    wait_past_the_epoch(store)
    single()
    for size in SIZES:
        batch: list[float] = []
        each: list[float] = []
        singles: list[float] = []
        for _ in range(ROUNDS if size < 1000 else 3):
            asked, again = claims(store, size), claims(store, size)
            batch.append(took(lambda asked=asked: store.claim(asked)))
            each.append(took(lambda again=again: [store.claim([claim]) for claim in again]))
            singles.append(took(repeated(single, size)))
        mine, one_by_one, theirs = map(statistics.median, (batch, each, singles))
        print(
            f"{kind:11} {size:5} due   trips {trips(kind, url, size):>4}   decided in {mine:8.2f} ms"
            f"   one by one {one_by_one:8.2f} ms = {one_by_one / mine:5.1f}x"
            f"   single primitives {theirs:8.2f} ms = {theirs / mine:5.1f}x"
        )
    store.close()


def wait_past_the_epoch(store: Store) -> None:
    epoch = store.look(Look({}, datetime.now(UTC))).epoch
    while epoch is not None and store.look(Look({}, epoch)).now <= epoch + store.guarantees.grain:
        time.sleep(0.01)


def trips(kind: str, url: str, size: int) -> str:
    if kind == "sqlite":
        return "-"
    with Proxy(port_of(url)) as proxy:
        store = open_store(fresh(through(proxy, url, port_of(url))), namespace="")
        store.claim(claims(store, 1))
        wait_past_the_epoch(store)
        asked = claims(store, size)
        before = proxy.trips
        store.claim(asked)
        counted = proxy.trips - before
        store.close()
    return str(counted)


SCHEDULE = """
import os
from rota import Schedule

schedule = Schedule("cold")
schedule.call(int).name("one").once(at=os.environ["DUE"])
"""


def cold_start(kind: str, folder: Path) -> None:
    """One `rota run` with one task due: the whole, and what of it Python, rota and the client library are."""
    folder.mkdir()
    (folder / "schedule.py").write_text(SCHEDULE)
    url = fresh(server_url(kind, folder))
    store = open_store(url, namespace="")
    wait_past_the_epoch(store)
    driver = DRIVERS[urlsplit(url).scheme]
    nothing = f"import {driver.module}"
    parts: dict[str, list[float]] = {"python": [], "rota": [], "driver": [], "run": []}
    env = os.environ | {"ROTA_STORE": url, "ROTA_STATE_DIR": str(folder / "state")}
    engine = (
        "import rota.cli.run, rota._engine.runner, rota._engine.executor, rota.cli.messages, rota.stores.base"
    )
    for _ in range(COLD):
        parts["python"].append(process(["-c", "pass"], folder, env))
        parts["rota"].append(process(["-c", engine], folder, env))
        parts["driver"].append(process(["-c", f"{engine}; {nothing}"], folder, env))
        at = store.look(Look({}, datetime.now(UTC))).now - timedelta(milliseconds=20)
        schedule = Schedule("cold")
        schedule.call(int).name("one").once(at=at.isoformat())
        store.advance({schedule["one"].mark_key: at - timedelta(seconds=1)}, first=True)
        parts["run"].append(process(["-m", "rota", "run"], folder, env | {"DUE": at.isoformat()}))
    python, rota, with_driver, whole = (statistics.median(times) for times in parts.values())
    print(
        f"{kind:11} {whole:7.1f} ms = {whole / python:4.1f}x a bare start:  python {python:5.1f}"
        f"  rota {rota - python:5.1f}  driver {with_driver - rota:6.1f}"
        f"  schedule, round trips and the run {whole - with_driver:6.1f}"
    )
    store.close()


def process(words: list[str], folder: Path, env: dict[str, str]) -> float:
    command = [sys.executable, *words]
    return took(lambda: subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL))


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    kinds = sys.argv[1:] or ["sqlite", *NETWORK]
    try:
        with tempfile.TemporaryDirectory() as name:
            for kind in kinds:
                decide(kind, Path(name))
            print()
            for kind in kinds:
                cold_start(kind, Path(name) / kind)
    finally:
        stop_all()


if __name__ == "__main__":
    main()
