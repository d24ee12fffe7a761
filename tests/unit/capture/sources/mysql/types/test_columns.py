"""A column's type in the server's words, and the logical type that holds its values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn, MysqlTable

_UTF8 = MysqlColumn("c", Code.VARCHAR, charset="utf8mb4", char_bytes=4)


@pytest.mark.parametrize(
    ("column", "source_type", "logical"),
    [
        (MysqlColumn("c", Code.TINY), "tinyint", "int8"),
        (MysqlColumn("c", Code.TINY, unsigned=True), "tinyint unsigned", "int16"),
        (MysqlColumn("c", Code.SHORT, unsigned=True), "smallint unsigned", "int32"),
        (MysqlColumn("c", Code.INT24, unsigned=True), "mediumint unsigned", "int32"),
        (MysqlColumn("c", Code.LONG, unsigned=True), "int unsigned", "int64"),
        (MysqlColumn("c", Code.LONGLONG), "bigint", "int64"),
        (MysqlColumn("c", Code.LONGLONG, unsigned=True), "bigint unsigned", "decimal(20,0)"),
        (MysqlColumn("c", Code.FLOAT, unsigned=True), "float unsigned", "float32"),
        (MysqlColumn("c", Code.DOUBLE), "double", "float64"),
        (MysqlColumn("c", Code.NEWDECIMAL, precision=38), "decimal(38,0)", "decimal(38,0)"),
        (MysqlColumn("c", Code.NEWDECIMAL, precision=65, scale=30), "decimal(65,30)", "string"),
        (MysqlColumn("c", Code.YEAR, unsigned=True), "year", "int32"),
        (MysqlColumn("c", Code.DATE), "date", "date"),
        (MysqlColumn("c", Code.TIME2, fsp=3), "time(3)", "string"),
        (MysqlColumn("c", Code.DATETIME2), "datetime", "timestamp_ntz"),
        (MysqlColumn("c", Code.TIMESTAMP2, fsp=6), "timestamp(6)", "timestamp"),
        (MysqlColumn("c", Code.BIT, length=13), "bit(13)", "string"),
        (MysqlColumn("c", Code.JSON, length=4, charset="utf8mb4"), "json", "string"),
        (MysqlColumn("c", Code.GEOMETRY, length=4), "geometry", "binary"),
        (MysqlColumn("c", Code.VECTOR, length=4), "vector", "binary"),
        (replace(_UTF8, code=Code.STRING, length=1020), "char(255)", "string"),
        (MysqlColumn("c", Code.STRING, length=16, charset=BYTES), "binary(16)", "binary"),
        (MysqlColumn("c", Code.STRING, length=16, charset=BYTES, native="uuid"), "uuid", "string"),
        (replace(_UTF8, length=40), "varchar(10)", "string"),
        (MysqlColumn("c", Code.VARCHAR, length=40, charset=BYTES), "varbinary(40)", "binary"),
        (MysqlColumn("c", Code.BLOB, length=3, charset="latin1"), "mediumtext", "string"),
        (MysqlColumn("c", Code.BLOB, length=2, charset=BYTES), "blob", "binary"),
        (
            replace(_UTF8, length=40, compressed=True),
            "varchar(10) compressed",
            "string",
        ),
        (
            replace(_UTF8, code=Code.ENUM, length=1, labels=("a", "it's")),
            "enum('a','it''s')",
            "string",
        ),
        (MysqlColumn("c", Code.SET, length=1, labels=("a",), charset=BYTES), "set('a')", "string"),
    ],
    ids=lambda one: one.source_type if isinstance(one, MysqlColumn) else "",
)
def test_type(column: MysqlColumn, source_type: str, logical: str) -> None:
    assert column.source_type == source_type
    assert str(column.logical) == logical


def test_schema_of_a_table() -> None:
    table = MysqlTable(
        TableId("shop", "a.b"),
        (MysqlColumn("id", Code.LONG, nullable=False), MysqlColumn("v", Code.DOUBLE)),
        ("id",),
    )
    schema = table.schema
    assert schema.table == 'shop."a.b"'
    assert schema.key == ("id",)
    assert [(one.name, one.type, one.source_type, one.nullable) for one in schema.columns] == [
        ("id", "int32", "int", False),
        ("v", "float64", "double", True),
    ]
