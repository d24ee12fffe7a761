"""Computes all versions of every row that a range of changes touches, with their ends. Pure.

A *version* is what a row held from one change to the next one of its key. Rules, in sequence order:

- Every change in the log opens a version and ends the key's open one; a delete, or a change of the
  key, only ends it. A truncate ends all; a finished full dump ends those that it should have seen.
- A dump's row that equals the open version only confirms it, one that differs opens another.
- A column that the log did not carry (``_tl_unchanged``) keeps the previous version's value, also
  through a changed key, and never across an end. What is not known is listed in ``_tl_pending``;
  a dump's row that brings such a value completes the open version.

- A column that the source drops and the target keeps has a value in versions that were opened
  before. A later dump's row lacks the column: it neither differs in it nor empties it.
- A column that is added with a default has it in versions that were still open then.

The result depends only on the changes and on the target's versions, not on where a plan cuts: a
seed is the version that was open when the range began, and is treated like any other change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from tideline.contract.part import DUMPED, OP, OVERFLOW, PENDING, SEQ, TS, UNCHANGED
from tideline.contract.plan import PlannedEnd
from tideline_spark.fold import Shape, occurrences
from tideline_spark.schemas import STRING_LIST, STRING_MAP
from tideline_spark.schemas import column as col
from tideline_spark.version_context import (
    END,
    FROM,
    FROM_SEQ,
    NEXT,
    NEXT_TS,
    SEED,
    TO,
    TO_SEQ,
    VersionContext,
    gone,
)
from tideline_spark.version_values import filled
from tideline_spark.working_columns import ARRIVED, LIFETIME, LIFETIME_START, ROW

_VERSION = "_tl_version"


def versions(changes: DataFrame, seeds: DataFrame | None, context: VersionContext) -> DataFrame:
    """Return every version that is open after, or was opened in, the range of ``changes``.

    Columns: the table's, ``_tl_seq`` and ``_tl_ts`` of the newest change that it holds for,
    ``_tl_overflow``, ``_tl_pending``, `FROM_SEQ`, `TO_SEQ`, `FROM`, `TO`. ``seeds``, at most one
    per key, have the same but for `TO_SEQ` and `TO`; their sequences are below all others.
    """
    rows = occurrences(changes, Shape(context.schema, moved=context.moved))
    rows = rows.withColumn(FROM_SEQ, col(SEQ)).withColumn(FROM, col(TS))
    if seeds is not None:
        rows = rows.unionByName(_as_rows(seeds, rows))
    rows = filled(_in_lifetimes(rows, context), context)
    return _versions(rows, context)


def ended_by(seq: Column, ends: Sequence[PlannedEnd], following: Column | None = None) -> Column:
    """Return the first of ``ends`` for a version last seen at ``seq`` (a struct of ``seq``,
    ``time``; null for none), when the key's next change is ``following`` (null for none)."""
    found = F.when(F.lit(False), F.lit(None).cast("struct<seq:bigint,time:timestamp>"))
    for end in ends:
        applies = seq <= F.lit(end.delete_before)
        if following is not None:
            applies = applies & F.coalesce(following > F.lit(end.seq), F.lit(True))
        found = found.when(applies, _struct_of(end))
    return found


def _struct_of(end: PlannedEnd) -> Column:
    time = F.lit(None).cast("timestamp")
    if end.time_us is not None:
        time = F.timestamp_micros(F.lit(end.time_us))
    return F.struct(F.lit(end.seq).cast("bigint").alias("seq"), time.alias("time"))


def _as_rows(seeds: DataFrame, rows: DataFrame) -> DataFrame:
    """Add the seeds as changes: one that lacks values is a row that does not carry them."""
    given = seeds.withColumn(UNCHANGED, col(PENDING))
    given = given.withColumn(OP, F.lit(SEED)).withColumn(ARRIVED, F.lit(False))
    return given.select(*(col(name) for name in rows.columns))


def _in_lifetimes(rows: DataFrame, context: VersionContext) -> DataFrame:
    """Add to each row the next one of its key, what ended it before that, and its key
    lifetime."""
    in_order = Window.partitionBy(*context.key).orderBy(col(SEQ))
    rows = rows.withColumn(NEXT, F.lead(col(SEQ)).over(in_order)).withColumn(
        NEXT_TS, F.lead(col(TS)).over(in_order)
    )
    rows = rows.withColumn(END, ended_by(col(SEQ), context.ends, col(NEXT)))
    over = F.lag(gone() | col(END).isNotNull()).over(in_order)
    rows = rows.withColumn(LIFETIME_START, F.coalesce(over, F.lit(True)) | col(ARRIVED))
    return rows.withColumn(
        LIFETIME, F.last(F.when(col(LIFETIME_START), col(SEQ)), True).over(in_order)
    )


def _versions(rows: DataFrame, context: VersionContext) -> DataFrame:
    """Combine rows equal to the one before them into one version with it."""
    in_order = Window.partitionBy(*context.key).orderBy(col(SEQ))
    confirms = F.lit(False)
    if context.dumped:
        confirms = (col(OP) == DUMPED) & ~col(LIFETIME_START) & _same_as_before(in_order, context)
    opens = F.when(~confirms, col(SEQ))
    rows = rows.withColumn(_VERSION, F.last(opens, True).over(in_order)).where(~gone())
    kept = [*context.schema.column_names, SEQ, TS, OVERFLOW, PENDING]
    held = [*kept, NEXT, NEXT_TS, END]
    grouped = rows.groupBy(*context.key, col(_VERSION)).agg(
        F.max_by(F.struct(*(col(name) for name in held)), col(SEQ)).alias(ROW),
        F.min_by(F.struct(col(FROM_SEQ), col(FROM)), col(SEQ)).alias(FROM),
        *(
            _logged_until_drop(name, seq, context).alias(_logged(at))
            for at, (name, seq) in _parted(context)
        ),
    )
    row = col(ROW)
    ended = row[END].isNotNull()
    to_seq = F.when(ended, row[END]["seq"]).otherwise(row[NEXT])
    values = {name: row[name] for name in kept}
    if context.unasked:
        asked = F.array_except(row[PENDING], F.array(*(F.lit(n) for n in context.unasked)))
        values[PENDING] = F.when(F.size(asked) > 0, asked).cast(STRING_LIST)
    if context.dropped_at:
        values[OVERFLOW] = _texts(row[OVERFLOW], context)
    for at, (name, _) in _parted(context):
        if name in values:
            values[name] = col(_logged(at))["value"]
    for name, seq in context.added_at.items():
        before = F.coalesce(to_seq < F.lit(seq), F.lit(False))
        values[name] = F.when(~before, values[name])
    return grouped.select(
        *(value.alias(name) for name, value in values.items()),
        col(FROM)[FROM_SEQ].alias(FROM_SEQ),
        to_seq.alias(TO_SEQ),
        col(FROM)[FROM].alias(FROM),
        F.when(ended, row[END]["time"]).otherwise(row[NEXT_TS]).alias(TO),
    )


def _parted(context: VersionContext) -> Iterable[tuple[int, tuple[str, int]]]:
    return enumerate(context.dropped_at.items())


def _logged(at: int) -> str:
    return f"_tl_told_{at}"


def _logged_until_drop(name: str, seq: int, context: VersionContext) -> Column:
    """Return a version's newest value of a column that the source had until ``seq``."""
    text = F.try_element_at(col(OVERFLOW), F.lit(name)).alias("text")
    value = [col(name).alias("value")] if name in context.schema.column_names else []
    logged_of = (col(SEQ) <= F.lit(seq)) | (col(OP) == SEED)
    return F.max_by(F.struct(*value, text), F.when(logged_of, col(SEQ)))


def _texts(texts: Column, context: VersionContext) -> Column:
    """Return ``texts``, but for the columns of ``context.dropped_at`` the last texts before
    that."""
    names = F.array(*(F.lit(name) for name in context.dropped_at))
    others = F.map_filter(
        F.coalesce(texts, F.create_map().cast(STRING_MAP)),
        lambda name, _: ~F.array_contains(names, name),
    )
    logged = F.array(
        *(
            F.struct(F.lit(name).alias("key"), col(_logged(at))["text"].alias("value"))
            for at, (name, _) in _parted(context)
        )
    )
    own = F.map_from_entries(F.filter(logged, lambda entry: entry["value"].isNotNull()))
    found = F.map_concat(others, own)
    return F.when(F.size(found) > 0, found)


def _same_as_before(in_order: WindowSpec, context: VersionContext) -> Column:
    """Return whether a row has the values of the one before it, as far as both are known."""
    kept = [name for name in context.schema.column_names if name not in context.schema.key]
    before = F.lag(F.struct(*(col(name) for name in (*kept, OVERFLOW, PENDING)))).over(in_order)
    same = F.lit(True)
    for name in kept:
        equal = before[name].eqNullSafe(col(name)) & before[OVERFLOW][name].eqNullSafe(
            col(OVERFLOW)[name]
        )
        if name in context.fillable:
            equal = equal | F.coalesce(F.array_contains(before[PENDING], name), F.lit(False))
        if name in context.dropped_at:
            equal = equal | (col(SEQ) > F.lit(context.dropped_at[name]))
        same = same & equal
    return same
