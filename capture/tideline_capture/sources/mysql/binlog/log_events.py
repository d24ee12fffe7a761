"""The binlog's events that are not rows: each becomes one value.

``body`` is always an event without its 19-byte header and without its checksum, but for
FORMAT_DESCRIPTION, which is the event that says whether there are checksums. Integers are little
endian. Layouts: MySQL's ``libs/mysql/binlog/event/{control,statement}_events.h``, MariaDB's
``sql/log_event.cc``. A body that ends too early is CorruptData.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.binlog.checksums import CHECKSUM_BYTES
from tideline_capture.sources.mysql.binlog.event_body import length_encoded, reads
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES
from tideline_capture.sources.mysql.binlog.xid import Xid, read_xid

BINLOG_VERSION = 4
ANSI_QUOTES = 1 << 2
"""sql_mode: double quotes enclose names."""
STRICT = (1 << 21) | (1 << 22)
"""sql_mode: STRICT_TRANS_TABLES and STRICT_ALL_TABLES."""
NO_BACKSLASH_ESCAPES = 1 << 20
"""sql_mode: a backslash in a string is a backslash."""

_FORMAT = struct.Struct("<H50sIB")
_QUERY = struct.Struct("<IIBHH")
_XA_PREPARE = struct.Struct("<BIII")
_U64 = struct.Struct("<Q")
_FILE_NAME = re.compile(r"[^\x00-\x1f]*\.[0-9]{6,}")


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """The first event of every file. ``checksummed``: the events that follow end in a CRC32."""

    server_version: str
    created_s: int
    checksummed: bool


@reads("FORMAT_DESCRIPTION")
def parse_format_description(body: bytes) -> FormatDescription:
    """Parse the event. ``body`` includes the four bytes of the checksum: servers since 5.6 and 10.0
    always write them in this event, and before them the algorithm (0 none, 1 CRC32)."""
    version, server, created_s, header_bytes = _FORMAT.unpack_from(body)
    algorithm = body[-CHECKSUM_BYTES - 1]
    if version != BINLOG_VERSION or header_bytes != HEADER_BYTES or algorithm not in (0, 1):
        raise CorruptData(
            f"a binlog of a form that is not read: version {version}, "
            f"headers of {header_bytes} bytes, checksum algorithm {algorithm}"
        )
    return FormatDescription(server.rstrip(b"\0").decode(), created_s, algorithm == 1)


@dataclass(frozen=True, slots=True)
class Rotate:
    """The log continues in ``file`` at ``position`` bytes. Also the first event of every dump."""

    file: str
    position: int


@reads("ROTATE")
def parse_rotate(body: bytes) -> Rotate:
    (position,) = _U64.unpack_from(body)
    file = body[_U64.size :].decode()
    if not _FILE_NAME.fullmatch(file):
        raise CorruptData("a ROTATE event of the binlog is broken: no file is called so")
    return Rotate(file, position)


@dataclass(frozen=True, slots=True)
class Query:
    """A statement, as text in the client's character set.

    ``schema`` is the session's default database. ``sql_mode`` are the server's bits, 0 where the
    event has none; ``client_collation`` is the id of character_set_client's collation, None where
    the event has none. ``error`` is the error the statement ended with on the server, 0 for none.
    """

    text: bytes
    schema: str
    sql_mode: int
    client_collation: int | None
    error: int

    @property
    def ansi_quotes(self) -> bool:
        return bool(self.sql_mode & ANSI_QUOTES)

    @property
    def no_backslash_escapes(self) -> bool:
        return bool(self.sql_mode & NO_BACKSLASH_ESCAPES)

    @property
    def strict(self) -> bool:
        """Return whether the server refused a value that it would otherwise have changed to fit."""
        return bool(self.sql_mode & STRICT)


@reads("QUERY")
def parse_query(body: bytes) -> Query:
    _, _, schema_bytes, error, status_bytes = _QUERY.unpack_from(body)
    schema_at = _QUERY.size + status_bytes
    text_at = schema_at + schema_bytes + 1
    if body[text_at - 1] != 0:
        raise CorruptData("a QUERY event of the binlog is broken: its schema does not end")
    sql_mode, collation = _statement_context(body[_QUERY.size : schema_at])
    schema = body[schema_at : text_at - 1].decode()
    return Query(body[text_at:], schema, sql_mode, collation, error)


_SQL_MODE = 1
_CHARSET = 4
_STATUS_BYTES = {
    0: 4,  # flags2
    _SQL_MODE: 8,
    3: 4,  # auto_increment
    _CHARSET: 6,
    7: 2,  # lc_time_names
    8: 2,  # collation_database
    9: 8,  # table_map_for_update
    10: 4,  # master_data_written
    13: 3,  # microseconds
    16: 1,  # explicit_defaults_for_timestamp
    17: 8,  # ddl_xid
    18: 2,  # default_collation_for_utf8mb4
    19: 1,  # sql_require_primary_key
    20: 1,  # default_table_encryption
    128: 3,  # MariaDB: microseconds
    129: 8,  # MariaDB: xid
}
"""Status variables of one length, by code."""
_TEXTS = {2: (1, 1), 5: (1, 0), 6: (1, 0), 11: (2, 0)}
"""Variables of texts with a length byte: how many texts, and how many bytes after them."""
_UPDATED_DATABASES = 12
_TOO_MANY_DATABASES = 254
_ALTER_FLAGS = 130
_ALTER_ENDED = 4 | 8
_COLLATIONS = 131
_PADDING = 255


def _statement_context(status: bytes) -> tuple[int, int | None]:
    """Return sql_mode and the client's collation from a QUERY's status variables.

    Variables carry no length, so that nothing can be read after an unknown one: that is CorruptData
    unless both were found before it.
    """
    sql_mode: int | None = None
    collation: int | None = None
    at = 0
    while at < len(status) and (sql_mode is None or collation is None):
        code = status[at]
        if code == _PADDING:
            break
        at += 1
        if code == _SQL_MODE:
            (sql_mode,) = _U64.unpack_from(status, at)
        elif code == _CHARSET:
            collation = status[at] | status[at + 1] << 8
        at = _after_variable(status, code, at)
    return sql_mode or 0, collation


def _after_variable(status: bytes, code: int, at: int) -> int:
    """Return where the variable ``code``, whose value is at ``at``, ends."""
    if code in _STATUS_BYTES:
        return at + _STATUS_BYTES[code]
    if code in _TEXTS:
        count, trailing = _TEXTS[code]
        for _ in range(count):
            at += 1 + status[at]
        return at + trailing
    if code == _UPDATED_DATABASES:
        count, at = status[at], at + 1
        for _ in range(0 if count == _TOO_MANY_DATABASES else count):
            at = _after_zero(status, at)
        return at
    if code == _ALTER_FLAGS:
        return at + 2 + (8 if status[at] & _ALTER_ENDED else 0)
    if code == _COLLATIONS:
        return at + 1 + 4 * status[at]
    raise CorruptData(f"a QUERY event of the binlog has an unknown status variable: code {code}")


def _after_zero(status: bytes, at: int) -> int:
    end = status.find(b"\0", at)
    if end < 0:
        raise IndexError
    return end + 1


@dataclass(frozen=True, slots=True)
class XaPrepare:
    """Ends the rows of an XA transaction. ``one_phase``: this event commits it, else it waits."""

    one_phase: bool
    xid: Xid


@reads("XA_PREPARE")
def parse_xa_prepare(body: bytes) -> XaPrepare:
    one_phase, format_id, gtrid_bytes, bqual_bytes = _XA_PREPARE.unpack_from(body)
    xid, _ = read_xid(
        body,
        _XA_PREPARE.size,
        format_id=format_id,
        gtrid_bytes=gtrid_bytes,
        bqual_bytes=bqual_bytes,
    )
    return XaPrepare(bool(one_phase), xid)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The server has nothing to send up to here. ``position`` None: it is the header's."""

    file: str
    position: int | None


@reads("HEARTBEAT")
def parse_heartbeat(body: bytes, *, header_position: int) -> Heartbeat:
    """Parse the event. ``header_position`` is next_pos of its header; MariaDB sets it to 0 beyond 4
    GiB and puts eight bytes with the position before the file's name."""
    if header_position == 0 and len(body) > _U64.size:
        return Heartbeat(body[_U64.size :].decode(), _U64.unpack_from(body)[0])
    return Heartbeat(body.decode(), None)


_HEARTBEAT_FILE = 1
_HEARTBEAT_POSITION = 2


@reads("HEARTBEAT_V2")
def parse_heartbeat_v2(body: bytes) -> Heartbeat:
    """Parse MySQL's heartbeat with a 64-bit position. Unknown fields are passed over, as each has a
    length and a heartbeat says nothing about data."""
    file, position, at = "", None, 0
    while at < len(body) and body[at] != 0:
        kind, at = length_encoded(body, at)
        size, at = length_encoded(body, at)
        if kind == _HEARTBEAT_FILE:
            file = body[at : at + size].decode()
        elif kind == _HEARTBEAT_POSITION:
            position = length_encoded(body, at)[0]
        at += size
    return Heartbeat(file, position)
