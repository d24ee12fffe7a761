"""The places of the values in row images whose beginnings are known.

Fixed-width values that follow each other stand at the same distance from one place per image (their
anchor), so one gather fetches them together; behind a value of any length, and behind one that is
NULL in some image, there is a new anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tideline_capture.sources.mysql.types.gather import Bytes, Mask, Offsets, lengths, take
from tideline_capture.sources.mysql.types.images import ImageShape

_WINDOW_MAX = 256
"""The most bytes that are fetched together; `images.PADDING` covers them."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A column's values of a fixed width: ``raw`` has one row of bytes per image (any bytes where
    ``nulls``); ``nulls`` is None when there are none."""

    raw: Bytes
    nulls: Mask | None


@dataclass(frozen=True, slots=True)
class Variable:
    """A column's values of any length: where each begins, and its length (0 where ``nulls``)."""

    at: Offsets
    length: Offsets
    nulls: Mask | None


Field = Fixed | Variable


def locate(
    data: Bytes, images: Offsets, shape: ImageShape, wanted: Sequence[int]
) -> dict[int, Field]:
    """Return where the values of the ``wanted`` columns stand, by column."""
    locator = _Locator(data, images, shape)
    for column in range(max(wanted, default=-1) + 1):
        locator.pass_by(column, wanted=column in wanted)
    return locator.fields()


class _Locator:
    """Passes the columns of all images one after the other."""

    def __init__(self, data: Bytes, images: Offsets, shape: ImageShape) -> None:
        self._data = data
        self._shape = shape
        self._nulls = take(data, images, 0, shape.null_bytes)
        self._seen = np.bitwise_or.reduce(self._nulls, axis=0).tobytes()
        self._anchors = [images]
        self._distance = shape.null_bytes
        self._fixed: list[tuple[int, int, int, Mask | None]] = []
        self._fields: dict[int, Field] = {}

    def pass_by(self, column: int, *, wanted: bool) -> None:
        slot = self._shape.slots[column]
        byte, bit = column >> 3, 1 << (column & 7)
        nulls = (self._nulls[:, byte] & bit) != 0 if self._seen[byte] & bit else None
        if slot.width:
            if wanted:
                self._fixed.append((column, len(self._anchors) - 1, self._distance, nulls))
            if nulls is None:
                self._distance += slot.width
            else:
                self._anchor(self._anchors[-1] + np.where(nulls, 0, slot.width), self._distance)
            return
        length = lengths(self._data, self._anchors[-1], self._distance, slot.length_bytes)
        length = length.astype(np.int64)
        begin = self._anchors[-1] + (self._distance + slot.length_bytes)
        if nulls is not None:
            length[nulls] = 0
            begin[nulls] -= slot.length_bytes
        if wanted:
            self._fields[column] = Variable(begin, length, nulls)
        self._anchor(begin + length, 0)

    def fields(self) -> dict[int, Field]:
        """Return the wanted columns; those at one anchor are fetched together."""
        together: list[tuple[int, int, int, Mask | None]] = []
        for one in self._fixed:
            if together and not self._near(together[0], one):
                self._fetch(together)
                together = []
            together.append(one)
        if together:
            self._fetch(together)
        return self._fields

    def _anchor(self, at: Offsets, distance: int) -> None:
        self._anchors.append(at)
        self._distance = distance

    def _near(
        self, first: tuple[int, int, int, Mask | None], one: tuple[int, int, int, Mask | None]
    ) -> bool:
        end = one[2] + self._shape.slots[one[0]].width
        return first[1] == one[1] and end - first[2] <= _WINDOW_MAX

    def _fetch(self, together: Sequence[tuple[int, int, int, Mask | None]]) -> None:
        _, anchor, begin, _ = together[0]
        end = together[-1][2] + self._shape.slots[together[-1][0]].width
        rows = take(self._data, self._anchors[anchor], begin, end - begin)
        for column, _, distance, nulls in together:
            width = self._shape.slots[column].width
            self._fields[column] = Fixed(rows[:, distance - begin :][:, :width], nulls)
