"""Counts rows of a target that lack a column's value, and lists their keys to read again."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from tideline.contract.part import PENDING
from tideline.contract.receipt import PENDING_KEYS_MAX
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind
from tideline_spark.formats.base import Target
from tideline_spark.schemas import column as col
from tideline_spark.schemas import quote

LACKING = (f"{quote(PENDING)} IS NOT NULL", f"size({quote(PENDING)}) > 0")
"""Conditions, in SQL, for such rows, of which Spark skips files by the first; a format without NULL
lists needs the second."""
Keys = tuple[tuple[str, ...], ...]


def pending_rows(target: Target, live: str, schema: TableSchema) -> tuple[int, Keys]:
    """Return the number of such rows of ``target`` that the condition ``live`` holds for, and their
    keys in the form of a dump request.

    No keys above `PENDING_KEYS_MAX`: the whole table must be read again then.
    """
    rows = target.rows_of([*schema.key, PENDING], [live, *LACKING])
    texts = [key_text(schema, name) for name in schema.key]
    found = rows.select(*texts).limit(PENDING_KEYS_MAX + 1).collect()
    if len(found) > PENDING_KEYS_MAX:
        return rows.count(), ()
    return len(found), tuple(tuple(row) for row in found)


def key_text(schema: TableSchema, name: str) -> Column:
    """Return a key column as text for the source; timestamps are in UTC, the session's zone."""
    value = col(name)
    if schema.column(name).logical.kind is Kind.BINARY:
        return F.concat(F.lit("\\x"), F.lower(F.hex(value)))
    return value.cast("string")
