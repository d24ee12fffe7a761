"""The names of types that people are shown are those of the columns that jobs make."""

from __future__ import annotations

import pytest

from tideline.contract.target_types import target_type
from tideline.contract.types import Kind, LogicalType, decimal
from tideline_spark.formats.bigquery.types import bigquery_type
from tideline_spark.schemas import spark_type

TYPES = (
    *(LogicalType(kind) for kind in Kind if kind is not Kind.DECIMAL),
    *(decimal(*one) for one in ((1, 0), (10, 2), (38, 9), (38, 10), (29, 0), (38, 0), (38, 38))),
)


@pytest.mark.parametrize("logical", TYPES, ids=str)
def test_the_names_are_those_of_the_columns_that_are_made(logical: LogicalType) -> None:
    made = spark_type(logical)
    assert target_type(logical, "delta") == made.simpleString()
    assert target_type(logical, "bigquery") == bigquery_type(made)


def test_iceberg_has_no_small_whole_numbers() -> None:
    """Of a table that Spark has made: `tests/spark/test_iceberg.py`."""
    wider = {Kind.INT8: "int", Kind.INT16: "int"}
    for logical in TYPES:
        name = wider.get(logical.kind, target_type(logical, "delta"))
        assert target_type(logical, "iceberg") == name
