"""The events that name transactions: MySQL's with a tag, and MariaDB's.

As in `log_events`, ``body`` is an event without header and checksum. Layouts: MySQL's
``libs/mysql/binlog/event/control_events.h``, MariaDB's ``sql/log_event.cc``.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.binlog.event_body import (
    reads,
    signed_trailing_ones,
    trailing_ones,
)
from tideline_capture.sources.mysql.binlog.xid import Xid, read_xid

_MARIADB_GTID = struct.Struct("<QIB")
_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class MysqlGtid:
    """Starts a transaction on MySQL. ``number`` 0 and a zero ``source``: it has no GTID.

    ``commit_time_us`` is when this server committed it, µs since 1970 UTC; None before MySQL 8.0.
    """

    source: uuid.UUID
    tag: str
    number: int
    flags: int
    commit_time_us: int | None = None


_VERSION = 1
_FLAGS, _SOURCE, _NUMBER, _TAG = 0, 1, 2, 3
_COMMIT_TIME, _ORIGINAL_TIME, _TRANSACTION_BYTES = 6, 7, 8
_LAST_COMMITTED, _SEQUENCE_NUMBER, _SERVER_VERSION, _ORIGINAL_VERSION, _TICKET = 4, 5, 9, 10, 11
_SIGNED = frozenset((_NUMBER, _LAST_COMMITTED, _SEQUENCE_NUMBER))
_UNSIGNED = frozenset(
    (
        _FLAGS,
        _COMMIT_TIME,
        _ORIGINAL_TIME,
        _TRANSACTION_BYTES,
        _SERVER_VERSION,
        _ORIGINAL_VERSION,
        _TICKET,
    )
)


@reads("GTID_TAGGED")
def parse_tagged_gtid(body: bytes) -> MysqlGtid:
    """Parse GTID_TAGGED, which MySQL 8.3 and later write for a GTID with a tag.

    It is the one event that is written with MySQL's serialization library: a version, the message's
    length, the id of the last field that a reader must know, then fields, each an id and a value,
    in ascending order; an empty field is left out. Values carry no length, so that reading ends at
    the first unknown field. When the server says that this one must be known, that is CorruptData.
    """
    version, at = trailing_ones(body, 0)
    size, at = trailing_ones(body, at)
    last_needed, at = trailing_ones(body, at)
    if version != _VERSION or size != len(body):
        raise CorruptData(f"a GTID_TAGGED event of an unknown form: version {version}")
    numbers: dict[int, int] = {}
    source, tag = b"", ""
    while at < size:
        kind, at = trailing_ones(body, at)
        if kind in _SIGNED:
            numbers[kind], at = signed_trailing_ones(body, at)
        elif kind in _UNSIGNED:
            numbers[kind], at = trailing_ones(body, at)
        elif kind == _SOURCE:
            source, at = _source(body, at)
        elif kind == _TAG:
            length, at = trailing_ones(body, at)
            tag, at = body[at : at + length].decode("ascii"), at + length
        elif kind <= last_needed:
            raise CorruptData(f"a GTID_TAGGED event has an unknown field: {kind}")
        else:
            break
    if len(source) != 16 or _NUMBER not in numbers or at > size:
        raise IndexError
    flags, committed = numbers.get(_FLAGS, 0), numbers.get(_COMMIT_TIME)
    return MysqlGtid(uuid.UUID(bytes=source), tag, numbers[_NUMBER], flags, committed)


def _source(body: bytes, at: int) -> tuple[bytes, int]:
    """Return the server's uuid: sixteen bytes, each written as a number."""
    numbers = []
    for _ in range(16):
        number, at = trailing_ones(body, at)
        numbers.append(number)
    return bytes(numbers), at


STANDALONE = 1
_GROUP_COMMIT = 2
_PREPARED_XA = 64
_COMPLETED_XA = 128
_MULTI_ENGINE = 1
_START_ALTER = 2
_COMMIT_ALTER = 4
_ROLLBACK_ALTER = 8
_THREAD = 16
_KNOWN_EXTRA = _MULTI_ENGINE | _START_ALTER | _COMMIT_ALTER | _ROLLBACK_ALTER | _THREAD


@dataclass(frozen=True, slots=True)
class MariadbGtid:
    """Starts a transaction on MariaDB; the server's id is in the event's header.

    ``standalone``: one statement follows and no commit. ``xid`` names the XA transaction whose
    rows follow and are held (``prepared``) or whose outcome follows.
    """

    domain: int
    sequence: int
    flags: int
    xid: Xid | None = None

    @property
    def standalone(self) -> bool:
        return bool(self.flags & STANDALONE)

    @property
    def prepared(self) -> bool:
        return bool(self.flags & _PREPARED_XA)


@reads("GTID")
def parse_mariadb_gtid(body: bytes) -> MariadbGtid:
    """Raise CorruptData for extra flags that are not known: what they announce is not known
    either."""
    sequence, domain, flags = _MARIADB_GTID.unpack_from(body)
    at = _MARIADB_GTID.size + (8 if flags & _GROUP_COMMIT else 0)
    xid = None
    if flags & (_PREPARED_XA | _COMPLETED_XA):
        (format_id,) = _U32.unpack_from(body, at)
        gtrid_bytes, bqual_bytes = body[at + 4], body[at + 5]
        xid, at = read_xid(
            body, at + 6, format_id=format_id, gtrid_bytes=gtrid_bytes, bqual_bytes=bqual_bytes
        )
    extra = body[at] if at < len(body) else 0
    if extra & ~_KNOWN_EXTRA:
        raise CorruptData(f"a GTID event of the binlog has unknown flags: {extra:#x}")
    return MariadbGtid(domain, sequence, flags, xid)
