"""How the store is opened: by a URL, or on the application's own client; and what a table may lack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import botocore.session
from botocore.config import Config

from rota.stores.base import DefinitionError
from rota.stores.dynamodb.table import INDEXES, definition
from rota.stores.dynamodb.wire import AT_A_TIME, Wire

_TABLE: Final = "rota"
_FEW_UNITS: Final = 25
_HOST_OFF: Final = timedelta(minutes=1)


def worries(table: Mapping[str, Any], host_is_ahead: timedelta) -> Iterator[str]:
    name = table["TableName"]
    there = {index["IndexName"] for index in table.get("LocalSecondaryIndexes", ())}
    if not there.issuperset(INDEXES):
        yield f"{name} is not a table of rota: the local indexes {', '.join(INDEXES)} are not all there"
    elsewhere = [replica["RegionName"] for replica in table.get("Replicas", ())]
    if elsewhere and table.get("MultiRegionConsistency") != "STRONG":
        yield (
            f"{name} is a global table with copies in {', '.join(elsewhere)}: the last writer wins, so"
            " servers in two regions can start the same occurrence. Let all servers use one region"
        )
    given = table.get("ProvisionedThroughput", {})
    on_demand = table.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST"
    least = min(given.get("ReadCapacityUnits", 0), given.get("WriteCapacityUnits", 0))
    if not on_demand and least < _FEW_UNITS:
        yield (
            f"{name} has only {least} provisioned units a second; a decision takes about three: what comes at"
            " once is put off. PAY_PER_REQUEST has no such limit"
        )
    if table.get("TableClassSummary", {}).get("TableClass") == "STANDARD_INFREQUENT_ACCESS":
        yield f"{name} is of the class for infrequent access: its many small requests cost more there"
    if abs(host_is_ahead) > _HOST_OFF:
        side = "ahead of" if host_is_ahead > timedelta(0) else "behind"
        yield (
            f"the clock of this host is {timedelta(seconds=round(abs(host_is_ahead).total_seconds()))} {side}"
            " DynamoDB's: AWS refuses requests that are signed more than five minutes apart"
        )


def schema(table: str = "rota") -> str:
    """The table, for `aws dynamodb create-table --cli-input-json`."""
    return json.dumps(definition(table), indent=2) + "\n"


def wire_to(address: str, endpoint_url: str | None, limit: timedelta, *, create: bool) -> Wire:
    """The way to the table that a URL names, by a client of our own."""
    found = re.fullmatch(r"dynamodb://([a-z0-9-]+)(?:/|/([A-Za-z0-9_.-]{3,255}))?", address)
    if found is None:
        raise ValueError(address)
    region, table = found[1], found[2] or _TABLE

    def make(patience: float) -> Any:
        config = Config(
            connect_timeout=patience,
            read_timeout=patience,
            max_pool_connections=AT_A_TIME,
            retries={"total_max_attempts": 1, "mode": "standard"},
        )
        session = botocore.session.get_session()
        return session.create_client("dynamodb", region_name=region, endpoint_url=endpoint_url, config=config)

    return Wire(make, table, f"dynamodb://{region}/{table}{_at(endpoint_url)}", limit=limit, create=create)


def wire_on(client: Any, table: str, limit: timedelta, *, create: bool) -> Wire:
    """The way to a table by the application's own client, or to the table of a resource."""
    resource = getattr(client.meta, "client", None)
    real, name = (client, table) if resource is None else (resource, getattr(client, "name", None))
    service = real.meta.service_model.service_name
    if service != "dynamodb" or name is None:
        raise DefinitionError(
            "no store works on that",
            argument="store",
            found=f"a {type(client).__qualname__} of {service}",
            allowed="a client of dynamodb, or a Table",
        )
    where = f"dynamodb://{real.meta.region_name}/{name}{_at(real.meta.endpoint_url)}"
    plain = resource is not None
    return Wire(lambda _: real, name, where, limit=limit, create=create, ours=False, plain=plain)


def _at(endpoint_url: str | None) -> str:
    """The endpoint as it may be shown, where it is not AWS's own."""
    host = urlsplit(endpoint_url or "").netloc.rpartition("@")[2]
    return "" if not host or host.endswith((".amazonaws.com", ".amazonaws.com.cn")) else f" at {host}"
