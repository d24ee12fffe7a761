"""Reads the parts of a small plan once into the driver, and counts them there.

Most merges bring a few rows. Most of such a merge's cost is one job that counts the parts, one that
materializes the source of the MERGE, and three that read it; rows in the plan of a query need none
of these. The parts' compression ratio does not matter: a row longer than its share of `BYTES_MAX`
is not fetched, and the plan is then read from the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F

from tideline.contract.part import BEFORE, DUMPED, OP, SEQ, TS, UNCHANGED
from tideline.contract.plan import TablePlan
from tideline_spark import parts
from tideline_spark.formats.state import TargetVersion
from tideline_spark.schemas import column as col
from tideline_spark.session import FEW, SMALL
from tideline_spark.working_columns import FILE

ROWS_MAX = 10_000
PART_BYTES_MAX = 8 * 1024 * 1024
"""Limit for the stored size of all parts together."""
BYTES_MAX = 32 * 1024 * 1024
"""Limit for all variable-length values in the driver. Spark keeps up to 48 MiB in a plan."""

BROADCAST_ROWS_MAX = 200_000
"""Limit up to which the driver may broadcast a plan's rows by Spark's estimate of their size."""
TARGET_BYTES_MAX = 8 * 1024 * 1024
"""Limit for a target's files up to which a merge of few rows is small."""

_LONG = "_tl_long"
_VARIABLE = (types.StringType, types.BinaryType, types.MapType, types.ArrayType)


@dataclass(frozen=True, slots=True)
class LocalParts:
    """A plan's rows as its parts hold them, by schema, and their counts."""

    frames: Mapping[str, DataFrame]
    checked: parts.Checked


def is_small(plan: TablePlan) -> bool:
    """Return whether the plan's rows may be read into the driver."""
    rows = sum(part.rows for part in plan.parts)
    stored = sum(part.bytes for part in plan.parts)
    return 0 < rows <= ROWS_MAX and stored <= PART_BYTES_MAX


def tune(session: SparkSession, plan: TablePlan, target: TargetVersion) -> None:
    """Adapt ``session``, the run's own: less planning for a small plan and target, no shuffle of
    the target for a plan of few rows."""
    if is_small(plan) and target.stored_bytes() <= TARGET_BYTES_MAX:
        settings = SMALL
    elif sum(part.rows for part in plan.parts) <= BROADCAST_ROWS_MAX:
        settings = FEW
    else:
        return
    for name, value in settings.items():
        session.conf.set(name, value)


def read_local(session: SparkSession, store_url: str, plan: TablePlan) -> LocalParts | None:
    """Read the rows of a small plan, in one job for each schema; None where a row is too long.

    Raises CorruptData when the parts do not match the chain.
    """
    share = BYTES_MAX // sum(part.rows for part in plan.parts)
    stored = parts.by_schema(session, store_url, plan)
    tables = {fingerprint: _brought(frame, share) for fingerprint, frame in stored.items()}
    if any(pc.any(table[_LONG]).as_py() for table in tables.values()):
        return None
    counted = [row for table in tables.values() for row in _grouped(table, plan)]
    checked = parts.compare(plan, counted)
    frames = {
        # The types are given: otherwise Arrow's local time would come back as an instant.
        fingerprint: session.createDataFrame(
            tables[fingerprint].drop_columns([FILE, _LONG]), frame.schema
        ).coalesce(1)
        for fingerprint, frame in stored.items()
    }
    return LocalParts(frames, checked)


def _brought(frame: DataFrame, share: int) -> pa.Table:
    """Read all rows with their file; of a row above ``share`` bytes only the fixed-length values,
    and a flag that it is long."""
    sizes = F.array(*(_size(field) for field in frame.schema.fields if _is_variable(field)))
    total = F.aggregate(sizes, F.lit(0).cast("long"), lambda one, other: one + other)
    file = frame.metadataColumn("_metadata")["file_path"].alias(FILE)
    kept = (
        F.when(~col(_LONG), col(field.name)).alias(field.name)
        if _is_variable(field) and field.name != OP
        else col(field.name)
        for field in frame.schema.fields
    )
    # Two steps, so that the sum is computed once for a row and not for each of its columns.
    measured = frame.select("*", file, (total > F.lit(share)).alias(_LONG))
    return measured.select(*kept, col(FILE), col(_LONG)).toArrow()


def _is_variable(field: types.StructField) -> bool:
    return isinstance(field.dataType, _VARIABLE)


def _size(field: types.StructField) -> Column:
    """Return the bytes of a value, 0 for NULL; a map's keys included."""
    value = col(field.name)
    if isinstance(field.dataType, types.MapType):
        both = F.concat(F.map_keys(value), F.map_values(value))
        length = F.octet_length(F.array_join(both, ""))
    elif isinstance(field.dataType, types.ArrayType):
        length = F.octet_length(F.array_join(value, ""))
    else:
        length = F.octet_length(value)
    return F.coalesce(length.cast("long"), F.lit(0))


def _grouped(table: pa.Table, plan: TablePlan) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each file and operation, as `parts.compare` takes them."""
    keys = {name for schema in plan.schemas.values() for name in schema.key}
    before = [table[BEFORE + name] for name in keys if BEFORE + name in table.column_names]
    moved = reduce(pc.or_, (pc.is_valid(one) for one in before)) if before else None
    changed = pc.not_equal(table[OP], DUMPED)
    times = pc.if_else(changed, pc.cast(table[TS], pa.int64()), None)
    none = pa.array([0] * len(table), pa.int64())
    rows = pa.table(
        {
            FILE: table[FILE],
            OP: table[OP],
            SEQ: table[SEQ],
            UNCHANGED: pc.cast(pc.is_valid(table[UNCHANGED]), pa.int64()),
            BEFORE: none if moved is None else pc.cast(moved, pa.int64()),
            TS: times,
        }
    )
    grouped = rows.group_by([FILE, OP]).aggregate(
        [(SEQ, "count"), (SEQ, "min"), (SEQ, "max"), (UNCHANGED, "sum"), (BEFORE, "sum"),
         (TS, "count"), (TS, "min"), (TS, "max")]
    )  # fmt: skip
    names = (
        FILE,
        OP,
        parts.COUNTED,
        "first",
        "last",
        UNCHANGED,
        BEFORE,
        "timed",
        "oldest",
    )
    return iter(grouped.rename_columns([*names, "newest"]).to_pylist())
