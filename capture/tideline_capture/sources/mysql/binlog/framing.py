"""The replication stream's bytes, cut into events.

A packet is a length of three bytes, a number, and a payload; a payload of exactly 2²⁴ − 1 bytes
continues in the next packet. The payload of an event begins with a zero byte. Finding where packets
begin is the one thing that must go step by step, so that loop does nothing else: everything else
about events is read from many at once, by their starts in one buffer.
"""

from __future__ import annotations

import select
import ssl
import struct
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from tideline_capture.core.events import Int64Array

Bytes = npt.NDArray[np.uint8]
Buffer = bytes | memoryview

HEADER_BYTES = 19
"""An event's header: timestamp u32, type u8, server id u32, size u32, next position u32, flags
u16."""
PAYLOAD_MAX = 0xFFFFFF
_PACKET_BYTES = 4
_SIZE_AT = 9
LEAD_BYTES = _PACKET_BYTES + 1
_RECEIVE_BYTES = 1 << 20
_CAPACITY = 1 << 24
_ROOM = bytes(_CAPACITY)
_SLACK_BYTES = 64
"""Always free, so that eight bytes can be read where any event has one."""

_length_at = struct.Struct("<I").unpack_from


class EventBuffer:
    """The bytes received and not yet taken.

    ``starts`` are the offsets of the whole events' headers in log order, ``stops`` (an array, by
    `stops`) the offsets behind them, checksums included. ``checked`` is how many of them, from the
    first on, were compared with their checksums. It begins with ``packets``; without a socket there
    is nothing behind these.
    """

    def __init__(self, sock: Any, packets: bytes = b"") -> None:
        self.starts: list[int] = []
        self.checked = 0
        self._sock = sock
        self._bytes = bytearray(_CAPACITY if sock is not None else len(packets) + _SLACK_BYTES)
        self._bytes[: len(packets)] = packets
        self._end = len(packets)
        self._framed = 0
        self._aside = b""

    def receive(self) -> int:
        """Take what has arrived, without waiting, and return the number of bytes. Raises OSError,
        and ConnectionError when the server closed the stream."""
        if self._sock is None:
            raise ConnectionError("no more events are there")
        self._make_room()
        with memoryview(self._bytes) as view, view[self._end :] as free:
            try:
                count: int = self._sock.recv_into(free, _RECEIVE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return 0
        if not count:
            raise ConnectionError("the server closed the stream")
        self._end += count
        return count

    def frame(self, events_max: int) -> int:
        """Find the starts of up to ``events_max`` more whole events; return how many there were."""
        data, at, end = self._bytes, self._framed, self._end
        append, before, length_at = self.starts.append, len(self.starts), _length_at
        for _ in range(events_max):
            if at > end - LEAD_BYTES:
                break
            length = length_at(data, at)[0] & PAYLOAD_MAX
            if length == PAYLOAD_MAX:
                joined = self._join(at)
                if joined is None:
                    break
                length, end = joined, self._end
            stop = at + _PACKET_BYTES + length
            if stop > end:
                break
            append(at + LEAD_BYTES)
            at = stop
        self._framed = at
        return len(self.starts) - before

    def _join(self, at: int) -> int | None:
        """Make one payload of those that begin at ``at``; return its length once it is whole."""
        data, end = self._bytes, self._end
        seams, place, total = [], at, 0
        while True:
            if end - place < _PACKET_BYTES:
                return None
            length = int(_length_at(data, place)[0]) & PAYLOAD_MAX
            place += _PACKET_BYTES + length
            total += length
            if place > end:
                return None
            if length < PAYLOAD_MAX:
                break
            seams.append(place)
        for seam in reversed(seams):
            del data[seam : seam + _PACKET_BYTES]
            self._end -= _PACKET_BYTES
        return total

    def view(self) -> Bytes:
        """Return all bytes, with meaningless ones behind them. The view must be released before
        this buffer is used again."""
        return np.frombuffer(self._bytes, np.uint8)

    def stops(self, first: int, count: int) -> Int64Array:
        """Return where the events from place ``first`` on end."""
        ends = self.starts[first + 1 : first + count + 1]
        stops = np.array(ends, np.int64) - LEAD_BYTES
        if len(ends) < count:
            stops = np.append(stops, self._framed)
        return stops

    def packets(self, first: int, last: int) -> bytes:
        """Return the events from place ``first`` to before ``last``, as packets that can be framed
        again: joined payloads are split again."""
        if first >= last:
            return b""
        starts = self.starts[first:last]
        stops = self.stops(first, last - first).tolist()
        with memoryview(self._bytes) as view:
            if max(map(int.__sub__, stops, starts)) < PAYLOAD_MAX - 1:
                return bytes(view[starts[0] - LEAD_BYTES : stops[-1]])
            ends = zip(starts, stops, strict=True)
            return b"".join(
                piece for start, stop in ends for piece in _packets(view[start - 1 : stop])
            )

    def set_aside(self, first: int) -> None:
        """Remove the event at place ``first``, and put everything behind it aside.

        In the meantime, until `take_back`, `splice` fills the buffer.
        """
        behind = self.packets(first + 1, len(self.starts))
        with memoryview(self._bytes) as view:
            self._aside = behind + bytes(view[self._framed : self._end])
        self._end = self._framed = self.starts[first] - LEAD_BYTES
        del self.starts[first:]
        self.checked = min(self.checked, first)

    def take_back(self) -> None:
        """Continue with what was put aside."""
        aside, self._aside = self._aside, b""
        self.splice(len(self.starts), aside)

    def splice(self, first: int, *packets: Buffer) -> None:
        """Replace all events from place ``first`` on with ``packets``, in pieces and unframed (at
        the end: before what is not framed)."""
        whole = first == len(self.starts)
        begin = self._framed if whole else self.starts[first] - LEAD_BYTES
        rest = bytes(memoryview(self._bytes)[self._framed : self._end])
        size = begin + sum(map(len, packets)) + len(rest)
        self._grow(size + _SLACK_BYTES)
        with memoryview(self._bytes) as view:
            at = begin
            for piece in (*packets, rest):
                view[at : at + len(piece)] = piece
                at += len(piece)
        self._end, self._framed = size, begin
        del self.starts[first:]
        self.checked = min(self.checked, first)

    def take(self, count: int, cut: int, padding: bytes) -> bytes | bytearray:
        """Remove the first ``count`` events, which end at ``cut``; return their bytes and
        ``padding``."""
        taken: bytes | bytearray
        with memoryview(self._bytes) as view:
            rest = bytes(view[cut : self._end])
            if cut <= _CAPACITY:
                taken = b"".join((view[:cut], padding))
        if cut > _CAPACITY:  # As it is: a copy would be as large again.
            taken, self._bytes = self._bytes, bytearray(max(_CAPACITY, len(rest) + _SLACK_BYTES))
            taken[cut:] = padding
        self._bytes[: len(rest)] = rest
        if len(self._bytes) > 2 * _CAPACITY and len(rest) < _CAPACITY:
            self._bytes = bytearray(rest) + bytearray(_CAPACITY - len(rest))
        self._end = len(rest)
        self._framed -= cut
        self.checked = max(0, self.checked - count)
        self.starts = [start - cut for start in self.starts[count:]]
        return taken

    def wait(self, timeout_s: float) -> None:
        """Return when something has arrived, or after ``timeout_s``."""
        if self._sock is None:
            return
        pending = getattr(self._sock, "pending", None)
        if pending is None or not pending():
            select.select([self._sock], [], [], timeout_s)

    def _make_room(self) -> None:
        """Make space for more: the bytes not framed yet may be the beginning of a large event."""
        self._grow(self._end + _RECEIVE_BYTES + _SLACK_BYTES)

    def _grow(self, size: int) -> None:
        """Have at least ``size`` bytes. It grows step by step: the system moves a large buffer
        without copying it, unless there is a view of it."""
        try:
            while len(self._bytes) < size:
                self._bytes.extend(_ROOM)
        except BufferError:
            bigger = bytearray(size + _CAPACITY)
            with memoryview(self._bytes) as view:
                bigger[: self._end] = view[: self._end]
            self._bytes = bigger

    def awaited(self) -> int:
        """Return the size of the event that is being received, as it says; 0 when there is none."""
        at = self._framed
        if self._end - at < LEAD_BYTES + HEADER_BYTES:
            return 0
        length = int(_length_at(self._bytes, at)[0]) & PAYLOAD_MAX
        if length < PAYLOAD_MAX or self._bytes[at + _PACKET_BYTES]:
            return length
        return int(_length_at(self._bytes, at + LEAD_BYTES + _SIZE_AT)[0])


def packets_of(*event: Buffer) -> list[Buffer]:
    """Return the packets of an event that is given in pieces, in pieces: nothing of it is
    copied."""
    return _packets(b"\0", *event)


def _packets(*payload: Buffer) -> list[Buffer]:
    whole, rest = divmod(sum(map(len, payload)), PAYLOAD_MAX)
    left = deque(memoryview(piece) for piece in payload if len(piece))
    pieces: list[Buffer] = []
    for length in (*[PAYLOAD_MAX] * whole, rest):
        pieces.append(length.to_bytes(3, "little") + b"\0")
        while length:
            piece = left.popleft()
            if len(piece) > length:
                left.appendleft(piece[length:])
                piece = piece[:length]
            pieces.append(piece)
            length -= len(piece)
    return pieces
