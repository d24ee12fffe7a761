"""PostgreSQL as the demo's source. Its rows are read by plain SQL, every value as ``::text``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extensions
import pyarrow as pa
import pyarrow.csv
from psycopg2 import sql

from devtools.demo.databases.base import DATABASE, ShopDatabase, Size, SourceTable, SourceWords
from devtools.demo.databases.postgres_shop import GRANTS, STATEMENTS
from devtools.demo.databases.postgres_text import as_text
from devtools.services.postgres import NOT_DURABLE, SUPERUSER, PostgresServer
from tideline.contract.position import PostgresPosition, SourcePosition, parse_lsn

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


class PostgresWords:
    """See `SourceWords`."""

    now = "clock_timestamp()"
    merged_preferences = "preferences || %s::jsonb"
    no_end = "'infinity'"

    def texts(self, values: Sequence[str | None] | None) -> object:
        return None if values is None else list(values)


class PostgresShopServer:
    """See `ShopServer`."""

    def __init__(self, folder: Path) -> None:
        self._server = PostgresServer(folder, settings=NOT_DURABLE, name="source")

    def start(self) -> None:
        start_with_database(self._server, DATABASE)

    def remove(self) -> None:
        self._server.remove()

    def url(self, *, user: str | None = None, password: str | None = None) -> str:
        return self._server.dsn(DATABASE, user=user or SUPERUSER, password=password)


class Postgres:
    """See `ShopDatabase`."""

    title = "PostgreSQL"
    schema = "public"
    words: SourceWords = PostgresWords()

    def new_server(self, folder: Path) -> PostgresShopServer:
        return PostgresShopServer(folder)

    def connect(self, url: str, name: str) -> Any:
        connection = psycopg2.connect(url, application_name=name)
        connection.autocommit = True
        return connection

    def create_shop(self, url: str, size: Size) -> None:
        with closing(self.connect(url, "shop")) as connection, connection.cursor() as cursor:
            for statement in STATEMENTS:
                cursor.execute(size.put_into(statement))

    def grant_capture(self, url: str, password: str) -> None:
        with closing(self.connect(url, "shop")) as connection, connection.cursor() as cursor:
            cursor.execute(GRANTS, (password,))

    def read_table(self, url: str, table: str) -> SourceTable:
        with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            cursor.execute(_SESSION)
            cursor.execute(_COLUMNS, (table,))
            columns = cursor.fetchall()
            key = tuple(name for name, _, is_key in columns if is_key)
            return SourceTable(_copy(cursor, table, columns), key, as_text)

    def log_end(self, url: str) -> PostgresPosition:
        with closing(self.connect(url, "shop")) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
            (text,) = cursor.fetchone()
        return PostgresPosition(end_lsn=parse_lsn(text))

    def reached(self, position: SourcePosition, end: SourcePosition) -> bool:
        if isinstance(position, PostgresPosition) and isinstance(end, PostgresPosition):
            return position.end_lsn >= end.end_lsn
        return False


DATABASE_KIND: ShopDatabase = Postgres()


def start_with_database(server: PostgresServer, database: str) -> None:
    """Start ``server`` and make an empty database in it."""
    server.start()
    with closing(DATABASE_KIND.connect(server.dsn(), "shop")) as connection:
        connection.cursor().execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))


def _copy(
    cursor: psycopg2.extensions.cursor, table: str, columns: list[tuple[Any, ...]]
) -> pa.Table:
    """Copy as CSV, which distinguishes NULL (nothing) from an empty text (two quotes)."""
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
    """Return a column as text; ``char(n)::text`` would cut the value's blanks, its output not."""
    column = sql.Identifier(name)
    return sql.SQL("bpcharout({})::text" if blank_padded else "{}::text").format(column)
