"""Orders of chunks, and what the dumper reports about them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tideline.contract.request import KeyRange, TimeRange
from tideline_capture.core.facts import Snapshot, TableFacts


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
    behind it. ``facts`` were read in the chunk's own transaction. ``probes``: where visible and
    logged are one order, the last probe of each writer that the snapshot shows (`copies`).
    """

    token: str
    facts: TableFacts
    batch: pa.RecordBatch
    key_overflow: tuple[str, ...]
    missing: pa.RecordBatch | None
    last_key: tuple[str, ...] | None
    complete: bool
    snapshot: Snapshot
    rows_estimate: int | None = None
    keys_read: int = 0
    probes: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class ChunkFailed:
    """A chunk could not be read.

    ``retry``: a later try may succeed. ``restart``: the dump must begin again, because the snapshot
    that it was read from is gone.
    """

    token: str
    error: str
    hint: str | None
    retry: bool
    restart: bool = False


@dataclass(frozen=True, slots=True)
class WatermarksWritten:
    """The source has both watermarks of a chunk: what is written to its log from now on lies behind
    them."""

    token: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reason why the chunk in progress is held up (the fence's blocker, a lock), or None."""

    token: str
    reason: str | None


ChunkEvent = ChunkRead | Chunk | ChunkFailed | WatermarksWritten | Waiting
"""The dumper's reports about a chunk that it was ordered to read."""
