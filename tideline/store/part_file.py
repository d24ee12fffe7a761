"""The file of a part, as whoever reads its rows checks it against its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Part, digest
from tideline.contract.part import SEQ

_UNREADABLE = (pa.ArrowException, OSError, LookupError, ValueError, TypeError)
"""The errors for bytes that are no Parquet file, or one without our columns."""
_RESTORE = "restore the object from a copy of the store"


def opened_part(part: Part, raw: bytes) -> pq.ParquetFile:
    """Return the file of ``part``, whose bytes are ``raw``. Raises CorruptData for other bytes than
    the manifest's, and for no Parquet."""
    if digest(raw) != part.digest:
        raise CorruptData(f"{part.key} has another digest than its manifest says", _RESTORE)
    with reading(part):
        return pq.ParquetFile(pa.BufferReader(raw))


@contextmanager
def reading(part: Part) -> Iterator[None]:
    """Raise what is raised for bytes that are no part as CorruptData."""
    try:
        yield
    except _UNREADABLE as error:
        kind = type(error).__name__
        raise CorruptData(f"{part.key} cannot be read as Parquet: {kind}", _RESTORE) from error


def sequences_of(part: Part, batch: pa.RecordBatch, after: int) -> np.ndarray:
    """Return the sequences of rows of ``part``, which are behind ``after``. Raises CorruptData for
    rows that are not in order."""
    with reading(part):
        found: np.ndarray = batch.column(SEQ).to_numpy()
        ordered = found[0] > after and not np.any(np.diff(found) <= 0)
    if not ordered:
        raise CorruptData(f"the rows of {part.key} are not in order", _RESTORE)
    return found


def other_rows(part: Part) -> CorruptData:
    """Return the error for a part that does not hold the rows that its manifest says."""
    return CorruptData(f"{part.key} does not hold the rows that its manifest says", _RESTORE)
