"""Makes the merge plan, purely, from manifests and the applied state of targets.

Whole blocks stand for the parts of their manifests where a range covers all of one.

Invariants: a table's ranges (from, to] over successive plans touch without a gap or an overlap; no
range crosses a missing manifest, or the schema event at which a table is blocked; all that a range
holds of a table, ends of full dumps and truncates included, is in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tideline.contract.change_log import clash
from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import Manifest, tables_in
from tideline.contract.modes import Mode
from tideline.contract.open_state import OpenState
from tideline.contract.plan import Applied, Plan, PlanScope
from tideline.contract.planning.caps import last_within_caps, parts_of
from tideline.contract.planning.keyless import NEEDS_KEY, NOT_COPIED, ends_copy, last_whole
from tideline.contract.planning.spans import Rolled, Span, spans_of
from tideline.contract.planning.table_plans import Window, table_plan
from tideline.contract.schema import TableSchema, is_reserved


def make_plan(
    scope: PlanScope,
    manifests: Sequence[Manifest],
    *,
    state: OpenState,
    applied: Mapping[str, Applied],
    schemas: Mapping[str, TableSchema],
    tail: int | None = None,
    blocks: Sequence[Rolled] = (),
) -> Plan:
    """Make the plan that brings every table of the scope as far as ``manifests`` go.

    ``manifests`` are in order; those after a missing number are not used. At least one is given.
    They begin at or before every table's start, its ``clear_until`` counted. ``state`` is the open
    state at ``tail``, the newest manifest there is (None: the last one given). ``schemas`` holds
    every fingerprint that occurs. ``blocks`` are any of those that ``manifests`` cover whole.
    """
    run = _contiguous(manifests)
    spans, delayed = spans_of(scope, run, state, applied)
    by_first = {block.first_manifest: block for block in blocks}
    at_end = run[-1].manifest_number == (tail or manifests[-1].manifest_number)
    counted = _counted(spans, schemas)
    for name in counted:
        whole = last_whole(name, run, state, from_manifest=spans[name].from_manifest, at_end=at_end)
        spans[name] = replace(spans[name], limit=min(spans[name].limit, whole))
    to_manifest = last_within_caps(run, list(spans.values()), scope, by_first)
    for _ in counted:  # What ends one copy may lie in the middle of another one.
        ends = (ends_copy(name, run, min(to_manifest, spans[name].limit)) for name in counted)
        to_manifest = max([to_manifest, *ends])
    plans = []
    for span in spans.values():
        last = min(to_manifest, span.limit)
        numbers = [m for m in run if span.from_manifest < m.manifest_number <= last]
        if not numbers:
            continue
        window = Window(numbers, parts_of(span, numbers, by_first))
        schema = _schema_at(span, window, run, schemas, at_end=at_end)
        moved = any(span.table in tables_in(manifest) for manifest in window.manifests)
        if schema is None or not (span.create or moved or window.parts):
            continue
        refusal = unmergeable(schema, span.applied.mode)
        if refusal is not None:
            delayed[span.table] = refusal
            continue
        plan = table_plan(scope, span, window, schema, schemas)
        if span.table in counted and span.create and plan.delete_before is None:
            delayed[span.table] = NOT_COPIED
            continue
        plans.append(plan)
    return Plan(
        plan_id=scope.plan_id,
        pipeline=run[-1].pipeline,
        incarnation=run[-1].incarnation,
        store_url=scope.store_url,
        to_manifest=to_manifest,
        tables=tuple(plans),
        tail=manifests[-1].manifest_number if tail is None else tail,
        delayed=delayed,
        strayed=tuple(name for name in delayed if applied.get(name, Applied()).strayed),
    )


def _counted(spans: Mapping[str, Span], schemas: Mapping[str, TableSchema]) -> list[str]:
    """Return the tables without a key whose equal rows are counted."""
    found = []
    for name, span in spans.items():
        schema = schemas.get(span.state.schema or "")
        if schema is not None and not schema.key and span.applied.mode is Mode.CURRENT:
            found.append(name)
    return found


def _contiguous(manifests: Sequence[Manifest]) -> list[Manifest]:
    if not manifests:
        raise InvariantBroken("a plan needs at least the chain's tail")
    run = [manifests[0]]
    for manifest in manifests[1:]:
        if manifest.manifest_number != run[-1].manifest_number + 1:
            break
        run.append(manifest)
    return run


def _schema_at(
    span: Span,
    window: Window,
    run: Sequence[Manifest],
    schemas: Mapping[str, TableSchema],
    *,
    at_end: bool,
) -> TableSchema | None:
    """Return the table's schema at the window's end; None while it is not known there.

    Without an event in the window every part in it has that schema; with neither, the next event
    knows what was before it, and without a next one the open state does (when ``run`` ends there).
    """
    last_seq = window.manifests[-1].last_seq
    events = [event for m in run for event in m.schema_events if event.table == span.table]
    first = window.manifests[0].first_seq
    within = [event for event in events if first <= event.seq <= last_seq]
    if within:
        fingerprint: str | None = within[-1].after
    elif window.parts:
        fingerprint = max(window.parts, key=lambda part: part.last_seq).schema
    else:
        later = (event.before for event in events if event.seq > last_seq)
        fingerprint = next(later, span.state.schema if at_end else None)
    return None if fingerprint is None else schemas[fingerprint]


def unmergeable(schema: TableSchema, mode: Mode) -> str | None:
    """Return why no warehouse table kept in this mode can have these columns, or None."""
    taken = clash(schema) if mode is Mode.APPEND else None
    if taken is not None:
        return (
            f"the column {taken!r} has the name of one that a change log has itself: rename it at"
            " the source, or keep the table in another mode"
        )
    if not schema.key and mode in (Mode.SOFT_DELETES, Mode.HISTORY):
        return NEEDS_KEY.format(mode=mode.value)
    seen: dict[str, str] = {}
    for name in schema.column_names:
        twin = seen.setdefault(name.lower(), name)
        if twin != name:
            return (
                f"the columns {twin!r} and {name!r} differ by case only, which the warehouse does"
                " not distinguish: rename one at the source, or exclude the table"
            )
        if is_reserved(name):
            return (
                f"the column {name!r} has a name that Tideline or Spark keeps for itself: rename"
                " it at the source, or exclude the table"
            )
    return None
