"""Measures how soon changes were queryable: in each merge run, and over many runs.

The objective (settings, section ``slo``) reads: ``percent`` of the changes are queryable within
``within_s`` of their commit at the source, over a window of time. A change counts once, in the run
whose commit made it queryable; dumped rows, and changes without a commit time, do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from tideline.contract.document import DocumentReader, written_features, written_version
from tideline.contract.errors import InvariantBroken

RUN_VERSION = 1


class Stage(StrEnum):
    """The stage that a late table waits for."""

    SOURCE = "source"
    """The source's log has nothing new: the server is unavailable, or does not move."""
    CAPTURE = "capture"
    """No worker reads the log, or the one that does is behind it."""
    STORE = "store"
    """A worker reads, but its uploads do not become durable."""
    TABLE = "table"
    """The table itself: quarantined, in doubt, blocked, changed by others, or lacking values."""
    MERGE = "merge"
    """Merges run and fail, or do not keep up."""
    SCHEDULE = "schedule"
    """Captured changes wait, and no merge of them runs."""


class Lateness(msgspec.Struct, frozen=True):
    """The cause of a table's delay: the ``stage``, the ``reason`` in words, and the remedy."""

    stage: Stage
    reason: str
    hint: str | None = None


class Timeliness(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figures of one commit: ``changes`` that it made queryable at ``queryable_us`` (µs since
    1970 UTC, the warehouse's clock), of which ``late`` were committed more than ``within_us``
    before; the oldest was ``slowest_us`` old."""

    changes: int
    late: int
    within_us: int
    slowest_us: int
    queryable_us: int


class TableFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figures of a run for one table that operators watch over time.

    ``outcome`` as in the receipt; ``attempts`` made, of which ``conflicts`` were lost to another
    writer of the table; ``error_kind`` of the last; ``bytes_billed`` by the warehouse.
    """

    table: str
    outcome: str
    timeliness: Timeliness | None = None
    rows: int = 0
    attempts: int = 1
    conflicts: int = 0
    seconds: float = 0.0
    error: str | None = None
    error_kind: str | None = None
    bytes_billed: int = 0


class MergeRun(msgspec.Struct, frozen=True, omit_defaults=True, rename={"delayed": "held"}):
    """One run of a plan, on record under its time, so that a window of runs is read by name.

    A plan that is run again leaves another record; see `in_window`. ``delayed``:
    the tables that were delayed, and why; one without tables delayed all that waited.
    ``capped``: the plan's caps left something for the next one.
    """

    plan_id: str
    ended_us: int
    tables: tuple[TableFigures, ...] = ()
    delayed: Mapping[str, str] = msgspec.field(default_factory=dict)
    capped: bool = False
    version: int = written_version(RUN_VERSION)
    requires: tuple[str, ...] = written_features()


@dataclass(frozen=True, slots=True)
class Objective:
    """``percent`` of the changes are to be queryable within ``within_us``."""

    percent: float
    within_us: int


class Compliance(msgspec.Struct, frozen=True):
    """The compliance with the objective since ``since_us``: of ``changes``, ``late`` were late.

    ``percent`` were in time, None without changes. ``burn`` is the share of late changes divided by
    the share that the objective allows: at 1 the budget is just used up.
    """

    objective_percent: float
    within_s: float
    since_us: int
    changes: int = 0
    late: int = 0
    percent: float | None = None
    burn: float = 0.0
    slowest_s: float | None = None


def encode_run(run: MergeRun) -> bytes:
    return msgspec.json.encode(run)


def decode_run(raw: bytes, at: str = "") -> MergeRun:
    """Decode a run's record; CorruptData for bytes that are not one."""
    return _READER.read(raw, at)


_READER = DocumentReader(MergeRun, version=RUN_VERSION, features=frozenset(), name="merge run")


def compliance(objective: Objective, figures: Iterable[Timeliness], since_us: int) -> Compliance:
    """Add up those of ``figures`` that became queryable at ``since_us`` or later.

    Raises InvariantBroken for more late changes than changes.
    """
    changes = late = 0
    slowest: int | None = None
    for one in figures:
        if one.queryable_us < since_us:
            continue
        if not 0 <= one.late <= one.changes:
            raise InvariantBroken(f"{one.late} late of {one.changes} changes")
        changes += one.changes
        late += one.late
        if one.changes:
            slowest = max(one.slowest_us, slowest or 0)
    allowed = 1 - objective.percent / 100
    return Compliance(
        objective_percent=objective.percent,
        within_s=objective.within_us / 1_000_000,
        since_us=since_us,
        changes=changes,
        late=late,
        percent=round(100 * (changes - late) / changes, 3) if changes else None,
        burn=round(late / changes / allowed, 3) if changes else 0.0,
        slowest_s=None if slowest is None else slowest / 1_000_000,
    )


def in_window(runs: Iterable[MergeRun]) -> Mapping[str, list[Timeliness]]:
    """Return by table the measurements of ``runs``, each plan's once.

    A plan that is run again repeats what it measured: the same commit, the same figures.
    """
    found: dict[str, dict[str, Timeliness]] = {}
    for run in runs:
        for one in run.tables:
            if one.timeliness is not None:
                found.setdefault(one.table, {})[run.plan_id] = one.timeliness
    return {table: list(by_plan.values()) for table, by_plan in found.items()}
