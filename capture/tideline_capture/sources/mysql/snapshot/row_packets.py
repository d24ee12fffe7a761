"""Rows of a query in the text protocol, read from the connection's socket by our own framing.

PyMySQL sends the query and reads the columns' descriptions. From there on the bytes come into one
buffer, and only the packets' lengths are looked at while they come; values are cut out later, one
numpy pass per column. PyMySQL can use the connection afterwards: everything up to the end of the
result has been read, or the connection is closed.

Layouts: MySQL's "Text Resultset Row" and "Sending More Than 16Mb" in its source documentation.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pymysql
from pymysql.constants import CR
from pymysql.protocol import MysqlPacket

from tideline.contract.errors import CorruptData, InvariantBroken
from tideline_capture.sources.mysql.types.arrays import values_array

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_HEADER = 4
_FULL = 0xFFFFFF
"""A payload of so many bytes continues in the next packet."""
_NULL, _TWO, _THREE, _EIGHT, _ERROR = 0xFB, 0xFC, 0xFD, 0xFE, 0xFF
_END, _END_BYTES_MAX = 0xFE, 8
_PADDING = 8
_BUFFER_BYTES = 1 << 24
_JOINED_BYTES_MAX = 2**31 - 1 - _PADDING
"""Arrow's offsets of binary values have 32 bits."""
_word = struct.Struct("<I").unpack_from


@dataclass(frozen=True, slots=True)
class RowPackets:
    """Rows as sent: each is ``data[start:end]``. ``cut``: more rows came than were taken."""

    data: Bytes
    starts: Offsets
    ends: Offsets
    cut: bool

    def __len__(self) -> int:
        return len(self.starts)

    def last(self) -> list[bytes | None]:
        """Return the last row's values; there must be one."""
        row = self.data[self.starts[-1] : self.ends[-1]].tobytes()
        values: list[bytes | None] = []
        at = 0
        while at < len(row):
            first = row[at]
            at += 1
            if first == _NULL:
                values.append(None)
                continue
            width = {_TWO: 2, _THREE: 3, _EIGHT: 8}.get(first, 0)
            length = int.from_bytes(row[at : at + width], "little") if width else first
            at += width + length
            values.append(row[at - length : at])
        return values

    def columns(self, count: int) -> list[pa.BinaryArray]:
        """Return one array per column, of the values' bytes; CorruptData for rows of other
        widths."""
        if not len(self):
            return [pa.array([], pa.binary())] * count
        cut = _Cut(self.data, self.starts, self.ends)
        arrays = [cut.column() for _ in range(count)]
        cut.check_end()
        return arrays


def read_rows(connection: Any, query: str, *, bytes_max: int | None = None) -> RowPackets:
    """Return the rows of ``query``; of those that begin behind ``bytes_max`` none is kept.

    Raises pymysql's errors: of the server, after which the connection can still be used, or of the
    connection, which is closed then.
    """
    reader = _begin(connection, query, bytes_max)
    with _as_our_error(connection):
        rows = reader.read()
    _raise_error(connection, reader)
    return rows


class RowStream:
    """The rows of ``query``, piece by piece, while the server waits. The connection cannot be used
    for anything else before the last piece was taken. Raises like `read_rows`."""

    def __init__(self, connection: Any, query: str, *, bytes_max: int) -> None:
        self._connection = connection
        self._reader = _begin(connection, query, bytes_max)

    def take(self) -> tuple[RowPackets, bool]:
        """Return the next rows, about as many as the limit allows, and whether they are the
        last."""
        with _as_our_error(self._connection):
            rows, ended = self._reader.piece()
        _raise_error(self._connection, self._reader)
        return rows, ended


def _begin(connection: Any, query: str, bytes_max: int | None) -> _Reader:
    connection.query(query, unbuffered=True)
    result = connection._result
    if not result.unbuffered_active:
        raise InvariantBroken("a statement that has no rows was read as a query")
    # From here on the rows are ours: PyMySQL must not read on when it forgets the result.
    result.unbuffered_active = False
    connection._result = result.connection = None
    reader = _Reader(connection._sock.recv_into, connection._next_seq_id, bytes_max)
    with _as_our_error(connection):
        # The bytes that PyMySQL's own buffer already took from the socket (a read, if it is empty).
        reader.begin(connection._rfile.read(len(connection._rfile.peek())))
    return reader


@contextmanager
def _as_our_error(connection: Any) -> Iterator[None]:
    """Turn the block's errors of the connection into pymysql's error."""
    try:
        yield
    except OSError as error:
        raise _lost(connection, type(error).__name__) from None
    except _OutOfStep as error:
        raise _lost(connection, str(error)) from None


def _raise_error(connection: Any, reader: _Reader) -> None:
    if reader.error is not None:
        MysqlPacket(reader.error, connection.encoding).raise_for_error()


class _OutOfStep(Exception):
    """The bytes that came are not the expected packets."""


def _lost(connection: Any, why: str) -> pymysql.OperationalError:
    connection._force_close()
    return pymysql.OperationalError(CR.CR_SERVER_LOST, f"lost the connection in a result ({why})")


class _Reader:
    """Reads packets up to the one that ends the result; ``error`` is the payload of an error."""

    def __init__(
        self, receive: Callable[[memoryview], int], sequence: int, bytes_max: int | None
    ) -> None:
        self.error: bytes | None = None
        self._receive = receive
        self._sequence = sequence
        self._bytes_max = _JOINED_BYTES_MAX if bytes_max is None else bytes_max
        self._buffer: Bytes = np.empty(_BUFFER_BYTES, np.uint8)
        self._filled = 0
        self._at = 0
        """The start of the first incomplete packet."""
        self._starts: list[int] = []
        """The starts of complete packets, with their headers."""
        self._ended = False
        self._after_full = False
        """True when the packet before the first of these continues in it."""

    def begin(self, head: bytes) -> None:
        """Begin with these bytes, which came first; they are few."""
        self._buffer[: len(head)] = np.frombuffer(head, np.uint8)
        self._filled = len(head)

    def read(self) -> RowPackets:
        """Return all rows, or those that fit; the rows behind them are read and thrown away."""
        rows, cut = None, False
        while not self._frame():
            if rows is not None:
                cut = self._drop() or cut
            elif self._at >= self._bytes_max and not self._is_full(-1):
                rows = self._take()
            self._fill()
        if rows is None:
            rows = self._take()
        return RowPackets(*rows, cut or bool(self._starts))

    def piece(self) -> tuple[RowPackets, bool]:
        """Return some rows, and whether they are the last ones."""
        while not self._ended:
            self._ended = self._frame()
            if self._ended or (self._at >= self._bytes_max and not self._is_full(-1)):
                break
            self._fill()
        rows = self._take()
        return RowPackets(*rows, cut=False), self._ended and not self._starts

    def _frame(self) -> bool:
        """Find the packets that have come; return whether the last of them ends the result."""
        at, last, filled = self._at, self._filled - _HEADER, self._filled
        view, found = self._buffer.data, self._starts.append
        while at <= last:
            end = at + _HEADER + (_word(view, at)[0] & _FULL)
            if end > filled:
                break
            found(at)
            at = end
        is_news, self._at = at > self._at, at
        return is_news and self._ends()

    def _ends(self) -> bool:
        """Return whether the last packet is the end or an error; it is no row then."""
        start = self._starts[-1] + _HEADER
        length = self._at - start
        if (self._is_full(-2) if len(self._starts) > 1 else self._after_full) or not length:
            return False
        first = int(self._buffer[start])
        if first == _ERROR:
            self.error = self._buffer[start : self._at].tobytes()
        elif first != _END or length > _END_BYTES_MAX:
            return False
        self._starts.pop()
        self._at = start - _HEADER
        return True

    def _is_full(self, index: int) -> bool:
        """Return whether the packet (counted from the last, -1) continues in the next one."""
        if len(self._starts) < -index:
            return False
        end = self._at if index == -1 else self._starts[index + 1]
        return end - self._starts[index] - _HEADER == _FULL

    def _take(self) -> tuple[Bytes, Offsets, Offsets]:
        """Return the rows that begin before the limit; those behind them stay."""
        count = bisect_left(self._starts, self._bytes_max)
        while 0 < count < len(self._starts) and self._is_full(count - 1 - len(self._starts)):
            count += 1
        end = self._starts[count] if count < len(self._starts) else self._at
        heads = np.array([*self._starts[:count], end], np.int64)
        self._check_sequence(heads[:-1])
        self._sequence += count
        rows = _rows(self._buffer, heads)
        left = self._buffer[end : self._filled]
        self._buffer = np.empty(max(len(left), _BUFFER_BYTES), np.uint8)
        self._buffer[: len(left)] = left
        self._filled -= end
        self._at -= end
        self._starts = [start - end for start in self._starts[count:]]
        return rows

    def _drop(self) -> bool:
        """Forget the packets that have come; return whether there was one."""
        if not self._starts:
            return False
        self._after_full = self._is_full(-1)
        left = self._buffer[self._at : self._filled]
        self._buffer[: len(left)] = left
        self._filled, self._at = len(left), 0
        self._starts.clear()
        return True

    def _fill(self) -> None:
        """Read the bytes that have come, at least one."""
        capacity = len(self._buffer) - _PADDING
        if self._filled == capacity:
            grown: Bytes = np.empty(2 * capacity + _PADDING, np.uint8)
            grown[: self._filled] = self._buffer[: self._filled]
            self._buffer, capacity = grown, 2 * capacity
        count = self._receive(self._buffer.data[self._filled : capacity])
        if not count:
            raise _OutOfStep("the server closed it")
        self._filled += count
        if self._filled > _JOINED_BYTES_MAX:
            raise InvariantBroken(f"a chunk has {self._filled} bytes")

    def _check_sequence(self, heads: Offsets) -> None:
        """Check that packets are numbered, modulo 256."""
        numbers = self._buffer[heads + 3]
        wanted = (np.arange(len(heads)) + self._sequence).astype(np.uint8)
        if not np.array_equal(numbers, wanted):
            raise _OutOfStep("packets out of order")


def _rows(data: Bytes, heads: Offsets) -> tuple[Bytes, Offsets, Offsets]:
    """Return packets as rows: ``heads`` are their beginnings and the last one's end."""
    goes_on = np.diff(heads) == _FULL + _HEADER
    if not goes_on.any():
        return data, heads[:-1] + _HEADER, heads[1:]
    inner = heads[1:-1][goes_on[:-1]]
    joined = np.delete(data[: heads[-1] + _PADDING], inner[:, None] + np.arange(_HEADER))
    removed = np.concatenate([[0], np.cumsum(goes_on)]) * _HEADER
    firsts = ~np.concatenate([[False], goes_on[:-1]])
    starts = (heads - removed)[:-1][firsts]
    ends = np.append(starts[1:], heads[-1] - removed[-1])
    return joined, starts + _HEADER, ends


class _Cut:
    """Cuts one value per row after the other."""

    def __init__(self, data: Bytes, starts: Offsets, ends: Offsets) -> None:
        self._data = data
        self._long = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))
        self._at = starts
        self._ends = ends
        self._buffer = pa.py_buffer(data)
        self._even = np.arange(0, 2 * len(starts), 2, dtype=np.int32)

    def column(self) -> pa.BinaryArray:
        """Return the next value of each row."""
        if (self._at >= self._ends).any():
            raise CorruptData("a row has fewer values than the query has columns")
        length: Offsets = self._data[self._at].astype(np.int64)
        start = self._at + 1
        null = None
        if int(length.max()) >= _NULL:
            null = length == _NULL
            length, start = self._long_lengths(length, start, null)
        self._at = start + length
        if (self._at > self._ends).any():
            raise CorruptData("a value is longer than its row")
        offsets = np.empty(2 * len(start) + 1, np.int32)
        offsets[:-1:2] = start
        offsets[1::2] = self._at
        offsets[-1] = self._at[-1]
        # Every other value is the gap between two of ours.
        both = pa.Array.from_buffers(
            pa.binary(), 2 * len(start), [None, pa.py_buffer(offsets), self._buffer]
        )
        return both.take(values_array(pa.int32(), self._even, null))

    def check_end(self) -> None:
        if (self._at != self._ends).any():
            raise CorruptData("a row has more values than the query has columns")

    def _long_lengths(
        self, length: Offsets, start: Offsets, null: npt.NDArray[np.bool_]
    ) -> tuple[Offsets, Offsets]:
        if (length == _ERROR).any():
            raise CorruptData("a value in a row has no length")
        length[null] = 0
        watermarks = length.copy()  # A length of 253 does not announce three bytes.
        for first, width in ((_TWO, 2), (_THREE, 3), (_EIGHT, 8)):
            where = np.nonzero(watermarks == first)[0]
            if len(where):
                mask = np.uint64((1 << 8 * width) - 1)
                length[where] = np.minimum(self._long[start[where]] & mask, _JOINED_BYTES_MAX)
                start[where] += width
        return length, start
