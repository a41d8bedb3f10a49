"""Opens a store by its URL, or on a client that the application has already; a driver is imported when
it is asked for, never before.

    memory:                                    this process, for tests and single-process applications
    sqlite:///rota.db                          this host; relative to the working directory
    sqlite:////var/lib/shop/rota.db            this host; four slashes make an absolute path
    redis://:password@host:6379/0              and rediss:// (TLS), valkey://, valkeys://
    redis+sentinel://host:26379/service/0      the primary that the sentinels name
    redis+cluster://host:6379
    postgresql://user:password@host/shop       psycopg's own parameters may follow: ?sslmode=require
    mysql://user:password@host/shop            and mariadb://
    dynamodb://eu-central-1/rota
    memcached://host:11211
    django://default                           the database of that alias in a Django project's settings

Options follow in the query: `?timeout=2` (no call waits longer than two seconds; default 5), `?namespace=`
(instead of application and environment), and what `DRIVERS` says of each. A new store is a module with a
row there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib import import_module
from types import MappingProxyType, ModuleType
from urllib.parse import parse_qsl

from rota._core.errors import DefinitionError
from rota._core.value import NOTHING, value
from rota.stores.base import TIME_LIMIT, Store

__all__ = ["DRIVERS", "Driver", "Store", "open_store", "schema_of", "shown"]


def _seconds(text: str) -> timedelta:
    with suppress(ValueError):
        seconds = float(text)
        if 0 < seconds <= TIME_LIMIT.total_seconds():
            return timedelta(seconds=seconds)
    raise ValueError(f"more than 0, at most {TIME_LIMIT.total_seconds():g} seconds")


def _endpoint(text: str) -> str:
    if re.fullmatch(r"https?://[^\s/?#@]+/?", text):
        return text
    raise ValueError("http://host:port or https://host")


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text]
    except KeyError:
        raise ValueError("true or false") from None


def _count(text: str) -> int:
    if re.fullmatch("[0-9]{1,2}", text):
        return int(text)
    raise ValueError("a number from 0 to 99")


def _prefix(text: str) -> str:
    if re.fullmatch("[a-z_][a-z0-9_]{0,29}", text):
        return text
    raise ValueError("small letters, digits and _, at most 30, a letter or _ first")


@value
class Driver:
    """Where a scheme is served: `module.opener(address, namespace=..., **options)`, the address being the
    URL without its query. `library` is the client library it needs, `extra` the extra of rota with it.

    `clients` are the packages of clients that `module.wrap(client, namespace=...)` takes, which with
    `wraps_engines` takes SQLAlchemy's engines as well. With `passes`, options that are not in `options` are
    the client library's own and stay in the address.
    """

    module: str
    opener: str
    example: str
    options: Mapping[str, Callable[[str], object]] = NOTHING
    library: str = ""
    extra: str = ""
    clients: tuple[str, ...] = ()
    passes: bool = False
    wraps_engines: bool = False


_LIMITED: Mapping[str, Callable[[str], object]] = {"timeout": _seconds}
_TABLES: Mapping[str, Callable[[str], object]] = {**_LIMITED, "create": _boolean, "prefix": _prefix}
_MYSQL: Mapping[str, Callable[[str], object]] = {
    **_TABLES,
    "unix_socket": str,
    "ssl": _boolean,
    "ssl_ca": str,
}
_REDIS: Mapping[str, Callable[[str], object]] = {
    **_LIMITED,
    "wait_replicas": _count,
    "durable": _boolean,
    **dict.fromkeys(("ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_keyfile"), str),
}


def _redis(example: str) -> Driver:
    module = "rota.stores.redis"
    return Driver(module, "open_redis", example, _REDIS, "redis", "redis", ("redis", "valkey"))


def _postgresql(example: str) -> Driver:
    return Driver(
        "rota.stores.sql.postgresql",
        "open_postgresql",
        example,
        _TABLES,
        "psycopg",
        "postgresql",
        ("psycopg", "psycopg_pool"),
        passes=True,
        wraps_engines=True,
    )


def _mysql(example: str) -> Driver:
    module = "rota.stores.sql.mysql"
    return Driver(module, "open_mysql", example, _MYSQL, "pymysql", "mysql", ("pymysql",), wraps_engines=True)


DRIVERS: Mapping[str, Driver] = MappingProxyType(
    {
        "redis": _redis("redis://host:6379/0"),
        "postgresql": _postgresql("postgresql://user:password@host/shop"),
        "postgres": _postgresql("postgres://user:password@host/shop"),
        "rediss": _redis("rediss://user:password@host:6379/0"),
        "valkey": _redis("valkey://host:6379/0"),
        "valkeys": _redis("valkeys://host:6379/0"),
        "redis+sentinel": _redis("redis+sentinel://host:26379,other:26379/service/0"),
        "redis+cluster": _redis("redis+cluster://host:6379,other:6379"),
        "redis+unix": _redis("redis+unix:///run/redis.sock"),
        "mysql": _mysql("mysql://user:password@host/shop"),
        "mariadb": _mysql("mariadb://user:password@host/shop"),
        "memory": Driver("rota.stores.memory", "open_memory", "memory:"),
        "sqlite": Driver(
            "rota.stores.sql.sqlite",
            "open_sqlite",
            "sqlite:///rota.db",
            {**_LIMITED, "create": _boolean},
            wraps_engines=True,
        ),
        "django": Driver(
            "rota.stores.django_alias",
            "open_django",
            "django://default",
            library="django",
            extra="django",
            passes=True,
        ),
        "dynamodb": Driver(
            "rota.stores.dynamodb",
            "open_dynamodb",
            "dynamodb://eu-central-1/rota",
            {**_LIMITED, "create": _boolean, "endpoint_url": _endpoint},
            "botocore",
            "dynamodb",
            ("boto3", "botocore"),
        ),
        "memcached": Driver(
            "rota.stores.memcached",
            "open_memcached",
            "memcached://host:11211",
            _LIMITED,
            "pymemcache",
            "memcached",
            ("pymemcache",),
        ),
    }
)


def open_store(store: object, *, namespace: str) -> Store:
    """The store behind a URL or on a client, for the application and environment that `namespace` names.

    What no driver can mean raises DefinitionError, with what exists. Whatever the world outside does (a
    missing folder, a server that is down) shows as StoreUnavailable at the first call.
    """
    if isinstance(store, str):
        return _by_url(store, namespace)
    driver = _driver_of(store)
    if driver is not None:
        return _wrapped(driver, store, namespace)
    if isinstance(store, Store):  # asked last: a client whose every attribute is made up would pass for one
        return store
    known = dict.fromkeys(name for driver in DRIVERS.values() for name in driver.clients)
    raise DefinitionError(
        "no store works on that",
        argument="store",
        found=f"a {type(store).__module__}.{type(store).__qualname__}",
        allowed=f"a URL, a client of {', '.join(known)}, an engine of SQLAlchemy",
        hint="a function that connects is named with its library: partial(psycopg.connect, ...)",
    )


def _driver_of(client: object) -> Driver | None:
    """Whose client of the application's own this is, told by the packages its class is made of.

    An engine of SQLAlchemy is told by the dialect that it speaks; `partial(psycopg.connect, ...)` by what it
    calls.
    """
    packages = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    if isinstance(client, partial):
        packages.add(str(getattr(client.func, "__module__", "")).partition(".")[0])
    dialect = getattr(client, "dialect", None) if "sqlalchemy" in packages else None
    if dialect is not None:
        driver = DRIVERS.get(dialect.name)
        return driver if driver is not None and driver.wraps_engines else None
    return next((driver for driver in DRIVERS.values() if packages & {*driver.clients}), None)


def _wrapped(driver: Driver, client: object, namespace: str) -> Store:
    store: Store = _module(driver, type(client).__module__).wrap(client, namespace=namespace)
    return store


def schema_of(scheme: str) -> str:
    """The tables of a store of that scheme, as its own administrators write them, ending in a line end.

    Raises DefinitionError where the client library is missing."""
    schema: str = _module(DRIVERS[scheme], scheme).schema()
    return schema


def _by_url(url: str, namespace: str) -> Store:
    scheme, _, _ = url.partition(":")
    driver = DRIVERS.get(scheme)
    if driver is None:
        examples = ", ".join(known.example for known in DRIVERS.values())
        raise DefinitionError("no such store", argument="store", found=shown(url), allowed=examples)
    address, _, query = url.partition("?")
    options: dict[str, object] = {}
    passed: list[str] = []
    for part in filter(None, query.split("&")):
        ((name, text),) = parse_qsl(part, keep_blank_values=True)
        if name == "namespace":
            namespace = text
        elif name in driver.options:
            options[name] = _option(driver.options[name], name, text, url)
        elif driver.passes:
            passed.append(part)
        else:
            allowed = ", ".join((*driver.options, "namespace"))
            raise DefinitionError(
                f"{scheme} has no such option", argument="store", found=f"{name}=", allowed=allowed
            )
    if passed:
        address += "?" + "&".join(passed)
    opener = getattr(_module(driver, shown(url)), driver.opener)
    try:
        opened: Store = opener(address, namespace=namespace, **options)
    except DefinitionError:
        raise
    except ValueError:
        raise DefinitionError(
            f"not a {scheme} address", argument="store", found=shown(url), allowed=driver.example
        ) from None
    return opened


def _option(read: Callable[[str], object], name: str, text: str, url: str) -> object:
    try:
        return read(text)
    except ValueError as error:
        raise DefinitionError(
            f"the option {name} cannot mean that", argument="store", found=shown(url), allowed=str(error)
        ) from None


def _module(driver: Driver, found: str) -> ModuleType:
    try:
        return import_module(driver.module)
    except ModuleNotFoundError as error:
        if not driver.library or (error.name or "").partition(".")[0] != driver.library:
            raise
        raise DefinitionError(
            f"the client library is not installed: pip install 'rota[{driver.extra}]'",
            argument="store",
            found=found,
        ) from None


_USERINFO = re.compile(r"(?<=://)([^/:@]*):[^?]*@")
_SECRET_OPTION = re.compile(r"(?i)([?&;][^=&;]*(?:pass|pwd|secret|token|key)[^=&;]*=)[^&;#]*")


def shown(url: str) -> str:
    """The URL as it may be printed: passwords are three stars."""
    return _SECRET_OPTION.sub(r"\1***", _USERINFO.sub(r"\1:***@", url))
