"""Logical messages of applications, as rows of parts (`tideline.contract.messages`).

Only transactional ones: a message of no transaction is written at once, whatever becomes of the
transaction around it, and has no place between the commits at which a stream resumes.

There may be as many as rows, so they are decoded as those are: a message becomes the row message of
a relation whose oid no table has.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
import structlog

from tideline.contract.messages import message_schema
from tideline.contract.part import CREATED
from tideline.contract.position import format_lsn
from tideline_capture.arrow_types import part_schema
from tideline_capture.core.events import Int64Array, Rows
from tideline_capture.sources.postgres.replication.pgoutput import LogicalMessage, parse_message
from tideline_capture.sources.postgres.watermarks import PREFIX_AT

OIDS_MAX = 100
"""The relations up to here are messages' prefixes: PostgreSQL has no table with such an oid."""
_HEAD = struct.Struct(">cI?")
"""Kind, oid, and whether the content follows."""

log = structlog.get_logger("tideline.capture")


class ApplicationMessages:
    """The messages with one of ``prefixes``. Of one of more than ``bytes_max`` the content is left
    out: any role may write them, and none should stop the worker."""

    def __init__(self, prefixes: Sequence[str], bytes_max: int) -> None:
        self._oids = {prefix: oid for oid, prefix in enumerate(prefixes, 1)}
        self._prefixes = {oid: prefix for prefix, oid in self._oids.items()}
        self._starts = tuple(prefix.encode() + b"\0" for prefix in prefixes)
        self._bytes_max = bytes_max
        self._warned: set[str] = set()

    def wants(self, payload: bytes) -> bool:
        """Return whether a logical message, as pgoutput sends it, has one of the prefixes."""
        return payload.startswith(self._starts, PREFIX_AT)

    def as_rows(self, payload: bytes) -> tuple[bytes, ...]:
        """Return a wanted message as a row message; nothing for one of no transaction. Raises
        CorruptData for one that is broken."""
        message = parse_message(payload)
        assert isinstance(message, LogicalMessage)
        if not message.transactional:
            self._warn(message)
            return ()
        fits = len(payload) <= self._bytes_max
        if not fits:
            log.warning(
                "a logical message is larger than capture.event_bytes_max; its content is left out",
                prefix=message.prefix,
                bytes=len(payload),
                lsn=format_lsn(message.lsn),
            )
        head = _HEAD.pack(b"M", self._oids[message.prefix], fits)
        return (head + message.content if fits else head,)

    def rows(
        self,
        oid: int,
        payloads: Sequence[bytes],
        *,
        seq: Int64Array,
        tx: Int64Array,
        ts: Int64Array,
    ) -> Rows:
        """Return what `as_rows` made of messages of one prefix, as rows of its part. ``seq``,
        ``tx`` and ``ts`` (commit time, µs since 1970 UTC) have one number per payload."""
        schema = message_schema(self._prefixes[oid])
        fields = part_schema(
            schema, (), unchanged=False, overflow=False, image=False, image_overflow=False
        )
        at = _HEAD.size
        contents = [one[at:] if one[at - 1] else None for one in payloads]
        columns = (
            pa.array(seq, pa.int64()),
            pa.array([CREATED] * len(payloads), pa.string()),
            pa.array(tx, pa.int64()),
            pa.array(ts, pa.int64()).cast(fields.field(3).type),
            pa.array(contents, fields.field(4).type),
        )
        return Rows(schema, pa.RecordBatch.from_arrays(list(columns), schema=fields))

    def _warn(self, message: LogicalMessage) -> None:
        """Warn of the first one in a session: there may be many."""
        if message.prefix not in self._warned:
            self._warned.add(message.prefix)
            log.warning(
                "a logical message of no transaction is left out, and so are others like it:"
                " pg_logical_emit_message(true, …) writes one that is captured",
                prefix=message.prefix,
                lsn=format_lsn(message.lsn),
            )
