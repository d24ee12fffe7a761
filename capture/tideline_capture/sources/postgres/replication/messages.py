"""Logical messages of applications, as rows of parts (`tideline.contract.messages`).

Only transactional ones: a message of no transaction is written at once, whatever becomes of the
transaction around it, and has no place between the commits at which a stream resumes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import structlog

from tideline.contract.messages import message_schema
from tideline.contract.part import CREATED
from tideline.contract.position import format_lsn
from tideline_capture.arrow_types import part_schema
from tideline_capture.core.events import Rows
from tideline_capture.sources.postgres.replication.pgoutput import LogicalMessage
from tideline_capture.sources.postgres.watermarks import PREFIX_AT

log = structlog.get_logger("tideline.capture")


class ApplicationMessages:
    """The messages with one of ``prefixes``. Of one of more than ``bytes_max`` the content is left
    out: any role may write them, and none should stop the worker."""

    def __init__(self, prefixes: Sequence[str], bytes_max: int) -> None:
        self._prefixes = frozenset(prefixes)
        self._starts = tuple(prefix.encode() + b"\0" for prefix in prefixes)
        self._bytes_max = bytes_max
        self._warned: set[str] = set()

    def wants(self, payload: bytes) -> bool:
        """Return whether a logical message, as pgoutput sends it, has one of the prefixes."""
        return payload.startswith(self._starts, PREFIX_AT)

    def rows(self, message: LogicalMessage, *, seq: int, tx: int, ts_us: int) -> Rows | None:
        """Return a message as a row of its prefix's part, committed at ``ts_us`` (µs since 1970);
        None for one of no transaction, or of another prefix."""
        if message.prefix not in self._prefixes:
            return None
        if not message.transactional:
            self._warn(message)
            return None
        too_large = len(message.content) > self._bytes_max
        if too_large:
            log.warning(
                "a logical message is larger than capture.event_bytes_max; its content is left out",
                prefix=message.prefix,
                bytes=len(message.content),
                lsn=format_lsn(message.lsn),
            )
        schema = message_schema(message.prefix)
        fields = part_schema(
            schema, (), unchanged=False, overflow=False, image=False, image_overflow=False
        )
        values = (seq, CREATED, tx, ts_us, None if too_large else message.content)
        columns = [
            pa.array([value], pa.int64()).cast(field.type)
            if isinstance(value, int)
            else pa.array([value], field.type)
            for value, field in zip(values, fields, strict=True)
        ]
        return Rows(schema, pa.RecordBatch.from_arrays(columns, schema=fields))

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
