"""The versioned document that ``tideline status --json`` prints (`making` makes it)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tideline.contract.document import written_version
from tideline.contract.json_schemas import DIALECT
from tideline.contract.request import Answer
from tideline.contract.timeliness import Compliance
from tideline.control import WorkerStatus
from tideline.control.merger import MergerStatus
from tideline.planner.publisher_status import PublisherStatus
from tideline.planner.table_status import TableStage, TableStatus

STATUS_VERSION = 2
_STATES_OF_VERSION_1 = {
    TableStage.ACTIVE: "live",
    TableStage.DUMPING: "dumping",
    TableStage.QUARANTINED: "parked",
    TableStage.NEEDS_RESNAPSHOT: "unproven",
    TableStage.SCHEMA_BLOCKED: "blocked",
    TableStage.TARGET_BLOCKED: "blocked",
}


class WorkerState(StrEnum):
    """The state of the log's reader; ``unknown`` when neither Redis nor the chain shows it."""

    LIVE = "live"
    PASSIVE = "passive"
    SILENT = "silent"
    """The reader of the log has been silent for longer than allowed, and no worker waits."""
    STOPPED = "stopped"
    UNKNOWN = "unknown"


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


class Status(msgspec.Struct, frozen=True):
    """The document. ``chain`` is None before a worker ran for the first time.

    ``dumps`` have not ended, ``ended`` have recently (newest last). ``paused``: all dumps are,
    including those requested later. ``slo`` is that of all tables together. ``merger``: the
    running ``tideline merge --follow``, None where there is none, or Redis is away. ``publishers``:
    those of the settings.
    ``control_error`` and
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
    slo: Compliance | None = None
    merger: MergerStatus | None = None
    control_error: str | None = None
    warehouse_error: str | None = None
    version: int = written_version(STATUS_VERSION)
    requires: tuple[str, ...] = ()
    publishers: tuple[PublisherStatus, ...] = ()


_NOT_IN_VERSION_1 = (
    "layout",
    "layout_wanted",
    "unread_by",
    "format",
    "format_wanted",
    "former",
)
"""Fields of tables that came when version 1 was complete."""


def version_1(status: Status) -> dict[str, Any]:
    """Return the document in version 1, which has other names for the tables' states."""
    document: dict[str, Any] = msgspec.to_builtins(status)
    for shown, table in zip(document["tables"], status.tables, strict=True):
        shown["state"] = _STATES_OF_VERSION_1[table.state]
        for name in _NOT_IN_VERSION_1:
            del shown[name]
    del document["merger"], document["publishers"]
    return {**document, "version": 1}


def json_schema() -> bytes:
    """Return the document's JSON Schema, kept as ``docs/schemas/status.v2.json``."""
    schema: dict[str, Any] = {"$schema": DIALECT, **msgspec.json.schema(Status)}
    root = schema["$defs"][Status.__name__]
    root["properties"]["version"] = {"const": STATUS_VERSION}
    root["required"] = [*root["required"], "version"]
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"
