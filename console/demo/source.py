"""The source's side of the comparison: plain SQL, every value as ``::text``."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import psycopg2
import psycopg2.extensions
import pyarrow as pa
import pyarrow.csv
from psycopg2 import sql

_SESSION = """
SET datestyle = 'ISO'; SET timezone = 'UTC'; SET intervalstyle = 'postgres';
SET bytea_output = 'hex'; SET extra_float_digits = 3; SET lc_monetary = 'C';
"""

_COLUMNS = """
SELECT attname, atttypid = 'bpchar'::regtype,
       coalesce((SELECT attnum = ANY(indkey) FROM pg_index
                 WHERE indrelid = attrelid AND indisprimary), false)
FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """All rows of a table as text: one string column per column, null for NULL."""

    rows: pa.Table
    key: tuple[str, ...]


def read_source(dsn: str, table: str) -> SourceTable:
    """Every row of ``table`` (``schema.name``) in one snapshot, held in memory."""
    connection = psycopg2.connect(dsn)
    try:
        connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
        with connection.cursor() as cursor:
            cursor.execute(_SESSION)
            cursor.execute(_COLUMNS, (table,))
            columns = cursor.fetchall()
            key = tuple(name for name, _, is_key in columns if is_key)
            return SourceTable(_copy(cursor, table, columns), key)
    finally:
        connection.close()


def _copy(
    cursor: psycopg2.extensions.cursor, table: str, columns: list[tuple[Any, ...]]
) -> pa.Table:
    """CSV tells NULL (nothing) from an empty text (two quotes), and so does its reader here."""
    names = [name for name, *_ in columns]
    query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)").format(
        sql.SQL(", ").join(_as_text(name, blank_padded) for name, blank_padded, _ in columns),
        sql.Identifier(*table.split(".")),
    )
    buffer = io.BytesIO()
    cursor.copy_expert(query, buffer)
    if not buffer.tell():
        return pa.table({name: pa.array([], pa.string()) for name in names})
    buffer.seek(0)
    return pyarrow.csv.read_csv(
        buffer,
        read_options=pyarrow.csv.ReadOptions(column_names=names),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _as_text(name: str, blank_padded: bool) -> sql.Composable:
    """``char(n)::text`` would cut the blanks that belong to the value; its output does not."""
    column = sql.Identifier(name)
    return sql.SQL("bpcharout({})::text" if blank_padded else "{}::text").format(column)
