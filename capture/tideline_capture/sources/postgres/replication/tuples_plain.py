"""The same as `tuples`, one value after the other.

Quicker than the vectorised walk for a handful of rows, and the oracle that it is tested against:
written from the protocol's description alone, sharing none of its code but the result's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
import pyarrow as pa

from tideline.contract.errors import CorruptData
from tideline_capture.sources.postgres.replication.tuples import (
    DELETE,
    INSERT,
    NEW,
    NULL,
    OLD_KEY,
    OLD_ROW,
    TEXT,
    UNCHANGED,
    UPDATE,
    Mask,
    Texts,
)


class _Missing(Enum):
    """A value that the message does not carry."""

    UNCHANGED = UNCHANGED


_Value = bytes | _Missing | None
_Tuple = list[_Value]


def split_tuples_plainly(
    payloads: Sequence[bytes], columns: int, key: Sequence[int], *, image: bool = False
) -> Texts:
    """Do as `tuples.split_tuples`."""
    before: list[_Tuple | None] = []
    rows: list[_Tuple] = []
    images: list[_Tuple | None] = []
    for payload in payloads:
        old, row, whole = _row(payload, columns, key)
        changed = old is not None and any(old[at] != row[at] for at in key)
        before.append(old if changed else None)
        rows.append(row)
        images.append(whole if image else None)
    masks: Mask = np.array(
        [[value is _Missing.UNCHANGED for value in row] for row in rows], np.bool_
    )
    imaged: Mask = np.array([whole is not None for whole in images], np.bool_)
    return Texts(
        np.frombuffer(bytes(payload[0] for payload in payloads), np.uint8),
        tuple(_array([row[at] for row in rows]) for at in range(columns)),
        masks if masks.any() else None,
        _arrays_of(before, key),
        _arrays_of(images, range(columns)),
        imaged if imaged.any() else None,
    )


def _arrays_of(
    rows: Sequence[_Tuple | None], places: Sequence[int]
) -> tuple[pa.BinaryArray, ...] | None:
    """Return, per place, the values of those rows that are there; None when there are none."""
    if all(row is None for row in rows):
        return None
    return tuple(_array([None if row is None else row[at] for row in rows]) for at in places)


def _row(
    payload: bytes, columns: int, key: Sequence[int]
) -> tuple[_Tuple | None, _Tuple, _Tuple | None]:
    """Return the old tuple of an update (None without one), the row as it is to be written, and the
    row before (None unless all of it is there)."""
    kind, at, old = _byte(payload, 0), 5, None
    marker = _byte(payload, at)
    if kind not in (INSERT, UPDATE, DELETE) or marker not in (NEW, OLD_KEY, OLD_ROW):
        raise CorruptData("not a row message of pgoutput's protocol version 1")
    if (kind == INSERT and marker != NEW) or (kind == DELETE and marker == NEW):
        raise CorruptData("not a row message of pgoutput's protocol version 1")
    if kind == UPDATE and marker != NEW:
        old, at = _tuple(payload, at, columns)
        if _byte(payload, at) != NEW:
            raise CorruptData("a row message of pgoutput has no new tuple after its old one")
    row, at = _tuple(payload, at, columns)
    if at != len(payload):
        raise CorruptData("a row message of pgoutput is longer than its tuples")
    whole = row if kind == DELETE else old
    if marker != OLD_ROW or (whole is not None and _Missing.UNCHANGED in whole):
        whole = None
    if kind == DELETE:
        return None, [value if place in key else None for place, value in enumerate(row)], whole
    if old is not None:
        for place, value in enumerate(row):
            if value is _Missing.UNCHANGED and (marker == OLD_ROW or place in key):
                row[place] = old[place]
    return old, row, whole


def _tuple(payload: bytes, at: int, columns: int) -> tuple[_Tuple, int]:
    """Return the tuple whose marker is at ``at``, and where it ends."""
    if int.from_bytes(payload[at + 1 : at + 3]) != columns:
        raise CorruptData(f"a row message of pgoutput does not have {columns} columns")
    at += 3
    values: _Tuple = []
    for _ in range(columns):
        kind = _byte(payload, at)
        at += 1
        if kind == TEXT:
            end = at + 4 + int.from_bytes(payload[at : at + 4])
            values.append(payload[at + 4 : end])
            at = end
        elif kind == NULL:
            values.append(None)
        elif kind == UNCHANGED:
            values.append(_Missing.UNCHANGED)
        else:
            raise CorruptData("a row message of pgoutput holds a value that is not text")
    return values, at


def _byte(payload: bytes, at: int) -> int:
    if at >= len(payload):
        raise CorruptData("a row message of pgoutput ends before its last column")
    return payload[at]


def _array(values: Sequence[_Value]) -> pa.BinaryArray:
    return pa.array([v if isinstance(v, bytes) else None for v in values], pa.binary())
