r"""Bytes in a server's character set as text.

The log holds a value in its column's set, and so does a dump (the servers' own conversion would
print ``?`` for what it cannot convert). Both are converted here, to what the servers' ``CONVERT(…
USING utf8mb4)`` gives.

Invariant: no byte is lost. A value with a byte that is no character in its set is NULL in the
values, and stands in the overflow with ``\xNN`` for each such byte.

UTF-8, or ASCII in a set that contains it, costs a look at each byte in C. Everything else is
converted a whole array at once: by table in numpy (sets of single bytes and East Asia's), or by a
codec of Python over the values joined (UTF-16, UTF-32, GB18030).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import CorruptData, InvariantBroken
from tideline_capture.arrow_types import Converted
from tideline_capture.sources.mysql.types.charset_tables import (
    CHAR_BYTES,
    NONE,
    CodeTable,
    code_table,
    collations,
)

_CHARSET_OF: Mapping[int, str] = dict(collations())
_UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8", "binary"})
"""``utf8`` is utf8mb3 on MySQL before 8.0.30; the servers take ``binary`` for UTF-8 as well, where
it is requested as a text (labels of an ENUM can be)."""

_Bytes = npt.NDArray[np.uint8]
_Int64Array = npt.NDArray[np.int64]
_UTF32 = f"utf-32-{'le' if sys.byteorder == 'little' else 'be'}"
_LONGER_FROM = (0x80, 0x800)
"""Code points from which on UTF-8 takes a byte more; no `CodeTable` has any that takes four."""
_PLANE_PREFIX = 0x8F
"""The byte in EUC-JP before two bytes of the second plane."""
_NO_CODE = 0x10080
"""A code that is no character in any `CodeTable`: a single byte of the second plane."""
_BYTES_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Codec:
    """Python's codec of a charset, for sets that no `CodeTable` can hold.

    ``refused`` finds characters that it gives and the servers do not; ``swapped`` are two that it
    gives for one another's bytes.
    """

    name: str
    newline: bytes
    refused: re.Pattern[str] | None = None
    swapped: str = ""

    @property
    def is_ascii(self) -> bool:
        """Return whether bytes below 0x80 that follow none above are ASCII."""
        return len(self.newline) == 1

    def decode(self, raw: bytes) -> str:
        """Return the text; UnicodeDecodeError when ``raw`` is none."""
        text = raw.decode(self.name)
        if self.refused is not None and self.refused.search(text):
            raise UnicodeDecodeError(self.name, raw, 0, len(raw), "no character of this set")
        return self._swap(text)

    def printable(self, raw: bytes) -> str:
        r"""Return the text with ``\xNN`` for invalid bytes."""
        text = raw.decode(self.name, "backslashreplace")
        if self.refused is not None:
            text = self.refused.sub(lambda found: _escaped(found[0].encode(self.name)), text)
        return self._swap(text)

    def _swap(self, text: str) -> str:
        if any(one in text for one in self.swapped):
            return text.translate(str.maketrans(self.swapped, self.swapped[::-1]))
        return text


_CODECS: Mapping[str, _Codec] = {
    # Surrogates are characters like any other in ucs2: never a pair.
    "ucs2": _Codec("utf-16-be", b"\0\n", refused=re.compile("[\U00010000-\U0010ffff]")),
    "utf16": _Codec("utf-16-be", b"\0\n"),
    "utf16le": _Codec("utf-16-le", b"\n\0"),
    "utf32": _Codec("utf-32-be", b"\0\0\0\n"),
    # The servers have GB 18030-2005, Python that of 2000.
    "gb18030": _Codec("gb18030", b"\n", swapped="\u1e3f\ue7c7"),
}


def charset_of(collation: int) -> tuple[str, int]:
    """Return the charset of a collation id, and the most bytes that one of its characters has.

    CorruptData for an id that neither MySQL nor MariaDB ships.
    """
    name = _CHARSET_OF.get(collation)
    if name is None:
        raise CorruptData(f"unknown collation {collation} in the log")
    return name, CHAR_BYTES[name]


def is_known(charset: str) -> bool:
    """Return whether texts in the charset of this name can be read."""
    return charset in CHAR_BYTES or charset in _UTF8


def decode_texts(raw: pa.BinaryArray, charset: str) -> Converted:
    """Return the texts that ``raw`` holds in ``charset``, as long as ``raw``.

    CorruptData for a charset that is not known. Raises nothing for any content.
    """
    if charset in _UTF8:
        return _by_utf8(raw)
    if charset in _CODECS:
        return _by_codec(raw, _CODECS[charset])
    return _by_table(raw, _table(charset))


def decode_label(raw: bytes, charset: str) -> str:
    r"""Return one text, with ``\xNN`` for bytes that are no character; CorruptData as
    `decode_texts`."""
    if charset in _UTF8:
        return raw.decode(errors="backslashreplace")
    if charset in _CODECS:
        return _CODECS[charset].printable(raw)
    return _printable(raw, _table(charset))


def _table(charset: str) -> CodeTable:
    table = code_table(charset)
    if table is None:
        raise CorruptData(f"unknown charset {charset!r}")
    return table


def _by_utf8(raw: pa.BinaryArray) -> Converted:
    try:
        return Converted(raw.cast(pa.string()))
    except pa.ArrowInvalid:
        return _one_by_one(raw, bytes.decode, lambda one: one.decode(errors="backslashreplace"))


def _by_codec(raw: pa.BinaryArray, codec: _Codec) -> Converted:
    """Return values joined, a newline after each; the text is cut again at these newlines."""
    if codec.is_ascii and _is_ascii(raw):
        return Converted(raw.cast(pa.string()))
    filled = pc.fill_null(raw, b"") if raw.null_count else raw
    joined, offsets = _content(pc.binary_join_element_wise(filled, b"", codec.newline))
    width = len(codec.newline)
    if (offsets % width).any():
        return _one_by_one(raw, codec.decode, codec.printable)
    try:
        text = np.frombuffer(codec.decode(joined.tobytes()).encode(), np.uint8)
    except UnicodeDecodeError:
        return _one_by_one(raw, codec.decode, codec.printable)
    units = joined.reshape(-1, width)
    newlines = np.cumsum((units == np.frombuffer(codec.newline, np.uint8)).all(axis=1))
    cuts = np.flatnonzero(text == ord("\n"))[newlines[offsets[1:] // width - 1] - 1]
    ends = np.concatenate([[0], cuts - np.arange(len(cuts))])
    valid = raw.is_valid().to_numpy(zero_copy_only=False)
    return Converted(_strings(np.delete(text, cuts), ends, valid))


def _one_by_one(
    raw: pa.BinaryArray, decode: Callable[[bytes], str], printable: Callable[[bytes], str]
) -> Converted:
    """Decode arrays in which some value is no text."""
    values: list[str | None] = []
    overflow: list[str | None] = []
    for one in raw.to_pylist():
        text = bad = None
        if one is not None:
            try:
                text = decode(one)
            except UnicodeDecodeError:
                bad = printable(one)
        values.append(text)
        overflow.append(bad)
    return Converted(pa.array(values, pa.string()), pa.array(overflow, pa.string()))


def _by_table(raw: pa.BinaryArray, table: CodeTable) -> Converted:
    if table.is_ascii and _is_ascii(raw):
        return Converted(raw.cast(pa.string()))
    data, offsets = _content(raw)
    points, heads = _characters(data, offsets, table)
    unreadable = points == NONE
    lost = np.zeros(len(raw), np.bool_)
    if unreadable.any():
        lost[np.searchsorted(offsets, heads[unreadable], "right") - 1] = True
        points[unreadable] = ord("?")
    text = np.frombuffer(points.tobytes().decode(_UTF32).encode(), np.uint8)
    chars = np.searchsorted(heads, offsets) if table.has_trails else offsets
    ends = chars + sum(
        np.searchsorted(np.flatnonzero(points >= first), chars) for first in _LONGER_FROM
    )
    valid = raw.is_valid().to_numpy(zero_copy_only=False)
    values = _strings(text, ends, valid & ~lost)
    return Converted(values, _overflow(raw, lost & valid, table))


def _characters(
    data: _Bytes, offsets: _Int64Array, table: CodeTable
) -> tuple[npt.NDArray[np.uint32], _Int64Array]:
    """Return the code point of every character (`NONE` for an invalid one), and where it begins.

    A lead byte takes the byte after it, unless it is itself a trail: in a run of bytes that can
    lead, every other one does, counted from the run's beginning. None takes one of the next value.
    """
    if not table.has_trails:
        return table.points[data], np.arange(len(data))
    last = np.zeros(len(data), np.bool_)
    last[offsets[1:][np.diff(offsets) > 0] - 1] = True
    places = np.arange(len(data))
    second_plane = np.zeros(len(data), np.bool_)
    if table.has_planes:
        prefix = (data == _PLANE_PREFIX) & ~last
        second_plane[1:] = prefix[:-1]
        kept = ~prefix | second_plane
        data, last, places, second_plane = data[kept], last[kept], places[kept], second_plane[kept]
    lead = table.leads[data] & ~last
    count = np.arange(len(data))
    run = np.maximum.accumulate(np.where(lead, 0, count + 1))
    run = np.concatenate([[0], run[:-1]])
    at = np.flatnonzero((count - run) & 1 == 0)
    codes = data[at].astype(np.uint32) | second_plane[at].astype(np.uint32) << 16
    pairs = np.flatnonzero(lead[at])
    trails = at[pairs] + 1
    codes[pairs] = (codes[pairs] & 0x10000) | data[at[pairs]].astype(np.uint32) << 8 | data[trails]
    codes[pairs[second_plane[trails]]] = _NO_CODE
    return table.points[codes], places[at] - second_plane[at]


def _overflow(
    raw: pa.BinaryArray, lost: npt.NDArray[np.bool_], table: CodeTable
) -> pa.StringArray | None:
    if not lost.any():
        return None
    texts = [_printable(one, table) for one in raw.filter(pa.array(lost)).to_pylist()]
    return pa.array(texts, pa.string()).take(pa.array(np.cumsum(lost) - 1, mask=~lost))


def _printable(raw: bytes, table: CodeTable) -> str:
    data = np.frombuffer(raw, np.uint8)
    points, heads = _characters(data, np.array([0, len(raw)]), table)
    ends = [*heads[1:].tolist(), len(raw)]
    characters = zip(points.tolist(), heads.tolist(), ends, strict=True) if raw else ()
    return "".join(
        _escaped(raw[begin:end]) if point == NONE else chr(point)
        for point, begin, end in characters
    )


def _escaped(raw: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in raw)


def _is_ascii(raw: pa.BinaryArray) -> bool:
    data, _ = _content(raw)
    return not len(data) or int(data.max()) < 0x80


def _content(raw: pa.BinaryArray) -> tuple[_Bytes, _Int64Array]:
    """Return the bytes of all values, and where each begins, with their end at the end."""
    if not len(raw):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offset_buffer, buffer = raw.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[raw.offset : raw.offset + len(raw) + 1]
    data = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets.astype(np.int64) - offsets[0]


def _strings(text: _Bytes, offsets: _Int64Array, valid: npt.NDArray[np.bool_]) -> pa.StringArray:
    if offsets[-1] > _BYTES_MAX:
        raise InvariantBroken("a batch's texts of one column take more than 2 GiB")
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(valid), buffers)
