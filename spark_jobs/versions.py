"""All versions of every row that a range of changes touches, each with what ended it. Pure.

A *version* is what a row held from one change to the next one of its key. Rules, in sequence order:

- Every change in the log opens a version and ends the key's open one; a delete, or a change of the
  key, only ends it. A truncate ends all; a finished full dump ends those that it should have seen.
- A dump's row that equals the open version only confirms it, one that differs opens another.
- A column that the log did not carry (``_tl_unchanged``) keeps the previous version's value, also
  through a changed key, and never across an end. What is not known is listed in ``_tl_pending``;
  a dump's row that brings such a value completes the open version.

What comes out depends on the changes and on the target's versions only, not on where a plan cuts:
a seed is the version that was open when the range began, and is treated as a change like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from spark_jobs.fold import Shape, occurrences
from spark_jobs.schemas import OP, OVERFLOW, PENDING, SEQ, STRING_LIST, STRING_MAP, TS, UNCHANGED
from spark_jobs.schemas import column as col
from tideline.contract.plan import PlannedEnd
from tideline.contract.schema import TableSchema

FROM_SEQ = "_tl_valid_from_seq"
TO_SEQ = "_tl_valid_to_seq"
FROM = "_tl_valid_from"
TO = "_tl_valid_to"

_SEED = "s"
_DUMPED = "r"
_ARRIVED = "_tl_arrived"
_BEGINS = "_tl_begins"
_LIFE = "_tl_life"
_NEXT = "_tl_next"
_NEXT_TS = "_tl_next_ts"
_END = "_tl_end"
_ROW = "_tl_row"
_VERSION = "_tl_version"
_LINK = "_tl_link"
_LEFT = "_tl_left"
_HOPS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of the changes: the schema they are in, whether any of them changes a key,
    the columns that some of them or of the seeds lack, the ends, and whether there are dumped rows.
    """

    schema: TableSchema
    moved: bool = False
    fillable: tuple[str, ...] = ()
    ends: tuple[PlannedEnd, ...] = ()
    dumped: bool = False

    @property
    def key(self) -> list[Column]:
        return [col(name) for name in self.schema.key]


def versions(changes: DataFrame, seeds: DataFrame | None, story: Story) -> DataFrame:
    """Every version that is open after, or was opened in, the range of ``changes``.

    Columns: the table's, ``_tl_seq`` and ``_tl_ts`` of the newest change that it holds for,
    ``_tl_overflow``, ``_tl_pending``, `FROM_SEQ`, `TO_SEQ`, `FROM`, `TO`. ``seeds``, at most one
    per key, have the same but for `TO_SEQ` and `TO`; their sequences are below all others.
    """
    rows = occurrences(changes, Shape(story.schema, moved=story.moved))
    rows = rows.withColumn(FROM_SEQ, col(SEQ)).withColumn(FROM, col(TS))
    if seeds is not None:
        rows = rows.unionByName(_as_rows(seeds, rows))
    rows = _filled(_in_lives(rows, story), story)
    return _versions(rows, story)


def ended_by(seq: Column, ends: Sequence[PlannedEnd], following: Column | None = None) -> Column:
    """The first of ``ends`` for a version last seen at ``seq`` (a struct of ``seq``, ``time``; null
    for none), when the key's next change is ``following`` (null for none)."""
    found = F.when(F.lit(False), F.lit(None).cast("struct<seq:bigint,time:timestamp>"))
    for end in ends:
        applies = seq <= F.lit(end.upto)
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
    """The seeds as changes: one that misses values is a row that does not carry them."""
    given = seeds.withColumn(UNCHANGED, col(PENDING))
    given = given.withColumn(OP, F.lit(_SEED)).withColumn(_ARRIVED, F.lit(False))
    return given.select(*(col(name) for name in rows.columns))


def _gone() -> Column:
    return col(OP).isin("d", "m")


def _in_lives(rows: DataFrame, story: Story) -> DataFrame:
    """Each row with the next one of its key, what ended it before that, and its life."""
    in_order = Window.partitionBy(*story.key).orderBy(col(SEQ))
    rows = rows.withColumn(_NEXT, F.lead(col(SEQ)).over(in_order)).withColumn(
        _NEXT_TS, F.lead(col(TS)).over(in_order)
    )
    rows = rows.withColumn(_END, ended_by(col(SEQ), story.ends, col(_NEXT)))
    over = F.lag(_gone() | col(_END).isNotNull()).over(in_order)
    rows = rows.withColumn(_BEGINS, F.coalesce(over, F.lit(True)) | col(_ARRIVED))
    return rows.withColumn(_LIFE, F.last(F.when(col(_BEGINS), col(SEQ)), True).over(in_order))


def _filled(rows: DataFrame, story: Story) -> DataFrame:
    """The rows with every known value, in their columns; the columns of the others in PENDING."""
    nothing = F.lit(None).cast(STRING_LIST)
    if not story.fillable:
        return rows.withColumn(PENDING, nothing).drop(UNCHANGED, _ARRIVED)
    in_life = Window.partitionBy(*story.key, col(_LIFE)).orderBy(col(SEQ))
    for at, name in enumerate(story.fillable):
        known = F.when(_supplies(name), _value(name))
        rows = rows.withColumn(_known(at), F.last(known, True).over(in_life))
    if story.moved:
        rows = _inherit(rows, story)
    absent = F.filter(
        F.array(
            *(
                F.when(col(_known(at)).isNull(), F.lit(name)).otherwise(F.lit(None).cast("string"))
                for at, name in enumerate(story.fillable)
            )
        ),
        lambda name: name.isNotNull(),
    )
    places = {name: at for at, name in enumerate(story.fillable)}
    kept = [
        (col(_known(places[name]))["value"] if name in places else col(name)).alias(name)
        for name in story.schema.column_names
    ]
    return rows.select(
        *kept,
        *(col(name) for name in (SEQ, OP, TS, FROM_SEQ, FROM, _NEXT, _NEXT_TS, _END, _BEGINS)),
        _overflow(story).alias(OVERFLOW),
        F.when(F.size(absent) > 0, absent).cast(STRING_LIST).alias(PENDING),
    )


def _supplies(name: str) -> Column:
    lacks = F.array_contains(col(UNCHANGED), F.lit(name))
    return ~_gone() & ~F.coalesce(lacks, F.lit(False))


def _value(name: str) -> Column:
    """A known value, a struct, so that a known NULL is not unknown."""
    return F.struct(col(name).alias("value"), col(OVERFLOW)[name].alias("text"))


def _known(at: int) -> str:
    return f"_tl_known_{at}"


def _inherit(rows: DataFrame, story: Story) -> DataFrame:
    """What a life does not know, from the one that moved here, and so on, to the very first."""
    names = [_known(at) for at in range(len(story.fillable))]
    keys = list(story.schema.key)
    lives = rows.groupBy(*story.key, col(_LIFE)).agg(
        F.max(F.when(col(_ARRIVED) & col(_BEGINS), col(SEQ))).alias(_LINK),
        F.max(F.when(col(OP) == "m", col(SEQ))).alias(_LEFT),
        *(F.max_by(col(name), col(SEQ)).alias(name) for name in names),
    )
    lives = lives.localCheckpoint()
    parents = lives.where(col(_LEFT).isNotNull()).select(
        col(_LEFT).alias("_tl_at"),
        col(_LINK).alias("_tl_further"),
        *(col(name).alias(f"{name}_there") for name in names),
    )
    # What a life is given is what was known before it began: not what its own later rows tell.
    heirs = lives.where(col(_LINK).isNotNull()).select(
        *(col(name) for name in (*keys, _LIFE, _LINK)),
        *(F.lit(None).cast(lives.schema[name].dataType).alias(name) for name in names),
    )
    for _ in range(_HOPS_MAX):
        heirs = (
            heirs.join(parents, col(_LINK) == col("_tl_at"), "left")
            .select(
                *(col(name) for name in (*keys, _LIFE)),
                col("_tl_further").alias(_LINK),
                *(F.coalesce(col(name), col(f"{name}_there")).alias(name) for name in names),
            )
            .localCheckpoint()
        )
        lacking = F.lit(False)
        for name in names:
            lacking = lacking | col(name).isNull()
        if heirs.where(col(_LINK).isNotNull() & lacking).isEmpty():
            break
    given = heirs.select(
        *(col(name).alias(f"_tl_heir_{at}") for at, name in enumerate((*keys, _LIFE))),
        *(col(name).alias(f"{name}_there") for name in names),
    )
    same = F.lit(True)
    for at, name in enumerate((*keys, _LIFE)):
        same = same & (col(name) == col(f"_tl_heir_{at}"))
    return rows.join(given, same, "left").select(
        *(col(name) for name in rows.columns if name not in names),
        *(F.coalesce(col(name), col(f"{name}_there")).alias(name) for name in names),
    )


def _overflow(story: Story) -> Column:
    """The row's own texts for columns that all rows carry, the known values' for the others."""
    names = F.array(*(F.lit(name) for name in story.fillable))
    own = F.map_filter(
        F.coalesce(col(OVERFLOW), F.create_map().cast(STRING_MAP)),
        lambda name, _: ~F.array_contains(names, name),
    )
    entries = F.array(
        *(
            F.struct(F.lit(name).alias("key"), col(_known(at))["text"].alias("value"))
            for at, name in enumerate(story.fillable)
        )
    )
    filled = F.map_from_entries(F.filter(entries, lambda entry: entry["value"].isNotNull()))
    texts = F.map_concat(own, filled)
    return F.when(F.size(texts) > 0, texts)


def _versions(rows: DataFrame, story: Story) -> DataFrame:
    """Rows that say the same as the one before them, as one version with it."""
    in_order = Window.partitionBy(*story.key).orderBy(col(SEQ))
    confirms = F.lit(False)
    if story.dumped:
        confirms = (col(OP) == _DUMPED) & ~col(_BEGINS) & _same_as_before(in_order, story)
    opens = F.when(~confirms, col(SEQ))
    rows = rows.withColumn(_VERSION, F.last(opens, True).over(in_order)).where(~_gone())
    kept = [*story.schema.column_names, SEQ, TS, OVERFLOW, PENDING]
    held = [*kept, _NEXT, _NEXT_TS, _END]
    grouped = rows.groupBy(*story.key, col(_VERSION)).agg(
        F.max_by(F.struct(*(col(name) for name in held)), col(SEQ)).alias(_ROW),
        F.min_by(F.struct(col(FROM_SEQ), col(FROM)), col(SEQ)).alias(FROM),
    )
    row = col(_ROW)
    ended = row[_END].isNotNull()
    return grouped.select(
        *(row[name].alias(name) for name in kept),
        col(FROM)[FROM_SEQ].alias(FROM_SEQ),
        F.when(ended, row[_END]["seq"]).otherwise(row[_NEXT]).alias(TO_SEQ),
        col(FROM)[FROM].alias(FROM),
        F.when(ended, row[_END]["time"]).otherwise(row[_NEXT_TS]).alias(TO),
    )


def _same_as_before(in_order: WindowSpec, story: Story) -> Column:
    """Whether a row has the values of the one before it, as far as both are known."""
    kept = [name for name in story.schema.column_names if name not in story.schema.key]
    before = F.lag(F.struct(*(col(name) for name in (*kept, OVERFLOW, PENDING)))).over(in_order)
    same = F.lit(True)
    for name in kept:
        equal = before[name].eqNullSafe(col(name)) & before[OVERFLOW][name].eqNullSafe(
            col(OVERFLOW)[name]
        )
        if name in story.fillable:
            equal = equal | F.coalesce(F.array_contains(before[PENDING], name), F.lit(False))
        same = same & equal
    return same
