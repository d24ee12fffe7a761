"""The open state: what the next writer needs to continue besides the last manifest.

Open requests, and the state of each table. A manifest holds it in full every so often; from there
on it is derived from the manifests that follow (`tideline.contract.manifest.roll_forward`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from tideline.contract.position import SourcePosition
from tideline.contract.request import Answer, DumpRequest
from tideline.contract.steps import ColumnStep, StepKind

REMOVED = "it is no longer in the source, or no longer in the table list"
"""The reason of a table that is quarantined because there is nothing to capture."""


class TableCondition(StrEnum):
    """The condition of a table's capture: how far it can be trusted.

    Manifests keep the names of their version 1; users read those of the members (`shown`).
    """

    ACTIVE = "live"
    QUARANTINED = "parked"
    """Nothing of it is captured (no key, no identity, a value no part can hold)."""
    NEEDS_RESNAPSHOT = "unproven"
    """Captured, but rows may have changed without row events; a dump is due."""
    SCHEMA_BLOCKED = "blocked"
    """Captured, but the target cannot take its new schema; a full dump starts a generation, if it
    was requested after that schema came."""

    @property
    def shown(self) -> str:
        """Return the name that users read, as ``needs-resnapshot``."""
        return self.name.lower().replace("_", "-")


class ColumnNumbers(msgspec.Struct, frozen=True):
    """The numbers of a table's columns at the source, which it never gives to another column:
    ``columns`` in the schema's order, the highest ``last`` that it ever gave, in table ``oid``."""

    oid: int
    columns: tuple[int, ...]
    last: int


class CapturedFrom(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place where the capture of a table begins: the chain has its changes from there on, with
    sequences from ``seq`` on, and none from before. ``source_time_us`` is the source's clock there,
    µs since 1970 UTC. ``created``: the log has the table's creation there, so that it had no rows
    before.
    """

    seq: int
    source_time_us: int | None = None
    created: bool = False


class TableState(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"observed_steps": "stated", "was_removed": "was_gone"},
):
    """The state of one table in the chain. ``schema`` is the fingerprint in force.

    ``last_data_manifest`` is the newest manifest that holds anything of the table (parts, schema
    events, truncates, ends of full dumps): a target that has applied it is up to date.
    ``since_seq`` and ``reason`` belong to every condition but ``ACTIVE``. ``generation`` counts the
    restarts of the target: its content is then what manifests after ``generation_manifest`` hold
    with sequences above ``generation_seq``. ``cause`` says what must change for a quarantined table
    to be captured again: its ``catalog``, or a ``value`` (then a dump request takes it up).
    ``catalog`` is the source's identity of the table when it was last found equal.
    ``complete_seq``: once everything up to it is applied, nothing is missing, because a
    delete-complete dump ended there, or the log has the table's creation there; None before that.
    ``dropped`` has the columns, with their types, that the source dropped in this generation: they
    stay in the target. ``blocked_by``: the kinds of the steps that its target cannot take.
    ``blocked_seq`` is the last schema event that its target cannot pass (``since_seq`` the first
    one), and ``left_blocked`` says that a user cancelled the worker's own dump that was to restart
    it. ``was_removed``: it was not in the source for a while, so that its name now stands for
    another table. ``numbers`` are those of the schema's columns, where the source numbers them and
    they are known. ``doubts`` counts how often its rows were found to be in doubt, however that
    ended.
    ``observed_steps``: the combined effect of the log's statements on the columns of ``schema``,
    until a schema shows it; None: no statement, or not all is known. ``description``: the
    fingerprint of the `Description` that the catalog showed last. ``captured_from``: where its
    capture last began; None in chains of older versions.
    """

    condition: TableCondition = TableCondition.ACTIVE
    schema: str | None = None
    last_data_manifest: int = 0
    since_seq: int | None = None
    reason: str | None = None
    hint: str | None = None
    cause: str | None = None
    generation: int = 0
    generation_seq: int = 0
    generation_manifest: int = 0
    catalog: str | None = None
    complete_seq: int | None = None
    dropped: Mapping[str, str] = msgspec.field(default_factory=dict)
    blocked_by: tuple[StepKind, ...] = ()
    blocked_seq: int | None = None
    left_blocked: bool = False
    was_removed: bool = False
    numbers: ColumnNumbers | None = None
    observed_steps: tuple[ColumnStep, ...] | None = None
    doubts: int = 0
    description: str | None = None
    captured_from: CapturedFrom | None = None

    @property
    def removed(self) -> bool:
        """Return whether it is quarantined because the source no longer has it, or it is not asked
        for."""
        return self.condition is TableCondition.QUARANTINED and self.reason == REMOVED


class TableDump(msgspec.Struct, frozen=True, omit_defaults=True):
    """The dump of one table within a request; ``last_key`` is in key order, as the source's text.
    In the ``phase`` of given keys that follows a range it is how many of the keys were read.

    ``first_low_seq`` is the last sequence minted before the first low watermark, ``first_manifest``
    the last manifest closed by then: set once, never moved, unless the key's definition or the
    table's identity changed and the dump began again.
    """

    table: str
    state: str = "accepted"
    phase: Literal["rows", "keys"] = "rows"
    first_low_seq: int | None = None
    first_manifest: int | None = None
    last_key: tuple[str, ...] | None = None
    key_definition: str | None = None
    chunks: int = 0
    rows: int = 0
    rows_estimate: int | None = None
    error: str | None = None
    seen: tuple[tuple[int, int], ...] = ()


class OpenRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that was accepted and has not ended, with the progress of each of its tables.

    ``paused``, ``chunk_rows`` and ``delay_ms`` are as commands have set them since. ``asked_seq``
    is the last sequence minted before it was accepted.
    """

    request: DumpRequest
    dumps: tuple[TableDump, ...]
    paused: bool = False
    chunk_rows: int | None = None
    delay_ms: int | None = None
    asked_seq: int = 0


class OpenState(msgspec.Struct, frozen=True, omit_defaults=True, rename={"prepared": "held"}):
    """The state that a successor needs besides the chain's last manifest.

    ``recent`` are the answers to requests that ended lately, so that a repeated request is
    answered. ``prepared`` are XA transactions that the log has prepared and not yet ended: by their
    id, where the log has their rows. These are read from there once the transaction commits.
    ``paused``, ``chunk_rows`` and ``delay_ms`` are as commands have set them for all requests.
    ``begun`` are tables that a statement of the log created or renamed, and whose columns are not
    known yet.
    """

    requests: tuple[OpenRequest, ...] = ()
    tables: Mapping[str, TableState] = msgspec.field(default_factory=dict)
    recent: tuple[Answer, ...] = ()
    prepared: Mapping[str, SourcePosition] = msgspec.field(default_factory=dict)
    paused: bool = False
    chunk_rows: int | None = None
    delay_ms: int | None = None
    begun: Mapping[str, CapturedFrom] = msgspec.field(default_factory=dict)
