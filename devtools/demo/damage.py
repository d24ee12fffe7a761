"""Damages the demo's warehouse on purpose, as a careless user of a SQL client would.

Values are overwritten, rows deleted, rows invented, and some damaged rows get a sequence number
from the far future, so that by number alone they would look newer than any later change. All of it
bypasses Tideline and goes directly to the Delta tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from tideline.contract.layout import table_path
from tideline.contract.schema import TableId
from tideline.settings import Settings
from tideline.warehouse.access import storage_options
from tideline.warehouse.delta.reader import delta_table

FAR_FUTURE = 2**62
INVENTED = "INVENTED"
NAMES = ("customers", "products", "coupons")
"""The tables that ``damage_delta`` changes."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The numbers of rows changed, deleted and invented."""

    changed: int
    deleted: int
    invented: int


def damage_delta(settings: Settings, schema: str) -> Damage:
    """Damage the tables of ``schema`` named in `NAMES`; return the numbers of damaged rows."""
    place = settings.warehouse_storage
    customers, products, coupons = (
        delta_table(table_path(place.url, TableId(schema, name)), storage_options(place))
        for name in NAMES
    )
    changed = customers.update(
        predicate="id % 400 = 7", updates={"name": "'damaged'", "credit_limit": "NULL"}
    )["num_updated_rows"]
    changed += products.update(
        predicate="id % 100 = 3", updates={"price": "0.01", "_tl_seq": str(FAR_FUTURE)}
    )["num_updated_rows"]
    deleted = customers.delete("id % 1000 = 11")["num_deleted_rows"]
    deleted += coupons.delete("code LIKE 'WELCOME-1%'")["num_deleted_rows"]
    return Damage(int(changed), int(deleted), _invent(coupons))


def _invent(coupons: DeltaTable) -> int:
    """Add a row that the source never had: a copy of another, under a new key."""
    query = QueryBuilder().register("coupons", coupons).execute("SELECT * FROM coupons LIMIT 1")
    rows = pa.table(query.read_all())
    at = rows.schema.get_field_index("code")
    write_deltalake(
        coupons,
        rows.set_column(at, rows.field(at), pa.array([INVENTED], rows.field(at).type)),
        mode="append",
    )
    return 1
