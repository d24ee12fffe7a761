# ruff: noqa: S608  statements are made of our own names
"""Reads the demo's BigQuery tables with Google's client, and damages them by SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from devtools.demo.damage import FAR_FUTURE, INVENTED, Damage
from tideline.contract.schema import TableId
from tideline.contract.types import parse_type
from tideline.settings import Settings, Warehouse
from tideline.warehouse.bigquery.client import BigQueryPlace, open_client
from tideline.warehouse.bigquery.names import name_of
from tideline.warehouse.bigquery.reader import open_bigquery


def read_bigquery(place: Warehouse, url: str) -> pa.Table | None:
    """Read all rows of a table as Arrow; None where there is no table."""
    reader = open_bigquery(url, place)
    if reader is None:
        return None
    rows = open_client(BigQueryPlace.of(place)).list_rows(str(name_of(url)))
    read = rows.to_arrow(create_bqstorage_client=False)
    types = {one.name: one.type for one in reader.columns()}
    return pa.table({name: as_declared(read[name], types[name]) for name in types})


def as_declared(column: Any, type_text: object) -> Any:
    """Return a column with the digits and the width of the type that ``type_text`` names, which
    Google's client does not give it; pairs as a map."""
    kind = column.type
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        pairs = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)
        keys, values = pairs.values.flatten()
        return pa.MapArray.from_arrays(pairs.offsets, keys, values)
    if pa.types.is_decimal(kind):
        logical = parse_type(str(type_text))
        return column.cast(pa.decimal128(logical.precision, logical.scale))
    return column.cast(pa.float32()) if type_text == "float" else column


def damage_bigquery(settings: Settings, schema: str) -> Damage:
    """Damage the tables of ``schema`` named in `damage.NAMES`; return the numbers of damaged
    rows."""
    client = open_client(BigQueryPlace.of(settings.warehouse_storage))

    def name(table: str) -> str:
        return name_of(settings.target_url(TableId(schema, table))).sql

    def run(sql: str) -> list[Any]:
        return list(client.query(sql).result())

    def each(statements: Mapping[tuple[str, str], str]) -> int:
        rows = 0
        for (table, where), statement in statements.items():
            rows += run(f"SELECT COUNT(*) FROM {table} WHERE {where}")[0][0]
            run(f"{statement} WHERE {where}")
        return rows

    customers, products, coupons = map(name, ("customers", "products", "coupons"))
    damaged = "name = 'damaged', credit_limit = NULL"
    cheap = f"price = 0.01, _tl_seq = {FAR_FUTURE}"
    changed = each(
        {
            (customers, "MOD(id, 400) = 7"): f"UPDATE {customers} SET {damaged}",
            (products, "MOD(id, 100) = 3"): f"UPDATE {products} SET {cheap}",
        }
    )
    deleted = each(
        {
            (customers, "MOD(id, 1000) = 11"): f"DELETE FROM {customers}",
            (coupons, "code LIKE 'WELCOME-1%'"): f"DELETE FROM {coupons}",
        }
    )
    columns = [one.name for one in client.get_table(coupons.replace("`", "")).schema]
    listed = ", ".join(f"`{one}`" for one in columns)
    values = ", ".join(f"'{INVENTED}'" if one == "code" else f"`{one}`" for one in columns)
    run(f"INSERT INTO {coupons} ({listed}) SELECT {values} FROM {coupons} LIMIT 1")
    return Damage(changed, deleted, 1)
