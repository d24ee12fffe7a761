"""Row messages of pgoutput, taken apart into one array of texts per column.

A row message is ``I relation N new``, ``U relation [K|O old] N new`` or ``D relation K|O old``; a
tuple is a count of columns and, per column, ``n`` (null), ``u`` (unchanged TOAST, not sent) or
``t``, length, text. So the first tuple begins at the same place in every message: one pass per
column walks it in all messages at once, by gathering from the joined bytes, and a second walk over
the few messages that have both tuples does the rest. Rows stay in log order throughout.

`tuples_plain` does the same with a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import CorruptData, InvariantBroken

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

JOINED_BYTES_MAX = 2**31 - 16
"""Offsets into the joined bytes have 32 bits (a single message stays below 1 GiB)."""

INSERT, UPDATE, DELETE = b"IUD"
NEW, OLD_KEY, OLD_ROW = b"NKO"
TEXT, NULL, UNCHANGED = b"tnu"

_MARKER_AT = 5
_TUPLE_HEADER = 3
_PADDING = b"\0" * 8


@dataclass(frozen=True, slots=True)
class Texts:
    """The rows of some messages, column by column, in log order.

    ``kinds`` holds I, U or D per row. ``columns`` are binary arrays of the new row's texts (of a
    delete: of its key, other columns NULL). ``unchanged`` marks, shape (rows, columns), values that
    the log did not carry; None when it carried all. ``before`` holds, per key column, the old key
    of updates that changed the key, NULL elsewhere; None when none did. ``image`` holds, per
    column, the row before an update or delete, where ``imaged`` marks that the log had all of it;
    both are None where they were not requested, or there is none.
    """

    kinds: Bytes
    columns: tuple[pa.BinaryArray, ...]
    unchanged: Mask | None
    before: tuple[pa.BinaryArray, ...] | None
    image: tuple[pa.BinaryArray, ...] | None = None
    imaged: Mask | None = None


def split_tuples(
    payloads: Sequence[bytes], columns: int, key: Sequence[int], *, image: bool = False
) -> Texts:
    """Return the texts in ``payloads``, row messages of one relation with ``columns`` columns.

    ``key`` are the places of the key columns; ``image``: take whole old rows too. Raises
    CorruptData for a message that does not end where it should, InvariantBroken for more bytes than
    a batch may ever have.
    """
    try:
        return _Split(payloads, columns, key).texts(image=image)
    except IndexError:
        raise CorruptData("a row message of pgoutput ends before its last column") from None


@dataclass(slots=True)
class _Field:
    """One column of one tuple per row: where its text begins, how long it is, and its kind.

    ``kinds`` is None when all are texts.
    """

    at: Offsets
    length: Offsets
    kinds: Bytes | None


class _Split:
    def __init__(self, payloads: Sequence[bytes], columns: int, key: Sequence[int]) -> None:
        self._rows = len(payloads)
        self._width = columns
        self._key = key
        lengths = np.fromiter(map(len, payloads), np.int64, self._rows)
        ends = np.cumsum(lengths)
        if self._rows and ends[-1] > JOINED_BYTES_MAX:
            raise InvariantBroken(f"a batch of row messages has {ends[-1]} bytes")
        self._joined = b"".join([*payloads, _PADDING])
        self._bytes = np.frombuffer(self._joined, np.uint8)
        # Big-endian numbers at any byte, so that a length is one gather instead of four.
        self._numbers = np.ndarray(len(self._joined) - 3, ">u4", self._joined, strides=(1,))
        self._starts = ends - lengths
        self._ends = ends

    def texts(self, *, image: bool) -> Texts:
        kinds = self._bytes[self._starts]
        markers = self._bytes[self._starts + _MARKER_AT]
        _check_shapes(kinds, markers)
        fields, ends = self._walk(self._starts + _MARKER_AT)
        twice = np.nonzero((markers != NEW) & (kinds == UPDATE))[0]
        old = fields
        if len(twice):
            if (self._bytes[ends[twice]] != NEW).any():
                raise CorruptData("a row message of pgoutput has no new tuple after its old one")
            new, ends_of_new = self._walk(ends[twice])
            ends[twice] = ends_of_new
            fields = self._newest(old, new, twice, markers[twice] == OLD_ROW)
        if (ends != self._ends).any():
            raise CorruptData("a row message of pgoutput is longer than its tuples")
        before = self._before(old, fields, twice) if len(twice) else None
        arrays, unchanged = self._arrays(fields, kinds == DELETE)
        if not image:
            return Texts(kinds, arrays, unchanged, before)
        return Texts(kinds, arrays, unchanged, before, *self._image(old, markers == OLD_ROW))

    def _walk(self, at: Offsets) -> tuple[list[_Field], Offsets]:
        """Return the fields of the tuples whose markers are ``at``, and where each tuple ends."""
        data, numbers = self._bytes, self._numbers
        if (numbers[at] & 0xFFFF00 != self._width << 8).any():
            raise CorruptData(f"a row message of pgoutput does not have {self._width} columns")
        position = at + _TUPLE_HEADER
        fields = []
        for _ in range(self._width):
            kinds = data[position]
            length = numbers[position + 1].astype(np.int64)
            start = position + 5
            if (kinds == TEXT).all():
                fields.append(_Field(start, length, None))
            else:
                is_text = _check_kinds(kinds)
                length[~is_text] = 0
                start[~is_text] -= 4
                fields.append(_Field(start, length, kinds))
            position = start + length
        return fields, position

    def _newest(
        self, old: list[_Field], new: list[_Field], rows: Offsets, full: Mask
    ) -> list[_Field]:
        """Return, of ``rows``, the new tuple's fields, or the old one's where only that has the
        value."""
        everywhere: Mask = np.ones(len(rows), np.bool_)
        return [
            self._merged(before, after, rows, everywhere if place in self._key else full)
            for place, (before, after) in enumerate(zip(old, new, strict=True))
        ]

    def _merged(self, old: _Field, new: _Field, rows: Offsets, old_known: Mask) -> _Field:
        taken: Mask | slice = slice(None)
        if new.kinds is not None:
            filled = (new.kinds == UNCHANGED) & old_known
            if filled.any():
                taken = ~filled
        if isinstance(taken, slice) and len(rows) == self._rows:
            return new
        into = rows[taken]
        merged = _Field(old.at.copy(), old.length.copy(), None)
        merged.at[into] = new.at[taken]
        merged.length[into] = new.length[taken]
        if old.kinds is not None or new.kinds is not None:
            merged.kinds = _kinds(old, self._rows)
            merged.kinds[into] = _kinds(new, len(rows))[taken]
        return merged

    def _before(
        self, old: list[_Field], new: list[_Field], rows: Offsets
    ) -> tuple[pa.BinaryArray, ...] | None:
        """Return, per key column, the old text, in rows where any key column's text differs."""
        was = [self._texts(_at_rows(old[place], rows), None) for place in self._key]
        differs: Mask = np.zeros(len(rows), np.bool_)
        for place, text in zip(self._key, was, strict=True):
            now = self._texts(_at_rows(new[place], rows), None)
            differs |= pc.fill_null(pc.not_equal(text, now), False).to_numpy(False)
        if not differs.any():
            return None
        source: Offsets = np.zeros(self._rows, np.int64)
        source[rows] = np.arange(len(rows))
        absent: Mask = np.ones(self._rows, np.bool_)
        absent[rows[differs]] = False
        picked = pa.array(source, mask=absent)
        return tuple(text.take(picked) for text in was)

    def _image(
        self, old: list[_Field], imaged: Mask
    ) -> tuple[tuple[pa.BinaryArray, ...] | None, Mask | None]:
        """Return, per column, the old row's texts, and which rows have one."""
        for field in old:
            if field.kinds is not None:
                imaged = imaged & (field.kinds != UNCHANGED)
        if not imaged.any():
            return None, None
        return tuple(self._texts(field, ~imaged) for field in old), imaged

    def _arrays(
        self, fields: list[_Field], deletes: Mask
    ) -> tuple[tuple[pa.BinaryArray, ...], Mask | None]:
        some_deleted = bool(deletes.any())
        arrays, masks = [], []
        for place, field in enumerate(fields):
            hidden = deletes if some_deleted and place not in self._key else None
            arrays.append(self._texts(field, hidden))
            if field.kinds is not None:
                mask = field.kinds == UNCHANGED
                masks.append(mask if hidden is None else mask & ~hidden)
            else:
                masks.append(None)
        return tuple(arrays), _stack(masks, self._rows)

    def _texts(self, field: _Field, hidden: Mask | None) -> pa.BinaryArray:
        """Return the field's texts as an array; NULL where there is none, or it is ``hidden``.

        The joined bytes serve as one binary array of text, gap, text, gap …; every second value
        of it is copied out.
        """
        rows = len(field.at)
        offsets = np.empty(2 * rows + 1, np.int32)
        offsets[0:-1:2] = field.at
        offsets[1::2] = field.at + field.length
        offsets[-1] = offsets[-2] if rows else 0
        alternating = pa.Array.from_buffers(
            pa.binary(), 2 * rows, [None, pa.py_buffer(offsets), pa.py_buffer(self._joined)]
        )
        absent = hidden
        if field.kinds is not None:
            without = field.kinds != TEXT
            absent = without if hidden is None else without | hidden
        return alternating.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32), mask=absent))


def _check_shapes(kinds: Bytes, markers: Bytes) -> None:
    is_new = markers == NEW
    fits = (kinds == UPDATE) | ((kinds == INSERT) & is_new) | ((kinds == DELETE) & ~is_new)
    if not (fits & (is_new | (markers == OLD_KEY) | (markers == OLD_ROW))).all():
        raise CorruptData("not a row message of pgoutput's protocol version 1")


def _check_kinds(kinds: Bytes) -> Mask:
    is_text: Mask = kinds == TEXT
    if not (is_text | (kinds == NULL) | (kinds == UNCHANGED)).all():
        raise CorruptData("a row message of pgoutput holds a value that is not text")
    return is_text


def _kinds(field: _Field, rows: int) -> Bytes:
    return np.full(rows, TEXT, np.uint8) if field.kinds is None else field.kinds.copy()


def _at_rows(field: _Field, rows: Offsets) -> _Field:
    kinds = None if field.kinds is None else field.kinds[rows]
    return _Field(field.at[rows], field.length[rows], kinds)


def _stack(masks: Sequence[Mask | None], rows: int) -> Mask | None:
    if not any(mask is not None and mask.any() for mask in masks):
        return None
    nothing: Mask = np.zeros(rows, np.bool_)
    return np.stack([nothing if mask is None else mask for mask in masks], axis=1)
