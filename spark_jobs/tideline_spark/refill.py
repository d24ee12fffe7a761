"""Builds the one update that schema steps need in the rows of a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import types

from tideline.contract.evolution import TargetColumns
from tideline.contract.modes import Mode
from tideline.contract.part import IMAGE_OVERFLOW, OVERFLOW, PENDING, UNCHANGED
from tideline.contract.types import Kind, parse_type
from tideline_spark.formats.statements import RowUpdate
from tideline_spark.schemas import field_of, literal, quote
from tideline_spark.version_context import CURRENT

_MAPS = (OVERFLOW, IMAGE_OVERFLOW)
_LISTS = (PENDING, UNCHANGED)

Names = Mapping[str, tuple[str, ...]]


def refill_rows(schema: types.StructType, stands: TargetColumns, mode: Mode) -> RowUpdate | None:
    """Return the update that ``stands.refill`` requires; None when no row can be concerned.

    Every existing row is older than the steps. In a history only open versions get defaults: the
    others are past. Copied values are in both columns, also in past versions.
    """
    refill, held = stands.refill, {field.name: field.dataType for field in schema.fields}
    values = {n: _default(*fill, held[n]) for n, fill in refill.fills.items() if n in held}
    if mode is Mode.HISTORY:
        values = {n: f"CASE WHEN {CURRENT} THEN {v} ELSE {quote(n)} END" for n, v in values.items()}
    values |= {name: quote(was) for name, was in refill.copies.items() if name in held}
    pending = {
        n: tuple(m for m in now if m not in stands.retained) for n, now in refill.names.items()
    }
    pending |= {name: () for name in stands.retained if name not in refill.names}
    texts, lists = {}, {}
    for name in (name for name in _MAPS if name in held and refill.names):
        texts[name] = _renamed_keys(quote(name), refill.names)
    for name in (name for name in _LISTS if name in held):
        names = pending if name == PENDING else refill.names
        if names:
            lists[name] = _renamed(quote(name), names)
    assigned = values | texts | lists
    if not assigned:
        return None
    named = [f"arrays_overlap(map_keys({quote(name)}), {_array(refill.names)})" for name in texts]
    named += [f"arrays_overlap({quote(name)}, {_array(pending)})" for name in lists]
    when = None if values else " OR ".join(f"coalesce({one}, false)" for one in named)
    return RowUpdate(assigned, when)


def _default(added: str, default: str, held: types.DataType) -> str:
    """Return a default as a constant of the added column's type, cast to its present type."""
    if added and parse_type(added).kind is Kind.BINARY:
        return f"unhex({literal(default)})"
    first = field_of("", added).dataType if added else held
    return f"cast(cast({literal(default)} as {first.simpleString()}) as {held.simpleString()})"


def _renamed(names: str, now: Names) -> str:
    found = f"array_distinct(flatten(transform({names}, _tl_n -> {_now('_tl_n', now)})))"
    return f"CASE WHEN size({found}) > 0 THEN {found} END"


def _renamed_keys(texts: str, now: Names) -> str:
    each = (
        f"transform({_now('_tl_e.key', now)}, _tl_n -> struct(_tl_n AS key, _tl_e.value AS value))"
    )
    found = f"map_from_entries(flatten(transform(map_entries({texts}), _tl_e -> {each})))"
    return f"CASE WHEN size({found}) > 0 THEN {found} END"


def _now(name: str, now: Names) -> str:
    pairs = ", ".join(f"{literal(was)}, {_array(names)}" for was, names in now.items())
    return f"coalesce(try_element_at(map({pairs}), {name}), array({name}))"


def _array(names: Iterable[str]) -> str:
    return f"cast(array({', '.join(literal(name) for name in names)}) as array<string>)"
