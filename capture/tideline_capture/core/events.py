"""Events that the core receives from the log and from the queue, in the order of either."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tideline.contract.description import Description
from tideline.contract.part import NO_COUNTS, PartCounts
from tideline.contract.position import SourcePosition
from tideline.contract.request import Command, DumpRequest
from tideline.contract.schema import TableSchema
from tideline.contract.steps import ColumnStep
from tideline_capture.core.facts import TableFacts

Int64Array = npt.NDArray[np.int64]


WHOLE_ROW = ""
"""Stands for a key column's name where a row's identity is the row itself."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one table and schema version, in seq order, in the shape of a part.

    ``batch`` holds ``_tl_seq``, ``_tl_op``, ``_tl_tx``, ``_tl_ts``, the table's columns and, when
    needed, ``_tl_before_*``, ``_tl_image``, ``_tl_image_overflow``, ``_tl_unchanged`` and
    ``_tl_overflow``.
    """

    schema: TableSchema
    batch: pa.RecordBatch
    counts: PartCounts = NO_COUNTS


class WatermarkKind(Enum):
    """Our own messages in the source's log."""

    LOW = "L"
    HIGH = "H"
    CATALOG_LOW = "C"
    HEARTBEAT = "B"
    """Ends a catalog round that CATALOG_LOW began; carries the source's clock."""
    PROBE = "P"
    """Shows where between L and H the snapshot of a table without a key was taken.

    Its token consists of the chunk's, the writer's and its number in that, with dots between.
    """


@dataclass(frozen=True, slots=True)
class Watermark:
    """A watermark of this session, read back from the log.

    The source has checked that no one else wrote it. ``clock_us`` is the source's when HIGH or
    HEARTBEAT was about to be written, µs UTC: what had been committed by then is before the
    watermark. Of the other kinds it says nothing.
    """

    kind: WatermarkKind
    token: str
    clock_us: int


@dataclass(frozen=True, slots=True)
class UnknownWatermark:
    """An entry of the log that looks like a watermark of this chain, and is none of this session's.

    A session before wrote it, or another user did.
    """


@dataclass(frozen=True, slots=True)
class SchemaSeen:
    """The log announced the columns that the table's next rows have, in transaction ``xid``.

    ``oid`` is the table itself, where the log distinguishes it from others that had its name (else
    0). ``facts``: the catalog's view of it since, read when ``xid`` had become visible, and only if
    that is the same columns and key; it may include later changes all the same. ``description`` was
    read then, too, whatever the columns are. ``keyless``: the settings take it without a key.
    ``starts_capture``: they name it, and it may be captured from here on, as ``facts`` say.
    """

    schema: TableSchema
    xid: int = 0
    oid: int = 0
    facts: TableFacts | None = None
    description: Description | None = None
    keyless: bool = False
    starts_capture: bool = False


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The log has rows of ``table``, which is not captured, in columns that cannot be read."""

    table: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """All rows of these tables are gone, in one transaction, ``xid``."""

    tables: tuple[str, ...]
    xid: int = 0


@dataclass(frozen=True, slots=True)
class Begun:
    """A statement gave a table of the settings its name.

    ``empty``: it made the table, without a row; None: it did so unless the table was there before
    (IF NOT EXISTS). ``at_us``: when that was committed, µs UTC; 0 where it is not known.
    """

    table: str
    empty: bool | None
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class StatementSeen:
    """The log holds a DDL statement that names these tables, or concerns all tables of ``schema``.

    Names may differ in case from the source's own. ``neutral``: it leaves the values of existing
    rows as they were, but for what ``steps`` say; which columns they then have comes as
    `SchemaSeen`. ``steps`` (without types) are all that it does to columns, of the one table that
    it concerns; None: that is not known. The names ``ended`` are no longer those of the tables that
    had them; ``begun`` are there from then on.
    """

    text: str
    tables: tuple[str, ...]
    neutral: bool
    schema: str | None = None
    steps: tuple[ColumnStep, ...] | None = None
    begun: tuple[Begun, ...] = ()
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GapSeen:
    """The log lacks some changes, and the settings allow the capture to continue.

    ``tables`` (None: all) must be dumped again.
    """

    reason: str
    tables: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PreparedSeen:
    """The log prepared an XA transaction, whose rows it has at ``position``.

    They are to be read once it commits. ``position`` None: it ended.
    """

    xid: str
    position: SourcePosition | None


@dataclass(frozen=True, slots=True)
class CascadeSeen:
    """Changes of other tables may have cascaded to ``tables``, which the log does not show.

    A dump that begins after this makes up for it.
    """

    tables: tuple[str, ...]


Control = (
    Watermark
    | UnknownWatermark
    | SchemaSeen
    | Unreadable
    | Truncated
    | StatementSeen
    | GapSeen
    | PreparedSeen
    | CascadeSeen
)


@dataclass(frozen=True, slots=True)
class Boundary:
    """A transaction's end: where a manifest may end and a stream may resume."""

    position: SourcePosition


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A batch of the log, in log order: rows first, then ``controls``.

    ``rows`` consume ``changes`` sequences, from the ``next_seq`` that the reader was given.
    ``boundary`` is set when the batch ends with a commit, ``in_transaction`` when it ends within a
    transaction. ``transactions`` are the source's ids of the transactions that ended in the batch.
    ``unholdable`` names tables (and key columns) whose rows were left out of the batch because a
    key value does not fit its type, or (`WHOLE_ROW`, of a table without a key) because the row
    before a change is missing: they must be quarantined from the batch's first sequence on.
    ``messages`` are logical messages of applications, among the ``changes`` as ``rows`` are.
    """

    rows: tuple[Rows, ...]
    changes: int
    controls: tuple[Control, ...]
    boundary: Boundary | None
    in_transaction: bool
    transactions: Int64Array
    unholdable: tuple[tuple[str, str], ...] = ()
    messages: tuple[Rows, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A checked request from the queue; ``message_id`` is acknowledged once it is durable."""

    message_id: str
    request: DumpRequest


@dataclass(frozen=True, slots=True)
class CommandArrived:
    """A checked command from the queue; ``message_id`` is acknowledged once it is durable."""

    message_id: str
    command: Command


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A message that is no valid request; recorded and acknowledged."""

    message_id: str
    request_id: str
    error: str


Arrival = RequestArrived | CommandArrived | RequestRefused
"""A message of the queue."""
