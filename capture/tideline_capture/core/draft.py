"""The segment being filled, and what is handed over when it closes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tideline.contract.description import Description
from tideline.contract.manifest import Floor, OpenState, SchemaEvent, Truncate
from tideline.contract.position import SourceIdentity, SourcePosition
from tideline.contract.request import Answer
from tideline.contract.schema import TableSchema
from tideline_capture.core.checked import CheckRows
from tideline_capture.core.events import Rows


@dataclass(slots=True)
class Draft:
    """What happened since the last manifest; mutable, owned by the core alone."""

    first_seq: int
    opened_at: float | None = None
    rows: list[Rows] = field(default_factory=list)
    row_bytes: int = 0
    check_bytes: int = 0
    spilled: bool = False
    urgent: bool = False
    state_changed: bool = False
    schemas: list[TableSchema] = field(default_factory=list)
    descriptions: list[Description] = field(default_factory=list)
    schema_events: list[SchemaEvent] = field(default_factory=list)
    truncates: list[Truncate] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    finished: list[Answer] = field(default_factory=list)
    refused: list[Answer] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    checks: list[CheckRows] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """What is held in memory."""
        return self.row_bytes + self.check_bytes

    def add(self, rows: Rows) -> None:
        self.rows.append(rows)
        self.row_bytes += rows.batch.nbytes

    def check(self, chunk: CheckRows) -> None:
        """Add a chunk that was read to verify."""
        self.checks.append(chunk)
        self.check_bytes += chunk.bytes

    def has_content(self) -> bool:
        """Whether a reader of the chain would miss something without this draft."""
        return bool(
            self.rows
            or self.spilled
            or self.schema_events
            or self.truncates
            or self.floors
            or self.accepted
            or self.finished
            or self.refused
            or self.state_changed
            or self.checks
        )

    def take_rows(self) -> tuple[Rows, ...]:
        """What was read to verify stays: only a manifest names it."""
        rows = tuple(self.rows)
        self.rows.clear()
        self.row_bytes = 0
        return rows


@dataclass(frozen=True, slots=True)
class Spill:
    """Rows of an unfinished transaction: upload them as parts; the next `Sealed` commits them."""

    rows: tuple[Rows, ...]
    schemas: tuple[TableSchema, ...]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A closed segment: its parts (with those spilled before) and one manifest commit it.

    ``state`` is the open state after it; ``state_changed`` obliges the manifest to hold it in
    full. ``messages`` are the queue's entries to acknowledge once the manifest is durable.
    ``identity`` is the server that ``position`` is of.
    """

    first_seq: int
    last_seq: int
    position: SourcePosition
    source_time_us: int | None
    rows: tuple[Rows, ...]
    schemas: tuple[TableSchema, ...]
    schema_events: tuple[SchemaEvent, ...]
    truncates: tuple[Truncate, ...]
    floors: tuple[Floor, ...]
    accepted: tuple[str, ...]
    finished: tuple[Answer, ...]
    refused: tuple[Answer, ...]
    state: OpenState
    state_changed: bool
    messages: tuple[str, ...]
    identity: SourceIdentity
    checks: tuple[CheckRows, ...] = ()
    descriptions: tuple[Description, ...] = ()
