"""The compressed parts of the servers' logs, in plain form.

MariaDB (``log_bin_compress``) compresses single events with zlib, MySQL
(``binlog_transaction_compression``) whole transactions with zstd. Nothing is expanded beyond a
limit that the caller names, whatever an event claims, and nothing more often than once: large
content is returned in pieces, which need not be joined. Layouts: MariaDB's ``sql/log_event.cc``
(binlog_buf_uncompress), MySQL's ``codecs/binary.cpp`` and ``control_events.h``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tideline.contract.errors import CorruptData
from tideline_capture.sources.decoding import too_large
from tideline_capture.sources.mysql.binlog.event_body import length_encoded, reads
from tideline_capture.sources.mysql.binlog.event_codes import (
    COMPRESSED_ROWS_V1,
    COMPRESSED_ROWS_V2,
    EventCode,
)
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES

_U16 = struct.Struct("<H")
_HEADER = struct.Struct("<IBIIIH")
_TABLE_ID_AND_FLAGS = 8
_ZLIB = 0
_COMPRESSED = 0x80

_BLOCK_BYTES = 1 << 20
_FED_BYTES = 1 << 16
"""The bytes of a compressed event fed at a time: what is left over of them is copied."""
_END, _PAYLOAD_BYTES, _ALGORITHM, _EXPANDED_BYTES = 0, 1, 2, 3
_ZSTD, _NONE = 0, 255


def inflate(data: bytes, *, expanded_bytes_max: int) -> list[bytes]:
    """Expand what MariaDB compressed, in pieces: a byte of algorithm and width, the length, a zlib
    stream.

    CorruptData when it is something else, or not as long as it says; Misconfigured when it says
    that it is longer than ``expanded_bytes_max``.
    """
    if not data or not data[0] & _COMPRESSED or data[0] >> 4 & 7 != _ZLIB:
        raise CorruptData("a compressed event of the binlog is in a form that is not known")
    width = data[0] & 7
    size = int.from_bytes(data[1 : 1 + width], "big")
    if size > expanded_bytes_max:
        raise too_large(size, expanded_bytes_max, "expanded")
    stream, pieces, left = zlib.decompressobj(), list[bytes](), size + 1
    try:
        for at in range(1 + width, len(data), _FED_BYTES):
            fed = data[at : at + _FED_BYTES]
            while fed and left > 0 and not stream.eof:
                pieces.append(stream.decompress(fed, min(left, _BLOCK_BYTES)))
                left -= len(pieces[-1])
                fed = stream.unconsumed_tail
    except zlib.error:
        raise CorruptData("a compressed event of the binlog does not expand") from None
    if left != 1 or not stream.eof:
        raise CorruptData(
            f"a compressed event of the binlog does not hold the {size} bytes it says"
        )
    return pieces


@reads("compressed rows")
def expand_rows(code: int, body: bytes, *, expanded_bytes_max: int) -> tuple[int, list[bytes]]:
    """Convert MariaDB's compressed row event ``code`` to the plain event it stands for: code, and
    body in pieces."""
    has_extra = code >= EventCode.WRITE_ROWS_COMPRESSED
    plain_code = code - (COMPRESSED_ROWS_V2 if has_extra else COMPRESSED_ROWS_V1)
    at = _TABLE_ID_AND_FLAGS
    if has_extra:
        at += _U16.unpack_from(body, at)[0]
    columns, at = length_encoded(body, at)
    images = 2 if plain_code in (EventCode.UPDATE_ROWS_V1, EventCode.UPDATE_ROWS) else 1
    at += images * ((columns + 7) // 8)
    if at > len(body):
        raise IndexError
    return plain_code, [body[:at], *inflate(body[at:], expanded_bytes_max=expanded_bytes_max)]


@dataclass(frozen=True, slots=True)
class InnerEvent:
    """An event of a transaction payload: ``header`` as it stands there (its next_pos is 0), body,
    in ``pieces``, without a checksum, for inner events have none."""

    code: int
    header: bytes
    pieces: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Payload:
    """The fields of a TRANSACTION_PAYLOAD event. ``algorithm`` 0 is zstd, 255 none."""

    algorithm: int
    expanded_bytes: int
    data: memoryview


@reads("TRANSACTION_PAYLOAD")
def parse_payload(body: bytes) -> Payload:
    """Parse the fields. Raises CorruptData for one that is not known: its meaning for the payload
    is not known either."""
    fields: dict[int, int] = {}
    kind, at = length_encoded(body, 0)
    while kind != _END:
        size, at = length_encoded(body, at)
        if kind not in (_PAYLOAD_BYTES, _ALGORITHM, _EXPANDED_BYTES):
            raise CorruptData(f"a TRANSACTION_PAYLOAD event has an unknown field: {kind}")
        fields[kind], at = length_encoded(body, at)[0], at + size
        kind, at = length_encoded(body, at)
    data = memoryview(body)[at:]
    if len(data) != fields.get(_PAYLOAD_BYTES) or _ALGORITHM not in fields:
        raise CorruptData("a TRANSACTION_PAYLOAD event is not as long as it says")
    return Payload(fields[_ALGORITHM], fields.get(_EXPANDED_BYTES, len(data)), data)


def expand_payload(
    payload: Payload, *, expanded_bytes_max: int, event_bytes_max: int
) -> Iterator[InnerEvent]:
    """Yield the events of a TRANSACTION_PAYLOAD event, in order; a block at a time in memory.

    CorruptData when the payload is not as long as it says, or longer than ``expanded_bytes_max``,
    Misconfigured when one of its events says that it is longer than ``event_bytes_max``: what was
    given before that must be thrown away.
    """
    _check_size(payload.expanded_bytes, expanded_bytes_max)
    with _stream(payload) as stream:
        expanded = _Expanded(stream, payload.expanded_bytes)
        while expanded.left:
            header = expanded.take(HEADER_BYTES)
            _, code, _, size, _, _ = _HEADER.unpack(header)
            if size < HEADER_BYTES:
                raise CorruptData("an event in a transaction payload is broken")
            if size > event_bytes_max:
                raise too_large(size, event_bytes_max, "in a transaction payload")
            yield InnerEvent(code, header, expanded.pieces(size - HEADER_BYTES))
        expanded.end()


def _stream(payload: Payload) -> pa.NativeFile:
    if payload.algorithm == _NONE:
        return pa.BufferReader(payload.data)
    if payload.algorithm == _ZSTD:
        return pa.CompressedInputStream(pa.BufferReader(payload.data), "zstd")
    raise CorruptData(
        f"a transaction payload is compressed in a way not known: {payload.algorithm}"
    )


class _Expanded:
    """A payload's plain bytes, taken piece by piece, read block by block.

    Small reads of such a stream cost as much as large ones. ``left`` of the bytes it is said to
    have are not taken.
    """

    def __init__(self, stream: pa.NativeFile, size: int) -> None:
        self.left = size
        self._stream = stream
        self._block = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        return b"".join(self.pieces(count))

    def pieces(self, count: int) -> tuple[bytes, ...]:
        """Return the next ``count`` bytes; the bytes of many blocks are not joined with the last
        one's."""
        if count > self.left:
            raise CorruptData("a transaction payload is shorter than its events")
        kept = self._block[self._at : self._at + count]
        self._at += len(kept)
        taken, lacking = [kept], count - len(kept)
        if lacking > _BLOCK_BYTES:
            taken.append(self._read(lacking))
        elif lacking:
            self._block, self._at = self._read(_BLOCK_BYTES), lacking
            taken.append(self._block[:lacking])
        if sum(map(len, taken)) != count:
            raise CorruptData("a transaction payload is shorter than it says")
        self.left -= count
        return tuple(taken)

    def end(self) -> None:
        """Raise CorruptData unless everything was taken."""
        if self._at < len(self._block) or self._read(1):
            raise CorruptData("a transaction payload is longer than it says")

    def _read(self, count: int) -> bytes:
        try:
            data: bytes = self._stream.read(count)
        except OSError:
            raise CorruptData("a transaction payload does not expand") from None
        return data


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise CorruptData(f"a compressed event expands to {size} bytes, the limit is {limit}")
