"""The entry of a table of Spark's in a Hive metastore, as Spark 4 itself writes and reads it.

Hive cannot read such a table: its columns are a placeholder there, and the address is a property of
the serde, as every reader of these entries knows (Spark, Trino, Athena). AWS Glue has the same
entries. Sources: `HiveExternalCatalog` of Spark; "Synchronize Delta Lake metadata" of Athena's user
guide; `test_spark_reads_by_name_what_it_would_have_registered_alike` compares with an entry that
Spark has made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from tideline.catalog.base import CatalogTable
from tideline.warehouse.base import TableColumn

EXTERNAL = "EXTERNAL_TABLE"
SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
INPUT_FORMAT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
PATH = "path"
_SCHEMA = "spark.sql.sources.schema"
_PART_MAX = 4_000
"""Characters of a property that every metastore's database holds; Spark splits schemas so, too."""


def table_properties(table: CatalogTable) -> dict[str, str]:
    """Return the properties of a table's entry; its schema has comments and NOT NULL."""
    return {
        "EXTERNAL": "TRUE",
        "spark.sql.sources.provider": table.format,
        "spark.sql.partitionProvider": "catalog",
        **({"comment": table.comment[:_PART_MAX]} if table.comment else {}),
        **_schema_properties(table),
        **table.properties(),
    }


def properties_of_others(found: Mapping[str, str]) -> dict[str, str]:
    """Return those of an entry's properties that `table_properties` does not make; an update keeps
    them."""
    ours = ("tideline.", _SCHEMA)
    return {k: v for k, v in found.items() if not k.startswith(ours) and k != "comment"}


def serde_properties(table: CatalogTable) -> dict[str, str]:
    """Return the properties of the serde: the address, as Hadoop has paths."""
    return {"serialization.format": "1", PATH: path_of(table.location)}


def path_of(url: str) -> str:
    """Return a percent-encoded url as a path of Hadoop's, which is not encoded."""
    return unquote(url)


def schema_json(table: CatalogTable) -> str:
    """Return the columns as Spark's JSON."""
    return msgspec.json.encode(
        {"type": "struct", "fields": [field_json(one) for one in table.columns]}
    ).decode()


def field_json(column: TableColumn) -> Mapping[str, Any]:
    """Return a column as a field of Spark's JSON."""
    return {
        "name": column.name,
        "type": column.type,
        "nullable": column.nullable,
        "metadata": {"comment": column.comment} if column.comment else {},
    }


def _schema_properties(table: CatalogTable) -> dict[str, str]:
    text = schema_json(table)
    if len(text) <= _PART_MAX:
        return {_SCHEMA: text}
    parts = [text[at : at + _PART_MAX] for at in range(0, len(text), _PART_MAX)]
    numbered = {f"{_SCHEMA}.part.{number}": part for number, part in enumerate(parts)}
    return {f"{_SCHEMA}.numParts": str(len(parts)), **numbered}
