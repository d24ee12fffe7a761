"""Encodes verification chunks as verification parts.

A verification part holds the rows of one chunk, in the order of its keys: ``_tl_low`` (the sequence
at the chunk's low watermark, the same in every row), ``_tl_op`` (``r``; ``d`` for a requested key
that the source does not have), the table's columns, and ``_tl_overflow``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tideline.contract.part import LOW, OP
from tideline.contract.schema import TableSchema
from tideline_capture.arrow_types import OVERFLOW_FIELD, arrow_type
from tideline_capture.core.segment import CheckRows
from tideline_capture.segments import fill, write_part


def encode_check(chunk: CheckRows) -> bytes:
    """Encode the chunk's rows as Parquet."""
    batches = [_marked(chunk, chunk.rows, "r")]
    if chunk.missing is not None and chunk.missing.num_rows:
        batches.append(_marked(chunk, chunk.missing, "d"))
    return write_part(pa.Table.from_batches(batches))


def check_schema(schema: TableSchema) -> pa.Schema:
    """Return the columns of a verification part."""
    return pa.schema(
        [
            pa.field(LOW, pa.int64()),
            pa.field(OP, pa.string()),
            *(pa.field(column.name, arrow_type(column.logical)) for column in schema.columns),
            OVERFLOW_FIELD,
        ]
    )


def _marked(chunk: CheckRows, rows: pa.RecordBatch, op: str) -> pa.RecordBatch:
    count = rows.num_rows
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(count, chunk.check.low_seq, np.int64)),
            pa.array([op], pa.string()).take(pa.array(np.zeros(count, np.int32))),
            *rows.columns,
        ],
        names=[LOW, OP, *rows.schema.names],
    )
    return fill(batch, check_schema(chunk.schema))
