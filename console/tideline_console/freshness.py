"""Finds late tables and the stage that each waits for, from the records of the stages.

A change goes from the source's log through the worker into the store, from there by a scheduled
merge into its table. The first stage that stands still is named: all later ones wait for it.
The source is not queried, so its state is known from its heartbeats only.

Invariant: no table that lacks something is called complete, and none is late by a stage that works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from tideline.contract.clocks import utc
from tideline.contract.manifest import Manifest, ManifestKind, TableCondition, TableState
from tideline.contract.printable import command
from tideline.contract.timeliness import (
    Kept,
    MergeRun,
    Objective,
    Timeliness,
    in_window,
    kept,
)
from tideline.control import WorkerStatus

_DONE = ("applied", "already_applied")


class Stage(StrEnum):
    """The stage that a late table waits for."""

    SOURCE = "source"
    """The source's log has nothing new: the server is unavailable, or does not move."""
    CAPTURE = "capture"
    """No worker reads the log, or the one that does is behind it."""
    STORE = "store"
    """A worker reads, but its uploads do not become durable."""
    TABLE = "table"
    """The table itself: parked, unproven, blocked, changed by others, or lacking values."""
    MERGE = "merge"
    """Merges run and fail, or do not keep up."""
    SCHEDULE = "schedule"
    """Captured changes wait, and no merge of them runs."""


class Lateness(msgspec.Struct, frozen=True):
    """The cause of a table's delay: the ``stage``, the ``reason`` in words, and the remedy."""

    stage: Stage
    reason: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class FreshnessWatch:
    """The freshness objectives in the settings, and the merge ``runs`` since ``since_us``."""

    objective_of: Callable[[str], Objective]
    runs: Sequence[MergeRun] = ()
    since_us: int = 0


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """The chain's end as seen now, the workers that extend it, and the limit of their silence.

    ``workers``, as `status.making.judged`, is None when none could be asked. ``began_us``: when
    the first manifest was written (None: unknown); nothing was captured before.
    """

    tail: Manifest
    workers: Sequence[WorkerStatus] | None
    takeover_after_s: float
    now_us: int
    began_us: int | None = None


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """The state of a table: ``through_us`` as in the status, ``doubt`` of its warehouse side,
    whether something ``waits`` to be merged, and whether a dump of it is running."""

    name: str
    state: TableState
    through_us: int | None
    waits: bool
    doubt: str | None = None
    dumping: bool = False


def lateness(chain: ChainEnd, table: WatchedTable, watch: FreshnessWatch) -> Lateness | None:
    """Return why ``table`` is late; None when it is not, or the source no longer has it."""
    if table.state.gone:
        return None
    within_us = watch.objective_of(table.name).within_us
    since_us = chain.began_us if table.through_us is None else table.through_us
    if since_us is not None and chain.now_us - since_us <= within_us:
        return None
    own = _own(chain, table)
    return (
        own
        or _upstream(chain, within_us)
        or (_merging(chain, table, watch, within_us) if table.waits else None)
        or Lateness(
            Stage.SOURCE,
            "the source's clock and this machine's differ",
            "compare the two clocks",
        )
    )


def kept_by_table(watch: FreshnessWatch, tables: Sequence[str]) -> Mapping[str, Kept]:
    """Return how far each table's objective was met, for ``tables`` changed in the window."""
    figures = in_window(watch.runs)
    return {
        name: kept(watch.objective_of(name), figures[name], watch.since_us)
        for name in tables
        if name in figures
    }


def kept_in_all(watch: FreshnessWatch, objective: Objective) -> Kept:
    """Return the same for all tables together, each change judged by its own table's limit."""
    found: list[Timeliness] = [one for many in in_window(watch.runs).values() for one in many]
    return kept(objective, found, watch.since_us)


def _own(chain: ChainEnd, table: WatchedTable) -> Lateness | None:
    """Return the cause in the table itself."""
    state = table.state
    if table.doubt is not None:
        return Lateness(Stage.TABLE, table.doubt)
    if state.condition is not TableCondition.LIVE:
        reason = f"it is {state.condition.value}: {state.reason or 'no reason given'}"
        return Lateness(Stage.TABLE, reason, state.hint)
    if state.complete_seq is None or chain.tail.last_seq < state.complete_seq:
        hint = None if table.dumping else f"run {command('dump', table.name)}"
        under_way = "; one is under way" if table.dumping else ""
        reason = f"no dump of the whole table has ended yet{under_way}"
        return Lateness(Stage.TABLE, reason, hint)
    return None


def _upstream(chain: ChainEnd, within_us: int) -> Lateness | None:
    """Return what holds up the chain, if its end is old enough to make every table late."""
    tail, now = chain.tail, chain.now_us
    if tail.through_us is not None and now - tail.through_us <= within_us:
        return None
    live = [worker for worker in chain.workers or () if worker.state == "live"]
    notes = [worker.note for worker in live if worker.note]
    silent = tail.written_at_us is None or (
        now - tail.written_at_us > chain.takeover_after_s * 1_000_000
    )
    if tail.released or (silent and not live):
        said = "its worker was stopped" if tail.released else "no worker extends the chain"
        return Lateness(
            Stage.CAPTURE,
            f"{said} since {_moment(tail.written_at_us)}",
            "start `tideline capture`",
        )
    if silent or any("store" in note for note in notes):
        said = f"a worker reads, but the chain ends at {_moment(tail.written_at_us)}"
        return Lateness(Stage.STORE, "; ".join([said, *notes]), "see the worker's log")
    if tail.kind is ManifestKind.SEGMENT:
        said = f"the log is read behind: up to {_moment(tail.through_us)}"
        return Lateness(Stage.CAPTURE, "; ".join([said, *notes]))
    said = f"its log holds no heartbeat newer than {_moment(tail.through_us)}"
    return Lateness(Stage.SOURCE, "; ".join([said, *notes]), "see whether the source is there")


def _merging(
    chain: ChainEnd, table: WatchedTable, watch: FreshnessWatch, within_us: int
) -> Lateness:
    """Return why captured changes are not in the table, from the last run that handled it."""
    since_us = max(watch.since_us, chain.began_us or 0)
    if not watch.runs:
        return _not_scheduled(f"no merge has run since {_moment(since_us)}")
    own = _newest(watch.runs, table.name)
    if own is None:
        return _not_scheduled(f"merges have run, and none of it since {_moment(since_us)}")
    if table.name in own.held:
        return Lateness(Stage.TABLE, f"it is held back: {own.held[table.name]}")
    figures = next(one for one in own.tables if one.table == table.name)
    if figures.outcome not in _DONE:
        kind = figures.error_kind or figures.outcome
        return Lateness(Stage.MERGE, f"its last merge failed: {kind}: {figures.error or '-'}")
    ended = _moment(own.ended_us)
    if chain.now_us - own.ended_us > within_us:
        return _not_scheduled(f"the last merge of it ended at {ended}")
    if own.capped:
        hint = "see merge.parts_max, bytes_max"
        return Lateness(Stage.MERGE, "merges run and do not keep up", hint)
    through = _moment(table.through_us)
    reason = f"its last merge ended at {ended} and lacks what was captured since {through}"
    return Lateness(
        Stage.MERGE, reason, f"merge it more often; that one took {figures.seconds:.0f} s"
    )


def _not_scheduled(reason: str) -> Lateness:
    hint = "run `tideline merge`, or see why `tideline_merge` is not scheduled"
    return Lateness(Stage.SCHEDULE, reason, hint)


def _newest(runs: Sequence[MergeRun], table: str) -> MergeRun | None:
    """Return the last run that processed ``table``, or held it back."""
    for run in reversed(runs):
        if table in run.held or any(one.table == table for one in run.tables):
            return run
    return None


def _moment(at_us: int | None) -> str:
    if at_us is None:
        return "the beginning"
    at = utc(at_us)
    return f"{at_us} µs" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
