"""Reads the verification parts that a plan names and the keys touched since; counts both.

Invariant: no result is given for a table unless every part had exactly its manifest's counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F

from tideline.contract.errors import CorruptData
from tideline.contract.layout import object_url
from tideline.contract.modes import Mode
from tideline.contract.part import BEFORE, DUMPED, LOGGED, LOW, OP, OVERFLOW, SEQ
from tideline.contract.plan import TablePlan
from tideline.contract.verification import TableComparison
from tideline_spark import parts
from tideline_spark.files import spark_path
from tideline_spark.parquet import read_parquet
from tideline_spark.schemas import STRING_MAP, no_rows, part_schema, spark_type
from tideline_spark.schemas import column as col
from tideline_spark.working_columns import FILE, ROWS

_BYTES = "_tl_bytes"
_DUMPED = "_tl_dumped"
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of all chunks (`LOW`, ``_tl_op``, the table's columns, ``_tl_overflow``), and the
    number of them that the source has."""

    frame: DataFrame
    present: int


def read_chunks(session: SparkSession, store_url: str, comparison: TableComparison) -> SourceRows:
    """Read the chunks' rows. Raises CorruptData naming missing, torn or miscounted parts."""
    named = {parts.identity(one.key): one for one in comparison.chunks if one.key is not None}
    schema = types.StructType(
        [
            types.StructField(LOW, types.LongType()),
            types.StructField(OP, types.StringType()),
            *(types.StructField(c.name, spark_type(c.logical)) for c in comparison.schema.columns),
            types.StructField(OVERFLOW, STRING_MAP),
        ]
    )
    if not named:
        return SourceRows(no_rows(session, schema), 0)
    urls = [spark_path(object_url(store_url, one.key)) for one in named.values() if one.key]
    frame = read_parquet(session, schema, urls)
    file = frame.metadataColumn("_metadata")
    counted = (
        frame.select(
            file["file_path"].alias(FILE), file["file_size"].alias(_BYTES), col(OP), col(LOW)
        )
        .groupBy(FILE, _BYTES)
        .agg(
            F.count(F.lit(1)).alias(ROWS),
            F.count(F.when(col(OP) == DUMPED, 1)).alias(_DUMPED),
            F.min(col(LOW)).alias(LOW),
            F.max(col(LOW)).alias("high"),
        )
        .collect()
    )
    found = {parts.identity(unquote(row[FILE])): row for row in counted}
    wrong = []
    for name, one in named.items():
        row = found.get(name)
        is_ = () if row is None else (row[ROWS], row[_BYTES], row[LOW], row["high"])
        if is_ != (one.rows, one.bytes, one.low_seq, one.low_seq):
            has = 0 if row is None else row[ROWS]
            wrong.append(f"{one.key} ({has} rows instead of {one.rows}, or another chunk's)")
    if wrong:
        more = "" if len(wrong) <= _NAMED_MAX else f" and {len(wrong) - _NAMED_MAX} more"
        raise CorruptData(
            f"verification parts of {comparison.table} differ from their manifest:"
            f" {', '.join(wrong[:_NAMED_MAX])}{more}",
            hint="verify the table again: its rows are read again",
        )
    return SourceRows(frame, sum(int(row[_DUMPED]) for row in counted))


def read_touched(
    session: SparkSession, store_url: str, comparison: TableComparison
) -> DataFrame | None:
    """Return the keys that the log touched after ``low_seq``, including old keys of moved rows,
    each with the last such sequence; None without any. Raises CorruptData as a merge does."""
    if not comparison.touched:
        return None
    plan = as_planned(comparison)
    parts.count_parts(session, store_url, plan)
    frames = []
    for fingerprint, schema in comparison.schemas.items():
        urls = [
            spark_path(object_url(store_url, one.key))
            for one in comparison.touched
            if one.schema == fingerprint
        ]
        fields = part_schema(schema, moved=parts.has_moves(plan))
        frame = read_parquet(session, fields, urls)
        later = frame.where((col(SEQ) > comparison.low_seq) & col(OP).isin(*LOGGED))
        key = comparison.schema.key
        kinds = {name: spark_type(comparison.schema.column(name).logical) for name in key}
        frames.append(later.select(*(col(n).cast(kinds[n]).alias(n) for n in key), col(SEQ)))
        if parts.has_moves(plan):
            moved = later.where(_any_of([col(BEFORE + name).isNotNull() for name in key]))
            old = [F.coalesce(col(BEFORE + n), col(n)).cast(kinds[n]).alias(n) for n in key]
            frames.append(moved.select(*old, col(SEQ)))
    together = reduce(DataFrame.unionByName, frames)
    return together.groupBy(*(col(name) for name in comparison.schema.key)).agg(
        F.max(col(SEQ)).alias(SEQ)
    )


def as_planned(comparison: TableComparison, mode: Mode = Mode.CURRENT) -> TablePlan:
    """Return the table as a merge plan names it, with the touched parts, for code that reads parts
    or depends on a table's ``mode``."""
    return TablePlan(
        table=comparison.table,
        target=comparison.target,
        schema=comparison.schema,
        schemas=comparison.schemas,
        parts=comparison.touched,
        from_manifest=0,
        from_seq=0,
        to_manifest=comparison.applied,
        to_seq=comparison.applied_seq,
        app_id=comparison.app_id,
        mode=mode,
    )


def _any_of(conditions: list[Column]) -> Column:
    return reduce(Column.__or__, conditions)
