"""The simulated source's log entries, and transactions that are not yet in the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from devtools.simulation.history import LedgerEntry
from devtools.simulation.tables import Form, Key, Row
from tideline.contract.steps import ColumnStep
from tideline_capture.core.events import WatermarkKind
from tideline_capture.sources.watermark_key import WatermarkKey


class DatabaseKind(Enum):
    POSTGRES = "postgres"
    MYSQL = "mysql"


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A row's change in the log.

    ``op`` ``t`` is a truncate. ``row`` is the row after it; ``unchanged`` are columns of it that
    the log does not carry.
    """

    table: str
    op: str
    key: Key
    form: Form
    row: Row | None = None
    before: Key | None = None
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A DDL statement, in the log of a MySQL. ``steps``: see `StatementSeen`; ``made``: it made the
    table."""

    table: str
    text: str
    neutral: bool
    steps: tuple[ColumnStep, ...] | None = None
    made: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedWatermark:
    """A watermark. ``key``: that of the session which wrote it, or None: it is forged."""

    kind: WatermarkKind
    token: str
    clock_us: int
    key: WatermarkKey | None = None


class Xa(Enum):
    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One transaction (or watermark, or statement) in the log, ending at ``position``.

    ``packed``: its rows are in a compressed event. ``gap``: it is of a statement whose rows the log
    does not have. ``savepoint``: a part of it was rolled back. ``xa``: see `Xa`, ``xa_id``.
    """

    position: int
    xid: int
    at: float
    changes: tuple[LoggedChange, ...] = ()
    watermark: SimulatedWatermark | None = None
    statement: LoggedStatement | None = None
    packed: bool = False
    savepoint: bool = False
    gap: str | None = None
    xa: Xa | None = None
    xa_id: str = ""


class Aborted(Exception):
    """An error: the server ended the session or the transaction."""


@dataclass(eq=False)
class SessionWork:
    """A transaction of the workload that has not ended. ``undone``: a part was rolled back."""

    xid: int
    changes: list[LoggedChange] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)
    rows: dict[tuple[str, Key], Row | None] = field(default_factory=dict)
    locks: list[tuple[str, Key]] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    undone: bool = False
    aborted: bool = False
    packed: bool = False
    vers: dict[tuple[str, Key], int] = field(default_factory=dict)
