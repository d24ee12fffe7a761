"""Logical types: their text, and which changes keep every value."""

from __future__ import annotations

import pytest

from tideline.contract import types
from tideline.contract.errors import CorruptData
from tideline.contract.types import Kind, LogicalType, decimal, parse_type, widens

PLAIN = [LogicalType(kind) for kind in Kind if kind is not Kind.DECIMAL]


@pytest.mark.parametrize(
    "logical", [*PLAIN, decimal(1, 0), decimal(38, 38), decimal(12, 2)], ids=str
)
def test_text_round_trip(logical: LogicalType) -> None:
    assert parse_type(str(logical)) == logical


@pytest.mark.parametrize(
    "text",
    [
        *("", "int", "INT64", "int64 ", "timestamp(6)", "varchar(5)", "decimal", "decimal(5)"),
        *("decimal(0,0)", "decimal(39,0)", "decimal(5,6)", "decimal(5,-1)", "decimal(5, 2)"),
        "decimal(٥,٢)",
    ],
)
def test_what_is_no_type(text: str) -> None:
    with pytest.raises(CorruptData):
        parse_type(text)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("int8", "int16", True),
        ("int16", "int64", True),
        ("int32", "int32", True),
        ("int64", "int32", False),
        ("float32", "float64", True),
        ("float64", "float32", False),
        ("int32", "float64", False),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(10,4)", False),
        ("decimal(10,2)", "decimal(11,4)", False),
        ("decimal(10,2)", "decimal(10,0)", False),
        ("int32", "decimal(10,0)", True),
        ("int32", "decimal(12,2)", True),
        ("int32", "decimal(11,2)", False),
        ("int64", "decimal(20,0)", True),
        ("int64", "decimal(18,0)", False),
        ("decimal(5,0)", "int64", False),
        ("string", "binary", False),
        ("date", "timestamp_ntz", False),
        ("timestamp_ntz", "timestamp", False),
        ("timestamp", "timestamp_ntz", False),
        ("boolean", "int8", False),
        ("int32", "string", False),
    ],
)
def test_widens(old: str, new: str, expected: bool) -> None:
    assert widens(parse_type(old), parse_type(new)) is expected


def test_every_kind_has_a_constant() -> None:
    constants = {value for value in vars(types).values() if isinstance(value, LogicalType)}
    assert constants == set(PLAIN)
