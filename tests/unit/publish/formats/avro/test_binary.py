"""Columns in Avro's binary encoding, as another implementation of it reads and writes them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tideline.contract.types import parse_type
from tideline_publish.formats.avro.binary import avro_values, optional

DIGITS = 38
LARGEST = 10**DIGITS - 1


def encoded(values: Sequence[Any], kind: str, arrow: pa.DataType) -> list[bytes]:
    found = optional(avro_values(pa.array(values, arrow), parse_type(kind)))
    return [bytes(one) for one in found.to_pylist()]


def by_fastavro(values: Sequence[Any], schema: Any) -> list[bytes]:
    parsed = fastavro.parse_schema(["null", schema])
    found = []
    for value in values:
        raw = io.BytesIO()
        fastavro.schemaless_writer(raw, parsed, value)
        found.append(raw.getvalue())
    return found


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_integers(values: list[int | None]) -> None:
    assert encoded(values, "int64", pa.int64()) == by_fastavro(values, "long")


@given(st.lists(st.none() | st.integers(-128, 127)))
def test_small_integers(values: list[int | None]) -> None:
    assert encoded(values, "int8", pa.int8()) == by_fastavro(values, "int")


@given(st.lists(st.none() | st.text()))
def test_texts(values: list[str | None]) -> None:
    assert encoded(values, "string", pa.string()) == by_fastavro(values, "string")


@given(st.lists(st.none() | st.binary()))
def test_bytes(values: list[bytes | None]) -> None:
    assert encoded(values, "binary", pa.binary()) == by_fastavro(values, "bytes")


@given(st.lists(st.none() | st.booleans()))
def test_booleans(values: list[bool | None]) -> None:
    assert encoded(values, "boolean", pa.bool_()) == by_fastavro(values, "boolean")


@given(st.lists(st.none() | st.floats()))
def test_doubles(values: list[float | None]) -> None:
    assert encoded(values, "float64", pa.float64()) == by_fastavro(values, "double")


@given(st.lists(st.none() | st.floats(width=32)))
def test_floats(values: list[float | None]) -> None:
    assert encoded(values, "float32", pa.float32()) == by_fastavro(values, "float")


@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)))
def test_dates(values: list[int | None]) -> None:
    assert encoded(values, "date", pa.date32()) == by_fastavro(values, "int")


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_times(values: list[int | None]) -> None:
    wanted = by_fastavro(values, "long")
    assert encoded(values, "timestamp", pa.timestamp("us", "UTC")) == wanted
    assert encoded(values, "timestamp_ntz", pa.timestamp("us")) == wanted


@given(st.lists(st.none() | st.integers(-LARGEST, LARGEST) | st.integers(-(2**17), 2**17)))
def test_decimals_have_the_fewest_bytes(values: list[int | None]) -> None:
    numbers = [None if one is None else Decimal(one) for one in values]
    wanted = [None if one is None else _fewest_bytes(one) for one in values]
    found = encoded(numbers, f"decimal({DIGITS},0)", pa.decimal128(DIGITS, 0))
    assert found == by_fastavro(wanted, "bytes")


@given(st.lists(st.integers(-(10**37), 10**37), min_size=3), st.data())
def test_slices_are_read_where_they_are(values: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(values) - 1))
    column = pa.array(list(map(Decimal, values)), pa.decimal128(DIGITS, 0))
    whole = avro_values(column, parse_type("decimal(38,0)")).to_pylist()
    part = avro_values(column.slice(first), parse_type("decimal(38,0)")).to_pylist()
    assert part == whole[first:]


def _fewest_bytes(number: int) -> bytes:
    size = 1
    while not -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1):
        size += 1
    return number.to_bytes(size, "big", signed=True)
