"""Folds all changes of a table in a plan into the newest state of each key. Pure.

The rules, in sequence order:

- The newest row of a key wins; a delete, or an update that moved the key away, leaves it *gone*.
- A row may lack columns (``_tl_unchanged``): the log did not carry them because they did not
  change. Such a column takes its value from the key's earlier rows; where a row was moved here
  from another key, from that key's rows before the move, and so on.
- A value that no row in the range supplies is still in the target, under the key that the row had
  before the range; the output names the columns (`UNKNOWN`) and that key (`FROM`, null: its own).
- No value is taken across a delete or a truncate; columns then still unknown are in `MISSING`.

Terms: a *key lifetime* is a run of a key's rows that one source row produced. It ends with a delete
or with a move away (`MOVED_OUT`: that move's sequence); one that begins with a move here has that
move's sequence as `MOVED_IN`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tideline.contract.part import BEFORE, DELETED, OP, OVERFLOW, SEQ, TS, UNCHANGED
from tideline.contract.schema import TableSchema
from tideline_spark.schemas import STRING_LIST, STRING_MAP
from tideline_spark.schemas import column as col
from tideline_spark.working_columns import (
    ARRIVED,
    GONE,
    LIFETIME,
    LIFETIME_START,
    MOVED_AWAY,
    MOVED_IN,
    MOVED_OUT,
    RANK,
    known_column,
)

UNKNOWN = "_tl_unknown"
MISSING = "_tl_missing"
FROM = "_tl_from"
HOPS_MAX = 4
"""The moves of one row followed within a plan; beyond, the column's value is missing."""

_ROOT = "_tl_root"
_NEWEST = "_tl_newest"
_HERE = "_tl_here"
_PARENT = "_tl_parent"


@dataclass(frozen=True, slots=True)
class Shape:
    """Properties of the changes, known before they are folded.

    ``moved``: whether any row has a before-key; ``fillable``: the columns that some row lacks;
    ``truncate``: the newest truncate's sequence; ``delete_before``: nothing at or below it is
    output. ``carried``: fillable columns that are never requested, because the source no longer has
    them. ``ranged``: the rows make a table and should be in key ranges where that is cheap: then
    each of its files holds a range, and key bounds select the files to read.
    """

    schema: TableSchema
    moved: bool = False
    fillable: tuple[str, ...] = ()
    truncate: int | None = None
    delete_before: int | None = None
    hops: int = HOPS_MAX
    carried: tuple[str, ...] = ()
    ranged: bool = False

    @property
    def key(self) -> list[Column]:
        return [col(name) for name in self.schema.key]


def fold(changes: DataFrame, shape: Shape) -> DataFrame:
    """Return one row per key: the table's columns, `_tl_seq`, `_tl_ts`, `_tl_overflow`, `GONE`.

    With fillable columns also `UNKNOWN` and `MISSING` (lists of column names, null when empty) and
    `FROM` (a struct of the key columns). ``changes`` has the table's columns in the types of
    ``shape.schema``, ``_tl_seq``, ``_tl_op``, ``_tl_ts``, ``_tl_unchanged``, ``_tl_overflow``, and
    with ``moved`` the before-keys; their order does not matter.
    """
    if shape.truncate is not None:
        changes = changes.where(col(SEQ) > F.lit(shape.truncate))
    rows = occurrences(changes, shape)
    folded = _filled(rows, shape) if shape.fillable else _newest(rows, shape)
    return (
        folded
        if shape.delete_before is None
        else folded.where(col(SEQ) > F.lit(shape.delete_before))
    )


def occurrences(changes: DataFrame, shape: Shape) -> DataFrame:
    """Return the changes and, for each changed key, a row at the old key that marks the move."""
    if not shape.moved:
        return changes.withColumn(ARRIVED, F.lit(False))
    marked = _marked(changes, shape)
    here = marked.drop(*(BEFORE + name for name in shape.schema.key))
    left = marked.where(col(ARRIVED)).select(
        *(_left_value(here, name, shape).alias(name) for name in here.columns)
    )
    return here.unionByName(left)


def keys_left(changes: DataFrame, shape: Shape) -> DataFrame:
    """Return the keys that rows of ``changes`` moved away from, each once, for ``shape.moved``.

    Of the changes themselves, not of folded rows: a condition on `FROM`, an expression over all
    fillable columns, takes Spark's optimizer minutes and gigabytes to infer constraints from.
    """
    moved = _marked(changes, shape).where(col(ARRIVED))
    return moved.select(*(_key_left(name).alias(name) for name in shape.schema.key)).distinct()


def _marked(changes: DataFrame, shape: Shape) -> DataFrame:
    moved = F.lit(False)
    for name in shape.schema.key:
        before = col(BEFORE + name)
        moved = moved | (before.isNotNull() & ~before.eqNullSafe(col(name)))
    return changes.withColumn(ARRIVED, moved)


def _key_left(name: str) -> Column:
    return F.coalesce(col(BEFORE + name), col(name))


def _left_value(here: DataFrame, name: str, shape: Shape) -> Column:
    if name in shape.schema.key:
        return _key_left(name)
    if name in (SEQ, TS):
        return col(name)
    if name == OP:
        return F.lit(MOVED_AWAY)
    if name == ARRIVED:
        return F.lit(False)
    return F.lit(None).cast(here.schema[name].dataType)


def _ends() -> Column:
    return col(OP).isin(DELETED, MOVED_AWAY)


def _newest(rows: DataFrame, shape: Shape) -> DataFrame:
    """Return the newest row per key, for rows that all carry every column."""
    latest = Window.partitionBy(*shape.key).orderBy(col(SEQ).desc())
    if shape.ranged:  # All rows of a key lie in one range: the window needs no extra shuffle.
        rows = rows.repartitionByRange(*shape.key)
    return (
        rows.withColumn(RANK, F.row_number().over(latest))
        .where(col(RANK) == 1)
        .withColumn(GONE, _ends())
        .drop(RANK, OP, UNCHANGED, ARRIVED)
    )


def _filled(rows: DataFrame, shape: Shape) -> DataFrame:
    lifetimes = _lifetimes(rows, shape)
    newest = Window.partitionBy(*(col(_NEWEST)[name] for name in shape.schema.key)).orderBy(
        col(_NEWEST)[SEQ].desc()
    )
    final = (
        lifetimes.withColumn(RANK, F.row_number().over(newest))
        .where(col(RANK) == 1)
        .drop(RANK, MOVED_OUT)
        .withColumn(FROM, _key_of(shape))
    )
    for _ in range(shape.hops if shape.moved else 0):
        final = _follow(final, lifetimes, shape)
    return _put_out(final, shape)


def _lifetimes(rows: DataFrame, shape: Shape) -> DataFrame:
    """Return a row per key lifetime: its newest row, each fillable column's newest known value, and
    the moves that began and ended it.

    A known value is a struct of value and overflow text, so that a known NULL is not unknown.
    """
    in_order = Window.partitionBy(*shape.key).orderBy(col(SEQ))
    first = F.lag(col(OP)).over(in_order).isNull()
    starts = F.lag(_ends()).over(in_order)
    starts = F.coalesce(starts, F.lit(True)) | col(ARRIVED)
    lifetime_id = col(SEQ) * 2 + _ends().cast("long")
    rows = (
        rows.withColumn(LIFETIME_START, starts)
        .withColumn("_tl_first", first)
        .withColumn(LIFETIME, F.last(F.when(col(LIFETIME_START), lifetime_id), True).over(in_order))
    )
    at_root = col(LIFETIME_START) & col("_tl_first") & ~col(ARRIVED)
    if shape.truncate is not None:
        at_root = F.lit(False)
    kept = [*shape.schema.column_names, SEQ, TS, OP, OVERFLOW]
    known = [
        F.max_by(
            F.struct(col(name).alias("value"), col(OVERFLOW)[name].alias("text")),
            F.when(_supplies(name), col(SEQ)),
        ).alias(known_column(at))
        for at, name in enumerate(shape.fillable)
    ]
    return rows.groupBy(col(LIFETIME)).agg(
        F.max_by(F.struct(*(col(name) for name in kept)), col(SEQ)).alias(_NEWEST),
        F.max(F.when(col(ARRIVED) & col(LIFETIME_START), col(SEQ))).alias(MOVED_IN),
        F.max(F.when(col(OP) == MOVED_AWAY, col(SEQ))).alias(MOVED_OUT),
        F.max(at_root).alias(_ROOT),
        *known,
    )


def _supplies(name: str) -> Column:
    lacks = F.array_contains(col(UNCHANGED), F.lit(name))
    return ~_ends() & ~F.coalesce(lacks, F.lit(False))


def _key_of(shape: Shape) -> Column:
    return F.struct(*(col(_NEWEST)[name].alias(name) for name in shape.schema.key))


def _follow(final: DataFrame, lifetimes: DataFrame, shape: Shape) -> DataFrame:
    """Take what a key lifetime does not know from the one that moved here (one hop)."""
    count = range(len(shape.fillable))
    parents = lifetimes.where(col(MOVED_OUT).isNotNull()).select(
        col(MOVED_OUT).alias("moved_out"),
        col(MOVED_IN).alias("moved_in"),
        col(_ROOT).alias("root"),
        _key_of(shape).alias("key"),
        *(col(known_column(at)).alias(f"known_{at}") for at in count),
    )
    joined = final.alias(_HERE).join(
        parents.alias(_PARENT), col(MOVED_IN, of=_HERE) == col("moved_out", of=_PARENT), "left"
    )
    has_parent = col("moved_out", of=_PARENT).isNotNull()
    return joined.select(
        col(_NEWEST, of=_HERE),
        F.when(has_parent, col("moved_in", of=_PARENT))
        .otherwise(col(MOVED_IN, of=_HERE))
        .alias(MOVED_IN),
        F.when(has_parent, col("root", of=_PARENT)).otherwise(col(_ROOT, of=_HERE)).alias(_ROOT),
        F.when(has_parent, col("key", of=_PARENT)).otherwise(col(FROM, of=_HERE)).alias(FROM),
        *(
            F.coalesce(col(known_column(at), of=_HERE), col(f"known_{at}", of=_PARENT)).alias(
                known_column(at)
            )
            for at in count
        ),
    )


def _put_out(final: DataFrame, shape: Shape) -> DataFrame:
    """Return the folded rows: known values in their columns, the others listed."""
    places = {name: at for at, name in enumerate(shape.fillable)}
    gone = col(_NEWEST)[OP].isin(DELETED, MOVED_AWAY)
    absent = F.filter(
        F.array(
            *(
                F.when(col(known_column(at)).isNull(), F.lit(name)).otherwise(
                    F.lit(None).cast("string")
                )
                for name, at in places.items()
            )
        ),
        lambda name: name.isNotNull(),
    )
    absent = F.when(~gone & (F.size(absent) > 0), absent)
    from_target = col(_ROOT) & col(MOVED_IN).isNull()
    elsewhere = from_target & absent.isNotNull() & ~col(FROM).eqNullSafe(_key_of(shape))
    values = [
        (col(known_column(places[name]))["value"] if name in places else col(_NEWEST)[name]).alias(
            name
        )
        for name in shape.schema.column_names
    ]
    return final.select(
        *values,
        col(_NEWEST)[SEQ].alias(SEQ),
        col(_NEWEST)[TS].alias(TS),
        _overflow(shape).alias(OVERFLOW),
        gone.alias(GONE),
        F.when(from_target, absent).cast(STRING_LIST).alias(UNKNOWN),
        F.when(~from_target, wanted(absent, shape)).cast(STRING_LIST).alias(MISSING),
        F.when(elsewhere, col(FROM)).alias(FROM),
    )


def wanted(names: Column, shape: Shape) -> Column:
    """Return the columns without a value that the source still has; null for none."""
    if not shape.carried:
        return names
    left = F.array_except(names, F.array(*(F.lit(name) for name in shape.carried)))
    return F.when(F.size(left) > 0, left)


def _overflow(shape: Shape) -> Column:
    """Return the newest row's texts for columns it must carry, the known values' for the others."""
    names = F.array(*(F.lit(name) for name in shape.fillable))
    own = F.map_filter(
        F.coalesce(col(_NEWEST)[OVERFLOW], F.create_map().cast(STRING_MAP)),
        lambda name, _: ~F.array_contains(names, name),
    )
    filled = F.map_from_entries(
        F.filter(
            F.array(
                *(
                    F.struct(F.lit(name).alias("key"), col(known_column(at))["text"].alias("value"))
                    for at, name in enumerate(shape.fillable)
                )
            ),
            lambda entry: entry["value"].isNotNull(),
        )
    )
    texts = F.map_concat(own, filled)
    return F.when(F.size(texts) > 0, texts)
