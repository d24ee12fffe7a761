"""Numbers and bytes from any places of a buffer, all in one go."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
"""Offsets into bytes."""
Mask = npt.NDArray[np.bool_]


def window(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    """Return ``data`` as overlapping items of ``dtype``, one at each byte: a gather of many bytes
    costs little more than one of a single byte."""
    kind = np.dtype(dtype)
    return np.ndarray(len(data) - kind.itemsize + 1, kind, data.data, strides=(1,))


def take(data: Bytes, at: Offsets, distance: int, width: int) -> Bytes:
    """Return the ``width`` bytes ``distance`` behind each place, a row each."""
    if not width:
        return np.empty((len(at), 0), np.uint8)
    rows = window(data[distance:], f"V{width}")[at]
    return rows.view(np.uint8).reshape(len(at), width)


def lengths(data: Bytes, at: Offsets, distance: int, length_bytes: int) -> npt.NDArray[Any]:
    """Return the little-endian numbers of ``length_bytes`` bytes (1 to 4), ``distance`` behind
    ``at``."""
    if length_bytes == 1:
        return data[distance:][at]
    if length_bytes == 2:
        return window(data[distance:], "<u2")[at]
    numbers = window(data[distance:], "<u4")[at]
    return numbers & 0xFFFFFF if length_bytes == 3 else numbers
