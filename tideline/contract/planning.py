"""Makes the merge plan, purely, from manifests and what is applied.

Invariants: a table's ranges (a, b] over successive plans touch without a gap or an overlap; no
range crosses a missing manifest, or the schema event at which a table is blocked; whatever a range
holds of a table, its floors included, is in the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tideline.contract.errors import InvariantBroken
from tideline.contract.layout import table_path
from tideline.contract.manifest import (
    Manifest,
    OpenState,
    Part,
    TableCondition,
    TableState,
    tables_in,
)
from tideline.contract.plan import (
    Applied,
    Plan,
    PlannedPart,
    PlanScope,
    TablePlan,
    app_id,
    start_of,
)
from tideline.contract.schema import TableSchema, parse_table
from tideline.contract.types import Kind

_RESERVED = "_metadata"
"""Spark's own name for a file's metadata: Delta cannot merge into a table with such a column."""
_WENT_BACK = (
    "the target was set back behind what is applied (RESTORE); only a full dump makes it right:"
    " run `tideline dump {table}`, or remove the table's directory to have it built anew"
)
_HELD = (TableCondition.PARKED, TableCondition.BLOCKED)
_INTEGERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)
_MOMENTS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


def make_plan(
    scope: PlanScope,
    manifests: Sequence[Manifest],
    *,
    state: OpenState,
    applied: Mapping[str, Applied],
    schemas: Mapping[str, TableSchema],
    tail: int | None = None,
) -> Plan:
    """The plan that brings every table of the scope as far as ``manifests`` go.

    ``manifests`` are in order; what follows a missing number is not used. At least one is given.
    They begin at or before every table's start, its ``clear_until`` counted. ``state`` is the open
    state at ``tail``, the newest manifest there is (None: the last one given). ``schemas`` holds
    every fingerprint that occurs.
    """
    run = _contiguous(manifests)
    spans, held = _spans(scope, run, state, applied)
    b = _last_within_caps(run, spans.values(), scope)
    plans = []
    for span in spans.values():
        window = [m for m in run if span.a < m.manifest_number <= min(b, span.limit)]
        if not window:
            continue
        schema = _schema_at(span, window, run, schemas)
        moved = any(span.table in tables_in(manifest) for manifest in window)
        if schema is None or not (span.create or moved):
            continue
        refusal = _unmergeable(schema)
        if refusal is not None:
            held[span.table] = refusal
        else:
            plans.append(_table_plan(scope, span, window, schema, schemas))
    return Plan(
        plan_id=scope.plan_id,
        pipeline=run[-1].pipeline,
        incarnation=run[-1].incarnation,
        store_url=scope.store_url,
        b=b,
        tables=tuple(plans),
        tail=manifests[-1].manifest_number if tail is None else tail,
        held=held,
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """One table's range: after manifest ``a``, up to ``limit`` at most."""

    table: str
    state: TableState
    applied: Applied
    a: int
    limit: int

    @property
    def create(self) -> bool:
        return self.applied.manifest is None

    def parts(self, manifest: Manifest) -> list[Part]:
        """The table's parts in ``manifest``, if it lies in the range."""
        if not self.a < manifest.manifest_number <= self.limit:
            return []
        return [part for part in manifest.parts if part.table == self.table]


def _contiguous(manifests: Sequence[Manifest]) -> list[Manifest]:
    if not manifests:
        raise InvariantBroken("a plan needs at least the chain's tail")
    run = [manifests[0]]
    for manifest in manifests[1:]:
        if manifest.manifest_number != run[-1].manifest_number + 1:
            break
        run.append(manifest)
    return run


def _spans(
    scope: PlanScope,
    run: Sequence[Manifest],
    state: OpenState,
    applied: Mapping[str, Applied],
) -> tuple[dict[str, _Span], dict[str, str]]:
    """The range of every chosen table that can be merged, and why others are held back."""
    spans: dict[str, _Span] = {}
    held: dict[str, str] = {}
    for name, table in sorted(state.tables.items()):
        if scope.tables is not None and name not in scope.tables:
            continue
        target = applied.get(name, Applied())
        if table.condition in _HELD:
            held[name] = _condition(table)
        if target.problem is not None:
            held[name] = target.problem
            continue
        if table.schema is None:
            continue
        a = start_of(table, target.manifest)
        if run[0].manifest_number > max(a, target.clear_until) + 1 and table.last_data_manifest > a:
            raise InvariantBroken(f"the plan's manifests begin after table {name} does")
        span = _Span(name, table, target, a, _limit(table, run, a))
        if target.went_back and _healed_at(span, run) is None:
            held[name] = _WENT_BACK.format(table=name)
        else:
            spans[name] = span
    return spans, held


def _condition(table: TableState) -> str:
    since = "" if table.since_seq is None else f" since sequence {table.since_seq}"
    return f"{table.condition.value}{since}: {table.reason or 'no reason given'}"


def _limit(table: TableState, run: Sequence[Manifest], a: int) -> int:
    """The last manifest that the table may be merged to: a blocked one stops before its event."""
    if table.condition is not TableCondition.BLOCKED or table.since_seq is None:
        return run[-1].manifest_number
    return max([a, *(m.manifest_number for m in run if m.last_seq < table.since_seq)])


def _healed_at(span: _Span, run: Sequence[Manifest]) -> int | None:
    """The manifest in which a full dump that began after what is applied finished."""
    for manifest in run:
        if span.a < manifest.manifest_number <= span.limit:
            for floor in manifest.floors:
                if floor.table == span.table and floor.seq >= span.applied.seq:
                    return manifest.manifest_number
    return None


def _last_within_caps(run: Sequence[Manifest], spans: Iterable[_Span], scope: PlanScope) -> int:
    """The plan's ``b``: as far as the caps allow, at least one manifest that holds anything.

    A dump that heals a target which was set back is never cut: without its floor it heals nothing.
    """
    spans = list(spans)
    healed = [_healed_at(span, run) for span in spans if span.applied.went_back]
    b = run[0].manifest_number - 1
    count = size = 0
    for manifest in run:
        parts = [part for span in spans for part in span.parts(manifest)]
        above = (
            count + len(parts) > scope.parts_max
            or size + sum(part.bytes for part in parts) > scope.bytes_max
        )
        if above and count > 0 and parts:
            break
        count += len(parts)
        size += sum(part.bytes for part in parts)
        b = manifest.manifest_number
    return max([b, *(number for number in healed if number is not None)])


def _schema_at(
    span: _Span,
    window: Sequence[Manifest],
    run: Sequence[Manifest],
    schemas: Mapping[str, TableSchema],
) -> TableSchema | None:
    """The table's schema at the window's end; None while it is not known of there.

    Without an event in the window every part in it has that schema; with neither, the next event
    knows what was before it, and without a next one the open state does.
    """
    last_seq = window[-1].last_seq
    events = [event for m in run for event in m.schema_events if event.table == span.table]
    within = [event for m in window for event in m.schema_events if event.table == span.table]
    parts = [part for manifest in window for part in span.parts(manifest)]
    if within:
        fingerprint: str | None = within[-1].after
    elif parts:
        fingerprint = parts[-1].schema
    else:
        later = (event.before for event in events if event.seq > last_seq)
        fingerprint = next(later, span.state.schema)
    return None if fingerprint is None else schemas[fingerprint]


def _unmergeable(schema: TableSchema) -> str | None:
    """Why no warehouse table can have these columns, or None."""
    seen: dict[str, str] = {}
    for name in schema.column_names:
        twin = seen.setdefault(name.lower(), name)
        if twin != name:
            return (
                f"the columns {twin!r} and {name!r} differ by case only, which Delta does not tell"
                " apart: rename one at the source, or exclude the table"
            )
        if name.lower() == _RESERVED:
            return (
                f"the column {name!r} has a name that Spark keeps for itself: rename it at the"
                " source, or exclude the table"
            )
    return None


def _table_plan(
    scope: PlanScope,
    span: _Span,
    window: Sequence[Manifest],
    schema: TableSchema,
    schemas: Mapping[str, TableSchema],
) -> TablePlan:
    """The plan of one table over ``window``, whose last manifest is its ``b``.

    A generation begins inside a manifest: what that holds up to ``generation_seq`` is not its own.
    """
    state, last = span.state, window[-1]
    anew = span.create and state.generation > 0
    begins = state.generation_seq if anew else 0
    parts = [p for m in window for p in span.parts(m) if p.last_seq > begins]
    truncates = [t.seq for m in window for t in m.truncates if t.table == span.table]
    truncates = sorted(seq for seq in truncates if seq > begins)
    floors = [floor.seq for m in window for floor in m.floors if floor.table == span.table]
    floors += [seq - 1 for seq in truncates] + ([begins] if anew else [])
    used = {part.schema for part in parts} | {schema.fingerprint}
    key_min, key_max = _bounds(parts, [schemas[name] for name in used])
    return TablePlan(
        table=span.table,
        target=table_path(scope.warehouse_url, parse_table(span.table)),
        schema=schema,
        schemas={name: schemas[name] for name in sorted(used)},
        parts=tuple(_planned(part) for part in parts),
        a=span.a,
        a_seq=span.applied.seq,
        b=last.manifest_number,
        b_seq=last.last_seq,
        app_id=app_id(last.pipeline, last.incarnation, span.table, state.generation),
        generation=state.generation,
        floor=max(floors, default=None),
        truncates=tuple(truncates),
        create=span.create,
        replace=span.create and span.applied.exists,
        key_min=key_min,
        key_max=key_max,
        complete_through_us=complete_through(state, last),
        dropped=tuple(sorted(set(state.dropped) - set(schema.column_names))),
    )


def complete_through(state: TableState, last: Manifest) -> int | None:
    """The source's clock (µs UTC) up to which a target lacks nothing that has applied ``last``.

    None before a dump of the whole table is applied, and from where the table is in doubt or not
    captured.
    """
    if state.complete_seq is None or last.last_seq < state.complete_seq:
        return None
    doubted = state.condition in (TableCondition.UNPROVEN, TableCondition.PARKED)
    if doubted and (state.since_seq is None or last.last_seq >= state.since_seq):
        return None
    return last.source_time_us


def _planned(part: Part) -> PlannedPart:
    return PlannedPart(
        key=part.key,
        schema=part.schema,
        rows=part.rows,
        operations=part.operations,
        bytes=part.bytes,
        first_seq=part.first_seq,
        last_seq=part.last_seq,
        unchanged_rows=part.unchanged_rows,
        before_rows=part.before_rows,
    )


def _bounds(parts: Sequence[Part], schemas: Sequence[TableSchema]) -> tuple[str | None, str | None]:
    """Smallest and largest first key column over all parts; (None, None) unless every part has it.

    The texts are compared as numbers or as moments, never as text.
    """
    kinds = {schema.column(schema.key[0]).logical.kind for schema in schemas}
    bounds = [(part.key_min, part.key_max) for part in parts]
    lows = [low for low, _ in bounds if low is not None]
    highs = [high for _, high in bounds if high is not None]
    if not bounds or len(lows) < len(bounds) or len(highs) < len(bounds):
        return None, None
    if kinds <= set(_INTEGERS):
        return min(lows, key=int), max(highs, key=int)
    if len(kinds) == 1 and kinds <= set(_MOMENTS):
        moments = {text: _moment(text) for text in (*lows, *highs)}
        if None not in moments.values():
            order = {text: moment for text, moment in moments.items() if moment is not None}
            return min(lows, key=order.__getitem__), max(highs, key=order.__getitem__)
    return None, None


def _moment(text: str) -> datetime | None:
    """The moment that ``text`` names, None outside the years 1 to 9999."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is None else moment.astimezone(UTC)
