"""Makes the merge plan, purely, from manifests and what is applied.

Whole blocks stand for the parts of their manifests where a range covers all of one.

Invariants: a table's ranges (a, b] over successive plans touch without a gap or an overlap; no
range crosses a missing manifest, or the schema event at which a table is blocked; whatever a range
holds of a table, its floors included, is in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tideline.contract.bounds import key_bounds
from tideline.contract.change_log import clash
from tideline.contract.errors import InvariantBroken
from tideline.contract.keyless import NEEDS_KEY, NOT_COPIED, ends_copy, last_whole, newest_copy
from tideline.contract.layout import table_path
from tideline.contract.manifest import (
    Manifest,
    OpenState,
    Part,
    TableCondition,
    TableState,
    tables_in,
)
from tideline.contract.modes import Mode
from tideline.contract.parking import FOLLOW_ALL, Policy, Stop, first_stop
from tideline.contract.plan import (
    Applied,
    Plan,
    PlannedChange,
    PlannedEnd,
    PlannedPart,
    PlanScope,
    TablePlan,
    app_id,
    start_of,
)
from tideline.contract.schema import TableSchema, parse_table
from tideline.contract.steps import at_once

_RESERVED = "_metadata"
"""Spark's own name for a file's metadata: Delta cannot merge into a table with such a column."""
_WENT_BACK = (
    "the target was set back behind what is applied (RESTORE); only a full dump makes it right:"
    " run `tideline dump {table}`, or remove the table's directory to have it built anew"
)
_LOST_PAST = (
    "the target was set back behind what is applied (RESTORE), and lacks what it kept since, which"
    " no dump can tell: run `tideline rebuild {table} --mode {mode} --accept-differences`"
)
_HELD = (TableCondition.PARKED, TableCondition.BLOCKED)


@dataclass(frozen=True, slots=True)
class Rolled:
    """What of a block plans may use: by table the ``files`` with all rows that its manifests have.

    Tables in ``loose`` are read from their parts all the same. ``stripped``: the manifests that are
    given come without the parts of these tables, because no table needs them.
    """

    first_manifest: int
    last_manifest: int
    first_seq: int
    files: Mapping[str, Sequence[Part]]
    loose: frozenset[str] = frozenset()
    stripped: frozenset[str] = frozenset()


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
    """The plan that brings every table of the scope as far as ``manifests`` go.

    ``manifests`` are in order; what follows a missing number is not used. At least one is given.
    They begin at or before every table's start, its ``clear_until`` counted. ``state`` is the open
    state at ``tail``, the newest manifest there is (None: the last one given). ``schemas`` holds
    every fingerprint that occurs. ``blocks`` are any of those that ``manifests`` cover whole.
    """
    run = _contiguous(manifests)
    spans, held = _spans(scope, run, state, applied)
    by_first = {block.first_manifest: block for block in blocks}
    at_end = run[-1].manifest_number == (tail or manifests[-1].manifest_number)
    counted = _counted(spans, schemas)
    for name in counted:
        whole = last_whole(name, run, state, a=spans[name].a, at_end=at_end)
        spans[name] = replace(spans[name], limit=min(spans[name].limit, whole))
    b = _last_within_caps(run, list(spans.values()), scope, by_first)
    for _ in counted:  # What ends one copy may lie in the middle of another one.
        b = max([b, *(ends_copy(name, run, min(b, spans[name].limit)) for name in counted)])
    plans = []
    for span in spans.values():
        numbers = [m for m in run if span.a < m.manifest_number <= min(b, span.limit)]
        if not numbers:
            continue
        window = _Window(numbers, _parts_of(span, numbers, by_first))
        schema = _schema_at(span, window, run, schemas, at_end=at_end)
        moved = any(span.table in tables_in(manifest) for manifest in window.manifests)
        if schema is None or not (span.create or moved or window.parts):
            continue
        refusal = _unmergeable(schema, span.applied.mode)
        if refusal is not None:
            held[span.table] = refusal
            continue
        plan = _table_plan(scope, span, window, schema, schemas)
        if span.table in counted and span.create and plan.floor is None:
            held[span.table] = NOT_COPIED
            continue
        plans.append(plan)
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


def _counted(spans: Mapping[str, _Span], schemas: Mapping[str, TableSchema]) -> list[str]:
    """The tables without a key whose equal rows are counted."""
    found = []
    for name, span in spans.items():
        schema = schemas.get(span.state.schema or "")
        if schema is not None and not schema.key and span.applied.mode is Mode.CURRENT:
            found.append(name)
    return found


@dataclass(frozen=True, slots=True)
class _Span:
    """One table's range: after manifest ``a``, up to ``limit`` at most."""

    table: str
    state: TableState
    applied: Applied
    a: int
    limit: int
    policy: Policy = FOLLOW_ALL

    @property
    def create(self) -> bool:
        return self.applied.manifest is None

    @property
    def begins(self) -> int:
        """What has sequences up to this one is not the target's: it begins inside a manifest."""
        if not self.create:
            return 0
        return max(
            self.state.generation_seq if self.state.generation else 0, self.applied.begin_seq
        )

    def lacks(self, block: Rolled) -> bool:
        """Whether parts that lie in the range were left out."""
        meets = self.a < block.last_manifest and block.first_manifest <= self.limit
        return meets and self.table in block.stripped

    def files(self, block: Rolled) -> Sequence[Part] | None:
        """The files to read in place of the parts of the block's manifests; None: not to be."""
        whole = self.a < block.first_manifest and block.last_manifest <= self.limit
        if not whole or self.begins >= block.first_seq or self.table in block.loose:
            return None
        return block.files.get(self.table, ())

    def parts(self, manifest: Manifest) -> list[Part]:
        """The table's parts in ``manifest``, if it lies in the range."""
        if not self.a < manifest.manifest_number <= self.limit:
            return []
        return [part for part in manifest.parts if part.table == self.table]


@dataclass(frozen=True, slots=True)
class _Window:
    """What a plan takes of one table: the manifests of its range, and what to read for them."""

    manifests: Sequence[Manifest]
    parts: Sequence[Part]


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
        a = start_of(table, target.manifest, target.begin_manifest)
        if run[0].manifest_number > max(a, target.clear_until) + 1 and table.last_data_manifest > a:
            raise InvariantBroken(f"the plan's manifests begin after table {name} does")
        policy = scope.policies.get(name, FOLLOW_ALL)
        span = _Span(name, table, target, a, _limit(table, run, a), policy)
        stop = _stop(span, run)
        if stop is not None:
            held[name] = str(stop)
            span = replace(span, limit=_last_before(stop.seq, run, a))
        if target.went_back and target.mode.keeps_past:
            held[name] = _LOST_PAST.format(table=name, mode=target.mode.value)
        elif target.went_back and _healed_at(span, run) is None:
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
    return _last_before(table.since_seq, run, a)


def _last_before(seq: int, run: Sequence[Manifest], a: int) -> int:
    """The last manifest of ``run`` that ends before ``seq``, at least ``a``."""
    return max([a, *(m.manifest_number for m in run if m.last_seq < seq)])


def _stop(span: _Span, run: Sequence[Manifest]) -> Stop | None:
    """The schema event that the span must not reach, before where it ends anyway."""
    above = max(span.applied.seq, span.begins, span.applied.columns_seq)
    within = [m for m in run if span.a < m.manifest_number <= span.limit]
    return first_stop(within, span.table, span.policy, above)


def _columns_at(span: _Span, run: Sequence[Manifest]) -> int:
    """The manifest with the last schema event whose steps the target has taken already."""
    seq = span.applied.columns_seq
    return min((m.manifest_number for m in run if m.last_seq >= seq > span.applied.seq), default=0)


def _healed_at(span: _Span, run: Sequence[Manifest]) -> int | None:
    """The manifest in which a full dump that began after what is applied finished."""
    for manifest in run:
        if span.a < manifest.manifest_number <= span.limit:
            for floor in manifest.floors:
                if floor.table == span.table and floor.seq >= span.applied.seq:
                    return manifest.manifest_number
    return None


def _last_within_caps(
    run: Sequence[Manifest],
    spans: Sequence[_Span],
    scope: PlanScope,
    blocks: Mapping[int, Rolled],
) -> int:
    """The plan's ``b``: as far as the caps allow, at least one manifest that holds anything.

    A block that fits is taken whole, of another as many manifests as fit. A dump that heals a
    target which was set back is never cut: without its floor it heals nothing. Nor is a plan cut
    before a schema event whose steps a target has taken.
    """
    healed = [_healed_at(span, run) for span in spans if span.applied.went_back]
    healed += [_columns_at(span, run) for span in spans]
    b = run[0].manifest_number - 1
    count = size = at = 0
    while at < len(run):
        taken = run[at : at + _length(run, at, blocks)]
        parts = [part for span in spans for part in _parts_of(span, taken, blocks)]
        if len(taken) > 1 and not _fit(parts, count, size, scope):
            if blocks[taken[0].manifest_number].stripped:
                break
            taken = taken[:1]
            parts = [part for span in spans for part in span.parts(taken[0])]
        if count > 0 and parts and not _fit(parts, count, size, scope):
            break
        count += len(parts)
        size += sum(part.bytes for part in parts)
        b = taken[-1].manifest_number
        at += len(taken)
    b = max([b, *(number for number in healed if number is not None)])
    for block in blocks.values():
        if block.stripped and block.first_manifest <= b < block.last_manifest:
            raise InvariantBroken(f"a plan that ends at manifest {b} lacks the parts before it")
    return b


def _fit(parts: Sequence[Part], count: int, size: int, scope: PlanScope) -> bool:
    """Whether ``parts`` may be read beside ``count`` others with ``size`` bytes."""
    if count + len(parts) > scope.parts_max:
        return False
    return size + sum(part.bytes for part in parts) <= scope.bytes_max


def _length(run: Sequence[Manifest], at: int, blocks: Mapping[int, Rolled]) -> int:
    """How many manifests of ``run`` belong together from ``at`` on: a whole block's, or one."""
    block = blocks.get(run[at].manifest_number)
    if block is None or run[-1].manifest_number < block.last_manifest:
        return 1
    return block.last_manifest - block.first_manifest + 1


def _parts_of(
    span: _Span, manifests: Sequence[Manifest], blocks: Mapping[int, Rolled]
) -> list[Part]:
    """What to read for the table in ``manifests``: files of blocks that lie in them whole, and
    parts."""
    found: list[Part] = []
    at = 0
    while at < len(manifests):
        length = _length(manifests, at, blocks)
        block = blocks.get(manifests[at].manifest_number) if length > 1 else None
        files = None if block is None else span.files(block)
        if files is None and block is not None and span.lacks(block):
            raise InvariantBroken(f"the plan's manifests lack the parts of {span.table}")
        if files is None:
            files = [p for m in manifests[at : at + length] for p in span.parts(m)]
        found += files
        at += length
    return found


def _schema_at(
    span: _Span,
    window: _Window,
    run: Sequence[Manifest],
    schemas: Mapping[str, TableSchema],
    *,
    at_end: bool,
) -> TableSchema | None:
    """The table's schema at the window's end; None while it is not known of there.

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


def _unmergeable(schema: TableSchema, mode: Mode) -> str | None:
    """Why no warehouse table kept in this mode can have these columns, or None."""
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
    window: _Window,
    schema: TableSchema,
    schemas: Mapping[str, TableSchema],
) -> TablePlan:
    """The plan of one table over ``window``, whose last manifest is its ``b``.

    A generation, and a full dump, begin inside a manifest: what that holds up to there is not of
    it.
    """
    state, manifests, begins = span.state, window.manifests, span.begins
    last = manifests[-1]
    parts = [part for part in window.parts if part.last_seq > begins]
    truncates = [t.seq for m in manifests for t in m.truncates if t.table == span.table]
    truncates = sorted(seq for seq in truncates if seq > begins)
    floors = [floor.seq for m in manifests for floor in m.floors if floor.table == span.table]
    floors += [seq - 1 for seq in truncates] + ([begins] if begins else [])
    ends = _ends(span.table, manifests, begins)
    used = {part.schema for part in parts} | {schema.fingerprint}
    changes = _changes(span, manifests)
    told = {name for change in changes for name in (change.before, change.after)}
    key_min, key_max = key_bounds(parts, [schemas[name] for name in used])
    return TablePlan(
        table=span.table,
        target=table_path(scope.warehouse_url, parse_table(span.table)),
        schema=schema,
        schemas={name: schemas[name] for name in sorted(used | told)},
        parts=tuple(planned_part(part) for part in parts),
        a=span.a,
        a_seq=span.applied.seq,
        b=last.manifest_number,
        b_seq=last.last_seq,
        app_id=app_id(
            last.pipeline, last.incarnation, span.table, state.generation, span.applied.build
        ),
        generation=state.generation,
        floor=max(floors, default=None),
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
        begins=begins,
        ends=ends,
        mode=span.applied.mode,
        build=span.applied.build,
        copied=newest_copy(manifests, span.table, max(floors, default=None)),
    )


def _changes(span: _Span, manifests: Sequence[Manifest]) -> tuple[PlannedChange, ...]:
    """The table's schema events in ``manifests`` that change its columns, ascending."""
    return tuple(
        PlannedChange(event.seq, event.after, at_once(event.steps), event.before)
        for manifest in manifests
        for event in manifest.schema_events
        if event.table == span.table and event.seq > span.begins and event.before is not None
        if event.steps or event.after != event.before
    )


def _ends(table: str, manifests: Sequence[Manifest], begins: int) -> tuple[PlannedEnd, ...]:
    """Where rows of the table end that nothing in the log says of one by one."""
    ends = [
        PlannedEnd(truncate.seq, truncate.seq - 1, m.source_time_us)
        for m in manifests
        for truncate in m.truncates
        if truncate.table == table and truncate.seq > begins
    ]
    ends += [
        PlannedEnd(m.last_seq, floor.seq, m.source_time_us)
        for m in manifests
        for floor in m.floors
        if floor.table == table
    ]
    return tuple(sorted(ends, key=lambda end: (end.seq, end.upto)))


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


def planned_part(part: Part) -> PlannedPart:
    """What a plan says of ``part``."""
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
        before_image_rows=part.before_image_rows,
    )
