"""The beginnings of row images.

A row image is a bitmap of NULLs (one bit per column, lowest first, to whole bytes), then the values
that are not NULL: of a fixed width each, or behind their length. So an image's end is only known by
walking it, but a batch holds many events, and one pass of numpy walks the first image of all of
them at once, the next the second, and so on. `image_starts_loop` does it by a plain loop, which is
quicker for the few events that have many images; both answer the same.

`fields` then finds the values in images that are known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.types.gather import Bytes, Offsets, lengths, window

PADDING = 512
"""Bytes that must lie behind the last image: one gather may reach beyond it."""

LANES_MIN = 24
"""The number of events from which walking side by side beats the loop (measured with 10
columns)."""

_PATTERNS_MAX = 4096
_NULLS_IN_WORD = 64


@dataclass(frozen=True, slots=True)
class Slot:
    """The layout of a column's values in an image: ``width`` bytes, or behind ``length_bytes``
    bytes of length when ``width`` is 0."""

    width: int
    length_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ImageShape:
    """The layout of a table's images; all of its columns are in every image."""

    slots: tuple[Slot, ...]

    @property
    def null_bytes(self) -> int:
        return (len(self.slots) + 7) // 8


def image_starts(
    data: Bytes, starts: Offsets, ends: Offsets, shape: ImageShape
) -> tuple[Offsets, Offsets]:
    """Return where the images in ``data[starts:ends]`` of each event begin, in log order, and how
    many each event has.

    ``PADDING`` bytes lie behind the last end. Raises CorruptData for an event without an image, or
    whose images do not end where it does.
    """
    if (starts >= ends).any():
        raise CorruptData("a row event of the binlog holds no row")
    try:
        return _side_by_side(data, starts, ends, shape)
    except IndexError:
        raise _overrun() from None


def image_starts_loop(
    data: Bytes, starts: Offsets, ends: Offsets, shape: ImageShape
) -> tuple[Offsets, Offsets]:
    """Do as `image_starts`, by a plain loop over the images."""
    if (starts >= ends).any():
        raise CorruptData("a row event of the binlog holds no row")
    walk = _loop(data, shape)
    found = [walk(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    counts = np.fromiter(map(len, found), np.int64, len(found))
    places = [place for places in found for place in places]
    return np.array(places, np.int64), counts


def _overrun() -> CorruptData:
    return CorruptData("a row image of the binlog does not end where its event does")


# Side by side ------------------------------------------------------------------------------------


def _side_by_side(
    data: Bytes, starts: Offsets, ends: Offsets, shape: ImageShape
) -> tuple[Offsets, Offsets]:
    step = _Step(data, shape)
    lanes: Offsets = np.arange(len(starts))
    counts: Offsets = np.zeros(len(starts), np.int64)
    at, limits = starts, ends
    found: list[Offsets] = []
    owners: list[Offsets] = []
    while len(at) and (len(at) >= LANES_MIN or not found):
        found.append(at)
        owners.append(lanes)
        at = step.over(at)
        going = at < limits
        if not going.all():
            if (at[~going] != limits[~going]).any():
                raise _overrun()
            counts[lanes[~going]] = len(found)
            at, limits, lanes = at[going], limits[going], lanes[going]
    if len(found) == 1 and not len(at):
        return starts, counts
    orders = np.repeat(np.arange(len(found)), [len(lane) for lane in owners])
    if len(at):
        rest, more = image_starts_loop(data, at, limits, shape)
        counts[lanes] = len(found) + more
        found.append(rest)
        owners.append(np.repeat(lanes, more))
        ordinals = np.arange(len(rest)) - np.repeat(np.cumsum(more) - more, more)
        orders = np.concatenate([orders, len(owners) - 1 + ordinals])
    first = np.cumsum(counts) - counts
    places: Offsets = np.empty(int(counts.sum()), np.int64)
    places[first[np.concatenate(owners)] + orders] = np.concatenate(found)
    return places, counts


class _Step:
    """The walk from one image to the next, in many events at once.

    ``at`` lags behind the true position by a distance that is the same in all events, so that a
    fixed width costs nothing.
    """

    def __init__(self, data: Bytes, shape: ImageShape) -> None:
        self._data = data
        self._words = -(-len(shape.slots) // _NULLS_IN_WORD)
        self._nulls = window(data, f"V{8 * self._words}")
        self._null_bytes = shape.null_bytes
        self._used = _used_bits(len(shape.slots), self._words)
        self._segments = _segments(shape)

    def over(self, images: Offsets) -> Offsets:
        nulls = self._nulls[images].view("<u8").reshape(len(images), self._words)
        seen = (np.bitwise_or.reduce(nulls, axis=0) & self._used).tobytes()
        bitmap = nulls.view(np.uint8)
        at, distance = images, self._null_bytes
        for widths, length_bytes, null_byte, null_bit in self._segments:
            for byte, bits, width, left in widths:
                if seen[byte] & bits:
                    at = at + left.take(bitmap[:, byte])
                else:
                    distance += width
            if not length_bytes:
                continue
            length = lengths(self._data, at, distance, length_bytes)
            if seen[null_byte] & null_bit:
                absent = (bitmap[:, null_byte] & null_bit) != 0
                at = at + np.where(absent, 0, length.astype(np.int64) + length_bytes)
            else:
                at = at + length
                distance += length_bytes
        return at + distance


_Widths = tuple[int, int, int, Offsets]
"""For the fixed-width columns whose NULL bits are in one byte: the byte, their bits, their widths
together, and the rest of these for each value of the byte."""


_Segment = tuple[list[_Widths], int, int, int]


@functools.lru_cache(maxsize=1024)
def _segments(shape: ImageShape) -> list[_Segment]:
    """Yield fixed-width columns up to the next column behind a length; then that one (0 at the
    end)."""
    segments: list[_Segment] = []
    run: dict[int, dict[int, int]] = {}
    for column, slot in enumerate(shape.slots):
        byte, bit = column >> 3, 1 << (column & 7)
        if slot.width:
            run.setdefault(byte, {})[bit] = slot.width
            continue
        widths = [_widths(at, widths) for at, widths in run.items()]
        segments.append((widths, slot.length_bytes, byte, bit))
        run = {}
    segments.append(([_widths(at, widths) for at, widths in run.items()], 0, 0, 0))
    return segments


def _widths(byte: int, widths: Mapping[int, int]) -> _Widths:
    left = [sum(width for bit, width in widths.items() if not nulls & bit) for nulls in range(256)]
    return byte, sum(widths), sum(widths.values()), np.array(left, np.int64)


def _used_bits(columns: int, words: int) -> npt.NDArray[np.uint64]:
    """Return the mask of the columns' bits: the server sets the bits behind the last column; they
    mean nothing."""
    bits = ((1 << columns) - 1).to_bytes(8 * words, "little")
    return np.frombuffer(bits, "<u8")


# One by one --------------------------------------------------------------------------------------


def _loop(data: Bytes, shape: ImageShape) -> Callable[[int, int], list[int]]:
    """Return a function that finds the images between two places.

    Images with the same NULLs have the same steps: a distance, then a length of some bytes.
    """
    view = data.data.cast("B")
    null_bytes, used = shape.null_bytes, (1 << len(shape.slots)) - 1
    patterns: dict[int, tuple[list[tuple[int, int]], int]] = {}

    def images(at: int, end: int) -> list[int]:
        found = []
        while at < end:
            found.append(at)
            nulls = int.from_bytes(view[at : at + null_bytes], "little") & used
            if nulls not in patterns:
                if len(patterns) >= _PATTERNS_MAX:
                    patterns.clear()
                patterns[nulls] = _pattern(shape, nulls)
            steps, rest = patterns[nulls]
            for distance, length_bytes in steps:
                at += distance
                at += length_bytes + int.from_bytes(view[at : at + length_bytes], "little")
            at += rest
        if at != end:
            raise _overrun()
        return found

    return images


def _pattern(shape: ImageShape, nulls: int) -> tuple[list[tuple[int, int]], int]:
    steps, distance = [], shape.null_bytes
    for column, slot in enumerate(shape.slots):
        if nulls >> column & 1:
            continue
        if slot.width:
            distance += slot.width
        else:
            steps.append((distance, slot.length_bytes))
            distance = 0
    return steps, distance
