"""The versioned document that ``tideline status --json`` prints (`making` makes it)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tideline.contract.document import written_version
from tideline.contract.json_schemas import DIALECT
from tideline.contract.modes import Mode
from tideline.contract.request import Answer
from tideline.contract.timeliness import Kept
from tideline.control import WorkerStatus
from tideline.planner.verified import VerifiedThrough
from tideline_console.freshness import Lateness

STATUS_VERSION = 1


class WorkerState(StrEnum):
    """The state of the log's reader; ``unknown`` when neither Redis nor the chain shows it."""

    LIVE = "live"
    PASSIVE = "passive"
    SILENT = "silent"
    """The reader of the log has been silent for longer than allowed, and no worker waits."""
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class TableStage(StrEnum):
    """The stage of a table; a running dump comes first, then the reason for a due one."""

    LIVE = "live"
    DUMPING = "dumping"
    PARKED = "parked"
    UNPROVEN = "unproven"
    BLOCKED = "blocked"


class Through(msgspec.Struct, frozen=True):
    """A position: a manifest, a sequence, and the source's clock, µs since 1970 UTC.

    ``source_time_us`` is the clock in the newest heartbeat with nothing left out before it: all
    changes committed by then are contained.
    """

    seq: int
    manifest_number: int | None = None
    source_time_us: int | None = None


class EarlierRows(StrEnum):
    """The state of the rows that a table had before its changes were captured."""

    NONE = "none"
    """The log has the table's creation: there were none."""
    DUMPED = "dumped"
    MISSING = "missing"
    """No dump of the whole table has ended."""


class Beginning(msgspec.Struct, frozen=True):
    """The first sequence of a table's captured changes, the source's clock there, µs since 1970
    UTC (None: unknown), and the state of earlier rows."""

    seq: int
    source_time_us: int | None
    earlier_rows: EarlierRows


class ChainStatus(msgspec.Struct, frozen=True):
    """The chain's end. ``lag_s``: the age of what is captured, by this machine's clock.
    ``clocks_apart`` describes a source clock that is minutes or more ahead of this machine's;
    None otherwise."""

    manifest_number: int
    incarnation: str
    term: int
    writer: str
    last_seq: int
    position: str
    released: bool = False
    source_time_us: int | None = None
    written_at_us: int | None = None
    lag_s: float | None = None
    clocks_apart: str | None = None


class TableStatus(msgspec.Struct, frozen=True):
    """One table. ``since_seq``, ``reason`` and ``hint`` belong to every state but ``live``.

    ``merged`` is None when nothing of it was merged yet; when ``up_to_date``, so that nothing
    captured waits to be merged, it moves with the chain. ``lag_s``: the age of the warehouse's
    table, by this machine's clock. ``complete_through_us``: the source's clock up to which the
    warehouse's table lacks nothing, None while it is in doubt. ``late``: why it is further behind
    than the objective allows, None when it is not. ``slo``: how far the objective was met.
    ``verified``: up to where `tideline verify` last proved every row, None before it did.
    ``mode``: the warehouse table's mode, None when unknown; ``mode_wanted``: the mode in the
    settings where it differs, which `tideline rebuild` switches to.
    ``deletion_vectors``: whether readers of the table must support them; ``…_wanted`` likewise.
    ``target``: the address of the table's directory, as every reader of Delta names it.
    ``captured_from``: where its capture began, None when the chain lacks it.
    """

    table: str
    state: TableStage
    captured: Through
    merged: Through | None = None
    up_to_date: bool = False
    lag_s: float | None = None
    since_seq: int | None = None
    reason: str | None = None
    hint: str | None = None
    complete_through_us: int | None = None
    late: Lateness | None = None
    slo: Kept | None = None
    pending: int | None = 0
    verified: VerifiedThrough | None = None
    mode: Mode | None = None
    mode_wanted: Mode | None = None
    deletion_vectors: bool | None = None
    deletion_vectors_wanted: bool | None = None
    target: str | None = None
    captured_from: Beginning | None = None


class Status(msgspec.Struct, frozen=True):
    """The document. ``chain`` is None before a worker ran for the first time.

    ``dumps`` have not ended, ``ended`` have recently (newest last). ``paused``: all dumps are,
    including those requested later. ``slo`` is that of all tables together. ``control_error`` and
    ``warehouse_error`` give the reason for missing information. Answers leave out what has no
    value; elsewhere it is null.
    """

    pipeline: str
    at_us: int
    worker: WorkerState
    workers: tuple[WorkerStatus, ...] = ()
    chain: ChainStatus | None = None
    tables: tuple[TableStatus, ...] = ()
    dumps: tuple[Answer, ...] = ()
    ended: tuple[Answer, ...] = ()
    paused: bool = False
    slo: Kept | None = None
    control_error: str | None = None
    warehouse_error: str | None = None
    version: int = written_version(STATUS_VERSION)
    requires: tuple[str, ...] = ()


def json_schema() -> bytes:
    """Return the document's JSON Schema, kept as ``docs/schemas/status.v1.json``."""
    schema: dict[str, Any] = {"$schema": DIALECT, **msgspec.json.schema(Status)}
    root = schema["$defs"][Status.__name__]
    root["properties"]["version"] = {"const": STATUS_VERSION}
    root["required"] = [*root["required"], "version"]
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"
