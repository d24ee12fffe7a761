"""DECIMAL as both servers store it.

The digits before the point and those behind it are each cut into groups of nine, counted from the
point; a group of nine takes four bytes, what is left over one to four. Big endian; the first bit is
set when the value is not negative, and a negative value has all its other bits flipped.
(MySQL: strings/decimal.cc, decimal2bin.)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tideline.contract.types import DECIMAL_PRECISION_MAX
from tideline_capture.arrow_types import Converted
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.mysql.types.arrays import (
    big_endian,
    bytes_array,
    values_array,
    with_nulls,
)
from tideline_capture.sources.mysql.types.fields import Fixed, Variable
from tideline_capture.sources.mysql.types.gather import Bytes, Mask

_GROUP_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_WORD = 8
_LIMB = 0xFFFFFFFF


def decimal_width(precision: int, scale: int) -> int:
    """Return how many bytes a DECIMAL(precision, scale) takes."""
    return sum(size for size, _ in _groups(precision, scale))


def decimals(field: Fixed, precision: int, scale: int) -> Converted:
    """Decode decimals; as the text the server prints when they are wider than a decimal can be."""
    if precision > DECIMAL_PRECISION_MAX:
        texts = decimal_texts(field.raw, precision, scale)
        return Converted(texts if field.nulls is None else with_nulls(texts, field.nulls))
    kind = pa.decimal128(precision, scale)
    if field.raw.shape[1] <= _WORD:
        small = _small(field.raw, precision, scale)
        wide = np.empty((len(small), 2), np.int64)
        wide[:, 0] = small
        np.right_shift(small, 63, out=wide[:, 1])
        return Converted(values_array(kind, wide, field.nulls))
    return Converted(values_array(kind, _wide(field.raw, precision, scale), field.nulls))


def unsigned_decimals(raw: Bytes, nulls: Mask | None) -> pa.Array:
    """Decode BIGINT UNSIGNED (8 bytes, little endian) as decimal(20, 0)."""
    wide = np.zeros((len(raw), 2), np.uint64)
    wide[:, 0] = raw.view("<u8")[:, 0]
    return values_array(pa.decimal128(20, 0), wide, nulls)


def decimal_texts(raw: Bytes, precision: int, scale: int) -> pa.StringArray:
    """Print values as the server does."""
    magnitude, negative = _magnitude(raw)
    whole = max(precision - scale, 1)
    width = 1 + whole + (1 + scale if scale else 0)
    characters = np.full((len(raw), width), ord("0"), np.uint8)
    characters[:, 0] = ord("-")
    if scale:
        characters[:, 1 + whole] = ord(".")
    at = 1 + whole - (precision - scale)
    for group, count in _group_values(magnitude, precision, scale):
        if at == 1 + whole and scale:
            at += 1
        rest = group
        for place in range(at + count - 1, at - 1, -1):
            rest, digit = np.divmod(rest, 10)
            characters[:, place] += digit.astype(np.uint8)
        at += count
    # The first digit that is not a leading zero, the last before the point at the latest; a minus
    # takes the place before it.
    digits = characters[:, 1 : 1 + whole] != ord("0")
    digits[:, -1] = True
    first = digits.argmax(axis=1) + 1
    rows = np.arange(len(first))
    characters[rows[negative], first[negative] - 1] = ord("-")
    begin = rows * width + first - negative
    length = (rows + 1) * width - begin
    flat = characters.reshape(-1)
    return bytes_array(flat, Variable(begin, length, None)).view(pa.string())


def _groups(precision: int, scale: int) -> Iterator[tuple[int, int]]:
    """Return each group's bytes and digits."""
    before, after = divmod(precision - scale, 9), divmod(scale, 9)
    digits = [before[1], *[9] * (before[0] + after[0]), after[1]]
    return ((_GROUP_BYTES[count], count) for count in digits if count)


def _small(raw: Bytes, precision: int, scale: int) -> Int64Array:
    """Decode values of up to 8 bytes, which never have more than 18 digits, times 10**scale."""
    bits = 8 * raw.shape[1]
    stored = big_endian(raw)
    negative = stored >> (bits - 1) & 1 ^ 1
    # All bits of a negative value flip; those above its width are left to the masks below.
    stored ^= -negative
    number: Int64Array | None = None
    shift, first = bits, True
    for size, digits in _groups(precision, scale):
        shift -= 8 * size
        group = stored >> shift & ((1 << 8 * size - first) - 1)
        number = group if number is None else number * 10**digits + group
        first = False
    assert number is not None
    values: Int64Array = (number ^ -negative) + negative
    return values


def _wide(raw: Bytes, precision: int, scale: int) -> npt.NDArray[np.uint64]:
    """Decode values of up to 38 digits times 10**scale, as numbers of 128 bits in two's
    complement."""
    digits, negative = _magnitude(raw)
    limbs = [np.zeros(len(raw), np.uint64) for _ in range(4)]
    for group, count in _group_values(digits, precision, scale):
        carry = group.astype(np.uint64)
        for place, limb in enumerate(limbs):
            carry += limb * np.uint64(10**count)
            limbs[place] = carry & np.uint64(_LIMB)
            carry >>= np.uint64(32)
    wide = np.stack([limbs[0] | limbs[1] << 32, limbs[2] | limbs[3] << 32], axis=1)
    wide[negative] = ~wide[negative]
    low = wide[negative, 0] + np.uint64(1)
    wide[negative, 0] = low
    wide[negative, 1] += (low == 0).astype(np.uint64)
    return wide


def _magnitude(raw: Bytes) -> tuple[Bytes, Mask]:
    """Return the bytes as those of a positive value have them, and which values are negative."""
    negative = raw[:, 0] < 0x80
    flipped: Bytes = np.where(negative[:, None], ~raw, raw)
    flipped[:, 0] ^= 0x80
    return flipped, negative


def _group_values(magnitude: Bytes, precision: int, scale: int) -> Iterator[tuple[Int64Array, int]]:
    at = 0
    for size, digits in _groups(precision, scale):
        yield big_endian(magnitude[:, at : at + size]), digits
        at += size
