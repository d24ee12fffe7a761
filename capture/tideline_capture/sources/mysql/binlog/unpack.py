"""Compressed events, put into the stream as the plain events they stand for.

So nothing behind this point handles compression. Transactions that MySQL compressed as a whole are
expanded a few MiB at a time: they may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from tideline_capture.sources.mysql.binlog.checksums import checksum_of
from tideline_capture.sources.mysql.binlog.compressed import (
    InnerEvent,
    expand_payload,
    expand_rows,
    inflate,
    parse_payload,
)
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES, Buffer, packets_of

EXPANDED_BYTES_MAX = 64 << 30
"""A transaction's limit. Its events are expanded step by step, so this only guards against
nonsense."""
STEP_BYTES = 4 << 20
"""The expanded events at a time, plus the rest of the last one."""
_QUERY_FIXED_BYTES = 13

COMPRESSED = (
    EventCode.TRANSACTION_PAYLOAD,
    EventCode.QUERY_COMPRESSED,
    EventCode.WRITE_ROWS_COMPRESSED_V1,
    EventCode.UPDATE_ROWS_COMPRESSED_V1,
    EventCode.DELETE_ROWS_COMPRESSED_V1,
    EventCode.WRITE_ROWS_COMPRESSED,
    EventCode.UPDATE_ROWS_COMPRESSED,
    EventCode.DELETE_ROWS_COMPRESSED,
)


def plain_packet(
    code: int, header: bytes, body: bytes, *, checksum_bytes: int, event_bytes_max: int
) -> list[Buffer]:
    """Convert a single compressed event of MariaDB to the packets of a plain one, in pieces."""
    if code == EventCode.QUERY_COMPRESSED:
        plain, pieces = EventCode.QUERY, _plain_query(body, event_bytes_max)
    else:
        number, pieces = expand_rows(code, body, expanded_bytes_max=event_bytes_max)
        plain = EventCode(number)
    event = (header[:4] + bytes([plain]) + header[5:], *pieces)
    return packets_of(*event, checksum_of(*event, checksum_bytes=checksum_bytes))


def _plain_query(body: bytes, event_bytes_max: int) -> list[bytes]:
    """Return the plain QUERY in pieces. Its text lies behind status variables and schema, whose
    lengths the fixed part holds."""
    text_at = _QUERY_FIXED_BYTES + int.from_bytes(body[11:13], "little") + body[8] + 1
    return [body[:text_at], *inflate(body[text_at:], expanded_bytes_max=event_bytes_max)]


class PayloadStream:
    """The events in a TRANSACTION_PAYLOAD event with ``header``; `step` gives the next few."""

    def __init__(
        self, header: bytes, body: bytes, *, checksum_bytes: int, event_bytes_max: int
    ) -> None:
        payload = parse_payload(body)
        self._expanded_bytes = payload.expanded_bytes
        self._next_position = header[13:17]
        self._checksum_bytes = checksum_bytes
        self._events: Iterator[InnerEvent] = expand_payload(
            payload, expanded_bytes_max=EXPANDED_BYTES_MAX, event_bytes_max=event_bytes_max
        )

    def whole(self) -> list[Buffer] | None:
        """Return packets of all of its events, if they are few; otherwise None: use `step`."""
        return None if self._expanded_bytes >= STEP_BYTES else self.step()

    def step(self) -> list[Buffer]:
        """Return packets of the next events, in pieces; nothing when there are no more."""
        packets: list[Buffer] = []
        size = 0
        for event in self._events:
            # Inner events do not say where they end: the payload's end is theirs.
            header = event.header[:13] + self._next_position + event.header[17:HEADER_BYTES]
            checksum = checksum_of(header, *event.pieces, checksum_bytes=self._checksum_bytes)
            pieces = packets_of(header, *event.pieces, checksum)
            packets += pieces
            size += sum(map(len, pieces))
            if size >= STEP_BYTES:
                break
        return packets
