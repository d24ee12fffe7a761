"""Columns as texts of JSON: each value comes back as it was."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.support.each import each
from tideline.contract.types import LogicalType, decimal, parse_type
from tideline_publish.formats.json_values import json_values

MICROSECONDS = pa.timestamp("us")


def read(values: list[Any], kind: str, arrow: pa.DataType) -> list[Any]:
    """The values after a way through JSON, as a reader has them."""
    texts = json_values(pa.array(values, arrow), parse_type(kind))
    return [json.loads(text, parse_float=Decimal) for text in texts.to_pylist()]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers_keep_every_digit(values: list[int | None]) -> None:
    assert read(values, "int64", pa.int64()) == values


@given(st.lists(st.none() | st.text()))
def test_texts_keep_every_character(values: list[str | None]) -> None:
    assert read(values, "string", pa.string()) == values


@given(st.lists(st.text(), min_size=1), st.data())
def test_slices_of_texts_are_read_where_they_are(values: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values)))
    column = pa.array(values, pa.string()).slice(first)
    texts = json_values(column, parse_type("string")).to_pylist()
    assert [json.loads(text) for text in texts] == values[first:]


@given(st.lists(st.none() | st.binary()))
def test_bytes_are_base64(values: list[bytes | None]) -> None:
    texts = read(values, "binary", pa.binary())
    assert [None if one is None else base64.b64decode(one) for one in texts] == values


@given(st.lists(st.none() | st.floats()))
def test_floats_are_the_same_or_named(values: list[float | None]) -> None:
    found = [
        float(one) if isinstance(one, str | Decimal | int) else one
        for one in read(values, "float64", pa.float64())
    ]
    assert [same(one) for one in found] == [same(one) for one in values]


def test_a_float_is_one_for_readers_too() -> None:
    texts = json_values(pa.array([2.0, -0.0, 1e15, None]), parse_type("float64")).to_pylist()
    assert texts == ["2.0", "-0.0", "1e+15", "null"]


def same(value: float | None) -> object:
    """A form in which NaN equals itself, and the signs of zeros differ."""
    if value is None or math.isnan(value):
        return str(value)
    return value, math.copysign(1, value)


@given(st.lists(st.none() | st.decimals("-1e17", "1e17", places=20)))
def test_decimals_are_plain(values: list[Decimal | None]) -> None:
    texts = read(values, "decimal(38,20)", pa.decimal128(38, 20))
    assert [None if one is None else Decimal(one) for one in texts] == values
    assert all("E" not in one for one in texts if one is not None)


@given(st.lists(st.none() | st.datetimes()))
def test_times_are_iso_8601(values: list[datetime | None]) -> None:
    local = read(values, "timestamp_ntz", MICROSECONDS)
    assert [None if one is None else datetime.fromisoformat(one) for one in local] == values
    zoned = [None if one is None else one.replace(tzinfo=UTC) for one in values]
    texts = read(zoned, "timestamp", pa.timestamp("us", "UTC"))
    assert [None if one is None else datetime.fromisoformat(one) for one in texts] == zoned


@given(st.lists(st.none() | st.dates()))
def test_dates_are_iso_8601(values: list[date | None]) -> None:
    texts = read(values, "date", pa.date32())
    assert [None if one is None else date.fromisoformat(one) for one in texts] == values


@each(
    "logical",
    [parse_type(one) for one in ("boolean", "int8", "float32", "string", "binary", "date")]
    + [decimal(10, 2), parse_type("timestamp"), parse_type("timestamp_ntz")],
)
def test_null_is_null_in_a_column_of_nothing_else(logical: LogicalType) -> None:
    arrow = {"boolean": pa.bool_(), "int8": pa.int8(), "float32": pa.float32()}
    arrow |= {"string": pa.string(), "binary": pa.binary(), "date": pa.date32()}
    arrow |= {"decimal": pa.decimal128(10, 2), "timestamp": pa.timestamp("us", "UTC")}
    column = pa.nulls(2, arrow.get(logical.kind.value, MICROSECONDS))
    assert json_values(column, logical).to_pylist() == ["null", "null"]
