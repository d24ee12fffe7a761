"""``current`` of a table that a stream of changes writes: whole rows, and keys to delete.

No number of a row depends on the plan that brings it: the plan's generation, the row's sequence,
and 0. So rows of a run that was killed, repeated or raced are the same again, or older ones of
the same keys. What a delete-before sequence ends has that sequence and 1: it is after the rows up
to there, and before all later ones. Each key of the plan is sent, also one whose rows the plan
itself ends: an earlier or shorter run may have brought it, or may bring it yet.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.contract.errors import InvariantBroken, Misconfigured
from tideline.contract.part import OVERFLOW, PENDING, SEQ, TS, UNCHANGED
from tideline.contract.printable import command
from tideline_spark.fill import columns_of_moved, fill_moved
from tideline_spark.fold import FROM, MISSING, UNKNOWN, Shape, keys_left
from tideline_spark.formats.base import StreamedTarget
from tideline_spark.formats.state import RowCounts
from tideline_spark.modes.base import Work
from tideline_spark.schemas import STRING_LIST
from tideline_spark.schemas import column as col
from tideline_spark.working_columns import GONE, SEQUENCE_NUMBER

_OF_ROWS, _OF_ENDS = 0, 1


def commit_streamed(work: Work, folded: DataFrame, shape: Shape) -> RowCounts | None:
    """Send the ``folded`` rows to the target, and commit the plan's number; None when another run
    was first."""
    target = work.target
    if not isinstance(target, StreamedTarget):
        raise InvariantBroken(f"the target of {work.table.table} takes no stream")
    _check_columns(work)
    rows = _numbered(_table_rows(work, _filled(work, folded, shape)), work, _OF_ROWS)
    if shape.delete_before is not None:
        rows = rows.unionByName(_numbered(_ended(work, folded, shape), work, _OF_ENDS))
    work.before_commit()
    return target.stream(rows, work.commit_metadata)


def _check_columns(work: Work) -> None:
    """Raise Misconfigured for a column of the target that no row of the plan has: a row that is
    written as a whole would lose its value."""
    known = {*work.table.schema.column_names, *work.table.dropped, SEQ, TS, OVERFLOW, PENDING}
    others = [name for name in work.snapshot.schema.names if name not in known]
    if others:
        table = work.table.table
        raise Misconfigured(
            f"the target of {table} has the column {others[0]!r}, which is not the source's: a"
            " stream writes whole rows, and would empty it",
            hint=f"drop it there, or run {command('rebuild', table)}",
        )


def _filled(work: Work, folded: DataFrame, shape: Shape) -> DataFrame:
    """Return ``folded`` with the values that the log did not carry, from the target's rows."""
    if not shape.fillable:
        return folded
    own = F.struct(*(col(name) for name in shape.schema.key))
    from_own = col(UNKNOWN).isNotNull() & col(FROM).isNull()
    folded = folded.withColumn(FROM, F.when(from_own, own).otherwise(col(FROM)))
    keys = [col(name) for name in shape.schema.key]
    lacking = work.changes.where(F.size(col(UNCHANGED)) > 0).select(*keys).distinct()
    if shape.moved:
        lacking = lacking.unionByName(keys_left(work.changes, shape)).distinct()
    held = work.target.rows_of(columns_of_moved(shape), [], lacking)
    return fill_moved(folded, held, shape)


def _table_rows(work: Work, folded: DataFrame) -> DataFrame:
    """Return ``folded`` in the columns of the target, and whether a row is to go."""
    pending = F.lit(None).cast(STRING_LIST)
    if MISSING in folded.columns:
        pending = col(MISSING)
    values = {name: col(name) for name in (*work.table.schema.column_names, SEQ, TS, OVERFLOW)}
    return folded.select(*_in_order(work, values | {PENDING: pending}), col(GONE))


def _ended(work: Work, folded: DataFrame, shape: Shape) -> DataFrame:
    """Return the keys that the plan's delete-before sequence ends, as rows that are to go: those of
    the target that the plan does not write, and those that only the plan's older rows have."""
    floor, names = shape.delete_before, shape.schema.key
    older = f"({SEQ} <= {floor} OR {SEQ} IS NULL)"
    ended = work.target.rows_of(names, [older]).unionByName(
        work.changes.select(*(col(name) for name in names))
    )
    if shape.moved:
        ended = ended.unionByName(keys_left(work.changes, shape))
    written = folded.select(*(col(name) for name in names))
    keys = ended.distinct().join(written, list(names), "left_anti")
    values = {name: col(name) for name in names} | {SEQ: F.lit(floor).cast("long")}
    return keys.select(*_in_order(work, values), F.lit(True).alias(GONE))


def _in_order(work: Work, values: dict[str, Column]) -> list[Column]:
    """Return the target's columns, in its types; those without ``values`` are NULL."""
    return [
        values.get(one.name, F.lit(None)).cast(one.dataType).alias(one.name)
        for one in work.snapshot.schema.fields
    ]


def _numbered(rows: DataFrame, work: Work, last: int) -> DataFrame:
    """Add the number of each row among the changes of its key, as BigQuery writes such: sections of
    hexadecimal digits, of which an earlier one counts first."""
    number = F.concat(
        F.lit(f"{work.table.generation:X}/"), F.lpad(F.hex(col(SEQ)), 16, "0"), F.lit(f"/{last}")
    )
    return rows.withColumn(SEQUENCE_NUMBER, number)
