"""MariaDB's UUID, INET4 and INET6, which the log holds as the bytes of a BINARY column."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline_capture.sources.mysql.types.arrays import fixed_texts, texts_of, values_array
from tideline_capture.sources.mysql.types.gather import Bytes, Mask

_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_UUID_GROUPS = ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16))
_BYTE_TEXTS = pa.array([str(byte) for byte in range(256)], pa.string())
_WORDS = 8
_MAPPED_PREFIX = 0xFFFF


def native_texts(native: str, stored: Bytes, nulls: Mask | None) -> pa.StringArray:
    """Return the text of each row of ``stored``, which has all of a value's bytes."""
    return _TEXTS[native](stored, nulls)


def inet6_text(stored: bytes) -> str:
    """Print an INET6 as MariaDB does: the first longest run of zero words, even a single one, is
    ``::``; the last two words are an IPv4 address when that run is all there is before them."""
    words = [int.from_bytes(stored[at : at + 2], "big") for at in range(0, 2 * _WORDS, 2)]
    begin, length = _longest_gap(words)
    if begin == 0 and (length == 6 or (length == 5 and words[5] == _MAPPED_PREFIX)):
        prefix = "::ffff:" if length == 5 else "::"
        return prefix + str(ipaddress.IPv4Address(stored[12:]))
    if not length:
        return ":".join(f"{word:x}" for word in words)
    before = ":".join(f"{word:x}" for word in words[:begin])
    after = ":".join(f"{word:x}" for word in words[begin + length :])
    return f"{before}::{after}"


def _longest_gap(words: list[int]) -> tuple[int, int]:
    best = (0, 0)
    at = 0
    while at < _WORDS:
        end = at
        while end < _WORDS and words[end] == 0:
            end += 1
        if end - at > best[1]:
            best = (at, end - at)
        at = end + 1
    return best


def _uuids(stored: Bytes, nulls: Mask | None) -> pa.StringArray:
    """Return the texts: the log has the bytes in their order, whatever the table's storage does."""
    digits = _HEX[stored].reshape(len(stored), -1)
    dash: Bytes = np.full((len(stored), 1), ord("-"), np.uint8)
    pieces: list[Bytes] = []
    for begin, end in _UUID_GROUPS:
        pieces += [digits[:, 2 * begin : 2 * end], dash]
    return fixed_texts(np.concatenate(pieces[:-1], axis=1), nulls)


def _inet4s(stored: Bytes, nulls: Mask | None) -> pa.StringArray:
    parts = [
        _BYTE_TEXTS.take(pa.array(np.ascontiguousarray(stored[:, at]), mask=nulls))
        for at in range(stored.shape[1])
    ]
    return pc.binary_join_element_wise(*parts, ".")


def _inet6s(stored: Bytes, nulls: Mask | None) -> pa.StringArray:
    return texts_of(values_array(pa.binary(2 * _WORDS), stored, None), inet6_text, nulls)


_TEXTS: Mapping[str, Callable[[Bytes, Mask | None], pa.StringArray]] = {
    "uuid": _uuids,
    "inet4": _inet4s,
    "inet6": _inet6s,
}
