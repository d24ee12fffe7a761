"""Events that the core receives and orders that it gives: the vocabulary between sources, core and
runtime."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tideline.contract.description import Description
from tideline.contract.manifest import ColumnNumbers
from tideline.contract.position import SourcePosition
from tideline.contract.request import Command, DumpRequest, KeyRange, TimeRange
from tideline.contract.schema import TableSchema
from tideline.contract.steps import ColumnStep, StepKind
from tideline_capture.core.catalog_identity import NO_SCHEMA, CatalogIdentity

Int64Array = npt.NDArray[np.int64]

WHOLE_ROW = ""
"""Stands for a key column's name where a row's identity is the row itself."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one table and schema version, in seq order, in the shape of a part.

    ``batch`` holds ``_tl_seq``, ``_tl_op``, ``_tl_tx``, ``_tl_ts``, the table's columns and, when
    needed, ``_tl_before_*``, ``_tl_image``, ``_tl_image_overflow``, ``_tl_unchanged`` and
    ``_tl_overflow``. ``image_rows`` counts rows that carry the whole row before.
    """

    schema: TableSchema
    batch: pa.RecordBatch
    unchanged_rows: int = 0
    before_rows: int = 0
    overflow_rows: int = 0
    image_rows: int = 0


class MarkKind(Enum):
    """Our own messages in the source's log."""

    LOW = "L"
    HIGH = "H"
    CATALOG_LOW = "C"
    HEARTBEAT = "B"
    """Ends a catalog round that CATALOG_LOW began; carries the source's clock."""
    PULSE = "P"
    """Shows where between L and H the snapshot of a table without a key was taken.

    Its token consists of the chunk's, the lane's and its number in that, with dots between.
    """


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark of this session, read back from the log.

    The source has checked that no one else wrote it. ``clock_us`` is the source's when HIGH or
    HEARTBEAT was about to be written, µs UTC: what had been committed by then is before the
    watermark. Of the other kinds it says nothing.
    """

    kind: MarkKind
    token: str
    clock_us: int


@dataclass(frozen=True, slots=True)
class StrangeMark:
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
    ``begins``: they name it, and it may be captured from here on, as ``facts`` say.
    """

    schema: TableSchema
    xid: int = 0
    oid: int = 0
    facts: TableFacts | None = None
    description: Description | None = None
    keyless: bool = False
    begins: bool = False


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
class HeldSeen:
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
    Mark
    | StrangeMark
    | SchemaSeen
    | Unreadable
    | Truncated
    | StatementSeen
    | GapSeen
    | HeldSeen
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
    before a change is missing: they must be parked from the batch's first sequence on.
    """

    rows: tuple[Rows, ...]
    changes: int
    controls: tuple[Control, ...]
    boundary: Boundary | None
    in_transaction: bool
    transactions: Int64Array
    unholdable: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions that a read has seen: all below ``xmax`` but those in ``running``.

    64-bit ids; the log's ids are their lower 32 bits.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SourceLoad:
    """The source's load; None: it does not report it.

    ``replica_lag_s`` is that of the slowest replica (or of the source, where it is one itself),
    ``running_queries`` counts active sessions but ours, ``log_backlog_bytes`` is what the source
    keeps of its log for us, ``log_warning`` says in words that it will not for much longer.
    ``clock_us`` is its clock, µs UTC.
    """

    replica_lag_s: float | None = None
    running_queries: int | None = None
    log_backlog_bytes: int | None = None
    log_warning: str | None = None
    clock_us: int | None = None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A source's catalog entry for one table at one moment.

    ``problem`` and ``hint`` say why it cannot be captured, if so; ``schema`` is None then.
    ``narrowed``: a publication has only a part of it. ``identity`` names the table itself and its
    storage: ``oid`` changes when it is re-created, ``storage`` when it is rewritten or truncated,
    ``columns`` (a digest each, in their order) with any column, ``members`` (a digest) with
    partitions, labels and row types, ``membership`` when the table joins the publication again or
    what that publishes changes (empty: not in it). ``backfilled`` names columns whose old rows got
    a value without row events; ``defaults`` has that value where all of them got the same and it is
    known (as `ColumnStep.default`). ``numbers`` are those of the schema's columns, where the source
    numbers them. ``key_definition`` changes with the key's columns, types or collation, and with
    the table's identity. ``changed_by`` is the id of the transaction (32 bits) that changed the
    table's own entry last, its ``storage`` above all; 0 where the source does not say.
    ``columns_too``: that one, or one after it, changed entries of its columns as well, so that it
    may have recomputed values. ``description`` is no part of the table's identity: only comments,
    and what may not be NULL.
    """

    table: str
    schema: TableSchema | None
    oid: int
    storage: str
    columns: tuple[str, ...]
    members: str
    key_definition: str
    membership: str
    backfilled: tuple[str, ...] = ()
    problem: str | None = None
    hint: str | None = None
    narrowed: bool = False
    numbers: ColumnNumbers | None = None
    defaults: Mapping[str, str] = field(default_factory=dict, hash=False)
    changed_by: int = field(default=0, compare=False)
    columns_too: bool = field(default=False, compare=False)
    description: Description | None = field(default=None, compare=False)

    @property
    def identity(self) -> CatalogIdentity:
        return CatalogIdentity(
            str(self.oid),
            self.storage,
            self.columns_text,
            self.members,
            self.membership,
            self.schema.fingerprint if self.schema else NO_SCHEMA,
        )

    @property
    def catalog(self) -> str:
        """The text form kept in the open state."""
        return self.identity.text

    @property
    def columns_text(self) -> str:
        """The columns, and the highest number that any ever had, where they have numbers."""
        text = columns_text(self.columns)
        return text if self.numbers is None else f"{text}.{self.numbers.last}"


def columns_text(columns: tuple[str, ...]) -> str:
    """Return the number of columns, and a digest over them.

    The first ones of more columns can be compared with it.
    """
    return f"{len(columns)}.{hashlib.sha256(','.join(columns).encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class CatalogRound:
    """One look at the whole catalog, between the watermarks C and B that carry ``token``.

    Tokens of a session's rounds ascend, as texts: one that does not is a copy of a watermark that
    has passed. ``snapshot`` was taken after C and before the look. ``at_us``: this machine's clock
    when B was about to be written, µs UTC; B's clock is not believed beyond it, nor at all without
    it.
    """

    token: str
    tables: tuple[TableFacts, ...]
    snapshot: Snapshot
    at_us: int | None = None


@dataclass(frozen=True, slots=True)
class ChunkOrder:
    """One chunk to read: between the watermarks L and H that carry ``token``.

    Whole tables and ranges go by ``after_key`` and ``rows_max``; given keys by ``keys``. ``fence``:
    wait until every transaction older than L has ended, before reading. ``verify``: the rows are to
    be compared, not merged. ``boundary_only``: only the key of the chunk's last row, the
    ``rows_max``-th, is wanted; without so many rows the chunk is complete and has none.
    ``keyless``: the table has no key and is copied in one snapshot. The chunk without an
    ``after_key`` takes the snapshot, and nothing more; later chunks say which one and how far it
    was read.
    """

    token: str
    request_id: str
    table: str
    rows_max: int
    bytes_max: int
    after_key: tuple[str, ...] | None = None
    keys: tuple[tuple[str, ...], ...] | None = None
    time: TimeRange | None = None
    key_range: KeyRange | None = None
    fence: bool = False
    estimate: bool = False
    verify: bool = False
    boundary_only: bool = False
    keyless: bool = False


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """A chunk was read and is being decoded.

    The next one may begin behind ``last_key``, unless it was the last (``complete``). ``rows`` were
    read in ``took_s`` seconds (0: cannot be separated from other waits).
    """

    token: str
    last_key: tuple[str, ...] | None
    complete: bool
    rows: int = 0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk as read, in key order; ``batch`` holds the columns (and ``_tl_overflow``) only.

    ``missing``: the key columns of requested keys that the source no longer has. ``keys_read``: how
    many of the requested keys, from the first on, the chunk covers. ``complete``: nothing lies
    behind it. ``facts`` were read in the chunk's own transaction. ``pulses``: where visible and
    logged are one order, the last probe of each lane that the snapshot shows (`copies`).
    """

    token: str
    facts: TableFacts
    batch: pa.RecordBatch
    overflow_rows: int
    key_overflow: tuple[str, ...]
    missing: pa.RecordBatch | None
    last_key: tuple[str, ...] | None
    complete: bool
    snapshot: Snapshot
    rows_estimate: int | None = None
    keys_read: int = 0
    pulses: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class ChunkFailed:
    """A chunk could not be read.

    ``retry``: a later try may succeed. ``anew``: the dump must begin again, because the snapshot
    that it was read from is gone.
    """

    token: str
    error: str
    hint: str | None
    retry: bool
    anew: bool = False


@dataclass(frozen=True, slots=True)
class MarksWritten:
    """The source has both watermarks of a chunk: what is written to its log from now on lies behind
    them."""

    token: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reason why the chunk in progress is held up (the fence's blocker, a lock), or None."""

    token: str
    reason: str | None


Told = ChunkRead | Chunk | ChunkFailed | MarksWritten | Waiting
"""The dumper's reports about a chunk that it was ordered to read."""


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

Applies = Callable[[str, StepKind], bool]
"""Returns whether the worker is to follow a step of a table that no target can take, by a dump."""


def never(table: str, kind: StepKind) -> bool:
    """Return False: no step is followed."""
    return False


@dataclass(frozen=True, slots=True)
class CoreLimits:
    """The core's limits; see `tideline.settings.Capture` for their meaning.

    ``whole_rows`` is the source's statement for hints (`tideline.settings.source_kinds`).
    """

    flush_interval_s: float
    heartbeat_s: float
    segment_bytes_max: int
    chunk_rows: int
    chunk_bytes_max: int
    delay_ms: int
    chunk_redo_max: int
    unseen_transactions_max: int
    open_requests_max: int
    parallel_dumps_max: int
    chunks_ahead_max: int
    initial_dump: bool
    dump_unproven: bool
    chunk_target_ms: int = 0
    replica_lag_max_s: float | None = None
    running_queries_max: int | None = None
    log_backlog_max_bytes: int | None = None
    applies: Applies = never
    whole_rows: str = ""
