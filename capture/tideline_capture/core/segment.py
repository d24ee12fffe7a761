"""The open segment, when it closes, and what is handed over then.

It closes only between transactions; inside one, rows are flushed instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum

import pyarrow as pa

from tideline.contract.description import Description
from tideline.contract.manifest import (
    DeleteBefore,
    SchemaEvent,
    Truncate,
    VerificationChunk,
)
from tideline.contract.open_state import OpenState
from tideline.contract.position import SourceIdentity, SourcePosition
from tideline.contract.request import Answer
from tideline.contract.schema import TableSchema
from tideline_capture.core.events import Rows
from tideline_capture.core.limits import CoreLimits


@dataclass(frozen=True, slots=True)
class VerificationRows:
    """A verification chunk.

    ``chunk`` lacks what the upload adds: key, bytes, digest. ``rows`` holds the table's columns
    (and ``_tl_overflow``), ``missing`` the key columns of requested keys that have no row.
    """

    chunk: VerificationChunk
    schema: TableSchema
    rows: pa.RecordBatch
    missing: pa.RecordBatch | None = None

    @property
    def bytes(self) -> int:
        """The size in memory."""
        return int(self.rows.nbytes) + (0 if self.missing is None else int(self.missing.nbytes))


@dataclass(slots=True)
class OpenSegment:
    """The events since the last manifest; mutable, owned by the core's state alone."""

    first_seq: int
    opened_at: float | None = None
    row_bytes: int = 0
    verification_bytes: int = 0
    partly_flushed: bool = False
    urgent: bool = False
    rows: list[Rows] = field(default_factory=list)
    schemas: list[TableSchema] = field(default_factory=list)
    descriptions: list[Description] = field(default_factory=list)
    schema_events: list[SchemaEvent] = field(default_factory=list)
    truncates: list[Truncate] = field(default_factory=list)
    deletes_before: list[DeleteBefore] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    finished: list[Answer] = field(default_factory=list)
    refused: list[Answer] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    verification_rows: list[VerificationRows] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The size in memory."""
        return self.row_bytes + self.verification_bytes

    def add(self, rows: Rows) -> None:
        self.rows.append(rows)
        self.row_bytes += rows.batch.nbytes

    def add_verification(self, read: VerificationRows) -> None:
        """Add a verification chunk."""
        self.verification_rows.append(read)
        self.verification_bytes += read.bytes

    def has_content(self) -> bool:
        """Return whether a reader would miss something without this segment, the open state
        aside."""
        return bool(
            self.rows
            or self.partly_flushed
            or self.schema_events
            or self.truncates
            or self.deletes_before
            or self.accepted
            or self.finished
            or self.refused
            or self.verification_rows
        )

    def flush_partial(self) -> PartialFlush:
        """Hand over the rows alone. Verification chunks stay: only a manifest names them."""
        self.partly_flushed = True
        partial = PartialFlush(tuple(self.rows), tuple(self.schemas))
        self.rows.clear()
        self.row_bytes = 0
        return partial

    def close(
        self,
        *,
        last_seq: int,
        position: SourcePosition,
        identity: SourceIdentity,
        source_time_us: int | None,
        state: OpenState,
        state_changed: bool,
    ) -> Segment:
        return Segment(
            first_seq=self.first_seq,
            last_seq=last_seq,
            position=position,
            identity=identity,
            source_time_us=source_time_us,
            state=state,
            state_changed=state_changed,
            **{name: tuple(getattr(self, name)) for name in _COLLECTED},
        )


@dataclass(frozen=True, slots=True)
class PartialFlush:
    """Rows of an unfinished transaction: upload them as parts; the next `Segment` commits them."""

    rows: tuple[Rows, ...]
    schemas: tuple[TableSchema, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A closed segment: its parts (with those flushed before) and one manifest commit it.

    A field with the name of a field of `Manifest` is that field's value. ``state_changed`` obliges
    the manifest to hold ``state`` in full. ``schemas`` and ``descriptions`` are to be written
    before, ``verification_rows`` uploaded; ``messages`` are the queue's entries to acknowledge once
    the manifest is durable.
    """

    first_seq: int
    last_seq: int
    position: SourcePosition
    identity: SourceIdentity
    source_time_us: int | None
    state: OpenState
    state_changed: bool
    rows: tuple[Rows, ...] = ()
    schemas: tuple[TableSchema, ...] = ()
    descriptions: tuple[Description, ...] = ()
    schema_events: tuple[SchemaEvent, ...] = ()
    truncates: tuple[Truncate, ...] = ()
    deletes_before: tuple[DeleteBefore, ...] = ()
    accepted: tuple[str, ...] = ()
    finished: tuple[Answer, ...] = ()
    refused: tuple[Answer, ...] = ()
    messages: tuple[str, ...] = ()
    verification_rows: tuple[VerificationRows, ...] = ()


_COLLECTED = tuple(one.name for one in fields(Segment) if one.default == ())
"""The lists of an open segment, which a closed one has as tuples."""


class Roll(Enum):
    KEEP = "keep"
    FLUSH = "flush"
    CLOSE = "close"


def roll(
    segment: OpenSegment,
    limits: CoreLimits,
    *,
    now: float,
    has_content: bool,
    in_transaction: bool,
    moved_at: float | None,
) -> Roll:
    """Decide what to do with ``segment`` at ``now`` (monotonic seconds).

    ``has_content``: a reader of the chain would miss something without it. ``moved_at``: since when
    the position has moved without a manifest that says so; an empty segment carries it on once per
    heartbeat.
    """
    if in_transaction:
        return Roll.FLUSH if segment.row_bytes >= limits.segment_bytes_max else Roll.KEEP
    if has_content:
        age = 0.0 if segment.opened_at is None else now - segment.opened_at
        full = segment.bytes >= limits.segment_bytes_max
        if full or segment.urgent or age >= limits.flush_interval_s:
            return Roll.CLOSE
        return Roll.KEEP
    if moved_at is not None and now - moved_at >= limits.heartbeat_s:
        return Roll.CLOSE
    return Roll.KEEP


def flush_due(
    segment: OpenSegment, limits: CoreLimits, *, now: float, buffered_since: float | None
) -> bool:
    """Return whether to decode the buffered rows now, because the segment is about to close."""
    begun = [moment for moment in (segment.opened_at, buffered_since) if moment is not None]
    return bool(begun) and (segment.urgent or now - min(begun) >= limits.flush_interval_s)
