"""Carries out schema steps in rows that exist."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tideline.contract.schema import TableSchema
from tideline.contract.steps import ColumnStep, origins_after
from tideline.contract.types import Kind, LogicalType
from tideline_publish.aggregates.rows import Values
from tideline_publish.formats.json_values import NULL, json_values

_ARROW: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT8: pa.int64(),
    Kind.INT16: pa.int64(),
    Kind.INT32: pa.int64(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", "UTC"),
    Kind.TIMESTAMP_NTZ: pa.timestamp("us"),
}


def reshaped(
    before: TableSchema, after: TableSchema, steps: Sequence[ColumnStep]
) -> Callable[[Values], Values]:
    """Return what makes rows of ``after`` of rows of ``before``. A column whose origin the steps do
    not have stays unknown."""
    origins = origins_after(before.column_names, steps)
    moves = {
        name: origin.was
        for name, origin in origins.items()
        if origin.was is not None and name in after.column_names
    }
    added = {
        name: default_value(after.column(name).logical, origin.default)
        for name, origin in origins.items()
        if origin.was is None and name in after.column_names
    }

    def change(values: Values) -> Values:
        return added | {name: values[was] for name, was in moves.items() if was in values}

    return change


def default_value(logical: LogicalType, text: str | None) -> msgspec.Raw:
    """Return a default (`ColumnStep.default`) as JSON."""
    if text is None:
        return msgspec.Raw(NULL)
    value: Any = binascii.unhexlify(text) if logical.kind is Kind.BINARY else text
    arrow = _ARROW.get(logical.kind) or pa.decimal128(logical.precision, logical.scale)
    if logical.kind is Kind.TIMESTAMP:
        # Arrow wants a zone in the text.
        column = pa.array([text]).cast(pa.timestamp("us")).cast(arrow)
    else:
        column = pa.array([value]).cast(arrow)
    return msgspec.Raw(json_values(column, logical)[0].as_py())
