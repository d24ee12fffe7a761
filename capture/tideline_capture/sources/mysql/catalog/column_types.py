"""A column as ``information_schema.COLUMNS`` describes it, read into the shared model.

The counterpart of the log's TABLE_MAP: for one column both must give the same `MysqlColumn`, but
for the labels of an ENUM or SET, which the servers convert to three-byte UTF-8 first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.types.charsets import decode_label
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn

_NUMBERS = {
    "tinyint": Code.TINY,
    "smallint": Code.SHORT,
    "mediumint": Code.INT24,
    "int": Code.LONG,
    "bigint": Code.LONGLONG,
    "float": Code.FLOAT,
    "double": Code.DOUBLE,
}
_TIMES = {
    "date": Code.DATE,
    "year": Code.YEAR,
    "time": Code.TIME2,
    "datetime": Code.DATETIME2,
    "timestamp": Code.TIMESTAMP2,
}
_STRINGS = {
    "char": Code.STRING,
    "binary": Code.STRING,
    "varchar": Code.VARCHAR,
    "varbinary": Code.VARCHAR,
}
_BLOBS = {
    "tinytext": 1,
    "text": 2,
    "mediumtext": 3,
    "longtext": 4,
    "tinyblob": 1,
    "blob": 2,
    "mediumblob": 3,
    "longblob": 4,
}
_GEOMETRIES = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
        "geomcollection",
    }
)
_NATIVE_BYTES = {"uuid": 16, "inet6": 16, "inet4": 4}
_LENGTH_BYTES = 4
_ENUM_BYTE_MAX = 255
_COMPRESSED = "COMPRESSED*/"
_CHAR_BYTES = {
    "utf8mb4": 4, "utf8mb3": 3, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "ucs2": 2,
    "big5": 2, "gbk": 2, "gb2312": 2, "sjis": 2, "cp932": 2, "euckr": 2, "ujis": 3, "eucjpms": 3,
}  # fmt: skip
"""The most bytes of a character (``information_schema.CHARACTER_SETS.MAXLEN``), where not 1."""

_LABEL = re.compile(r"(?:x'([0-9a-fA-F]*)'|'((?:[^'\\]|''|\\.)*)')[,)]", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "0": "\0"}
"""All characters that the servers escape here, except the backslash itself (append_unescaped)."""


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """One row of ``information_schema.COLUMNS``."""

    name: str
    data_type: str
    column_type: str
    octets: int | None
    precision: int | None
    scale: int | None
    fsp: int | None
    charset: str | None
    collation: str | None
    nullable: str
    comment: str | None = None


def read_column(row: ColumnRow) -> MysqlColumn | None:
    """Return the column; None when its type is unknown."""
    kind = row.data_type.lower()
    column = MysqlColumn(row.name, Code.NULL, nullable=row.nullable == "YES")
    unsigned = " unsigned" in row.column_type
    if kind in _NUMBERS:
        return replace(column, code=_NUMBERS[kind], unsigned=unsigned)
    if kind == "decimal":
        column = replace(column, precision=row.precision or 0, scale=row.scale or 0)
        return replace(column, code=Code.NEWDECIMAL, unsigned=unsigned)
    if kind == "bit":
        return replace(column, code=Code.BIT, length=row.precision or 0)
    if kind in _TIMES:
        return replace(column, code=_TIMES[kind], fsp=row.fsp or 0)
    if kind == "json":
        return replace(column, code=Code.JSON, length=_LENGTH_BYTES, charset="utf8mb4")
    if kind == "vector":
        return replace(column, code=Code.VECTOR, length=_LENGTH_BYTES)
    if kind in _GEOMETRIES:
        return replace(column, code=Code.GEOMETRY, length=_LENGTH_BYTES)
    if kind in _NATIVE_BYTES:
        size = _NATIVE_BYTES[kind]
        return replace(column, code=Code.STRING, length=size, charset=BYTES, native=kind)
    return _text(row, kind, column)


def _text(row: ColumnRow, kind: str, column: MysqlColumn) -> MysqlColumn | None:
    charset = _charset(row)
    column = replace(column, charset=charset, char_bytes=_CHAR_BYTES.get(charset, 1))
    compressed = row.column_type.endswith(_COMPRESSED)
    if kind in _STRINGS:
        code = _STRINGS[kind]
        return replace(column, code=code, length=row.octets or 0, compressed=compressed)
    if kind in _BLOBS:
        return replace(column, code=Code.BLOB, length=_BLOBS[kind], compressed=compressed)
    if kind == "enum":
        labels = _labels(row.column_type, charset)
        size = 1 if len(labels) <= _ENUM_BYTE_MAX else 2
        return replace(column, code=Code.ENUM, length=size, labels=labels)
    if kind == "set":
        labels = _labels(row.column_type, charset)
        size = (len(labels) + 7) // 8
        return replace(column, code=Code.SET, length=size if size <= 4 else 8, labels=labels)
    return None


def _charset(row: ColumnRow) -> str:
    """Return the charset: MySQL names none for an ENUM of bytes, and before 8.0.30 the old name of
    utf8mb3."""
    name = row.charset or BYTES
    return "utf8mb3" if name == "utf8" else name


def _labels(column_type: str, charset: str) -> tuple[str, ...]:
    """Parse the labels in ``enum('a','it''s')``. MySQL writes one that is no text as ``x'ff'``."""
    found, place = [], column_type.index("(") + 1
    while match := _LABEL.match(column_type, place):
        raw, text = match.groups()
        found.append(decode_label(bytes.fromhex(raw), charset) if text is None else _plain(text))
        place = match.end()
    if column_type[place - 1 : place] != ")":
        raise CorruptData("the labels of an ENUM or SET cannot be read from information_schema")
    return tuple(found)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]) if m[1] else "'", text)
