"""The messages of PostgreSQL's logical replication protocol that are not rows.

Layouts: the manual's "Logical Replication Message Formats", protocol version 1 (numbers are big
endian). Row messages are by far the most and are decoded in bulk, in `decode`; these come once per
transaction or less, and each becomes one value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tideline.contract.errors import CorruptData

POSTGRES_EPOCH_US = 946_684_800_000_000
"""2000-01-01 in µs since 1970; the protocol counts from the former, Tideline from the latter."""

_BEGIN = struct.Struct(">xQqI")
_COMMIT = struct.Struct(">xxQQq")
_LSN = struct.Struct(">xQ")
_OID = struct.Struct(">xI")
_TRUNCATE = struct.Struct(">xIB")
_MESSAGE = struct.Struct(">xBQ")
_COLUMN_TYPE = struct.Struct(">Ii")
_COUNT = struct.Struct(">H")
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction's first message. ``final_lsn`` is its commit record's, times are µs since
    1970 UTC."""

    final_lsn: int
    commit_time_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """A transaction's last message. A stream resumed at ``end_lsn`` does not send it again."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation. ``key``: it belongs to the replica identity (all do, when full)."""

    name: str
    key: bool
    type_oid: int
    typmod: int


@dataclass(frozen=True, slots=True)
class Relation:
    """Describes the rows of one table from here on; sent before the first, and after changes.

    ``identity`` is pg_class.relreplident: ``d`` default, ``i`` index, ``f`` full, ``n`` nothing.
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """Names a type that a following Relation uses and that is not built in."""

    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    """A statement that emptied all these relations."""

    relation_oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """The content of a ``pg_logical_emit_message``."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class OriginMessage:
    """The transaction was replicated here from another server."""

    commit_lsn: int
    name: str


RareMessage = (
    Begin | CommitMessage | Relation | Type | TruncateMessage | LogicalMessage | OriginMessage
)


def parse_message(payload: bytes) -> RareMessage:
    """Parse the message in ``payload``.

    Raises CorruptData for a kind that protocol version 1 does not have, for a row message (those
    belong to `decode.decode_rows`), and for one that ends too early.
    """
    parser = _PARSERS.get(payload[:1])
    if parser is None:
        raise CorruptData(f"not a message of pgoutput's protocol version 1: kind {payload[:1]!r}")
    try:
        return parser(payload)
    except (struct.error, IndexError, ValueError):
        raise CorruptData(
            f"a pgoutput message is broken: kind {payload[:1]!r}, {len(payload)} bytes"
        ) from None


def _begin(payload: bytes) -> Begin:
    final_lsn, time, xid = _BEGIN.unpack(payload)
    return Begin(final_lsn, time + POSTGRES_EPOCH_US, xid)


def _commit(payload: bytes) -> CommitMessage:
    commit_lsn, end_lsn, time = _COMMIT.unpack(payload)
    return CommitMessage(commit_lsn, end_lsn, time + POSTGRES_EPOCH_US)


def _relation(payload: bytes) -> Relation:
    (oid,) = _OID.unpack_from(payload)
    schema, at = _text(payload, _OID.size)
    name, at = _text(payload, at)
    identity = chr(payload[at])
    (count,) = _COUNT.unpack_from(payload, at + 1)
    at += 1 + _COUNT.size
    columns = []
    for _ in range(count):
        key = bool(payload[at] & 1)
        column, at = _text(payload, at + 1)
        type_oid, typmod = _COLUMN_TYPE.unpack_from(payload, at)
        at += _COLUMN_TYPE.size
        columns.append(RelationColumn(column, key, type_oid, typmod))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _type(payload: bytes) -> Type:
    (oid,) = _OID.unpack_from(payload)
    schema, at = _text(payload, _OID.size)
    name, _ = _text(payload, at)
    return Type(oid, schema or "pg_catalog", name)


def _truncate(payload: bytes) -> TruncateMessage:
    count, _ = _TRUNCATE.unpack_from(payload)
    oids = struct.unpack(f">{count}I", payload[_TRUNCATE.size :])
    return TruncateMessage(oids)


def _message(payload: bytes) -> LogicalMessage:
    flags, lsn = _MESSAGE.unpack_from(payload)
    # Every role may choose one; in a database without an encoding it may be any bytes.
    prefix, at = _text(payload, _MESSAGE.size, errors="replace")
    (length,) = _LENGTH.unpack_from(payload, at)
    content = payload[at + _LENGTH.size :]
    if len(content) != length:
        raise ValueError("length differs")
    return LogicalMessage(bool(flags & 1), lsn, prefix, content)


def _origin(payload: bytes) -> OriginMessage:
    (lsn,) = _LSN.unpack_from(payload)
    name, _ = _text(payload, _LSN.size)
    return OriginMessage(lsn, name)


def _text(payload: bytes, at: int, *, errors: str = "strict") -> tuple[str, int]:
    """Return the zero-terminated text at ``at``, and where the next field begins."""
    end = payload.index(b"\0", at)
    return payload[at:end].decode(errors=errors), end + 1


_PARSERS: Mapping[bytes, Callable[[bytes], RareMessage]] = {
    b"B": _begin,
    b"C": _commit,
    b"R": _relation,
    b"Y": _type,
    b"T": _truncate,
    b"M": _message,
    b"O": _origin,
}
