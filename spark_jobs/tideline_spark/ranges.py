"""Ranges of keys in an order that Spark shares with the source: of integers, dates, timestamps.

A bound is the source's text of the first key columns, or of all. Texts are ordered by collations
that Spark does not know, so a table with such a key has no ranges here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F

from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind
from tideline.contract.verification import Scope, TableComparison
from tideline_spark.schemas import column as col
from tideline_spark.schemas import spark_type

_SHARED = (
    Kind.INT8,
    Kind.INT16,
    Kind.INT32,
    Kind.INT64,
    Kind.DATE,
    Kind.TIMESTAMP,
    Kind.TIMESTAMP_NTZ,
)
RANGES_MAX = 200
"""Limit for the ranges of a sample: with more, rows that the source lacks are not searched."""


@dataclass(frozen=True, slots=True)
class KeySpan:
    """Keys above ``low`` (with ``low_included``, from it on) up to ``high`` (or before it). None:
    no bound."""

    low: tuple[str, ...] | None
    high: tuple[str, ...] | None
    low_included: bool
    high_included: bool


def spans_of(session: SparkSession, comparison: TableComparison) -> Sequence[KeySpan] | None:
    """Return the ranges that were read, merged where they meet; () for the whole table, None when
    Spark cannot decide which keys lie in them."""
    if comparison.scope is Scope.WHOLE:
        return ()
    if comparison.scope is Scope.KEYS:
        return None
    start = None if comparison.key_range is None else comparison.key_range.start
    end = None if comparison.key_range is None else comparison.key_range.end
    spans: list[KeySpan] = []
    for chunk in comparison.chunks:
        if chunk.skipped:
            continue
        low = start if chunk.after_key is None else chunk.after_key
        high = end if chunk.complete else chunk.last_key
        if spans and chunk.after_key is not None and spans[-1].high == chunk.after_key:
            before = spans.pop()
            spans.append(KeySpan(before.low, high, before.low_included, not chunk.complete))
        else:
            spans.append(KeySpan(low, high, chunk.after_key is None, not chunk.complete))
    bounds = [bound for span in spans for bound in (span.low, span.high) if bound is not None]
    if len(spans) > RANGES_MAX or not _comparable(session, comparison.schema, bounds):
        return None
    return spans


def within(frame: DataFrame, schema: TableSchema, spans: Sequence[KeySpan]) -> DataFrame:
    """Return the rows of ``frame`` whose key lies in one of ``spans``; all of them for ()."""
    if not spans:
        return frame
    return frame.where(_any([_inside(schema, span) for span in spans]))


def _inside(schema: TableSchema, span: KeySpan) -> Column:
    condition = F.lit(True)
    if span.low is not None:
        key, low = _key(schema, span.low), _bound(schema, span.low)
        condition = condition & (key >= low if span.low_included else key > low)
    if span.high is not None:
        key, high = _key(schema, span.high), _bound(schema, span.high)
        condition = condition & (key <= high if span.high_included else key < high)
    return condition


def _key(schema: TableSchema, bound: Sequence[str]) -> Column:
    if len(bound) == 1:  # A plain comparison skips files without such keys.
        return col(schema.key[0])
    return F.struct(*(col(name) for name in schema.key[: len(bound)]))


def _bound(schema: TableSchema, bound: Sequence[str]) -> Column:
    values = [
        F.lit(text).try_cast(_type(schema, name)).alias(name)
        for name, text in zip(schema.key, bound, strict=False)
    ]
    return values[0] if len(values) == 1 else F.struct(*values)


def _comparable(
    session: SparkSession, schema: TableSchema, bounds: Sequence[Sequence[str]]
) -> bool:
    """Return whether Spark can read every bound and orders it as the source does."""
    width = max((len(bound) for bound in bounds), default=0)
    for name in schema.key[:width]:
        if schema.column(name).logical.kind not in _SHARED:
            return False
    if not bounds:
        return True
    unread = [
        _any([part.isNull() for part in _parts(schema, bound)]).alias(f"bound{at}")
        for at, bound in enumerate(bounds)
    ]
    row = session.range(1).select(F.array(*unread).alias("unread")).first()
    return row is not None and not any(row["unread"])


def _parts(schema: TableSchema, bound: Sequence[str]) -> list[Column]:
    return [
        F.lit(text).try_cast(_type(schema, name))
        for name, text in zip(schema.key, bound, strict=False)
    ]


def _type(schema: TableSchema, name: str) -> types.DataType:
    return spark_type(schema.column(name).logical)


def _any(conditions: list[Column]) -> Column:
    found = conditions[0]
    for one in conditions[1:]:
        found = found | one
    return found
