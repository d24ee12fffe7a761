"""TABLE_MAP events: the table whose rows follow in the log, as the server knew it at that moment.

The layout is that of ``Table_map_event`` in MySQL's ``rows_event.h`` and MariaDB's ``log_event.h``:
names, a type byte per column, metadata per type, nullability, then optional fields, each a type
byte and a length before its bytes. With ``binlog_row_metadata = FULL`` they hold all that decoding
needs, but for MariaDB's UUID and INET types, which look like BINARY.

The differences between servers were measured on MariaDB 10.11, MySQL 8.0.15 and 9.7: which types
have a charset (GEOMETRY on MariaDB, VECTOR on MySQL) and whether YEAR has a sign (not before MySQL
8.0.21). Nothing in the event distinguishes them, hence ``server``.

Invariant: every byte of the body is accounted for. An unknown type, optional field or collation
raises; nothing is guessed. Of the optional fields three are not used, as values hold it themselves
or it changes none: the geometry type, the dimension of a vector, and the visibility (an invisible
column is in the row image like any other). Nor is the length of a prefix in the primary key: to us
the whole column is the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tideline.contract.errors import CorruptData, InvariantBroken, Misconfigured
from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.binlog.event_body import BodyReader
from tideline_capture.sources.mysql.names import qualified
from tideline_capture.sources.mysql.types.charsets import charset_of, decode_label
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn, MysqlTable

FULL_METADATA = "SET GLOBAL binlog_row_metadata = FULL"
"""The statement that makes a server write what `parse_table_map` needs."""

NATIVE_BYTES: Mapping[str, int] = {"uuid": 16, "inet6": 16, "inet4": 4}
"""MariaDB's types that the log does not distinguish from BINARY, and the bytes of a value."""


@dataclass(frozen=True, slots=True)
class TableMap:
    """A parsed TABLE_MAP; row events refer to it by ``table_id`` until the log file ends."""

    table_id: int
    flags: int
    table: MysqlTable


class _Optional:
    """Types of the optional fields (``Optional_metadata_field_type``)."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_STR_VALUE = 5
    ENUM_STR_VALUE = 6
    GEOMETRY_TYPE = 7
    SIMPLE_PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    ENUM_AND_SET_DEFAULT_CHARSET = 10
    ENUM_AND_SET_COLUMN_CHARSET = 11
    COLUMN_VISIBILITY = 12
    VECTOR_DIMENSIONALITY = 13

    KNOWN = range(1, 14)


_INTEGERS = frozenset({Code.TINY, Code.SHORT, Code.INT24, Code.LONG, Code.LONGLONG})
_OLD_TIMES = frozenset({Code.TIMESTAMP, Code.TIME, Code.DATETIME})
_BARE = _INTEGERS | _OLD_TIMES | {Code.DATE, Code.YEAR}
"""Types without metadata."""
_FRACTIONAL = frozenset({Code.TIMESTAMP2, Code.DATETIME2, Code.TIME2})
_LENGTH_PREFIXED = frozenset({Code.BLOB, Code.JSON, Code.GEOMETRY, Code.VECTOR})
_SIGNED = _INTEGERS | {Code.FLOAT, Code.DOUBLE, Code.NEWDECIMAL}
_TEXTS = frozenset({Code.VARCHAR, Code.STRING, Code.BLOB})
_LABELLED = frozenset({Code.ENUM, Code.SET})
_FSP_MAX = 6
_DIGITS_MAX = 65

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_YEAR_LAST_WITHOUT_SIGN = (8, 0, 20)
_YEAR_FIRST_WITH_SIGN = (8, 0, 23)

_Fields = Mapping[int, bytes]
_Columns = list[MysqlColumn]


def parse_table_name(body: bytes) -> TableId:
    """Return the table that a TABLE_MAP's body names, without parsing the rest."""
    reader = BodyReader(body, "TABLE_MAP")
    reader.take(8)
    return _table_name(reader)


def parse_table_map(
    body: bytes, *, server: str = "", natives: Mapping[str, str] | None = None
) -> TableMap:
    """Return the table of a TABLE_MAP event.

    ``body`` is the event after its 19-byte header, without the checksum; ``server`` the version
    text of the log's FORMAT_DESCRIPTION (``8.0.42``, ``10.11.6-MariaDB-log``). ``natives`` gives,
    from ``information_schema``, the columns of MariaDB's own types by name (``uuid``, ``inet4``,
    ``inet6``); it may be newer than the event, and what does not fit the event is not applied.

    Misconfigured, with the fixing statement, when the server wrote no column names, and for columns
    in the temporal format of MariaDB 5.3. CorruptData for a type, field or collation that is not
    known, and for a body that does not add up.
    """
    reader = BodyReader(body, "TABLE_MAP")
    table_id, flags = reader.uint(6), reader.uint(2)
    table = _table_name(reader)
    reader.what = f"TABLE_MAP of {table}"
    count = reader.lenenc()
    types = reader.take(count)
    columns = _columns(types, reader.block())
    nullable = reader.take((count + 7) // 8)
    fields = _optional_fields(reader)
    names = _names(table, count, fields)
    columns = [
        replace(column, name=name, nullable=bool(nullable[at >> 3] >> (at & 7) & 1))
        for at, (column, name) in enumerate(zip(columns, names, strict=True))
    ]
    _refuse_old_times(table, columns)
    columns = _with_sign(columns, fields, _signed_types(server, table, columns))
    columns = _with_charsets(columns, fields, _charset_types(server, columns))
    columns = _with_labels(columns, fields)
    columns = [_native(column, (natives or {}).get(column.name, "")) for column in columns]
    key = tuple(columns[at].name for at in _key(fields, count))
    return TableMap(table_id, flags, MysqlTable(table, tuple(columns), key))


def _table_name(reader: BodyReader) -> TableId:
    names = []
    for _ in ("schema", "name"):
        raw = reader.take(reader.uint(1))
        if reader.uint(1):
            raise CorruptData(f"a name does not end in NUL: {reader.what}")
        names.append(_utf8(raw, reader.what))
    return TableId(*names)


def _columns(types: bytes, metadata: bytes) -> _Columns:
    """Return columns as types and metadata describe them, nameless as yet."""
    reader = BodyReader(metadata, "column metadata of a TABLE_MAP")
    columns = [_column(code, reader) for code in types]
    reader.finish()
    for column in columns:
        if not _exists(column):
            raise CorruptData(f"no column of type {column.code} is like that: {reader.what}")
    return columns


def _exists(column: MysqlColumn) -> bool:
    """Return whether a server has columns of these sizes: the walk through rows relies on them."""
    code, length = column.code, column.length
    if code in _FRACTIONAL:
        return column.fsp <= _FSP_MAX
    if code in _LENGTH_PREFIXED:
        return 1 <= length <= 4 if code == Code.BLOB else length == 4
    if code == Code.NEWDECIMAL:
        return 0 <= column.scale <= column.precision and 1 <= column.precision <= _DIGITS_MAX
    if code == Code.BIT:
        return 1 <= length <= 64
    if code in _LABELLED:
        return length in (1, 2) if code == Code.ENUM else length in (1, 2, 3, 4, 8)
    return length >= 0


def _column(code: int, reader: BodyReader) -> MysqlColumn:
    """Return one column; takes its metadata (``Field::save_field_metadata``) off ``reader``."""
    if code in _BARE:
        return MysqlColumn("", code)
    if code in (Code.FLOAT, Code.DOUBLE):
        reader.take(1)
        return MysqlColumn("", code)
    if code in _FRACTIONAL:
        return MysqlColumn("", code, fsp=reader.uint(1))
    if code in _LENGTH_PREFIXED:
        charset = "utf8mb4" if code == Code.JSON else ""
        return MysqlColumn("", code, length=reader.uint(1), charset=charset)
    if code == Code.BLOB_COMPRESSED:
        return MysqlColumn("", Code.BLOB, length=reader.uint(1), compressed=True)
    if code == Code.VARCHAR:
        return MysqlColumn("", code, length=reader.uint(2))
    if code == Code.VARCHAR_COMPRESSED:
        # Counts the byte that says how a value is compressed.
        return MysqlColumn("", Code.VARCHAR, length=reader.uint(2) - 1, compressed=True)
    if code == Code.NEWDECIMAL:
        return MysqlColumn("", code, precision=reader.uint(1), scale=reader.uint(1))
    if code == Code.BIT:
        return MysqlColumn("", code, length=reader.uint(1) + 8 * reader.uint(1))
    if code == Code.STRING:
        return _string_column(reader.uint(1), reader.uint(1))
    raise CorruptData(f"unknown column type {code} in the log: {reader.what}")


def _string_column(first: int, second: int) -> MysqlColumn:
    """Decode CHAR, BINARY, ENUM or SET: the type and, above 255 bytes, two bits of length in one
    byte.

    The bits 4 and 5 of the type, set in all these types, are inverted length bits 8 and 9.
    """
    code = first | 0x30
    if code in _LABELLED:
        return MysqlColumn("", code, length=second)
    if code != Code.STRING:
        raise CorruptData(f"unknown string type {first} in the log: TABLE_MAP")
    return MysqlColumn("", code, length=second | ((first & 0x30) ^ 0x30) << 4)


def _optional_fields(reader: BodyReader) -> _Fields:
    fields: dict[int, bytes] = {}
    while reader.left:
        kind = reader.uint(1)
        if kind not in _Optional.KNOWN:
            raise CorruptData(f"unknown optional field {kind}: {reader.what}")
        if kind in fields:
            raise CorruptData(f"optional field {kind} is there twice: {reader.what}")
        fields[kind] = reader.block()
    return fields


def _names(table: TableId, count: int, fields: _Fields) -> list[str]:
    if _Optional.COLUMN_NAME not in fields:
        raise Misconfigured(f"the log has no column names: {table}", FULL_METADATA)
    reader = BodyReader(fields[_Optional.COLUMN_NAME], f"column names of {table}")
    names = [_utf8(reader.block(), reader.what) for _ in range(count)]
    reader.finish()
    if len(set(names)) < count or "" in names:
        raise CorruptData(f"two columns of one name, or one without: {reader.what}")
    return names


def _refuse_old_times(table: TableId, columns: _Columns) -> None:
    """Refuse MariaDB's format of before 10.1: its bytes depend on the digits of a second, which the
    event does not hold."""
    old = [column.name for column in columns if column.code in _OLD_TIMES]
    if old:
        raise Misconfigured(
            f"columns {', '.join(old)} of {table} are stored in the temporal format of MariaDB 5.3",
            f"SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE {qualified(table)} FORCE",
        )


def _signed_types(server: str, table: TableId, columns: _Columns) -> frozenset[int]:
    """Return the types that have a bit in the signedness field."""
    with_year = _SIGNED | {Code.YEAR}
    if all(column.code != Code.YEAR for column in columns) or _is_mariadb(server):
        return with_year
    match = _VERSION.match(server)
    if match is None:
        raise CorruptData(f"not a server version in the log: {server!r}")
    version = tuple(map(int, match.groups()))
    if version <= _YEAR_LAST_WITHOUT_SIGN:
        return _SIGNED
    if version >= _YEAR_FIRST_WITH_SIGN:
        return with_year
    # Changed in one of these two versions, neither of which was available for measuring.
    raise Misconfigured(
        f"MySQL {server} does not say which columns next to a YEAR are unsigned: {table}",
        "upgrade the server to 8.0.23 or later",
    )


def _with_sign(columns: _Columns, fields: _Fields, types: frozenset[int]) -> _Columns:
    """Return ``columns`` with ``unsigned``; a server without a numeric column leaves the field
    out."""
    signed = [at for at, column in enumerate(columns) if column.code in types]
    bits = fields.get(_Optional.SIGNEDNESS, b"")
    if len(bits) != (len(signed) + 7) // 8:
        raise CorruptData(f"{len(bits)} bytes of signs for {len(signed)} columns: TABLE_MAP")
    result = list(columns)
    for bit, at in enumerate(signed):
        if columns[at].code in _SIGNED:
            unsigned = bool(bits[bit >> 3] >> (7 - (bit & 7)) & 1)
            result[at] = replace(columns[at], unsigned=unsigned)
    return result


def _charset_types(server: str, columns: _Columns) -> frozenset[int]:
    """Return the types that have an entry in the charset fields."""
    if any(column.code == Code.GEOMETRY for column in columns) and _is_mariadb(server):
        return _TEXTS | {Code.GEOMETRY}
    return _TEXTS | {Code.VECTOR}


def _with_charsets(columns: _Columns, fields: _Fields, types: frozenset[int]) -> _Columns:
    result = list(columns)
    for chosen, default, listed in (
        (types, _Optional.DEFAULT_CHARSET, _Optional.COLUMN_CHARSET),
        (_LABELLED, _Optional.ENUM_AND_SET_DEFAULT_CHARSET, _Optional.ENUM_AND_SET_COLUMN_CHARSET),
    ):
        indices = [at for at, column in enumerate(columns) if column.code in chosen]
        ids = _collations(len(indices), fields.get(default), fields.get(listed))
        for at, collation in zip(indices, ids, strict=True):
            charset, char_bytes = charset_of(collation)
            if columns[at].code in _TEXTS | _LABELLED:
                result[at] = replace(columns[at], charset=charset, char_bytes=char_bytes)
    return result


def _collations(count: int, default: bytes | None, listed: bytes | None) -> list[int]:
    """Return the collation ids of ``count`` columns: one each, or a default and its exceptions."""
    what = "charsets of a TABLE_MAP"
    if (default is None) == (listed is None) and (count or default is not None):
        raise CorruptData(f"{count} columns want charsets by one field of two: TABLE_MAP")
    if listed is not None:
        reader = BodyReader(listed, what)
        ids = [reader.lenenc() for _ in range(count)]
        reader.finish()
        return ids
    if default is None:
        return []
    reader = BodyReader(default, what)
    ids = [reader.lenenc()] * count
    while reader.left:
        at, collation = reader.lenenc(), reader.lenenc()
        if at >= count:
            raise CorruptData(f"a charset for text column {at} of {count}: TABLE_MAP")
        ids[at] = collation
    return ids


def _with_labels(columns: _Columns, fields: _Fields) -> _Columns:
    result = list(columns)
    for code, field in ((Code.ENUM, _Optional.ENUM_STR_VALUE), (Code.SET, _Optional.SET_STR_VALUE)):
        reader = BodyReader(fields.get(field, b""), "labels of a TABLE_MAP")
        for at, column in enumerate(result):
            if column.code == code:
                raw = [reader.block() for _ in range(reader.lenenc())]
                labels = tuple(decode_label(label, column.charset) for label in raw)
                result[at] = replace(column, labels=labels)
        reader.finish()
    return result


def _native(column: MysqlColumn, native: str) -> MysqlColumn:
    """Return ``column`` as one of MariaDB's own types, if it can be that."""
    looks = (column.code, column.charset, column.length)
    if native and looks == (Code.STRING, BYTES, NATIVE_BYTES.get(native)):
        return replace(column, native=native)
    return column


def _key(fields: _Fields, count: int) -> Sequence[int]:
    """Return the indices of the primary key's columns, in key order."""
    simple = fields.get(_Optional.SIMPLE_PRIMARY_KEY)
    prefixed = fields.get(_Optional.PRIMARY_KEY_WITH_PREFIX)
    if simple is not None and prefixed is not None:
        raise CorruptData("two primary keys: TABLE_MAP")
    reader = BodyReader(simple or prefixed or b"", "primary key of a TABLE_MAP")
    indices = []
    while reader.left:
        indices.append(reader.lenenc())
        if prefixed is not None:
            reader.lenenc()
    if any(at >= count for at in indices) or len(set(indices)) < len(indices):
        raise CorruptData(f"a key column beyond the {count} columns, or twice: TABLE_MAP")
    return indices


def _is_mariadb(server: str) -> bool:
    if not server:
        raise InvariantBroken("a TABLE_MAP with a YEAR or GEOMETRY needs the server's version")
    return "mariadb" in server.lower()


def _utf8(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise CorruptData(f"a name is not UTF-8: {what}") from None
