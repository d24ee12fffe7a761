"""A chunk of a dump: the bytes of ``COPY … (FORMAT csv)`` into a record batch.

The typed parse of Arrow's CSV reader serves nearly every chunk. When it meets a value that it
cannot hold, the chunk is read again as plain text and each column converted by `types.to_arrow`,
as the log's columns are. Both give the same values; that is tested for every type.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Mapping, Sequence
from csv import field_size_limit
from csv import reader as read_records

import pyarrow as pa
import pyarrow.csv as csv

from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.schema import Column
from tideline.contract.types import Kind
from tideline_capture.arrow_types import Converted, arrow_type
from tideline_capture.sources.decoded import chunk_batch, no_rows
from tideline_capture.sources.postgres.types import to_arrow

CSV_BYTES_MAX = 2**31 - 2
"""Arrow's reader takes the whole chunk as one block, whose size has 32 bits."""

field_size_limit(CSV_BYTES_MAX)
"""Python's own limit of 128 KiB per field is below what a text column holds."""


class CopiedRows:
    """Takes COPY's rows, one call each; past ``bytes_max`` the rest is counted as cut off."""

    def __init__(self, bytes_max: int | None) -> None:
        self.cut = False
        self.bytes = 0
        self._bytes_max = bytes_max
        self._rows: list[bytes] = []

    def __len__(self) -> int:
        return len(self._rows)

    def write(self, row: bytes) -> None:
        if self._bytes_max is not None and self.bytes >= self._bytes_max:
            self.cut = True
            return
        self._rows.append(row)
        self.bytes += len(row)

    def read(self, size: int = -1) -> bytes:
        """Return nothing: psycopg2 requires a file to have it."""
        return b""

    def data(self) -> bytes:
        return b"".join(self._rows)

    def last_key(self, key: Sequence[str], names: Sequence[str]) -> tuple[str, ...] | None:
        """Return the ``key`` of the last row taken, whose columns are ``names``, as the server
        printed it."""
        if not self._rows:
            return None
        row = io.StringIO(self._rows[-1].decode(), newline="")
        record = next(read_records(row, strict=True))
        return tuple(record[names.index(name)] for name in key)


def chunk_from_csv(data: bytes, columns: Sequence[Column]) -> pa.RecordBatch:
    """Parse ``data`` as rows of ``columns``, typed as `decode.decode_rows` types them.

    ``data`` was printed under `types.PINNED`, without a header and with the default options of
    ``FORMAT csv``, so that an unquoted nothing is NULL and ``""`` the empty text. ``_tl_overflow``
    is the last column when some value needs it (`arrow_types.overflowed_columns` names which).
    Raises CorruptData for bytes that are not such a CSV, InvariantBroken for 2 GiB or more (the
    caller limits a chunk's bytes).
    """
    if len(data) > CSV_BYTES_MAX:
        raise InvariantBroken(f"a chunk has {len(data)} bytes")
    if len(data) == 0:
        return no_rows(columns)
    try:
        read = _read(data, {column.name: _readable(column) for column in columns})
    except pa.ArrowInvalid:
        read = _read_texts(data, columns)
    return _converted(read, columns)


def _read_texts(data: bytes, columns: Sequence[Column]) -> list[pa.Array]:
    try:
        return _read(data, {column.name: pa.binary() for column in columns})
    except pa.ArrowInvalid:
        raise CorruptData(f"a chunk is not CSV of {len(columns)} columns") from None


def _read(data: bytes, types: Mapping[str, pa.DataType]) -> list[pa.Array]:
    """Parse one array per column; pa.ArrowInvalid when some value is not of its type."""
    if data.startswith(codecs.BOM_UTF8):
        # The reader takes one away, and here it is the beginning of a value.
        data = codecs.BOM_UTF8 + data
    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            column_names=list(types), use_threads=False, block_size=len(data) + 1
        ),
        # An empty line is a row: one column, NULL.
        parse_options=csv.ParseOptions(newlines_in_values=b'"' in data, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=types,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            timestamp_parsers=[csv.ISO8601],
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def _readable(column: Column) -> pa.DataType:
    """Return the type that the CSV reader can parse the column as."""
    return pa.binary() if column.logical.kind is Kind.BINARY else arrow_type(column.logical)


def _converted(read: Sequence[pa.Array], columns: Sequence[Column]) -> pa.RecordBatch:
    """Return a batch of ``read``, in which columns read as text are converted to their types."""
    converted = [
        to_arrow(array, column.logical)
        if array.type != _readable(column) or column.logical.kind is Kind.BINARY
        else Converted(array)
        for column, array in zip(columns, read, strict=True)
    ]
    return chunk_batch(columns, converted)
