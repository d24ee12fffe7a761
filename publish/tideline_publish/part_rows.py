"""Reads the rows of a manifest's parts, of all tables together, in the order of their sequences.

Memory is bounded by a batch of rows and the bytes of the part for each table that the same
transactions changed, whatever the manifest holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Part
from tideline.contract.part import SEQ
from tideline.store.part_file import opened_part, other_rows, reading, sequences_of

BATCH_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one part, by their sequences; ``logged``: they are logical messages."""

    part: Part
    batch: pa.RecordBatch
    logged: bool = False

    def behind(self, seq: int) -> TableRows:
        """Return the rows with sequences above ``seq``."""
        sequences = self.batch.column(SEQ).to_numpy()
        if not len(sequences) or sequences[0] > seq:
            return self
        first = int(np.searchsorted(sequences, seq, side="right"))
        return TableRows(self.part, self.batch.slice(first), self.logged)


def rows_in_order(
    parts: Sequence[Part],
    get: Callable[[str], bytes | None],
    messages: Sequence[Part] = (),
) -> Iterator[tuple[int, list[TableRows]]]:
    """Yield the rows of ``parts``, and of parts of logical ``messages``, in windows, each with the
    sequence that it reaches to: all rows of the next have higher ones. Within a window, each batch
    is in order.

    Raises CorruptData for a part that is missing, or is not as its manifest has it.
    """
    logged = {part.key for part in messages}
    waiting = sorted([*parts, *messages], key=lambda part: part.first_seq, reverse=True)
    opened: list[_PartReader] = []
    while waiting or opened:
        if not opened:
            opened.append(_PartReader(waiting.pop(), get))
        end = min(one.loaded_to for one in opened)
        while waiting and waiting[-1].first_seq <= end:
            opened.append(_PartReader(waiting.pop(), get))
            end = min(end, opened[-1].loaded_to)
        yield (
            end,
            [
                TableRows(one.part, one.take(end), one.part.key in logged)
                for one in opened
                if one.next_seq <= end
            ],
        )
        opened = [one for one in opened if not one.ended]


class _PartReader:
    """A part that is read batch by batch. ``next_seq``: of its next row; ``loaded_to``: of the last
    row that is in memory."""

    def __init__(self, part: Part, get: Callable[[str], bytes | None]) -> None:
        raw = get(part.key)
        if raw is None:
            raise CorruptData(
                f"{part.key} is missing: changes {part.first_seq} to {part.last_seq} of"
                f" {part.table} cannot be published",
                hint="restore it; or, where retention removed it, have the publisher begin behind"
                " it (docs/PUBLISHING.md#where-it-begins)",
            )
        self.part = part
        self.ended = False
        self.next_seq = self.loaded_to = 0
        self._rows = 0
        self._batch: pa.RecordBatch = None
        self._sequences: np.ndarray = np.empty(0, np.int64)
        file = opened_part(part, raw)
        with reading(part):
            self._batches = file.iter_batches(BATCH_ROWS, use_threads=False)
        self._load()

    def take(self, end: int) -> pa.RecordBatch:
        """Return the loaded rows with sequences up to ``end``, at least one."""
        count = int(np.searchsorted(self._sequences, end, side="right"))
        taken = self._batch.slice(0, count)
        if count == len(self._sequences):
            self._load()
        else:
            self._batch = self._batch.slice(count)
            self._sequences = self._sequences[count:]
            self.next_seq = int(self._sequences[0])
        return taken

    def _load(self) -> None:
        with reading(self.part):
            batch = next(self._batches, None)
        if batch is None:
            if (self._rows, self.loaded_to) != (self.part.rows, self.part.last_seq):
                raise other_rows(self.part)
            self.ended = True
            return
        self._batch, self._sequences = batch, sequences_of(self.part, batch, self.loaded_to)
        self._rows += batch.num_rows
        self.next_seq, self.loaded_to = int(self._sequences[0]), int(self._sequences[-1])
