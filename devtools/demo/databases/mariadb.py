"""MariaDB as the demo's source. Its rows are read by plain SQL, every value as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pymysql

from devtools.demo.databases.base import DATABASE, ShopDatabase, Size, SourceTable, SourceWords
from devtools.demo.databases.mariadb_shop import GRANTS, STATEMENTS
from devtools.demo.databases.mariadb_text import as_text, canonical, expression
from devtools.services.binlog_server import NOT_DURABLE, SUPERUSER
from devtools.services.mariadb import MariadbServer
from tideline.contract.position import MysqlPosition, SourcePosition

_COLUMNS = """
SELECT column_name, data_type FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_KEY = """
SELECT column_name FROM information_schema.key_column_usage
WHERE table_schema = %s AND table_name = %s AND constraint_name = 'PRIMARY'
ORDER BY ordinal_position
"""


class MariadbWords:
    """See `SourceWords`."""

    now = "sysdate(6)"
    merged_preferences = "json_merge_patch(preferences, %s)"
    no_end = "'0000-00-00'"

    def texts(self, values: Sequence[str | None] | None) -> object:
        return None if values is None else json.dumps(values)


class MariadbShopServer:
    """See `ShopServer`."""

    def __init__(self, folder: Path) -> None:
        self._server = MariadbServer(folder, settings=NOT_DURABLE, name="source")

    def start(self) -> None:
        self._server.start()
        self._server.run(f"CREATE DATABASE {DATABASE}")

    def remove(self) -> None:
        self._server.remove()

    def url(self, *, user: str | None = None, password: str | None = None) -> str:
        return self._server.url(user or SUPERUSER, password, DATABASE)


class Mariadb:
    """See `ShopDatabase`."""

    title = "MariaDB"
    schema = DATABASE
    words: SourceWords = MariadbWords()

    def new_server(self, folder: Path) -> MariadbShopServer:
        return MariadbShopServer(folder)

    def connect(self, url: str, name: str) -> Any:
        parts = urlsplit(url)
        connection = pymysql.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path.strip("/")) or DATABASE,
            charset="utf8mb4",
            autocommit=True,
            program_name=name,
            init_command="SET time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES'",
        )
        with connection.cursor() as cursor:
            # Without gap locks workers never wait for rows that are not their own.
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return connection

    def create_shop(self, url: str, size: Size) -> None:
        self._run(url, *(size.put_into(statement) for statement in STATEMENTS))

    def grant_capture(self, url: str, password: str) -> None:
        account, *grants = GRANTS
        with self.connect(url, "shop") as connection, connection.cursor() as cursor:
            cursor.execute(account, (password,))
            for grant in grants:
                cursor.execute(grant)

    def read_table(self, url: str, table: str) -> SourceTable:
        where = tuple(table.split("."))
        with self.connect(url, "comparison") as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cursor.execute(_COLUMNS, where)
            columns = [(str(name), str(kind)) for name, kind in cursor.fetchall()]
            cursor.execute(_KEY, where)
            key = tuple(str(name) for (name,) in cursor.fetchall())
            texts = ", ".join(expression(_quoted(name), kind) for name, kind in columns)
            source = ".".join(_quoted(part) for part in where)
            cursor.execute(f"SELECT {texts} FROM {source}")  # noqa: S608  quoted above
            rows = cursor.fetchall()
        values = {
            name: pa.array([canonical(row[at], kind) for row in rows], pa.string())
            for at, (name, kind) in enumerate(columns)
        }
        return SourceTable(pa.table(values), key, as_text)

    def log_end(self, url: str) -> MysqlPosition:
        with self.connect(url, "shop") as connection, connection.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            file, offset, *_ = cursor.fetchone()
        return MysqlPosition(file=file, offset=int(offset))

    def reached(self, position: SourcePosition, end: SourcePosition) -> bool:
        if isinstance(position, MysqlPosition) and isinstance(end, MysqlPosition):
            return position.order >= end.order
        return False

    def _run(self, url: str, *statements: str) -> None:
        with self.connect(url, "shop") as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


DATABASE_KIND: ShopDatabase = Mariadb()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
