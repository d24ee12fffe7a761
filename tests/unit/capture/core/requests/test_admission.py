"""Ranges whose ends were exchanged."""

from __future__ import annotations

import pytest

from tideline.contract.request import KeyRange
from tideline.contract.schema import Column, TableSchema
from tideline_capture.core.requests.admission import holds_nothing


def schema(*types: str) -> TableSchema:
    columns = tuple(Column(f"k{at}", kind, kind, False) for at, kind in enumerate(types))
    return TableSchema("public.t", columns, tuple(column.name for column in columns))


@pytest.mark.parametrize(
    ("types", "start", "end", "nothing"),
    [
        (("int64",), ("9",), ("10",), False),
        (("int64",), ("10",), ("9",), True),
        (("int64",), ("-1",), ("-2",), True),
        (("int64",), ("1",), ("01",), True),
        (("int64",), ("1",), (" 2",), False),
        (("decimal(20,0)",), ("18446744073709551615",), ("2",), True),
        (("date",), ("2024-02-01",), ("2024-01-31",), True),
        (("date",), ("2024-01-31",), ("2024-02-01",), False),
        (("date",), ("2024-02-01",), ("2024-01-99",), False),
        (("string",), ("b",), ("a",), False),  # Who knows by which collation.
        (("string",), ("a",), ("a",), True),
        (("string", "int64"), ("a", "2"), ("a", "1"), True),
        (("string", "int64"), ("a", "2"), ("b", "1"), False),
        (("int64", "int64"), ("1",), ("1", "5"), False),
        (("int64", "int64"), ("1", "5"), ("1",), True),
        (("int64", "int64"), ("1", "5"), ("2",), False),
        (("int64",), None, ("1",), False),
    ],
)
def test_only_what_is_certain(
    types: tuple[str, ...], start: tuple[str, ...] | None, end: tuple[str, ...], nothing: bool
) -> None:
    assert holds_nothing(KeyRange(start, end), schema(*types)) is nothing
