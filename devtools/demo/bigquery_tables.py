# ruff: noqa: S608  statements are made of our own names
"""Reads the demo's BigQuery tables with Google's client, and damages them by SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from devtools.demo.damage import FAR_FUTURE, INVENTED, Damage
from tideline.contract.schema import TableId
from tideline.settings import Settings, Warehouse
from tideline.warehouse.bigquery.client import BigQueryPlace, open_client
from tideline.warehouse.bigquery.names import name_of

if TYPE_CHECKING:
    from google.cloud.bigquery import SchemaField

_TEXTS = pa.map_(pa.string(), pa.string())


def read_bigquery(place: Warehouse, url: str) -> pa.Table | None:
    """Read all rows of a table as Arrow; None where there is no table."""
    # heavy: only the demo of BigQuery tables needs it
    from google.api_core.exceptions import NotFound

    client = open_client(BigQueryPlace.of(place))
    try:
        found = client.get_table(str(name_of(url)))
    except NotFound:
        return None
    rows = client.list_rows(found).to_arrow(create_bqstorage_client=False)
    columns = {one.name: _as_declared(rows[one.name], one) for one in found.schema}
    return pa.table(columns)


def _as_declared(column: Any, field: SchemaField) -> Any:
    """Return a column with the digits that it was declared with, and pairs as a map."""
    if field.mode == "REPEATED" and field.field_type in ("RECORD", "STRUCT"):
        return column.cast(_TEXTS)
    if field.precision is not None and field.mode != "REPEATED":
        return column.cast(pa.decimal128(field.precision, field.scale or 0))
    return column


def damage_bigquery(settings: Settings, schema: str) -> Damage:
    """Damage the tables of ``schema`` named in `damage.NAMES`; return the numbers of damaged
    rows."""
    client = open_client(BigQueryPlace.of(settings.warehouse_storage))

    def name(table: str) -> str:
        return name_of(settings.target_url(TableId(schema, table))).sql

    def run(sql: str) -> int:
        return int(client.query(sql).result().num_dml_affected_rows or 0)

    customers, products, coupons = map(name, ("customers", "products", "coupons"))
    damaged = "name = 'damaged', credit_limit = NULL"
    changed = run(f"UPDATE {customers} SET {damaged} WHERE MOD(id, 400) = 7")
    cheap = f"price = 0.01, _tl_seq = {FAR_FUTURE}"
    changed += run(f"UPDATE {products} SET {cheap} WHERE MOD(id, 100) = 3")
    deleted = run(f"DELETE FROM {customers} WHERE MOD(id, 1000) = 11")
    deleted += run(f"DELETE FROM {coupons} WHERE code LIKE 'WELCOME-1%'")
    columns = [one.name for one in client.get_table(coupons.replace("`", "")).schema]
    listed = ", ".join(f"`{one}`" for one in columns)
    values = ", ".join(f"'{INVENTED}'" if one == "code" else f"`{one}`" for one in columns)
    invented = f"INSERT INTO {coupons} ({listed}) SELECT {values} FROM {coupons} LIMIT 1"
    return Damage(changed, deleted, run(invented))
