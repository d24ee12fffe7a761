"""Previews a pending merge as a value, made only from the plan that would run.

``tideline plan --json`` prints it; its fields are added to and never change their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tideline.contract.modes import Mode
from tideline.contract.open_state import OpenState, TableCondition
from tideline.contract.plan import Plan, PlannedChange, TablePlan
from tideline.contract.planning.stops import Policy, describe_step
from tideline.contract.request import DumpRequest
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.table_layout import NO_LAYOUT, TableLayout
from tideline.contract.target_url import vectors_wanted

METADATA = "metadata only"
REWRITE = "rewrites the table"
NOTHING = "nothing"


class TableOptions(msgspec.Struct, frozen=True):
    """The settings of a table."""

    policy: Policy
    mode: Mode
    deletion_vectors: bool = True
    layout: TableLayout = NO_LAYOUT


class StepPreview(msgspec.Struct, frozen=True):
    """One schema step: the source's ``change`` at ``seq``, its ``effect`` on the target, and the
    ``cost`` of that."""

    seq: int
    change: str
    effect: str
    cost: str


class TablePreview(msgspec.Struct, frozen=True):
    """A merge's work on one table; ``action`` is ``create``, ``replace`` or ``merge``.

    ``deletes_unseen``: rows that the plan does not bring are deleted as far as a finished dump or a
    truncate covers them. ``switch_to``: the mode that the settings ask for, where the target is
    kept in another one; only ``tideline rebuild`` changes that. ``vectors_to`` likewise: whether
    they ask for deletion vectors, where the target is kept otherwise. ``layout`` is the target's,
    ``layout_to`` another one that they ask for.
    """

    table: str
    target: str
    action: str
    after_manifest: int
    to_manifest: int
    rows: int
    parts: int
    bytes: int
    mode: Mode
    deletes_unseen: bool = False
    switch_to: Mode | None = None
    vectors_to: bool | None = None
    steps: tuple[StepPreview, ...] = ()
    layout: TableLayout = NO_LAYOUT
    layout_to: TableLayout | None = None


class DumpPreview(msgspec.Struct, frozen=True):
    """A dump that is due, or that will be requested of the worker; ``keys`` None: of all rows."""

    table: str
    why: str
    keys: int | None = None


class PlanPreview(
    msgspec.Struct,
    frozen=True,
    rename={"to_manifest": "b", "delayed": "held", "stops_at": "parks"},
):
    """The preview of ``tideline merge`` now. ``delayed``: tables that stop, and why. ``stops_at``:
    by table, the kinds of change that it will stop before. ``described``: tables whose targets get
    other comments or NOT NULL columns. With ``to_manifest`` below ``tail``, more changes wait."""

    pipeline: str
    to_manifest: int
    tail: int
    tables: tuple[TablePreview, ...] = ()
    delayed: Mapping[str, str] = msgspec.field(default_factory=dict)
    stops_at: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    dumps: tuple[DumpPreview, ...] = ()
    described: tuple[str, ...] = ()


def preview(
    plan: Plan,
    state: OpenState,
    options: Mapping[str, TableOptions],
    rereads: Sequence[DumpRequest],
) -> PlanPreview:
    """Preview ``plan``; ``options`` are the settings of all tables that were asked for."""
    return PlanPreview(
        pipeline=plan.pipeline,
        to_manifest=plan.to_manifest,
        tail=plan.tail,
        tables=tuple(_table(table, options.get(table.table)) for table in plan.tables),
        delayed=plan.delayed,
        stops_at={
            name: tuple(sorted(kind.value for kind in table_options.policy.stops_at))
            for name, table_options in options.items()
            if table_options.policy.stops_at
        },
        dumps=(*_due(state, options), *(_reread(request) for request in rereads)),
        described=tuple(one.table for one in plan.descriptions),
    )


def _table(table: TablePlan, table_options: TableOptions | None) -> TablePreview:
    wanted = table.mode if table_options is None else table_options.mode
    vectors = table.deletion_vectors if table_options is None else table_options.deletion_vectors
    asked = table.layout if table_options is None else table_options.layout
    return TablePreview(
        table=table.table,
        target=table.target,
        action="replace" if table.replace else "create" if table.create else "merge",
        after_manifest=table.from_manifest,
        to_manifest=table.to_manifest,
        rows=sum(part.rows for part in table.parts),
        parts=len(table.parts),
        bytes=sum(part.bytes for part in table.parts),
        mode=table.mode,
        deletes_unseen=table.delete_before is not None and not table.create,
        switch_to=None if wanted is table.mode else wanted,
        vectors_to=vectors_wanted(table.target, table.deletion_vectors, vectors),
        layout=table.layout,
        layout_to=None if asked == table.layout else asked,
        steps=tuple(
            _step(table, change, step) for change in table.changes for step in change.steps
        ),
    )


def _step(table: TablePlan, change: PlannedChange, step: ColumnStep) -> StepPreview:
    if table.create:
        effect, cost = "the table is made with its columns at the end", NOTHING
    elif step.kind in table.ignored and step.column not in table.schemas[change.after].key:
        effect, cost = _ignored(step)
    else:
        effect, cost = _followed(step, table)
    return StepPreview(change.seq, describe_step(step), effect, cost)


def _followed(step: ColumnStep, table: TablePlan) -> tuple[str, str]:
    if step.kind is StepKind.ADD:
        if step.default is None:
            return "the column is added, NULL in rows that are there", METADATA
        if table.mode is Mode.APPEND:
            return "the column is added, NULL in older rows", METADATA
        which = "are current" if table.mode is Mode.HISTORY else "are there"
        return f"the column is added and gets its default in rows that {which}", REWRITE
    if step.kind is StepKind.DROP:
        if table.drop_columns:
            return "the column is dropped", METADATA
        if table.mode in (Mode.HISTORY, Mode.APPEND):
            return "the column stays, with the values of older rows", METADATA
        return "the column stays, NULL in all rows", METADATA
    if step.kind is StepKind.RENAME:
        return "the column is renamed", METADATA
    if step.kind is StepKind.WIDEN:
        return "the column is widened in place", METADATA
    return "the table starts again with the dump that follows", REWRITE


def _ignored(step: ColumnStep) -> tuple[str, str]:
    if step.kind is StepKind.ADD:
        return "ignored: the column stays away", NOTHING
    if step.kind is StepKind.DROP:
        return "ignored: the column keeps its values", NOTHING
    if step.kind is StepKind.RENAME:
        return "ignored: the column stays, and the new name is a new column", REWRITE
    return "ignored: the type stays; what does not fit is kept as text in _tl_overflow", NOTHING


def _due(state: OpenState, options: Mapping[str, TableOptions]) -> list[DumpPreview]:
    """Return the dumps of whole tables that their state requires."""
    words = {
        TableCondition.NEEDS_RESNAPSHOT: "needs-resnapshot",
        TableCondition.SCHEMA_BLOCKED: "schema-blocked: a full dump starts the target again",
    }
    return [
        DumpPreview(name, f"{words[table.condition]}: {table.reason or 'no reason given'}")
        for name, table in sorted(state.tables.items())
        if name in options and table.condition in words
    ]


def _reread(request: DumpRequest) -> DumpPreview:
    keys = len(request.keys) if request.keys else None
    why = "rows lack values that the log did not carry: they are read again"
    return DumpPreview(request.tables[0], why, keys)
