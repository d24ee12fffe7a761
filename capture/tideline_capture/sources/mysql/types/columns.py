"""A table as MySQL and MariaDB store it: the facts about a column that decoding needs.

The log's TABLE_MAP and ``information_schema`` both lead here, and `make_schema` leads on to the
contract's schema. Both ways must give the same schema for the same table: `source_type` therefore
uses only what both know (no display widths, no collations).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tideline.contract.schema import Column, TableId, TableSchema
from tideline.contract.types import (
    BINARY,
    DATE,
    DECIMAL_PRECISION_MAX,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    LogicalType,
    decimal,
)


class Code:
    """MYSQL_TYPE_* of the log (ENUM and SET resolved from STRING)."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


BYTES = "binary"
"""The charset of columns that hold bytes."""

_INTEGERS = {
    Code.TINY: ("tinyint", INT8, INT16),
    Code.SHORT: ("smallint", INT16, INT32),
    Code.INT24: ("mediumint", INT32, INT32),
    Code.LONG: ("int", INT32, INT64),
    Code.LONGLONG: ("bigint", INT64, decimal(20, 0)),
}
_PLAIN = {
    Code.FLOAT: ("float", FLOAT32),
    Code.DOUBLE: ("double", FLOAT64),
    Code.DATE: ("date", DATE),
    Code.YEAR: ("year", INT32),
    Code.JSON: ("json", STRING),
    Code.GEOMETRY: ("geometry", BINARY),
    Code.VECTOR: ("vector", BINARY),
}
_TIMED = {
    Code.TIME: ("time", STRING),
    Code.TIME2: ("time", STRING),
    Code.DATETIME: ("datetime", TIMESTAMP_NTZ),
    Code.DATETIME2: ("datetime", TIMESTAMP_NTZ),
    Code.TIMESTAMP: ("timestamp", TIMESTAMP),
    Code.TIMESTAMP2: ("timestamp", TIMESTAMP),
}
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}


_UNSAYABLE = re.compile(r"\\x[0-9a-f]{2}|[\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class MysqlColumn:
    """One column.

    ``code`` is a `Code`; the compressed codes are folded into VARCHAR and BLOB, with
    ``compressed``. ``length``: CHAR, VARCHAR, BINARY, VARBINARY (and MariaDB's native
    types, which look like BINARY): the most bytes a value has; BLOB, TEXT, JSON, GEOMETRY, VECTOR:
    the bytes of the length before a value, 1 to 4; BIT: bits; ENUM, SET: bytes stored.
    ``charset`` is the server's name of it (``latin1``, ``utf8mb4`` …), `BYTES` for bytes, empty
    where a type has none; ``char_bytes`` the most bytes of one of its characters. ``native`` is
    ``uuid``, ``inet4`` or ``inet6``. ``labels`` are those of an ENUM or SET, in order.
    ``compressed`` (MariaDB): the length before a value counts the byte that says how, and takes
    two bytes before any VARCHAR.
    """

    name: str
    code: int
    nullable: bool = True
    unsigned: bool = False
    length: int = 0
    precision: int = 0
    scale: int = 0
    fsp: int = 0
    charset: str = ""
    char_bytes: int = 1
    labels: tuple[str, ...] = ()
    native: str = ""
    compressed: bool = False

    @property
    def source_type(self) -> str:
        """The type in the server's words."""
        text = self._type_name()
        if self.unsigned and self.code not in (Code.YEAR, Code.BIT):
            text += " unsigned"
        return f"{text} compressed" if self.compressed else text

    @property
    def logical(self) -> LogicalType:
        """The logical type that holds every ordinary value."""
        if self.code in _INTEGERS:
            _, signed, unsigned = _INTEGERS[self.code]
            return unsigned if self.unsigned else signed
        if self.code == Code.NEWDECIMAL:
            fits = self.precision <= DECIMAL_PRECISION_MAX
            return decimal(self.precision, self.scale) if fits else STRING
        for known in (_PLAIN, _TIMED):
            if self.code in known:
                return known[self.code][1]
        holds_bytes = self.charset == BYTES and not self.native
        if holds_bytes and self.code in (Code.VARCHAR, Code.STRING, Code.BLOB):
            return BINARY
        return STRING

    def _type_name(self) -> str:
        if self.native:
            return self.native
        if self.code in _INTEGERS:
            return _INTEGERS[self.code][0]
        if self.code in _PLAIN:
            return _PLAIN[self.code][0]
        if self.code in _TIMED:
            name = _TIMED[self.code][0]
            return f"{name}({self.fsp})" if self.fsp else name
        if self.code == Code.NEWDECIMAL:
            return f"decimal({self.precision},{self.scale})"
        if self.code == Code.BIT:
            return f"bit({self.length})"
        if self.code in (Code.ENUM, Code.SET):
            name = "enum" if self.code == Code.ENUM else "set"
            return f"{name}({','.join(_quoted(label) for label in self.labels)})"
        return self._text_name()

    def _text_name(self) -> str:
        is_bytes = self.charset == BYTES
        if self.code == Code.BLOB:
            return _BLOBS[self.length] + ("blob" if is_bytes else "text")
        fixed = self.code == Code.STRING
        name = ("binary" if fixed else "varbinary") if is_bytes else "char" if fixed else "varchar"
        return f"{name}({self.length // (1 if is_bytes else self.char_bytes)})"


@dataclass(frozen=True, slots=True)
class MysqlTable:
    """A table with its columns in the order of the row image, and the names of its key columns
    (the primary key, in key order; empty when there is none)."""

    table: TableId
    columns: tuple[MysqlColumn, ...]
    key: tuple[str, ...]

    @property
    def schema(self) -> TableSchema:
        """The contract's schema of it."""
        columns = tuple(
            Column(one.name, str(one.logical), one.source_type, nullable=one.nullable)
            for one in self.columns
        )
        return TableSchema(str(self.table), columns, self.key)


def _quoted(label: str) -> str:
    """Return the label as ``information_schema`` can express it: in UTF-8 of three bytes, MariaDB's
    with ``?`` for any other character and for an invalid one."""
    return "'" + _UNSAYABLE.sub("?", label).replace("'", "''") + "'"
