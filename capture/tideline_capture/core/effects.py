"""Effects: what one decider decides for another.

A decider is a generator. It yields an effect, the worker has the responsible decider carry it out,
and only then does the first one continue: what it reads of the state next includes the
consequences.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from tideline.contract.open_state import OpenRequest, TableDump
from tideline.contract.reasons import SnapshotReason
from tideline.contract.schema import TableSchema
from tideline_capture.core.facts import TableFacts


@dataclass(frozen=True, slots=True)
class Disturbed:
    """Tables to snapshots: chunks of ``table`` under way may be older than ``what`` happened."""

    table: str
    what: str


@dataclass(frozen=True, slots=True)
class Joined:
    """Tables to snapshots: ``table`` joined the publication, or is another one than before.

    Transactions older than that are never streamed, so its first chunk needs a fence.
    """

    table: str


@dataclass(frozen=True, slots=True)
class ColumnsFollowed:
    """Tables to snapshots: it is known how the table's columns became those of ``facts``."""

    facts: TableFacts


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """Tables to requests: these must be dumped as a whole."""

    tables: tuple[str, ...]
    why: SnapshotReason


@dataclass(frozen=True, slots=True)
class RereadWanted:
    """Snapshots to requests: rows that moved must be read again, by their new keys."""

    table: str
    keys: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class SchemaRead:
    """Snapshots to tables: a chunk was read with ``schema``, as the catalog's ``facts`` say."""

    schema: TableSchema
    facts: TableFacts


@dataclass(frozen=True, slots=True)
class Unfit:
    """Snapshots to tables: ``table`` cannot be captured as a chunk found it."""

    table: str
    reason: str
    hint: str | None
    cause: str


@dataclass(frozen=True, slots=True)
class SnapshotDone:
    """Snapshots to tables: a delete-complete dump of ``request`` ended.

    ``catalog``: the table's identity when its first chunk was read, if that was in this session.
    """

    request: OpenRequest
    dump: TableDump
    catalog: str | None


@dataclass(frozen=True, slots=True)
class Doubted:
    """Requests to tables: rows of ``table`` may differ since the sequence ``since``."""

    table: str
    since: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Requests to tables: a command ended the open dumps of these requests, by request id."""

    tables: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class TakenUp:
    """Requests to tables: a dump is requested of ``table``, which a value had quarantined."""

    table: str


OfTables = SchemaRead | Unfit | Doubted | Cancelled | TakenUp
"""Effects that tables carry out, with effects of their own."""
Effect = (
    Disturbed | Joined | ColumnsFollowed | SnapshotWanted | RereadWanted | SnapshotDone | OfTables
)

Decision = TypeVar("Decision")
Deciding = Generator[Effect, None, Decision]
"""A decision in the making: effects, and its result."""
Effects = Generator[Effect, None, None]
