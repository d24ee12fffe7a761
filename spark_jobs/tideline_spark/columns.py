"""Converts rows of parts from the schema that they were written in to the target's columns.

A row has the columns of its time. Every schema change with a higher sequence acts on it as it did
on the source's rows: a column is renamed, dropped, or added with its default; a column that was
dropped and added again is a new one. A part can hold rows from before and after a change (and back
again, in a schema that returned), so the columns to read depend on the row's sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F

from tideline.contract import schema as schemas
from tideline.contract.evolution import Ancestor, TargetColumns, ancestors
from tideline.contract.part import (
    BEFORE,
    CREATED,
    DELETED,
    IMAGE,
    IMAGE_OVERFLOW,
    OP,
    OVERFLOW,
    SEQ,
    TS,
    TX,
    UNCHANGED,
)
from tideline.contract.plan import PlannedChange, TablePlan
from tideline.contract.schema import TableSchema
from tideline.contract.types import parse_type
from tideline_spark.schemas import STRING_LIST, STRING_MAP, spark_type
from tideline_spark.schemas import column as col

_NO_ROW_YET = (CREATED, DELETED)
"""Operations of rows without a before image."""


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """The column mapping for rows of one schema that lie between the same two changes.

    ``values``: by target column, its column in such a row; None: NULL. ``names``: what names in the
    row stand for, where that is not the name itself. ``carried``: columns that such a row lacks
    although the row that it overwrites has a value.
    """

    values: dict[str, Ancestor | None]
    names: dict[str, tuple[str, ...]]
    carried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _SeqRange:
    """A reading, and the sequence below which it applies (None: to all other rows)."""

    below: int | None
    mapping: ColumnMapping


def in_target_terms(
    frame: DataFrame, plan: TablePlan, fingerprint: str, stands: TargetColumns
) -> DataFrame:
    """Convert ``frame``, rows of parts in schema ``fingerprint``, to ``plan.schema``'s columns.

    ``plan.schema`` is the target's: without columns that it lacks, with those that only it has.
    A value too wide for a column that keeps a narrower type goes to the overflow map.
    """
    schema = plan.schemas[fingerprint]
    ranges = _ranges(plan, schema, stands)
    narrow = {name for name in stands.narrow if name in plan.schema.column_names}
    values = [
        _by_seq(ranges, partial(_value, schema=schema, wanted=c, fits=c.name in narrow))
        for c in plan.schema.columns
    ]
    before = [
        _by_seq(
            ranges,
            partial(_before, frame=frame, plan=plan, schema=schema, name=name, fits=name in narrow),
        ).alias(BEFORE + name)
        for name in plan.schema.column_names
        if any(_has_before(frame, one.mapping, name) for one in ranges)
        or (not plan.schema.key and IMAGE in frame.columns)
    ]
    return frame.select(
        *(value.alias(c.name) for value, c in zip(values, plan.schema.columns, strict=True)),
        col(SEQ),
        col(OP),
        col(TS),
        _by_seq(ranges, _unchanged).alias(UNCHANGED),
        _by_seq(ranges, lambda r: _overflow(r, plan, schema, narrow)).alias(OVERFLOW),
        *before,
        *(col(name) for name in (TX, IMAGE) if name in frame.columns),
        *(
            _by_seq(ranges, lambda r: _image_overflow(r, frame, plan, schema, narrow)).alias(one)
            for one in (IMAGE_OVERFLOW,)
            if one in frame.columns
        ),
    )


def _ranges(plan: TablePlan, schema: TableSchema, stands: TargetColumns) -> list[_SeqRange]:
    """Return the readings of the schema's rows, by ascending sequence; neighbours differ."""
    found: list[_SeqRange] = []
    changes = plan.changes
    for at in _epochs(plan, schema):
        mapping = _mapping(plan.schema, schema, changes[at:], stands)
        below = changes[at].seq if at < len(changes) else None
        if found and found[-1].mapping == mapping:
            found[-1] = _SeqRange(below, mapping)
        else:
            found.append(_SeqRange(below, mapping))
    return found


def _epochs(plan: TablePlan, schema: TableSchema) -> list[int]:
    """Return after how many of the plan's changes rows of the schema were written; ascending."""
    parts = [part for part in plan.parts if part.schema == schema.fingerprint]
    seqs = [change.seq for change in plan.changes]
    if not parts:
        return [len(seqs)]
    first = sum(seq < min(part.first_seq for part in parts) for seq in seqs)
    last = sum(seq < max(part.last_seq for part in parts) for seq in seqs)
    spanned = range(first, last + 1)
    form = schema.fingerprint
    in_force = [at for at in spanned if not at or plan.changes[at - 1].after == form]
    return in_force or list(spanned)


def _mapping(
    target: TableSchema,
    schema: TableSchema,
    later: Sequence[PlannedChange],
    stands: TargetColumns,
) -> ColumnMapping:
    found = ancestors(schema.column_names, later)
    values = {name: found.get(name) for name in target.column_names if name not in stands.retained}
    carried = []
    for name, kept in stands.retained.items():
        if name not in target.column_names:
            continue
        if any(change.seq == kept.seq for change in later):
            until = [change for change in later if change.seq < kept.seq]
            values[name] = ancestors(schema.column_names, until).get(kept.column)
        else:
            values[name] = None
            if kept.carried:
                carried.append(name)
    names = {
        held: tuple(n for n, one in values.items() if one is not None and one.column == held)
        for held in schema.column_names
    }
    changed = {held: now for held, now in names.items() if now != (held,)}
    return ColumnMapping(values, changed, tuple(carried))


def _by_seq(ranges: Sequence[_SeqRange], expression: Callable[[ColumnMapping], Column]) -> Column:
    """Return ``expression`` of each row's reading."""
    *earlier, last = [(one.below, expression(one.mapping)) for one in ranges]
    chosen: Column | None = None
    for below, value in earlier:
        older = col(SEQ) < F.lit(below)
        chosen = F.when(older, value) if chosen is None else chosen.when(older, value)
    return last[1] if chosen is None else chosen.otherwise(last[1])


def _value(
    mapping: ColumnMapping, schema: TableSchema, wanted: schemas.Column, *, fits: bool
) -> Column:
    """Return a column's value; with ``fits`` NULL where its type would alter it."""
    data_type = spark_type(wanted.logical)
    ancestor = mapping.values[wanted.name]
    if ancestor is None:
        return F.lit(None).cast(data_type)
    if ancestor.column is None:
        return default_value(ancestor, data_type)
    held = spark_type(schema.column(ancestor.column).logical)
    return _as_type(col(ancestor.column), held, data_type, fits=fits)


def _as_type(
    value: Column, held: types.DataType, data_type: types.DataType, *, fits: bool
) -> Column:
    """Cast a value of type ``held`` to ``data_type``; with ``fits`` NULL where that alters it."""
    if held == data_type or not fits:
        return value if held == data_type else value.cast(data_type)
    narrowed = value.try_cast(data_type)
    return F.when(narrowed.cast(held).eqNullSafe(value), narrowed)


def default_value(ancestor: Ancestor, data_type: types.DataType) -> Column:
    """Return the value that rows hold in a column added after they were written."""
    if ancestor.default is None:
        return F.lit(None).cast(data_type)
    text = F.lit(ancestor.default)
    added = spark_type(parse_type(ancestor.type)) if ancestor.type else data_type
    if isinstance(added, types.BinaryType):
        return F.unhex(text)
    return text.cast(added).cast(data_type)


def _has_before(frame: DataFrame, mapping: ColumnMapping, name: str) -> bool:
    ancestor = mapping.values.get(name)
    return ancestor is not None and f"{BEFORE}{ancestor.column}" in frame.columns


def _before(
    mapping: ColumnMapping,
    frame: DataFrame,
    plan: TablePlan,
    schema: TableSchema,
    name: str,
    fits: bool,
) -> Column:
    """Return the column's value before the change; NULL where the row lacks it."""
    data_type = spark_type(plan.schema.column(name).logical)
    ancestor = mapping.values.get(name)
    if ancestor is not None and ancestor.column is None and not plan.schema.key:
        # The previous row is looked up in the target, where this column holds the default.
        return default_value(ancestor, data_type)
    if ancestor is None or not _has_before(frame, mapping, name):
        return F.lit(None).cast(data_type)
    held = spark_type(schema.column(ancestor.column or "").logical)
    return _as_type(col(f"{BEFORE}{ancestor.column}"), held, data_type, fits=fits)


def _unchanged(mapping: ColumnMapping) -> Column:
    names = col(UNCHANGED)
    if mapping.names:
        names = F.flatten(F.transform(names, lambda name: _now(mapping, name)))
    if mapping.carried:
        carried = F.array(*(F.lit(name) for name in mapping.carried))
        both = F.concat(F.coalesce(names, F.array().cast(STRING_LIST)), carried)
        names = F.when(col(OP).isin(*_NO_ROW_YET), names).otherwise(both)
    elif not mapping.names:
        return names
    return F.when(F.size(names) > 0, names).cast(STRING_LIST)


def _overflow(
    mapping: ColumnMapping, plan: TablePlan, schema: TableSchema, narrow: set[str]
) -> Column:
    own = [_too_wide(mapping, plan, schema, name) for name in sorted(narrow)]
    return _with_texts(_renamed(mapping, OVERFLOW), own)


def _image_overflow(
    mapping: ColumnMapping, frame: DataFrame, plan: TablePlan, schema: TableSchema, narrow: set[str]
) -> Column:
    before = [name for name in sorted(narrow) if _has_before(frame, mapping, name)]
    own = [_too_wide(mapping, plan, schema, name, BEFORE) for name in before]
    return _with_texts(_renamed(mapping, IMAGE_OVERFLOW), own)


def _with_texts(texts: Column, own: Sequence[Column]) -> Column:
    """Add to ``texts`` those of ``own`` (structs of a name and a text) that are not null."""
    if own:
        found = F.map_from_entries(F.filter(F.array(*own), lambda one: one["value"].isNotNull()))
        texts = F.map_concat(F.coalesce(texts, F.create_map().cast(STRING_MAP)), found)
        texts = F.when(F.size(texts) > 0, texts)
    return texts.cast(STRING_MAP)


def _renamed(mapping: ColumnMapping, name: str) -> Column:
    """Rename the keys of a map by column to the target's names."""
    texts = col(name)
    if not mapping.names:
        return texts
    entries = F.transform(
        F.map_entries(texts),
        lambda entry: F.transform(
            _now(mapping, entry["key"]),
            lambda now: F.struct(now.alias("key"), entry["value"].alias("value")),
        ),
    )
    texts = F.map_from_entries(F.flatten(entries))
    return F.when(F.size(texts) > 0, texts)


def _too_wide(
    mapping: ColumnMapping, plan: TablePlan, schema: TableSchema, name: str, prefix: str = ""
) -> Column:
    """Return a column's name and the text of a value that it cannot hold (null: it can)."""
    text = F.lit(None).cast("string")
    ancestor = mapping.values[name]
    if ancestor is not None and ancestor.column is not None:
        value, wanted = col(prefix + ancestor.column), plan.schema.column(name)
        held = spark_type(schema.column(ancestor.column).logical)
        kept = _as_type(value, held, spark_type(wanted.logical), fits=True)
        text = F.when(kept.isNull() & value.isNotNull(), value.cast("string"))
    return F.struct(F.lit(name).alias("key"), text.alias("value"))


def _now(mapping: ColumnMapping, name: Column) -> Column:
    """Return the names that ``name`` stands for; none for a dropped column."""
    pairs = [
        part
        for held, now in sorted(mapping.names.items())
        for part in (F.lit(held), F.array(*(F.lit(one) for one in now)).cast(STRING_LIST))
    ]
    return F.coalesce(F.try_element_at(F.create_map(*pairs), name), F.array(name))
