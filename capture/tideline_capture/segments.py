"""Encodes Arrow batches as Parquet: parts, and verification parts.

A part holds the rows of one table and schema version within a segment, in seq order. A verification
part holds the rows of one verification chunk, in the order of its keys: ``_tl_low`` (the sequence
at the chunk's low watermark, the same in every row), ``_tl_op`` (``r``; ``d`` for a requested key
that the source does not have), the table's columns, and ``_tl_overflow``.

The encodings are those that were both cheapest to write and smallest: zstd level 1, deltas for
integers and string lengths, a dictionary only for strings that repeat. Types that Spark reads
wrongly without an error (nanoseconds, unsigned and 256-bit numbers) cannot occur:
`tideline_capture.arrow_types` has none.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import asdict

from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import Part, digest
from tideline.contract.part import (
    BEFORE,
    DELETED,
    DUMPED,
    IMAGE,
    IMAGE_OVERFLOW,
    LOW,
    OP,
    OVERFLOW,
    SEQ,
    UNCHANGED,
    total,
)
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind
from tideline_capture.arrow_types import OVERFLOW_FIELD, arrow_type, part_schema
from tideline_capture.core.events import Rows
from tideline_capture.core.segment import VerificationRows

_SAMPLE_ROWS = 2_000
_REPEATS_MIN = 8
"""A dictionary pays when a value occurs this often in the sample."""
_BOUNDED = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.DATE, Kind.TIMESTAMP)
ROW_GROUP_ROWS = 1 << 17


def encode_parts(
    rows: Iterable[Rows], key_of: Callable[[TableSchema], str]
) -> list[tuple[Part, bytes]]:
    """Encode one part per table and schema version among ``rows``, which are in seq order.

    Returns each part's entry for the manifest, under the key that ``key_of`` makes, and its bytes.
    """
    groups: dict[tuple[str, str], list[Rows]] = defaultdict(list)
    for item in rows:
        groups[item.schema.table, item.schema.fingerprint].append(item)
    return [_encode(group, key_of(group[0].schema)) for group in groups.values()]


def _encode(group: list[Rows], key: str) -> tuple[Part, bytes]:
    schema = group[0].schema
    table = _one_table(group)
    sequences = table.column(SEQ)
    if np.any(np.diff(sequences.to_numpy()) <= 0):
        raise InvariantBroken(f"rows of {schema.table} are not in the order of their sequences")
    data = write_part(table)
    key_min, key_max = _key_bounds(table, schema)
    part = Part(
        key=key,
        table=schema.table,
        schema=schema.fingerprint,
        rows=table.num_rows,
        operations=_count_operations(table),
        bytes=len(data),
        digest=digest(data),
        first_seq=sequences[0].as_py(),
        last_seq=sequences[-1].as_py(),
        key_min=key_min,
        key_max=key_max,
        **asdict(total(item.counts for item in group)),
    )
    return part, data


def encode_verification_part(read: VerificationRows) -> bytes:
    """Encode a verification chunk as a verification part."""
    batches = [_with_low(read, read.rows, DUMPED)]
    if read.missing is not None and read.missing.num_rows:
        batches.append(_with_low(read, read.missing, DELETED))
    return write_part(pa.Table.from_batches(batches))


def verification_part_schema(schema: TableSchema) -> pa.Schema:
    """Return the columns of a verification part."""
    return pa.schema(
        [
            pa.field(LOW, pa.int64()),
            pa.field(OP, pa.string()),
            *(pa.field(column.name, arrow_type(column.logical)) for column in schema.columns),
            OVERFLOW_FIELD,
        ]
    )


def _with_low(read: VerificationRows, rows: pa.RecordBatch, op: str) -> pa.RecordBatch:
    count = rows.num_rows
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(count, read.chunk.low_seq, np.int64)),
            pa.array([op], pa.string()).take(pa.array(np.zeros(count, np.int32))),
            *rows.columns,
        ],
        names=[LOW, OP, *rows.schema.names],
    )
    return fill(batch, verification_part_schema(read.schema))


def write_part(table: pa.Table) -> bytes:
    """Write ``table`` as Parquet."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=ROW_GROUP_ROWS, **write_options(table))
    return buffer.getvalue()


def write_options(table: pa.Table) -> dict[str, Any]:
    """Choose the write options for a part that begins with the rows of ``table``."""
    repeating = [field.name for field in table.schema if _repeats(table, field)]
    encodings = {
        field.name: f"DELTA_{encoding}"
        for field in table.schema
        if field.name not in repeating and (encoding := _encoding(field.type)) is not None
    }
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": repeating,
        "column_encoding": encodings,
        "write_statistics": [SEQ],
        "store_schema": False,
        "data_page_version": "1.0",
        # A byte that flips in a page may leave it readable, with another value.
        "write_page_checksum": True,
    }


def _one_table(group: list[Rows]) -> pa.Table:
    """Join the batches of one part; columns that only some have are NULL in the others."""
    names = {name for item in group for name in item.batch.schema.names}
    schema = group[0].schema
    fields = part_schema(
        schema,
        tuple(name for name in schema.key if BEFORE + name in names),
        unchanged=UNCHANGED in names,
        overflow=OVERFLOW in names,
        image=IMAGE in names,
        image_overflow=IMAGE_OVERFLOW in names,
    )
    return pa.Table.from_batches([fill(item.batch, fields) for item in group], schema=fields)


def fill(batch: pa.RecordBatch, fields: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` in the shape of ``fields``: columns that it lacks are NULL."""
    if batch.schema.equals(fields):
        return batch
    have = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in have
        else pa.nulls(batch.num_rows, field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def _count_operations(table: pa.Table) -> dict[str, int]:
    counts = pc.value_counts(table.column(OP).combine_chunks())
    return {entry["values"]: entry["counts"] for entry in counts.to_pylist()}


def _repeats(table: pa.Table, field: pa.Field) -> bool:
    if not pa.types.is_string(field.type):
        return False
    sample = table.column(field.name).slice(0, _SAMPLE_ROWS)
    return bool(pc.count_distinct(sample).as_py() * _REPEATS_MIN <= len(sample))


def _encoding(kind: pa.DataType) -> str | None:
    """Return the Parquet delta encoding for values of ``kind``."""
    if pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return "BINARY_PACKED"
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "LENGTH_BYTE_ARRAY"
    return None


def _key_bounds(table: pa.Table, schema: TableSchema) -> tuple[str | None, str | None]:
    """Return the smallest and largest first key, old keys included, as ISO text or digits."""
    if not schema.key:
        return None, None
    name = schema.key[0]
    if schema.column(name).logical.kind not in _BOUNDED:
        return None, None
    columns = [table.column(name)]
    if BEFORE + name in table.schema.names:
        columns.append(table.column(BEFORE + name))
    ends = [pc.min_max(column) for column in columns]
    low = [end["min"].as_py() for end in ends if end["min"].is_valid]
    high = [end["max"].as_py() for end in ends if end["max"].is_valid]
    if not low or not high:
        return None, None
    return _bound_text(min(low)), _bound_text(max(high))


def _bound_text(value: object) -> str:
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
