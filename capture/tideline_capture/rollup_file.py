"""Builds one roll-up: the rows of many parts, checked while they are written into one file.

It has a part's shape and encodings. The bytes follow from the parts alone: row groups end after a
number of rows or bytes, not by time.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Part
from tideline.contract.part import IMAGE, OP, OVERFLOW, UNCHANGED, total
from tideline.contract.schema import TableSchema
from tideline.store.part_file import opened_part, other_rows, reading, sequences_of
from tideline_capture.arrow_types import part_schema
from tideline_capture.segments import ROW_GROUP_ROWS, fill, write_options

_BATCH_ROWS = 1 << 14
_ROW_GROUP_BYTES = 32 * 1024 * 1024


class RollUpFile:
    """The rows of some of ``group``, parts of ``schema``; ``parts`` are those that were added."""

    def __init__(self, schema: TableSchema, group: Sequence[Part]) -> None:
        self.parts: list[Part] = []
        counts = total(group)
        imaged = counts.before_image_rows > 0
        self._fields = part_schema(
            schema,
            schema.key if counts.before_rows else (),
            unchanged=counts.unchanged_rows > 0,
            overflow=counts.overflow_rows > 0,
            image=imaged,
            image_overflow=imaged,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._buffer = io.BytesIO()
        self._writer: pq.ParquetWriter | None = None
        self._last_seq = 0

    def add(self, part: Part, raw: bytes) -> None:
        """Append the rows of ``part``, which follow those of the parts before.

        Raises CorruptData unless ``raw`` holds what the manifest says of it. Then nothing may be
        added any more.
        """
        file = opened_part(part, raw)
        with reading(part):
            counts, first_seq = self._add_rows(part, file)
        wanted = Counter({f"op {name}": count for name, count in part.operations.items()})
        wanted.update({UNCHANGED: part.unchanged_rows, OVERFLOW: part.overflow_rows})
        wanted.update({IMAGE: part.before_image_rows})
        if (counts, first_seq, self._last_seq) != (wanted, part.first_seq, part.last_seq):
            raise other_rows(part)
        self.parts.append(part)

    def _add_rows(self, part: Part, file: pq.ParquetFile) -> tuple[Counter[str], int | None]:
        """Append the rows; return their counts, and the first one's sequence."""
        counts: Counter[str] = Counter()
        first_seq = None
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            sequences = sequences_of(part, batch, self._last_seq)
            first_seq = int(sequences[0]) if first_seq is None else first_seq
            self._last_seq = int(sequences[-1])
            counts.update(_counts(batch))
            self._take(self._in_shape(part, batch))
        return counts, first_seq

    def finish(self) -> bytes:
        """Return the file; nothing may be added any more."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
        return self._buffer.getvalue()

    def _in_shape(self, part: Part, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = set(self._fields.names)
        for name in batch.schema.names:
            if name not in names and batch.column(name).null_count < batch.num_rows:
                raise CorruptData(f"{part.key} has a column that its manifest does not name")
        return fill(batch, self._fields)

    def _take(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, schema=self._fields)
        self._waiting.clear()
        self._waiting_rows = self._waiting_bytes = 0
        if self._writer is None:
            options = write_options(table)
            self._writer = pq.ParquetWriter(self._buffer, self._fields, **options)
        self._writer.write_table(table, row_group_size=table.num_rows)


def _counts(batch: pa.RecordBatch) -> dict[str, int]:
    found = pc.value_counts(batch.column(OP)).to_pylist()
    counts = {f"op {entry['values']}": entry["counts"] for entry in found}
    for name in (UNCHANGED, OVERFLOW, IMAGE):
        if name in batch.schema.names:
            counts[name] = batch.num_rows - batch.column(name).null_count
    return counts
