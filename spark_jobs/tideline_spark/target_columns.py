"""Brings a target's columns to where a plan ends, before the plan's rows are written.

At most four commits, each of which may be the last one of a run that is killed: table features that
the others need; wider types; **one** commit that adds, renames, drops and empties columns all at
once and records in the table's properties the sequence up to which that is done; and one UPDATE of
values in rows (constant defaults, names of columns), which carries its own transaction id. So two
columns that swap their names need no intermediate name, and no run takes a step twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace
from pyspark.sql import types

from tideline.contract.change_log import BEFORE_PREFIX
from tideline.contract.description import DESCRIPTION_PROPERTY, Described
from tideline.contract.errors import CorruptData, Misconfigured, Unavailable
from tideline.contract.evolution import (
    COLUMNS_PROPERTY,
    Ancestor,
    Followed,
    Refill,
    RetainedColumn,
    TargetColumns,
    follow,
)
from tideline.contract.modes import Mode
from tideline.contract.part import SEQ
from tideline.contract.plan import CommitMetadata, TablePlan
from tideline.contract.printable import command
from tideline.contract.schema import Column
from tideline.contract.types import widens
from tideline_spark.formats.base import Shaped, Target
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.refill import refill_rows
from tideline_spark.schemas import field_of, logical_of, spark_type

_REBUILD = "run {command}, or remove the warehouse table's directory, to have it"
_REBUILD += " rebuilt"


@dataclass(frozen=True, slots=True)
class Ready:
    """A target with its columns ready. ``table``: the plan in the target's columns; ``stands``: how
    these differ from the source's; ``snapshot``: the target as it is now."""

    table: TablePlan
    stands: TargetColumns
    snapshot: TargetSnapshot


def ready_to_create(table: TablePlan, snapshot: TargetSnapshot) -> Ready:
    """Return the columns of a new target, which will record how they differ from the source's.

    A column that the source dropped within the plan is made only if its values are kept.
    """
    first = table.schema
    if table.changes and table.changes[0].before:
        first = table.schemas[table.changes[0].before]
    held = {column.name: spark_type(column.logical) for column in first.columns}
    followed = follow(list(held), TargetColumns(), table)
    stands = replace(followed.columns, left=(), refill=Refill())
    types_now = _types(table, followed, held)
    return Ready(_in_target_columns(table, stands, types_now), stands, snapshot)


def bring_along(
    table: TablePlan,
    target: Target,
    snapshot: TargetSnapshot,
    commit_metadata: CommitMetadata,
    *,
    heals: bool,
    came_back: Sequence[str] = (),
) -> Ready:
    """Take the plan's schema steps in a target that exists. ``commit_metadata`` is for the commits.

    ``heals``: the content was set back, and the plan rewrites all of it; ``came_back``: columns
    that the target has again by that. Raises Misconfigured where others' changes to the columns
    prevent it.
    """
    stands = TargetColumns.parse(snapshot.properties.get(COLUMNS_PROPERTY))
    if stands.seq > table.to_seq:
        raise Unavailable(
            f"the target of {table.table} has the columns of sequence {stands.seq}, behind the"
            f" plan's end at {table.to_seq}",
            hint="plan again: another run was faster, or was killed",
        )
    columns = target.schema
    if stands.refill and snapshot.applied.get(_columns_app(table), 0) < stands.seq:
        _refill(table, target, snapshot, stands, commit_metadata)
    followed = _with_missing(table, follow(snapshot.schema.names, stands, table), stands, heals)
    gone = {name for name in came_back if name not in table.schema.column_names}
    gone -= followed.columns.retained.keys()
    left = {name: ancestor for name, ancestor in followed.ancestors.items() if name not in gone}
    moves = followed.moves or len(left) < len(followed.ancestors)
    followed = _with_companions(table, Followed(followed.columns, left), snapshot)
    held = {field.name: field.dataType for field in snapshot.schema.fields}
    types_now = _types(table, followed, held)
    wider = _wider(table, followed, held, types_now)
    new = {name: types.StructField(name, types_now[name]) for name in _new(followed)}
    columns.prepare(
        snapshot,
        mapping=moves,
        widening=bool(wider),
        added=list(new.values()),
        without=table.without,
    )
    columns.widen(wider, commit_metadata)
    changed = _changed(followed, stands, snapshot)
    if changed:
        order = _order(table, followed)
        shaped = [
            (n, None if n in new else followed.ancestors[n].column, new.get(n)) for n in order
        ]
        properties = {COLUMNS_PROPERTY: followed.columns.text(), **described_as(snapshot, shaped)}
        columns.reshape(shaped, properties, commit_metadata)
        _refill(table, target, target.snapshot(), followed.columns, commit_metadata)
    after = target.snapshot() if changed or wider else snapshot
    ready = _in_target_columns(table, followed.columns, types_now)
    return Ready(ready, followed.columns, after)


def described_as(snapshot: TargetSnapshot, columns: Sequence[Shaped]) -> dict[str, str]:
    """Return the target's `DESCRIPTION_PROPERTY` with the new names of renamed columns, whose
    comments move with them: by its old name a comment of the source's would count as a user's, and
    stay when the source removes it. {} where nothing of it changes."""
    described = Described.parse(snapshot.properties.get(DESCRIPTION_PROPERTY))
    renamed = {was: name for name, was, new in columns if new is None and was is not None}
    comments = tuple(sorted({renamed.get(name, name) for name in described.comments}))
    if comments == tuple(sorted(described.comments)):
        return {}
    return {DESCRIPTION_PROPERTY: replace(described, comments=comments).text()}


def _columns_app(table: TablePlan) -> str:
    """Return the transaction id of row updates for schema steps; its version is a sequence."""
    return f"{table.app_id}/columns"


def _refill(
    table: TablePlan,
    target: Target,
    snapshot: TargetSnapshot,
    stands: TargetColumns,
    commit_metadata: CommitMetadata,
) -> None:
    update = refill_rows(snapshot.schema, stands, table.mode)
    if update is not None:
        target.schema.refill(update, commit_metadata, _columns_app(table), stands.seq)


def _with_missing(
    table: TablePlan, followed: Followed, stands: TargetColumns, heals: bool
) -> Followed:
    """Add the source's columns that no step has added: older workers wrote schema events without
    steps. Any other missing column was removed by others."""
    untold = heals or any(not c.steps for c in table.changes if c.seq > stands.seq)
    ancestors = dict(followed.ancestors)
    folded = {name.lower(): name for name in ancestors}
    for column in table.schema.columns:
        if column.name in ancestors or column.name in followed.columns.away:
            continue
        twin = folded.get(column.name.lower())
        if twin is not None:
            raise Misconfigured(
                f"column {column.name!r} differs by case only from the warehouse's {twin!r}",
                hint="drop or rename that column in the warehouse table",
            )
        if not untold:
            raise Misconfigured(
                f"the warehouse's table of {table.table} lacks the column {column.name!r}, which"
                " someone else has dropped or renamed there",
                hint="rename it back if it was renamed; else "
                + _REBUILD.format(command=command("rebuild", table.table)),
            )
        ancestors[column.name] = Ancestor(None)
    return Followed(followed.columns, ancestors)


def _with_companions(table: TablePlan, followed: Followed, snapshot: TargetSnapshot) -> Followed:
    """Add the change log's companion of each column: its value before the change."""
    if table.mode is not Mode.APPEND:
        return followed
    held = set(snapshot.schema.names)
    own = {n: a for n, a in followed.ancestors.items() if not n.startswith(BEFORE_PREFIX)}
    found = {n: a for n, a in followed.ancestors.items() if n not in own}
    moved: dict[str, Ancestor] = {}
    for name, ancestor in own.items():
        was = ancestor.column
        if was is None:
            moved[BEFORE_PREFIX + name] = Ancestor(None)
        elif BEFORE_PREFIX + was in held and not ancestor.copied:
            found.pop(BEFORE_PREFIX + was, None)
            moved[BEFORE_PREFIX + name] = Ancestor(BEFORE_PREFIX + was)
        elif ancestor.copied:
            moved[BEFORE_PREFIX + name] = Ancestor(None)
    return Followed(followed.columns, {**own, **found, **moved})


def _new(followed: Followed) -> list[str]:
    """Return the columns to make."""
    return [n for n, one in followed.ancestors.items() if one.column is None or one.copied]


def _changed(followed: Followed, stands: TargetColumns, snapshot: TargetSnapshot) -> bool:
    """Return whether columns are added, removed or moved, or other properties change."""
    if list(followed.ancestors) != snapshot.schema.names or _new(followed):
        return True
    return replace(followed.columns, seq=stands.seq, refill=stands.refill) != stands


def _types(
    table: TablePlan, followed: Followed, held: Mapping[str, types.DataType]
) -> dict[str, types.DataType]:
    """Return the type that every column of the target must have; ``held`` are its present types.

    A wider present type stays: `_wider` asks only for what is needed.
    """
    source = {column.name: spark_type(column.logical) for column in table.schema.columns}
    found: dict[str, types.DataType] = {}
    for name, ancestor in followed.ancestors.items():
        plain = name.removeprefix(BEFORE_PREFIX) if table.mode is Mode.APPEND else name
        retained = followed.columns.retained.get(plain)
        has = held.get(ancestor.column or ancestor.like or "")
        if has is None and ancestor.type:
            has = field_of(name, ancestor.type).dataType
        wanted = has if plain in followed.columns.away else source.get(plain) or has
        if retained is not None:
            wanted = _type_before(table, retained) or has
        if has is not None and (plain in followed.columns.narrow or ancestor.like is not None):
            wanted = has
        if wanted is None:
            raise CorruptData(f"the plan of {table.table} does not have the type of {name!r}")
        found[name] = wanted
    return found


def _type_before(table: TablePlan, retained: RetainedColumn) -> types.DataType | None:
    """Return a column's last type in the source; None when that was before the plan."""
    for change in table.changes:
        if change.seq == retained.seq and change.before:
            return spark_type(table.schemas[change.before].column(retained.column).logical)
    return None


def _wider(
    table: TablePlan,
    followed: Followed,
    held: Mapping[str, types.DataType],
    types_now: Mapping[str, types.DataType],
) -> dict[str, types.DataType]:
    """Return the columns that need wider types, by their present names."""
    found: dict[str, types.DataType] = {}
    for name, ancestor in followed.ancestors.items():
        if ancestor.column is None or ancestor.copied:
            continue
        has, wanted = held[ancestor.column], types_now[name]
        if has == wanted:
            continue
        ours, theirs = logical_of(has), logical_of(wanted)
        if ours is not None and theirs is not None and widens(theirs, ours):
            continue
        if ours is None or theirs is None or not widens(ours, theirs):
            raise Misconfigured(
                f"column {name!r} is {has.simpleString()} in the warehouse and"
                f" {wanted.simpleString()} at the source",
                hint=_REBUILD.format(command=command("rebuild", table.table)),
            )
        found[ancestor.column] = wanted
    return found


def _order(table: TablePlan, followed: Followed) -> list[str]:
    """Return the target's columns in order: existing ones first as they were, new source columns
    after their predecessor in the source, others before our own."""
    names = list(followed.ancestors)
    new = [n for n in _new(followed) if followed.ancestors[n].like is None]
    for name in new:
        names.remove(name)
    previous: str | None = None
    for name in table.schema.column_names:
        if name in new:
            names.insert(0 if previous is None else names.index(previous) + 1, name)
        if name in names:
            previous = name
    for name in new:
        if name not in names:
            names.insert(names.index(SEQ) if SEQ in names else len(names), name)
    return names


def _in_target_columns(
    table: TablePlan, stands: TargetColumns, types_now: Mapping[str, types.DataType]
) -> TablePlan:
    """Return the plan as if the source had the target's columns: without absent ones, with kept
    ones that a row may still carry."""
    columns = [
        _typed(column, types_now[column.name]) if column.name in stands.narrow else column
        for column in table.schema.columns
        if column.name not in stands.away
    ]
    columns += [
        _typed(Column(name, "", "", True), types_now[name])
        for name, retained in stands.retained.items()
        if name in types_now and (retained.carried or retained.seq > table.from_seq)
    ]
    dropped = tuple(name for name in table.dropped if name not in stands.retained)
    return replace(table, schema=replace(table.schema, columns=tuple(columns)), dropped=dropped)


def _typed(column: Column, data_type: types.DataType) -> Column:
    logical = logical_of(data_type)
    if logical is None:
        raise Misconfigured(
            f"column {column.name!r} is {data_type.simpleString()} in the warehouse",
            hint="someone else changed its type there: change it back, or build the table again",
        )
    return replace(column, type=str(logical))
