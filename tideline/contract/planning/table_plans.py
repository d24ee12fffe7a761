"""Makes a plan's entry for one table: its files, the ends and schema changes in its range, and
the sequence that it deletes before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tideline.contract.layout import table_path
from tideline.contract.manifest import Manifest, Part
from tideline.contract.open_state import TableCondition, TableState
from tideline.contract.plan import (
    PlannedChange,
    PlannedEnd,
    PlannedPart,
    PlanScope,
    TablePlan,
    app_id,
)
from tideline.contract.planning.bounds import key_bounds
from tideline.contract.planning.keyless import newest_copy
from tideline.contract.planning.spans import Span
from tideline.contract.schema import TableSchema, parse_table
from tideline.contract.steps import at_once


@dataclass(frozen=True, slots=True)
class Window:
    """The input of one table: the manifests of its range, and the files to read for them."""

    manifests: Sequence[Manifest]
    parts: Sequence[Part]


def table_plan(
    scope: PlanScope,
    span: Span,
    window: Window,
    schema: TableSchema,
    schemas: Mapping[str, TableSchema],
) -> TablePlan:
    """Make the plan of one table over ``window``, whose last manifest is its end.

    A generation, and a full dump, begin inside a manifest: rows up to there do not belong to it.
    """
    state, manifests, start_seq = span.state, window.manifests, span.start_seq
    last = manifests[-1]
    parts = [part for part in window.parts if part.last_seq > start_seq]
    truncates = [t.seq for m in manifests for t in m.truncates if t.table == span.table]
    truncates = sorted(seq for seq in truncates if seq > start_seq)
    deletes_before = [
        delete_before.seq
        for m in manifests
        for delete_before in m.deletes_before
        if delete_before.table == span.table
    ]
    deletes_before += [seq - 1 for seq in truncates] + ([start_seq] if start_seq else [])
    ends = _ends(span.table, manifests, start_seq)
    used = {part.schema for part in parts} | {schema.fingerprint}
    changes = _changes(span, manifests)
    named = {name for change in changes for name in (change.before, change.after)}
    key_min, key_max = key_bounds(parts, [schemas[name] for name in used])
    return TablePlan(
        table=span.table,
        target=scope.targets.get(span.table)
        or table_path(scope.warehouse_url, parse_table(span.table)),
        schema=schema,
        schemas={name: schemas[name] for name in sorted(used | named)},
        parts=tuple(planned_part(part) for part in parts),
        from_manifest=span.from_manifest,
        from_seq=span.applied.seq,
        from_digest=span.applied.digest,
        to_manifest=last.manifest_number,
        to_seq=last.last_seq,
        app_id=app_id(
            last.pipeline, last.incarnation, span.table, state.generation, span.applied.build
        ),
        generation=state.generation,
        delete_before=max(deletes_before, default=None),
        truncates=tuple(truncates),
        create=span.create,
        replace=span.create and span.applied.exists,
        key_min=key_min,
        key_max=key_max,
        complete_through_us=complete_through(state, last),
        dropped=tuple(sorted(set(state.dropped) - set(schema.column_names))),
        changes=changes,
        ignored=span.policy.ignores,
        drop_columns=span.policy.drop_columns,
        start_seq=start_seq,
        ends=ends,
        mode=span.applied.mode,
        build=span.applied.build,
        deletion_vectors=span.applied.deletion_vectors,
        layout=span.applied.layout,
        without=span.applied.without,
        copied=newest_copy(manifests, span.table, max(deletes_before, default=None)),
    )


def _changes(span: Span, manifests: Sequence[Manifest]) -> tuple[PlannedChange, ...]:
    """Return the table's schema events in ``manifests`` that change its columns, ascending."""
    return tuple(
        PlannedChange(event.seq, event.after, at_once(event.steps), event.before)
        for manifest in manifests
        for event in manifest.schema_events
        if event.table == span.table and event.seq > span.start_seq and event.before is not None
        if event.steps or event.after != event.before
    )


def _ends(table: str, manifests: Sequence[Manifest], start_seq: int) -> tuple[PlannedEnd, ...]:
    """Return where rows of the table end without an event for each of them in the log."""
    ends = [
        PlannedEnd(truncate.seq, truncate.seq - 1, m.through_us)
        for m in manifests
        for truncate in m.truncates
        if truncate.table == table and truncate.seq > start_seq
    ]
    ends += [
        PlannedEnd(m.last_seq, delete_before.seq, m.through_us)
        for m in manifests
        for delete_before in m.deletes_before
        if delete_before.table == table
    ]
    return tuple(sorted(ends, key=lambda end: (end.seq, end.delete_before)))


def complete_through(state: TableState, last: Manifest) -> int | None:
    """Return the source's clock (µs UTC) up to which a target lacks nothing that has applied
    ``last``.

    None before a dump of the whole table is applied, and from where the table is in doubt or not
    captured.
    """
    if state.complete_seq is None or last.last_seq < state.complete_seq:
        return None
    doubted = state.condition in (TableCondition.NEEDS_RESNAPSHOT, TableCondition.QUARANTINED)
    if doubted and (state.since_seq is None or last.last_seq >= state.since_seq):
        return None
    return last.through_us


def planned_part(part: Part) -> PlannedPart:
    """Return a plan's entry for ``part``."""
    return PlannedPart(**{name: getattr(part, name) for name in PlannedPart.__struct_fields__})
