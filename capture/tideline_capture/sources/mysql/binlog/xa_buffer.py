"""The events of small XA transactions that were prepared, kept until their end.

Reading them once more from the log costs a connection for each; most of these transactions are
small and end at once, so their events stay in memory. The others (large ones, more than fit, all
those from before a start) are read from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tideline.contract.position import MysqlPosition
from tideline_capture.sources.mysql.binlog.framing import EventBuffer
from tideline_capture.sources.mysql.binlog.stream import BinlogStream

TRANSACTION_BYTES_MAX = 256 << 10
BYTES_MAX = 16 << 20
"""The bytes of all that are kept."""


@dataclass(frozen=True, slots=True)
class _Buffered:
    packets: bytes
    checksum_bytes: int


class BufferedTransactions:
    """Events of the transaction that is being prepared, and of those that were, by id."""

    def __init__(self) -> None:
        self._current: list[bytes] = []
        self._current_bytes = 0
        self._by_xid: dict[str, _Buffered] = {}
        self._bytes = 0

    def begin(self) -> None:
        """Begin another transaction that is being prepared."""
        self._current, self._current_bytes = [], 0

    def add(self, packets: bytes) -> None:
        """Add its next events, as packets."""
        self._current_bytes += len(packets)
        if self._current_bytes > TRANSACTION_BYTES_MAX:
            self._current.clear()
        else:
            self._current.append(packets)

    def end(self, xid: str, checksum_bytes: int) -> None:
        """Record it as prepared under ``xid``; ``checksum_bytes`` stand behind each of its
        events."""
        packets = b"".join(self._current)
        whole = self._current_bytes <= TRANSACTION_BYTES_MAX
        self.begin()
        if packets and whole and self._bytes + len(packets) <= BYTES_MAX:
            self.drop(xid)
            self._by_xid[xid] = _Buffered(packets, checksum_bytes)
            self._bytes += len(packets)

    def drop(self, xid: str) -> None:
        """Forget the transaction: it has ended."""
        buffered = self._by_xid.pop(xid, None)
        if buffered is not None:
            self._bytes -= len(buffered.packets)

    def open(
        self, xid: str, position: MysqlPosition, otherwise: Callable[[MysqlPosition], BinlogStream]
    ) -> BinlogStream:
        """Return the events of ``xid``, which is then forgotten; from the log at ``position``
        unless they were kept."""
        buffered = self._by_xid.get(xid)
        self.drop(xid)
        if buffered is None:
            return otherwise(position)
        return BinlogStream(
            EventBuffer(None, buffered.packets), position, checksum=buffered.checksum_bytes
        )
