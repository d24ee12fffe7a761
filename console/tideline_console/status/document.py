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
    """Whether anybody reads the log; ``unknown`` when neither Redis nor the chain can tell."""

    LIVE = "live"
    PASSIVE = "passive"
    SILENT = "silent"
    """The one that read the log has said nothing for longer than it may, and none waits."""
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class TableStage(StrEnum):
    """What is the matter with a table; a dump that is under way comes first, then why it is due."""

    LIVE = "live"
    DUMPING = "dumping"
    PARKED = "parked"
    UNPROVEN = "unproven"
    BLOCKED = "blocked"


class Through(msgspec.Struct, frozen=True):
    """How far something is: a manifest, a sequence, and the source's clock, µs since 1970 UTC.

    ``source_time_us`` is the clock in the newest heartbeat with nothing left out before it: all
    that was committed by then is contained.
    """

    seq: int
    manifest_number: int | None = None
    source_time_us: int | None = None


class EarlierRows(StrEnum):
    """What became of the rows that a table had before its changes were captured."""

    NONE = "none"
    """The log has the table's creation: there were none."""
    DUMPED = "dumped"
    MISSING = "missing"
    """No dump of the whole table has ended."""


class Beginning(msgspec.Struct, frozen=True):
    """From which sequence on the changes of a table are captured, and the source's clock there, µs
    since 1970 UTC (None: not known); and what of the rows from before."""

    seq: int
    source_time_us: int | None
    earlier_rows: EarlierRows


class ChainStatus(msgspec.Struct, frozen=True):
    """The chain's end. ``lag_s``: how old, by this machine's clock, what is captured is.
    ``clocks_apart`` says in words that the source's clock is ahead of this machine's by more than
    minutes, None when it is not."""

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
    captured waits to be merged, it moves with the chain. ``lag_s``: how old, by this machine's
    clock, the warehouse's table is. ``complete_through_us``: the source's clock up to which the
    warehouse's table lacks nothing, None while it is in doubt. ``late``: why it is further behind
    than the objective allows, None when it is not. ``slo``: how far the objective was kept.
    ``verified``: up to where `tideline verify` last proved every row, None before it did.
    ``mode``: how the warehouse's table is kept, None when that is not known; ``mode_wanted``: what
    the settings say where that is another, which `tideline rebuild` switches to.
    ``deletion_vectors``: whether a reader of the table has to know them; ``…_wanted`` likewise.
    ``target``: the address of the table's directory, as every reader of Delta names it.
    ``captured_from``: where its capture began, None when the chain does not tell.
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

    ``dumps`` have not ended, ``ended`` have lately (newest last). ``paused``: all dumps are, those
    that are asked for later included. ``slo`` is that of all tables together. ``control_error``
    and ``warehouse_error`` say why what they would tell is missing. Answers leave out what has no
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
    """The document's JSON Schema, kept as ``docs/schemas/status.v1.json``."""
    schema: dict[str, Any] = {"$schema": DIALECT, **msgspec.json.schema(Status)}
    root = schema["$defs"][Status.__name__]
    root["properties"]["version"] = {"const": STATUS_VERSION}
    root["required"] = [*root["required"], "version"]
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"
