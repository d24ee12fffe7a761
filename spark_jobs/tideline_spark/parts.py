"""Reads the parts that a plan names, and checks their counts against the chain.

Invariant: nothing is merged unless every part was read with exactly the counts of its manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

from tideline.contract.errors import CorruptData
from tideline.contract.evolution import AS_THE_SOURCE, TargetColumns
from tideline.contract.layout import object_url
from tideline.contract.modes import Mode
from tideline.contract.part import BEFORE, DUMPED, OP, SEQ, TS, UNCHANGED
from tideline.contract.plan import PlannedPart, TablePlan
from tideline_spark.columns import in_target_terms
from tideline_spark.files import spark_path
from tideline_spark.parquet import read_parquet
from tideline_spark.schemas import column as col
from tideline_spark.schemas import no_rows, part_schema
from tideline_spark.working_columns import FILE

COUNTED = "_tl_counted"
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class _Content:
    """The counts of one part."""

    operations: Mapping[str, int]
    first_seq: int
    last_seq: int
    unchanged_rows: int
    before_rows: int
    times: Times | None


@dataclass(frozen=True, slots=True)
class Times:
    """The number, oldest and newest of a part's changes with a commit time; no dumped rows."""

    changes: int
    oldest_us: int
    newest_us: int


@dataclass(frozen=True, slots=True)
class Checked:
    """Parts that passed the check: ``rows`` in all; ``times`` by `identity` of part."""

    rows: int
    times: Mapping[str, Times]


def read_changes(
    session: SparkSession,
    store_url: str,
    plan: TablePlan,
    stands: TargetColumns = AS_THE_SOURCE,
    frames: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """Read all rows of the plan's parts in the columns of ``plan.schema``.

    Columns: the table's, ``_tl_seq``, ``_tl_op``, ``_tl_ts``, ``_tl_unchanged``, ``_tl_overflow``
    and, if any part has them, the before-keys. ``stands``: how the target's columns differ from the
    source's; ``plan.schema`` is the target's then. ``frames``: the rows by schema, if already read.
    """
    if frames is None:
        frames = by_schema(session, store_url, plan)
    found = [
        in_target_terms(frame, plan, fingerprint, stands) for fingerprint, frame in frames.items()
    ]
    if not found:
        schemas = {plan.schema.fingerprint: plan.schema, **plan.schemas}
        empty = no_rows(session, part_schema(plan.schema, moved=False, log=is_log(plan)))
        whole = replace(plan, schemas=schemas)
        return in_target_terms(empty, whole, plan.schema.fingerprint, stands)
    return reduce(_union, found)


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    """Return the rows of both; a before-key that only one has is NULL in the other's."""
    return one.unionByName(other, allowMissingColumns=True)


def count_parts(session: SparkSession, store_url: str, plan: TablePlan) -> Checked:
    """Count every part and compare. Raises CorruptData naming what differs."""
    frames = [_countable(frame, plan) for frame in by_schema(session, store_url, plan).values()]
    return compare(plan, _count(reduce(DataFrame.unionByName, frames)) if frames else ())


def compare(plan: TablePlan, grouped: Iterable[Any]) -> Checked:
    """Compare the counts with the manifests. ``grouped`` has a row for each file and operation:
    `FILE`, ``_tl_op``, `COUNTED`, ``first``, ``last`` (sequences), ``_tl_unchanged``, `BEFORE`
    (rows that have one), and for changes ``timed``, ``oldest``, ``newest`` (µs).

    Raises CorruptData naming what differs from the manifests.
    """
    counted = _contents(grouped)
    times = {name: found.times for name, found in counted.items() if found.times is not None}
    wrong = []
    for part in plan.parts:
        found = counted.pop(identity(part.key), None)
        difference = _difference(part, found)
        if difference:
            wrong.append(f"{part.key} ({difference})")
    wrong += [f"{name} (not in the plan)" for name in counted]
    if wrong:
        more = "" if len(wrong) <= _NAMED_MAX else f" and {len(wrong) - _NAMED_MAX} more"
        named = ", ".join(wrong[:_NAMED_MAX]) + more
        raise CorruptData(
            f"parts of {plan.table} differ from their manifest: {named}",
            hint="restore the objects named from a copy of the store; nothing was committed",
        )
    return Checked(sum(part.rows for part in plan.parts), times)


def has_moves(plan: TablePlan) -> bool:
    return any(part.before_rows for part in plan.parts)


def is_log(plan: TablePlan) -> bool:
    """Return whether the changes themselves are wanted in full, and not only their result."""
    return plan.mode is Mode.APPEND or not plan.schema.key


def has_unchanged(plan: TablePlan) -> bool:
    return any(part.unchanged_rows for part in plan.parts)


def has_dump(plan: TablePlan) -> bool:
    return any(part.operations.get(DUMPED) for part in plan.parts)


def fillable_columns(
    changes: DataFrame, plan: TablePlan, *, carried: bool = False
) -> tuple[str, ...]:
    """Return the columns that some row lacks, in table order. Runs a job if any row may lack one.

    ``carried``: whether the target has columns that no row carries.
    """
    if not (has_unchanged(plan) or carried):
        return ()
    names = changes.select(F.explode(col(UNCHANGED)).alias("name")).distinct().collect()
    lacking = {row["name"] for row in names}
    return tuple(
        name for name in plan.schema.column_names if name in lacking and name not in plan.schema.key
    )


def by_schema(session: SparkSession, store_url: str, plan: TablePlan) -> dict[str, DataFrame]:
    """Read the plan's parts unconverted, a frame for each schema, by its fingerprint."""
    urls: dict[str, list[str]] = {}
    for part in plan.parts:
        urls.setdefault(part.schema, []).append(spark_path(object_url(store_url, part.key)))
    return {
        fingerprint: read_parquet(
            session,
            part_schema(plan.schemas[fingerprint], moved=has_moves(plan), log=is_log(plan)),
            found,
        )
        for fingerprint, found in urls.items()
    }


def _countable(frame: DataFrame, plan: TablePlan) -> DataFrame:
    moved = F.lit(False)
    for name in {name for schema in plan.schemas.values() for name in schema.key}:
        if BEFORE + name in frame.columns:
            moved = moved | col(BEFORE + name).isNotNull()
    return frame.select(
        frame.metadataColumn("_metadata")["file_path"].alias(FILE),
        col(SEQ),
        col(OP),
        F.when(col(OP) != DUMPED, F.unix_micros(col(TS))).alias(TS),
        col(UNCHANGED).isNotNull().cast("long").alias(UNCHANGED),
        moved.cast("long").alias(BEFORE),
    )


def _count(rows: DataFrame) -> list[types.Row]:
    grouped = rows.groupBy(col(FILE), col(OP)).agg(
        F.count(F.lit(1)).alias(COUNTED),
        F.min(col(SEQ)).alias("first"),
        F.max(col(SEQ)).alias("last"),
        F.sum(col(UNCHANGED)).alias(UNCHANGED),
        F.sum(col(BEFORE)).alias(BEFORE),
        F.count(col(TS)).alias("timed"),
        F.min(col(TS)).alias("oldest"),
        F.max(col(TS)).alias("newest"),
    )
    return grouped.collect()


def _contents(grouped: Iterable[Any]) -> dict[str, _Content]:
    files: dict[str, list[tuple[str, int, int, int, int, int]]] = {}
    times: dict[str, list[Times]] = {}
    for row in grouped:
        figures = (
            row[OP],
            row[COUNTED],
            row["first"],
            row["last"],
            row[UNCHANGED],
            row[BEFORE],
        )
        name = identity(unquote(row[FILE]))
        files.setdefault(name, []).append(figures)
        if row["timed"]:
            times.setdefault(name, []).append(Times(row["timed"], row["oldest"], row["newest"]))
    return {
        name: _Content(
            operations={figures[0]: figures[1] for figures in found},
            first_seq=min(figures[2] for figures in found),
            last_seq=max(figures[3] for figures in found),
            unchanged_rows=sum(figures[4] for figures in found),
            before_rows=sum(figures[5] for figures in found),
            times=_together(times.get(name, ())),
        )
        for name, found in files.items()
    }


def _together(times: Sequence[Times]) -> Times | None:
    if not times:
        return None
    return Times(
        changes=sum(one.changes for one in times),
        oldest_us=min(one.oldest_us for one in times),
        newest_us=max(one.newest_us for one in times),
    )


def identity(path: str) -> str:
    """Return a part's identity within a store: its prefix's number and its file name."""
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
        f"{what} {there} instead of {named}" for what, named, there in sides if named != there
    )
