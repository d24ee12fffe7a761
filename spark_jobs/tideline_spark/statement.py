"""The one MERGE that brings a table from one manifest to another, as Spark SQL.

The source view is the output of `fold`: one row per key. A target row is overwritten when it is
older, and also when its sequence is absent or above the applied one: such a row is damaged and must
not shield itself. In a plan with a delete-before sequence, rows that the source no longer
has are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tideline.contract.part import OVERFLOW, PENDING, SEQ, TS
from tideline.contract.plan import TablePlan
from tideline.contract.types import Kind
from tideline_spark.fold import MISSING, UNKNOWN
from tideline_spark.formats.statements import TARGET, RowClause, RowMerge, of_source, of_target
from tideline_spark.schemas import literal, quote
from tideline_spark.working_columns import GONE

_NAME = "_tl_name"
_TEXT = "_tl_text"
_NO_NAMES = "cast(array() as array<string>)"
_NO_TEXTS = "cast(map() as map<string, string>)"
_WHOLE = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)


def merge_rows(
    plan: TablePlan,
    view: str,
    fillable: Sequence[str],
    dropped: Sequence[str] = (),
    carried: Sequence[str] = (),
) -> RowMerge:
    """Return the merge of ``view``, a name in SQL.

    ``fillable``: the columns that rows of the view may lack; () for a view without `UNKNOWN`.
    ``dropped``: columns of the target that the source dropped. They become NULL, so that a column
    that the source adds again later does not show old values. ``carried``: columns that only the
    target has: their unknown values are not requested.
    """
    columns = plan.schema.column_names
    damaged = f"({of_target(SEQ)} > {plan.from_seq} OR {of_target(SEQ)} IS NULL)"
    newer = f"({of_source(SEQ)} > {of_target(SEQ)} OR {damaged})"
    updates = {name: _updated(name, fillable) for name in columns} | {
        SEQ: of_source(SEQ),
        TS: of_source(TS),
        OVERFLOW: _overflow(fillable),
        PENDING: _still_pending(fillable),
        **dict.fromkeys(dropped, "NULL"),
    }
    inserts = {name: of_source(name) for name in (*columns, SEQ, TS, OVERFLOW)} | {
        PENDING: _newly_pending(fillable, carried)
    }
    unmatched = None
    if plan.delete_before is not None:
        unmatched = RowClause(f"({of_target(SEQ)} <= {plan.delete_before} OR {damaged})")
    return RowMerge(
        source=view,
        on=_condition(plan),
        matched=(RowClause(f"{newer} AND {of_source(GONE)}"), RowClause(newer, updates)),
        inserted=RowClause(f"NOT {of_source(GONE)}", inserts),
        unmatched=unmatched,
        key=plan.schema.key,
    )


def delete_rows(plan: TablePlan, view: str) -> RowMerge:
    """Return the deletion of the target's rows whose key is in ``view``."""
    same = " AND ".join([*_same_key(plan), *key_bounds(plan, f"{TARGET}.")])
    return RowMerge(view, same, (RowClause(),))


def key_bounds(plan: TablePlan, prefix: str = "") -> list[str]:
    """Return literal bounds of the keys in the plan's parts, to skip files without such keys.

    Empty when they are unknown. ``prefix`` is put before the column's name.
    """
    if plan.key_min is None or plan.key_max is None:
        return []
    first = plan.schema.column(plan.schema.key[0])
    low, high = (_bound(text, first.logical.kind) for text in (plan.key_min, plan.key_max))
    if low is None or high is None:
        return []
    return [f"{prefix}{quote(first.name)} >= {low}", f"{prefix}{quote(first.name)} <= {high}"]


def _condition(plan: TablePlan) -> str:
    """Return equal keys within bounds; a plan that deletes reads every row of the target anyway."""
    bounds = [] if plan.delete_before is not None else key_bounds(plan, f"{TARGET}.")
    return " AND ".join([*_same_key(plan), *bounds])


def _same_key(plan: TablePlan) -> list[str]:
    return [f"{of_target(name)} = {of_source(name)}" for name in plan.schema.key]


def _bound(text: str, kind: Kind) -> str | None:
    if kind in _WHOLE:
        return str(int(text))
    if kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        data_type = {
            Kind.DATE: "date",
            Kind.TIMESTAMP: "timestamp",
            Kind.TIMESTAMP_NTZ: "timestamp_ntz",
        }[kind]
        return f"cast({literal(text)} as {data_type})"
    return None


def _unknown(name: str) -> str:
    return f"array_contains({of_source(UNKNOWN)}, {literal(name)})"


def _updated(name: str, fillable: Sequence[str]) -> str:
    """Return a column's new value: the row's, or the target's where the log did not carry it."""
    if name not in fillable:
        return of_source(name)
    return f"CASE WHEN {_unknown(name)} THEN {of_target(name)} ELSE {of_source(name)} END"


def _overflow(fillable: Sequence[str]) -> str:
    """Return the row's texts, and the target's for columns that keep the target's value."""
    own = of_source(OVERFLOW)
    if not fillable:
        return own
    texts = (
        f"map_concat(coalesce({own}, {_NO_TEXTS}), map_filter("
        f"coalesce({of_target(OVERFLOW)}, {_NO_TEXTS}),"
        f" ({_NAME}, {_TEXT}) -> coalesce(array_contains({of_source(UNKNOWN)}, {_NAME}), false)))"
    )
    return f"CASE WHEN size({texts}) > 0 THEN {texts} END"


def _still_pending(fillable: Sequence[str]) -> str:
    """Return an existing row's pending columns: those it lacks, and those the target lacks too."""
    if not fillable:
        return "cast(NULL as array<string>)"
    kept = (
        f"array_intersect(coalesce({of_source(UNKNOWN)}, {_NO_NAMES}),"
        f" coalesce({of_target(PENDING)}, {_NO_NAMES}))"
    )
    return _listed(f"array_union(coalesce({of_source(MISSING)}, {_NO_NAMES}), {kept})")


def _newly_pending(fillable: Sequence[str], carried: Sequence[str]) -> str:
    """Return a new row's pending columns: there is no target value to keep."""
    if not fillable:
        return "cast(NULL as array<string>)"
    names = (
        f"array_union(coalesce({of_source(MISSING)}, {_NO_NAMES}),"
        f" coalesce({of_source(UNKNOWN)}, {_NO_NAMES}))"
    )
    if carried:
        names = f"array_except({names}, array({', '.join(literal(name) for name in carried)}))"
    return _listed(names)


def _listed(names: str) -> str:
    return f"CASE WHEN size({names}) > 0 THEN {names} END"
