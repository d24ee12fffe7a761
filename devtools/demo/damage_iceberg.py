"""Damages the demo's Iceberg tables as `devtools.demo.damage` does its Delta tables: by SQL."""

from __future__ import annotations

from devtools.demo.damage import FAR_FUTURE, INVENTED, Damage
from tideline.contract.schema import TableId
from tideline.settings import Settings
from tideline.warehouse.iceberg.names import identifier_of
from tideline_console.spark import spark_session


def damage_iceberg(settings: Settings, schema: str) -> Damage:
    """Damage the tables of ``schema`` named in `damage.NAMES`; return the numbers of damaged
    rows."""

    def name(table: str) -> str:
        parts = identifier_of(settings.target_url(TableId(schema, table)))
        return ".".join(f"`{part}`" for part in ("tideline", *parts))

    customers, products, coupons = map(name, ("customers", "products", "coupons"))
    changed = {
        (customers, "id % 400 = 7"): "name = 'damaged', credit_limit = NULL",
        (products, "id % 100 = 3"): f"price = 0.01, _tl_seq = {FAR_FUTURE}",
    }
    deleted = ((customers, "id % 1000 = 11"), (coupons, "code LIKE 'WELCOME-1%'"))
    with spark_session(settings, "damage") as spark:

        def count(table: str, rows: str) -> int:
            return spark.table(table).where(rows).count()

        changes = sum(count(*which) for which in changed)
        for (table, rows), values in changed.items():
            spark.sql(f"UPDATE {table} SET {values} WHERE {rows}")  # noqa: S608  all of it is ours
        deletes = sum(count(*which) for which in deleted)
        for table, rows in deleted:
            spark.sql(f"DELETE FROM {table} WHERE {rows}")  # noqa: S608  as above
        columns = ", ".join(
            f"'{INVENTED}' AS code" if one == "code" else f"`{one}`"
            for one in spark.table(coupons).columns
        )
        invented = f"SELECT {columns} FROM {coupons} LIMIT 1"  # noqa: S608  as above
        spark.sql(f"INSERT INTO {coupons} {invented}")
    return Damage(changes, deletes, 1)
