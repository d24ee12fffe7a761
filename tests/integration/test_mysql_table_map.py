"""TABLE_MAP of the real servers: columns of every kind, hundreds of them, and too little of it."""

from __future__ import annotations

import pytest

from tests.fixtures.mysql_servers import Flavour, MysqlDatabase, ServerFactory, make_mysql_database
from tests.fixtures.odd_events import read_events
from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.table_map import (
    FULL_METADATA,
    parse_table_map,
    parse_table_name,
)
from tideline_capture.sources.mysql.types.columns import MysqlTable

_COMMON = (
    "tinyint", "smallint unsigned", "mediumint", "int unsigned", "bigint", "bigint unsigned",
    "year", "tinyint unsigned", "year", "decimal(65,30)", "decimal(5,0) unsigned", "float",
    "double unsigned", "bit(1)", "bit(64)", "date", "time", "time(6)", "datetime(3)",
    "timestamp(6)",
    "char(3)", "char(255)", "binary(255)", "varchar(63)", "varchar(64)", "varchar(5000)",
    "varbinary(255)", "varbinary(256)", "tinytext", "text", "mediumtext", "longtext", "tinyblob",
    "blob", "mediumblob", "longblob", "geometry", "enum('a','b''c')", "set('x','y')",
)  # fmt: skip
_MYSQL = ("json",)
_MARIADB = (
    "uuid", "inet4", "inet6", "varchar(10) compressed", "text compressed",
    "varbinary(300) compressed", "mediumblob compressed",
)  # fmt: skip
_CHARSETS = ("latin1", "utf8mb4", "ucs2", "gbk", "utf8mb3", "swe7")


def _logged(database: MysqlDatabase, definition: str, natives: dict[str, str]) -> MysqlTable:
    """The table of ``definition`` as the TABLE_MAP before a row gives it."""
    database.run(f"CREATE TABLE t ({definition})")
    return _read(database, natives)


def _read(database: MysqlDatabase, natives: dict[str, str]) -> MysqlTable:
    server = database.server
    server.run("FLUSH BINARY LOGS")
    database.run("INSERT INTO t () VALUES ()")
    ((version,),) = server.rows("SELECT VERSION()")
    file = server.rows("SHOW BINARY LOGS")[-1][0]
    bodies = [
        event.body
        for event in read_events((server.data / file).read_bytes())
        if event.code == EventCode.TABLE_MAP
        and parse_table_name(event.body) == TableId(database.name, "t")
    ]
    (body,) = bodies
    return parse_table_map(body, server=version, natives=natives).table


def test_every_type(mysql_database: MysqlDatabase) -> None:
    """The type that was declared, in an order where signs and charsets are not aligned."""
    own = _MARIADB if mysql_database.flavour == "mariadb" else _MYSQL
    if mysql_database.flavour == "mysql9":
        own = (*own, "vector")
    types = {f"c{at}": one for at, one in enumerate([*_COMMON, *own, *reversed(_COMMON)])}
    natives = {name: one for name, one in types.items() if one in ("uuid", "inet4", "inet6")}
    columns = ", ".join(f"{name} {one} NULL" for name, one in types.items())
    table = _logged(mysql_database, f"id INT AUTO_INCREMENT PRIMARY KEY, {columns}", natives)
    assert {one.name: one.source_type for one in table.columns} == {"id": "int", **types}
    assert [one.name for one in table.columns if not one.nullable] == ["id"]
    assert table.key == ("id",)


def test_hundreds_of_columns(mysql_database: MysqlDatabase) -> None:
    """Places and lengths above 250 take more than one byte; so do collation ids from 251 on."""
    columns = [f"`{at:03}ü{'x' * 40}`" for at in range(400)]
    charsets = [_CHARSETS[at % len(_CHARSETS)] for at in range(400)]
    definitions = ", ".join(
        f"{name} VARCHAR(5) CHARACTER SET {charset} NOT NULL DEFAULT ''"
        for name, charset in zip(columns, charsets, strict=True)
    )
    table = _logged(
        mysql_database, f"{definitions}, PRIMARY KEY ({columns[390]}(2), {columns[3]})", {}
    )
    assert [f"`{one.name}`" for one in table.columns] == columns
    assert [one.charset for one in table.columns] == charsets
    assert {one.source_type for one in table.columns} == {"varchar(5)"}
    assert [f"`{name}`" for name in table.key] == [columns[390], columns[3]]


def test_many_labels(mysql_database: MysqlDatabase) -> None:
    labels = [f"label {at} ü" for at in range(400)]
    listed = ", ".join(f"'{one}'" for one in labels)
    table = _logged(
        mysql_database,
        f"id INT AUTO_INCREMENT PRIMARY KEY, e ENUM({listed}),"
        f" s SET({', '.join(listed.split(', ')[:64])}), n SET('a','b','c','d','e','f')",
        {},
    )
    _, wide, full, narrow = table.columns
    assert (wide.labels, wide.length) == (tuple(labels), 2)
    assert (full.labels, full.length) == (tuple(labels[:64]), 8)
    assert (narrow.labels, narrow.length) == (tuple("abcdef"), 1)


def test_generated_and_invisible_columns(mysql_database: MysqlDatabase) -> None:
    """Both are in the log, so both are columns; MySQL has the latter since 8.0.23."""
    invisible = "" if mysql_database.flavour == "mysql8" else "INVISIBLE"
    table = _logged(
        mysql_database,
        f"id INT AUTO_INCREMENT PRIMARY KEY, h INT DEFAULT 1 {invisible},"
        " v INT AS (h + 1) VIRTUAL, s VARCHAR(9) AS (CONCAT(h, 'x')) STORED",
        {},
    )
    assert [one.name for one in table.columns] == ["id", "h", "v", "s"]


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_less_than_full_metadata(flavour: Flavour, start_server: ServerFactory) -> None:
    """Without names the table is refused, with the statement that helps; which then does."""
    server = start_server(flavour, binlog_row_metadata="MINIMAL")
    database = make_mysql_database(server, flavour)
    with pytest.raises(Misconfigured, match=database.name) as caught:
        _logged(database, "id INT AUTO_INCREMENT PRIMARY KEY, v TEXT", {})
    assert caught.value.hint == FULL_METADATA
    server.run(FULL_METADATA)
    database.run("DROP TABLE t")
    table = _logged(database, "id INT AUTO_INCREMENT PRIMARY KEY, v TEXT", {})
    assert [one.source_type for one in table.columns] == ["int", "text"]


@pytest.mark.parametrize("flavour", ["mariadb"])
def test_times_in_the_old_format(mysql_database: MysqlDatabase) -> None:
    """The log does not say how many digits they have; the statement of the hint ends it."""
    server = mysql_database.server
    server.run("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        with pytest.raises(Misconfigured, match=f"columns d, e of {mysql_database.name}") as caught:
            _logged(mysql_database, "id INT AUTO_INCREMENT PRIMARY KEY, d DATETIME(3), e TIME", {})
    finally:
        server.run("SET GLOBAL mysql56_temporal_format = ON")
    for statement in str(caught.value.hint).split("; "):
        server.run(statement)
    types = [one.source_type for one in _read(mysql_database, {}).columns]
    assert types == ["int", "datetime(3)", "time"]
