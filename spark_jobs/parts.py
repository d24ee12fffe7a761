"""Reads the parts that a plan names, and checks that they hold what the chain says they hold.

Invariant: nothing is merged unless every part was read with exactly the counts of its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.files import spark_path
from spark_jobs.schemas import (
    BEFORE,
    OP,
    OVERFLOW,
    SEQ,
    TS,
    UNCHANGED,
    part_schema,
    spark_type,
)
from spark_jobs.schemas import column as col
from tideline.contract.errors import CorruptData
from tideline.contract.layout import object_url
from tideline.contract.plan import PlannedPart, TablePlan

_FILE = "_tl_file"
_COUNTED = "_tl_counted"
_SAID_MAX = 3


@dataclass(frozen=True, slots=True)
class _Content:
    """What was counted in one part."""

    operations: Mapping[str, int]
    first_seq: int
    last_seq: int
    unchanged_rows: int
    before_rows: int


def read_changes(session: SparkSession, store_url: str, plan: TablePlan) -> DataFrame:
    """All rows of the plan's parts in the types of the table's schema at its end.

    Columns: the table's, ``_tl_seq``, ``_tl_op``, ``_tl_ts``, ``_tl_unchanged``, ``_tl_overflow``
    and, if any part has them, the before-keys. A column that a part's schema lacks is NULL.
    """
    frames = [
        _in_final_types(frame, plan, fingerprint)
        for fingerprint, frame in _by_schema(session, store_url, plan).items()
    ]
    if not frames:
        empty = session.createDataFrame([], part_schema(plan.schema, moved=False))
        return _in_final_types(empty, plan, plan.schema.fingerprint)
    return reduce(DataFrame.unionByName, frames)


def check_parts(session: SparkSession, store_url: str, plan: TablePlan) -> int:
    """Count every part and compare; returns the rows read. CorruptData names what differs."""
    counted: dict[str, _Content] = {}
    frames = [_countable(frame, plan) for frame in _by_schema(session, store_url, plan).values()]
    if frames:
        counted = _count(reduce(DataFrame.unionByName, frames))
    wrong = []
    for part in plan.parts:
        found = counted.pop(_identity(part.key), None)
        difference = _difference(part, found)
        if difference:
            wrong.append(f"{part.key} ({difference})")
    wrong += [f"{name} (not in the plan)" for name in counted]
    if wrong:
        more = "" if len(wrong) <= _SAID_MAX else f" and {len(wrong) - _SAID_MAX} more"
        said = ", ".join(wrong[:_SAID_MAX]) + more
        raise CorruptData(
            f"parts of {plan.table} differ from their manifest: {said}",
            hint="restore the objects named from a copy of the store; nothing was committed",
        )
    return sum(part.rows for part in plan.parts)


def has_moves(plan: TablePlan) -> bool:
    return any(part.before_rows for part in plan.parts)


def has_unchanged(plan: TablePlan) -> bool:
    return any(part.unchanged_rows for part in plan.parts)


def has_dump(plan: TablePlan) -> bool:
    return any(part.operations.get("r") for part in plan.parts)


def fillable_columns(changes: DataFrame, plan: TablePlan) -> tuple[str, ...]:
    """The columns that some row lacks, in the table's order. Runs a job if any row lacks one."""
    if not has_unchanged(plan):
        return ()
    names = changes.select(F.explode(col(UNCHANGED)).alias("name")).distinct().collect()
    lacking = {row["name"] for row in names}
    return tuple(
        name for name in plan.schema.column_names if name in lacking and name not in plan.schema.key
    )


def _by_schema(session: SparkSession, store_url: str, plan: TablePlan) -> dict[str, DataFrame]:
    urls: dict[str, list[str]] = {}
    for part in plan.parts:
        urls.setdefault(part.schema, []).append(spark_path(object_url(store_url, part.key)))
    return {
        fingerprint: session.read.schema(
            part_schema(plan.schemas[fingerprint], moved=has_moves(plan))
        )
        # The addresses are names, not patterns, whatever characters the store's url has.
        .option("__globPaths__", "false")
        .parquet(*found)
        for fingerprint, found in urls.items()
    }


def _in_final_types(frame: DataFrame, plan: TablePlan, fingerprint: str) -> DataFrame:
    present = set(plan.schemas[fingerprint].column_names)
    wanted = {column.name: spark_type(column.logical) for column in plan.schema.columns}
    values = [
        (col(name) if name in present else F.lit(None)).cast(data_type).alias(name)
        for name, data_type in wanted.items()
    ]
    before = [
        col(BEFORE + name).cast(wanted[name]).alias(BEFORE + name)
        for name in plan.schema.key
        if BEFORE + name in frame.columns
    ]
    return frame.select(*values, col(SEQ), col(OP), col(TS), col(UNCHANGED), col(OVERFLOW), *before)


def _countable(frame: DataFrame, plan: TablePlan) -> DataFrame:
    moved = F.lit(False)
    for name in plan.schema.key:
        if BEFORE + name in frame.columns:
            moved = moved | col(BEFORE + name).isNotNull()
    return frame.select(
        frame.metadataColumn("_metadata")["file_path"].alias(_FILE),
        col(SEQ),
        col(OP),
        col(UNCHANGED).isNotNull().cast("long").alias(UNCHANGED),
        moved.cast("long").alias(BEFORE),
    )


def _count(rows: DataFrame) -> dict[str, _Content]:
    grouped = rows.groupBy(col(_FILE), col(OP)).agg(
        F.count(F.lit(1)).alias(_COUNTED),
        F.min(col(SEQ)).alias("first"),
        F.max(col(SEQ)).alias("last"),
        F.sum(col(UNCHANGED)).alias(UNCHANGED),
        F.sum(col(BEFORE)).alias(BEFORE),
    )
    files: dict[str, list[tuple[str, int, int, int, int, int]]] = {}
    for row in grouped.collect():
        figures = (row[OP], row[_COUNTED], row["first"], row["last"], row[UNCHANGED], row[BEFORE])
        files.setdefault(_identity(unquote(row[_FILE])), []).append(figures)
    return {
        name: _Content(
            operations={figures[0]: figures[1] for figures in found},
            first_seq=min(figures[2] for figures in found),
            last_seq=max(figures[3] for figures in found),
            unchanged_rows=sum(figures[4] for figures in found),
            before_rows=sum(figures[5] for figures in found),
        )
        for name, found in files.items()
    }


def _identity(path: str) -> str:
    """What tells one part of a store from another: its prefix's number and its file name."""
    return "/".join(path.rsplit("/", 2)[-2:])


def _difference(part: PlannedPart, found: _Content | None) -> str:
    if found is None:
        return f"no rows instead of {part.rows}"
    sides = (
        ("rows by operation", dict(part.operations), dict(found.operations)),
        ("first sequence", part.first_seq, found.first_seq),
        ("last sequence", part.last_seq, found.last_seq),
        ("rows with unchanged columns", part.unchanged_rows, found.unchanged_rows),
        ("rows with a before-key", part.before_rows, found.before_rows),
    )
    return "; ".join(
        f"{what} {there} instead of {said}" for what, said, there in sides if said != there
    )
