"""Decimals as unscaled bytes, whatever their length."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tideline_publish.formats.debezium.numbers import (
    base64_decimals,
    base64_integer,
    decimals_of_texts,
)
from tideline_publish.formats.debezium.times import clock_us, epoch, far_day, zoned

LARGEST = 10**38 - 1
NUMBERS = st.integers(-LARGEST, LARGEST) | st.sampled_from(
    [sign * 2**bits + more for bits in range(126) for sign in (1, -1) for more in (-1, 0)]
)


def number(text: str) -> int:
    """The number in Base64, which has no byte that it does not need."""
    raw = base64.b64decode(text.strip('"'))
    found = int.from_bytes(raw, "big", signed=True)
    assert len(raw) == (found + (found < 0)).bit_length() // 8 + 1
    return found


@given(st.lists(st.none() | NUMBERS), st.data())
def test_numbers_are_their_bytes(numbers: list[int | None], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(numbers)))
    values = [None if one is None else Decimal(one) for one in numbers]
    column = pa.array(values, pa.decimal128(38, 0)).slice(first)
    texts = base64_decimals(column).to_pylist()
    assert [None if one is None else number(one) for one in texts] == numbers[first:]


@given(st.integers())
def test_a_number_of_any_length(value: int) -> None:
    assert number(base64_integer(value)) == value


@given(st.lists(st.none() | st.tuples(st.integers(), st.integers(0, 50))))
def test_texts_of_numbers(values: list[tuple[int, int] | None]) -> None:
    plain = [None if one is None else written(*one) for one in values]
    texts, scales = decimals_of_texts(pa.array(plain, pa.string()))
    found = [
        None if text is None else (number(text), scale)
        for text, scale in zip(texts.to_pylist(), scales.to_pylist(), strict=True)
    ]
    assert found == values


def written(unscaled: int, scale: int) -> str:
    """A number as databases print it."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, part = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if unscaled < 0 else ''}{whole}{'.' if scale else ''}{part}"


@given(st.lists(st.none() | st.datetimes()))
def test_times_are_numbers_or_texts(values: list[datetime | None]) -> None:
    column = pa.array(values, pa.timestamp("us"))
    start = datetime(1970, 1, 1)
    since = [None if one is None else (one - start) // timedelta(microseconds=1) for one in values]
    assert epoch(column).to_pylist() == since
    ms = [None if one is None else one // 1_000 for one in since]
    assert epoch(column, 1_000).to_pylist() == ms
    texts = zoned(column.cast(pa.timestamp("us", "UTC")), 6).to_pylist()
    read = [None if one is None else datetime.fromisoformat(one) for one in texts]
    assert read == [None if one is None else one.replace(tzinfo=UTC) for one in values]


@given(st.lists(st.none() | st.integers(-3_020_399_999_999, 3_020_399_999_999)))
def test_clocks_are_microseconds(values: list[int | None]) -> None:
    texts = [None if one is None else clock(one) for one in values]
    assert clock_us(pa.array(texts, pa.string())).to_pylist() == values


def clock(us: int) -> str:
    seconds, part = divmod(abs(us), 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{part:06d}"
    return f"-{text}" if us < 0 else text


@given(st.dates())
def test_days_are_counted_as_python_does(day: date) -> None:
    assert far_day(day.isoformat()) == (day - date(1970, 1, 1)).days
    # The calendar repeats itself, at any distance.
    far = f"{day.year + 40_000}-{day.month:02d}-{day.day:02d}"
    assert far_day(far) == (day - date(1970, 1, 1)).days + 100 * 146_097
