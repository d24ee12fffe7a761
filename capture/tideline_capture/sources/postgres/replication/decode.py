"""Row messages of one relation, in bulk, into a record batch of a part's shape.

No row object is ever built: `tuples` turns the messages into one array of texts per column,
`types` turns each into typed values, and `decoded` puts them together with Tideline's own columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tideline.contract.part import BEFORE, LOGGED
from tideline.contract.schema import TableSchema
from tideline_capture.sources.decoded import Decoded, TypedColumns, TypedRows, assemble
from tideline_capture.sources.postgres.replication.tuples import (
    DELETE,
    INSERT,
    UPDATE,
    Bytes,
    Texts,
    split_tuples,
)
from tideline_capture.sources.postgres.replication.tuples_plain import split_tuples_plainly
from tideline_capture.sources.postgres.types import to_arrow

Numbers = npt.NDArray[np.int64]

PLAIN_ROWS_MAX = 32
"""Up to here the loop is quicker than the vectorised walk (measured with 12 columns)."""

_OPERATIONS: Bytes = np.zeros(256, np.uint8)
_OPERATIONS[[INSERT, UPDATE, DELETE]] = list(map(ord, LOGGED))


def decode_rows(
    payloads: Sequence[bytes],
    schema: TableSchema,
    *,
    seq: Numbers,
    tx: Numbers,
    ts: Numbers,
    image: bool = False,
) -> Decoded:
    """Return the rows of ``payloads``: I, U and D messages of one relation, in log order.

    The relation's columns are ``schema.columns``, in that order. ``seq``, ``tx`` and ``ts`` (commit
    time, µs since 1970 UTC) have one number per payload. A delete carries its key columns only.
    Raises CorruptData for a message that is not one or has another number of columns; no value
    raises, whatever it is. All payloads together must stay below 2 GiB. ``image``: take the row
    before updates and deletes too, where the log has it; of a table without a key it always must.
    """
    if len(payloads) <= PLAIN_ROWS_MAX:
        return decode_rows_loop(payloads, schema, seq=seq, tx=tx, ts=ts, image=image)
    places = _key_places(schema)
    texts = split_tuples(payloads, len(schema.columns), places, image=image or not places)
    return _assemble(texts, schema, seq=seq, tx=tx, ts=ts)


def decode_rows_loop(
    payloads: Sequence[bytes],
    schema: TableSchema,
    *,
    seq: Numbers,
    tx: Numbers,
    ts: Numbers,
    image: bool = False,
) -> Decoded:
    """Do as `decode_rows`, by a plain loop over the values."""
    places = _key_places(schema)
    texts = split_tuples_plainly(payloads, len(schema.columns), places, image=image or not places)
    return _assemble(texts, schema, seq=seq, tx=tx, ts=ts)


def _key_places(schema: TableSchema) -> tuple[int, ...]:
    names = schema.column_names
    return tuple(names.index(name) for name in schema.key)


def _assemble(
    texts: Texts, schema: TableSchema, *, seq: Numbers, tx: Numbers, ts: Numbers
) -> Decoded:
    columns, images = TypedColumns(), TypedColumns()
    for column, text in zip(schema.columns, texts.columns, strict=True):
        columns.add(column.name, to_arrow(text, column.logical))
    before = () if texts.before is None else schema.key
    for name, text in zip(before, texts.before or (), strict=True):
        columns.add(BEFORE + name, to_arrow(text, schema.column(name).logical))
    for column, text in zip(schema.columns, texts.image or (), strict=texts.image is not None):
        if column.name not in schema.key:
            images.add(column.name, to_arrow(text, column.logical))
    rows = TypedRows(
        _OPERATIONS[texts.kinds],
        columns,
        before_rows=0 if texts.before is None else len(texts.kinds) - texts.before[0].null_count,
        images=images,
        imaged=texts.imaged,
        unchanged=texts.unchanged,
    )
    return assemble(rows, schema, seq=seq, tx=tx, ts=ts)
