"""Finds late tables and the stage that each waits for, from the records of the stages.

A change goes from the source's log through the worker into the store, from there by a scheduled
merge into its table. The first stage that stands still is named: all later ones wait for it.
The source is not queried, so its state is known from its heartbeats only.

Invariant: no table that lacks something is called complete, and none is late by a stage that works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tideline.contract.clocks import utc
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.open_state import TableCondition, TableState
from tideline.contract.printable import command
from tideline.contract.timeliness import (
    Compliance,
    Lateness,
    MergeRun,
    Objective,
    Stage,
    Timeliness,
    compliance,
    in_window,
)
from tideline.control import WorkerStatus
from tideline.planner.table_status import TableStage, TableStatus

_DONE = ("applied", "already_applied")


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
    the first manifest was written (None: unknown); nothing was captured before. ``merger``: whether
    a merger runs.
    """

    tail: Manifest
    workers: Sequence[WorkerStatus] | None
    takeover_after_s: float
    now_us: int
    began_us: int | None = None
    merger: bool = False


def lateness(
    chain: ChainEnd,
    table: TableStatus,
    found: TableState,
    doubt: str | None,
    watch: FreshnessWatch,
) -> Lateness | None:
    """Return why ``table`` is late; None when it is not, or the source no longer has it.

    ``found`` is its state in the chain without the doubts that a verification has ended, ``doubt``
    what the warehouse's side of it waits for.
    """
    if found.removed:
        return None
    within_us = watch.objective_of(table.table).within_us
    through_us = table.complete_through_us
    since_us = chain.began_us if through_us is None else through_us
    if since_us is not None and chain.now_us - since_us <= within_us:
        return None
    return (
        _own(chain, table, found, doubt)
        or _upstream(chain, within_us)
        or (None if table.up_to_date else _merging(chain, table, watch, within_us))
        or Lateness(
            Stage.SOURCE,
            "the source's clock and this machine's differ",
            "compare the two clocks",
        )
    )


def compliance_by_table(watch: FreshnessWatch, tables: Sequence[str]) -> Mapping[str, Compliance]:
    """Return how far each table's objective was met, for ``tables`` changed in the window."""
    figures = in_window(watch.runs)
    return {
        name: compliance(watch.objective_of(name), figures[name], watch.since_us)
        for name in tables
        if name in figures
    }


def compliance_in_all(watch: FreshnessWatch, objective: Objective) -> Compliance:
    """Return the same for all tables together, each change judged by its own table's limit."""
    found: list[Timeliness] = [one for many in in_window(watch.runs).values() for one in many]
    return compliance(objective, found, watch.since_us)


def _own(
    chain: ChainEnd, table: TableStatus, found: TableState, doubt: str | None
) -> Lateness | None:
    """Return the cause in the table itself."""
    if doubt is not None:
        return Lateness(Stage.TABLE, doubt)
    if found.condition is not TableCondition.ACTIVE:
        reason = f"its state is {found.condition.shown}: {found.reason or 'no reason given'}"
        return Lateness(Stage.TABLE, reason, found.hint)
    if found.complete_seq is None or chain.tail.last_seq < found.complete_seq:
        dumping = table.state is TableStage.DUMPING
        hint = None if dumping else f"run {command('dump', table.table)}"
        under_way = "; one is under way" if dumping else ""
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
        cause = "its worker was stopped" if tail.released else "no worker extends the chain"
        return Lateness(
            Stage.CAPTURE,
            f"{cause} since {_moment(tail.written_at_us)}",
            "start `tideline capture`",
        )
    if silent or any("store" in note for note in notes):
        cause = f"a worker reads, but the chain ends at {_moment(tail.written_at_us)}"
        return Lateness(Stage.STORE, "; ".join([cause, *notes]), "see the worker's log")
    if tail.kind is ManifestKind.SEGMENT:
        cause = f"the log is read behind: up to {_moment(tail.through_us)}"
        return Lateness(Stage.CAPTURE, "; ".join([cause, *notes]))
    cause = f"its log holds no heartbeat newer than {_moment(tail.through_us)}"
    return Lateness(Stage.SOURCE, "; ".join([cause, *notes]), "see whether the source is there")


def _merging(
    chain: ChainEnd, table: TableStatus, watch: FreshnessWatch, within_us: int
) -> Lateness:
    """Return why captured changes are not in the table, from the last run that handled it."""
    since_us = max(watch.since_us, chain.began_us or 0)
    if not watch.runs:
        return _not_begun(chain, f"no merge has run since {_moment(since_us)}")
    own = _newest(watch.runs, table.table)
    if own is None:
        return _not_begun(chain, f"merges have run, and none of it since {_moment(since_us)}")
    if table.table in own.delayed:
        return Lateness(Stage.TABLE, f"it is delayed: {own.delayed[table.table]}")
    figures = next(one for one in own.tables if one.table == table.table)
    if figures.outcome not in _DONE:
        kind = figures.error_kind or figures.outcome
        return Lateness(Stage.MERGE, f"its last merge failed: {kind}: {figures.error or '-'}")
    ended = _moment(own.ended_us)
    if chain.now_us - own.ended_us > within_us:
        return _not_begun(chain, f"the last merge of it ended at {ended}")
    if own.capped:
        hint = "see merge.parts_max, bytes_max"
        return Lateness(Stage.MERGE, "merges run and do not keep up", hint)
    through = _moment(table.complete_through_us)
    reason = f"its last merge ended at {ended} and lacks what was captured since {through}"
    return Lateness(
        Stage.MERGE, reason, f"merge it more often; that one took {figures.seconds:.0f} s"
    )


def _not_begun(chain: ChainEnd, reason: str) -> Lateness:
    if chain.merger:
        hint = "the merger is to merge it: see its line of the status, and its log"
        return Lateness(Stage.MERGE, reason, hint)
    hint = "run `tideline merge`, or see why `tideline_merge` is not scheduled"
    return Lateness(Stage.SCHEDULE, reason, hint)


def _newest(runs: Sequence[MergeRun], table: str) -> MergeRun | None:
    """Return the last run that processed ``table``, or delayed it."""
    for run in reversed(runs):
        if table in run.delayed or any(one.table == table for one in run.tables):
            return run
    return None


def _moment(at_us: int | None) -> str:
    if at_us is None:
        return "the beginning"
    at = utc(at_us)
    return f"{at_us} µs" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
