"""The transactions that the reader has passed, as GTIDs: a position's content beyond its file.

A GTID event begins a transaction, and counts once that has ended: a position must never hold the
GTID of a transaction whose rows are not all before it.
"""

from __future__ import annotations

import uuid
from typing import Protocol

import numpy as np

from tideline_capture.core.events import Int64Array
from tideline_capture.sources.mysql.binlog.bulk import EventColumns
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES
from tideline_capture.sources.mysql.binlog.gtid import GtidSet, MariadbGtids
from tideline_capture.sources.mysql.binlog.gtid_events import parse_tagged_gtid

_UUID_BYTES = 16


class Executed(Protocol):
    """The transactions that have ended, and the one that was begun and has not."""

    def __str__(self) -> str:
        """Return the server's text of what has ended."""

    def begin_all(self, events: EventColumns, indices: Int64Array, last_end: int) -> None:
        """Record that transactions began at ``indices``. The one before, and all but the last,
        ended before ``last_end``, if there was an end at all (``last_end`` ≥ 0)."""

    def end(self) -> None:
        """Record that the transaction that was begun last has ended."""

    def covers(self, other: str) -> bool:
        """Return whether everything that the text ``other`` names has ended."""


class MysqlExecuted:
    """`Executed` as MySQL's set. Transactions without a GTID leave it as it is."""

    def __init__(self, text: str) -> None:
        self._ended = GtidSet.parse(text)
        self._begun: tuple[uuid.UUID, str, int] | None = None
        self._text: str | None = None

    def __str__(self) -> str:
        if self._text is None:
            self._text = str(self._ended)
        return self._text

    def begin_all(self, events: EventColumns, indices: Int64Array, last_end: int) -> None:
        """See `Executed.begin_all`."""
        if last_end >= 0:
            self.end()
        ended = indices[indices < last_end]
        plain = ended[events.codes[ended] == EventCode.GTID]
        if len(ended):
            self._text = None
        if len(plain):
            self._add_plain(events, plain)
        for index in ended[events.codes[ended] == EventCode.GTID_TAGGED].tolist():
            self._ended.add(*_read(events, index))
        rest = indices[indices > last_end]
        if len(rest):
            index = int(rest[-1])
            named = events.codes[index] != EventCode.ANONYMOUS_GTID
            self._begun = _read(events, index) if named else None

    def end(self) -> None:
        """See `Executed.end`."""
        if self._begun is not None:
            self._ended.add(*self._begun)
            self._begun = self._text = None

    def covers(self, other: str) -> bool:
        """See `Executed.covers`."""
        return self._ended.contains(GtidSet.parse(other))

    def _add_plain(self, events: EventColumns, indices: Int64Array) -> None:
        at = events.starts[indices] + HEADER_BYTES + 1
        sources = np.ascontiguousarray(events.data[at[:, None] + np.arange(_UUID_BYTES)])
        numbers = events.numbers(indices, HEADER_BYTES + 17, 8)
        same = sources.view(f"V{_UUID_BYTES}").ravel()
        if (same == same[0]).all():
            self._ended.add_many(uuid.UUID(bytes=sources[0].tobytes()), "", numbers)
            return
        for source in np.unique(same):
            mine = numbers[same == source]
            self._ended.add_many(uuid.UUID(bytes=source.tobytes()), "", mine)


class MariadbExecuted:
    """`Executed` as MariaDB's last GTID of every domain."""

    def __init__(self, text: str) -> None:
        self._ended = MariadbGtids.parse(text)
        self._begun: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        return str(self._ended)

    def begin_all(self, events: EventColumns, indices: Int64Array, last_end: int) -> None:
        """See `Executed.begin_all`."""
        if last_end >= 0:
            self.end()
        ended = indices[indices < last_end]
        domains = events.numbers(ended, HEADER_BYTES + 8, 4)
        for domain in np.unique(domains):
            self._ended.advance(*_read_mariadb(events, int(ended[domains == domain][-1])))
        rest = indices[indices > last_end]
        if len(rest):
            self._begun = _read_mariadb(events, int(rest[-1]))

    def end(self) -> None:
        """See `Executed.end`."""
        if self._begun is not None:
            self._ended.advance(*self._begun)
            self._begun = None

    def covers(self, other: str) -> bool:
        """See `Executed.covers`."""
        return self._ended.covers(MariadbGtids.parse(other))


def make_executed(flavour: str, text: str) -> Executed:
    """Make an `Executed` from a position's text."""
    return MariadbExecuted(text) if flavour == "mariadb" else MysqlExecuted(text)


def _read(events: EventColumns, index: int) -> tuple[uuid.UUID, str, int]:
    body = events.body(index)
    if events.codes[index] == EventCode.GTID_TAGGED:
        gtid = parse_tagged_gtid(body)
        return gtid.source, gtid.tag, gtid.number
    return uuid.UUID(bytes=body[1:17]), "", int.from_bytes(body[17:25], "little")


def _read_mariadb(events: EventColumns, index: int) -> tuple[int, int, int]:
    body = events.body(index)
    domain = int.from_bytes(body[8:12], "little")
    server = int(events.numbers(np.array([index]), 5, 4)[0])
    return domain, server, int.from_bytes(body[:8], "little")
