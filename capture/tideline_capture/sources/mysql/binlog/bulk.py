"""Many events of the log at once: the kind, rows and transaction of each.

Only frequent events are understood here: the beginnings and ends of transactions, table maps that
are known, row events. `EventColumns` reads one field of all events with one gather; `row_areas`
finds where the rows of one table's events begin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tideline.contract.errors import CorruptData
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.decoded import DELETE, INSERT, UPDATE
from tideline_capture.sources.mysql.binlog.event_codes import ARTIFICIAL_FLAG, EventCode
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES, Bytes
from tideline_capture.sources.mysql.binlog.gtid_events import parse_mariadb_gtid, parse_tagged_gtid

Mask = npt.NDArray[np.bool_]

_QUERY_HEADER_BYTES = 13
_GTID_TIMESTAMP_AT = 42
_TIMESTAMP_BYTES = 7
_TIMESTAMP_MASK = (1 << 55) - 1
_IN_COMMIT_ORDER = 2
"""``lt_type`` of a GTID event that continues with numbers of its commit order, then the time."""

_FLAGS_AT = 12
_GROUP_COMMIT, _XA = 2, 64 | 128
_USUAL_EXTRA = 1
"""A flag of MariaDB's GTID events: several engines took part, which changes nothing."""

MARIADB_FLAGS_AT = HEADER_BYTES + _FLAGS_AT
_PREPARED_XA = 64
_BEGIN, _COMMIT, _SAVEPOINT = b"BEGIN", b"COMMIT", b"SAVEPOINT"
_BEATS = (EventCode.HEARTBEAT, EventCode.HEARTBEAT_V2)
GTID_CODES = (
    EventCode.GTID,
    EventCode.ANONYMOUS_GTID,
    EventCode.GTID_TAGGED,
    EventCode.MARIADB_GTID,
)
_LEAST_BYTES: Int64Array = np.zeros(256, np.int64)
_LEAST_BYTES[[EventCode.GTID, EventCode.ANONYMOUS_GTID]] = 25
_LEAST_BYTES[EventCode.MARIADB_GTID] = 13
"""The bytes of a body that are read here, by code: beyond them lies another event."""
V1 = (EventCode.WRITE_ROWS_V1, EventCode.UPDATE_ROWS_V1, EventCode.DELETE_ROWS_V1)
V2 = (EventCode.WRITE_ROWS, EventCode.UPDATE_ROWS, EventCode.DELETE_ROWS)
OPERATIONS: Bytes = np.zeros(256, np.uint8)
"""The operation of a row event, by its code: `INSERT`, `UPDATE` or `DELETE`, 0 for others."""
OPERATIONS[list(V1)] = OPERATIONS[list(V2)] = [INSERT, UPDATE, DELETE]


class EventColumns:
    """Events in log order: ``data`` holds their bytes, ``starts`` their headers' offsets, ``stops``
    their ends without checksums."""

    def __init__(self, data: Bytes, starts: Int64Array, stops: Int64Array) -> None:
        self.data = data
        self.starts = starts
        self.stops = stops
        self.codes = data[starts + 4] if len(starts) else np.empty(0, np.uint8)

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, indices: slice) -> EventColumns:
        """Return the events at ``indices``."""
        return EventColumns(self.data, self.starts[indices], self.stops[indices])

    def header(self, index: int) -> bytes:
        """Return one event's header."""
        start = int(self.starts[index])
        return self.data[start : start + HEADER_BYTES].tobytes()

    def body(self, index: int) -> bytes:
        """Return one event's body."""
        return self.data[self.starts[index] + HEADER_BYTES : self.stops[index]].tobytes()

    def numbers(self, indices: Int64Array, at: int, width: int) -> Int64Array:
        """Return little-endian numbers of ``width`` bytes, ``at`` bytes behind the headers'
        beginnings."""
        return numbers(self.data, self.starts[indices] + at, width)

    def queries(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return the indices of QUERY events with the text BEGIN, COMMIT, and SAVEPOINT …"""
        indices = np.flatnonzero(self.codes == EventCode.QUERY)
        if not len(indices):
            return indices, indices, indices
        body = self.starts[indices] + HEADER_BYTES
        names = self.data[body + 8].astype(np.int64)
        variables = numbers(self.data, body + 11, 2)
        text = body + _QUERY_HEADER_BYTES + variables + names + 1
        length = self.stops[indices] - text

        def those(word: bytes, *, whole: bool) -> Int64Array:
            fits = length == len(word) if whole else length > len(word)
            found = np.flatnonzero(fits)
            at = text[found][:, None] + np.arange(len(word))
            same: Mask = (self.data[at] == np.frombuffer(word, np.uint8)).all(axis=1)
            return np.asarray(indices[found[same]])

        return (
            those(_BEGIN, whole=True),
            those(_COMMIT, whole=True),
            those(_SAVEPOINT, whole=False),
        )


def numbers(data: Bytes, at: Int64Array, width: int) -> Int64Array:
    """Return little-endian unsigned numbers of ``width`` bytes (signed at 8) at the offsets ``at``.

    Eight bytes are read at each and cut off, so there must be as many behind every offset.
    """
    taken = words(data)[at]
    return taken if width == 8 else taken & ((1 << 8 * width) - 1)


def words(data: Bytes) -> Int64Array:
    """Return the eight bytes from every offset on as one number: one gather instead of eight."""
    return np.ndarray((max(0, len(data) - 7),), "<i8", data, strides=(1,))


@dataclass(frozen=True, slots=True)
class TransactionStarts:
    """The GTID events at ``indices``, with `_tl_tx` and `_tl_ts` (µs) of their transactions."""

    indices: Int64Array
    tx: Int64Array
    ts: Int64Array


def read_transaction_starts(events: EventColumns) -> TransactionStarts:
    """Return all GTID events, of either server."""
    indices = np.flatnonzero(np.isin(events.codes, GTID_CODES))
    codes = events.codes[indices]
    body_bytes = events.stops[indices] - events.starts[indices] - HEADER_BYTES
    if (body_bytes < _LEAST_BYTES[codes]).any():
        raise CorruptData("a GTID event of the binlog is broken: it ends too early")
    tx = events.numbers(indices, HEADER_BYTES, 8)
    ts = events.numbers(indices, 0, 4) * 1_000_000
    mysql = codes != EventCode.MARIADB_GTID
    if mysql.any():
        _read_mysql(events, indices, codes, tx, ts)
    if not mysql.all():
        _check_flags(events, indices[~mysql])
    return TransactionStarts(indices, tx, ts)


def _check_flags(events: EventColumns, indices: Int64Array) -> None:
    """Read in full MariaDB's GTID events that say more than usual. Raises CorruptData for what is
    not known."""
    body = events.starts[indices] + HEADER_BYTES
    flags = numbers(events.data, body + _FLAGS_AT, 1)
    at = body + _FLAGS_AT + 1 + np.where(flags & _GROUP_COMMIT, 8, 0)
    extra = np.where(at < events.stops[indices], numbers(events.data, at, 1), 0)
    unusual = (extra & ~_USUAL_EXTRA != 0) | (flags & _XA != 0)
    for index in indices[unusual].tolist():
        parse_mariadb_gtid(events.body(index))


def prepares(events: EventColumns, indices: Int64Array) -> Mask:
    """Return which of MariaDB's GTID events at ``indices`` begin an XA transaction that is prepared
    only: its name is in that very event, and no statement says XA START."""
    flags = events.data[events.starts[indices] + MARIADB_FLAGS_AT]
    prepared: Mask = flags & _PREPARED_XA != 0
    return prepared


def _read_mysql(
    events: EventColumns, indices: Int64Array, codes: Bytes, tx: Int64Array, ts: Int64Array
) -> None:
    plain = np.flatnonzero(codes == EventCode.GTID)
    tx[plain] = events.numbers(indices[plain], HEADER_BYTES + 17, 8)
    # Without a GTID the place in the file names the transaction.
    nameless = np.flatnonzero(codes == EventCode.ANONYMOUS_GTID)
    tx[nameless] = events.numbers(indices[nameless], 13, 4)
    untagged = np.concatenate([plain, nameless])
    body = events.starts[indices[untagged]] + HEADER_BYTES
    timed = untagged[
        events.stops[indices[untagged]] - body >= _GTID_TIMESTAMP_AT + _TIMESTAMP_BYTES
    ]
    timed = timed[
        events.data[events.starts[indices[timed]] + HEADER_BYTES + 25] == _IN_COMMIT_ORDER
    ]
    timestamp = events.numbers(indices[timed], HEADER_BYTES + _GTID_TIMESTAMP_AT, _TIMESTAMP_BYTES)
    ts[timed] = timestamp & _TIMESTAMP_MASK
    for tagged in np.flatnonzero(codes == EventCode.GTID_TAGGED).tolist():
        gtid = parse_tagged_gtid(events.body(int(indices[tagged])))
        tx[tagged] = gtid.number
        if gtid.commit_time_us is not None:
            ts[tagged] = gtid.commit_time_us


@dataclass(frozen=True, slots=True)
class RowAreas:
    """The beginnings of the row images of some row events. ``partial`` marks events whose images
    leave columns out (``binlog_row_image`` is not FULL)."""

    starts: Int64Array
    partial: Mask


def row_areas(events: EventColumns, indices: Int64Array, columns: int) -> RowAreas:
    """Return the areas of the row events at ``indices``, all of one table with ``columns`` columns.

    Raises CorruptData when an event has another number of columns.
    """
    codes, data = events.codes[indices], events.data
    at = events.starts[indices] + HEADER_BYTES + 8
    second = np.isin(codes, V2)
    if second.any():
        at[second] += numbers(data, at[second], 2)
    count_bytes = 1 if columns < 251 else 3
    count = numbers(data, at, 1) if count_bytes == 1 else numbers(data, at + 1, 2)
    if (count != columns).any():
        raise CorruptData(f"a row event does not have the {columns} columns of its table map")
    at += count_bytes
    bitmap = np.full((columns + 7) // 8, 0xFF, np.uint8)
    if columns % 8:
        bitmap[-1] = (1 << columns % 8) - 1
    partial = _lacking(data, at, bitmap)
    at += len(bitmap)
    updates = np.flatnonzero(OPERATIONS[codes] == UPDATE)
    if len(updates):
        partial[updates] |= _lacking(data, at[updates], bitmap)
        at[updates] += len(bitmap)
    return RowAreas(at, partial)


def _lacking(data: Bytes, at: Int64Array, bitmap: Bytes) -> Mask:
    present = data[at[:, None] + np.arange(len(bitmap))]
    lacks: Mask = ((present & bitmap) != bitmap).any(axis=1)
    return lacks


def position_behind(events: EventColumns, at: int) -> int:
    """Return the log's own position behind ``events``, which began at ``at``.

    Positions have 32 bits: events are far smaller than that, so one that is less by much has
    wrapped around. Events made for this connection have none.
    """
    for index in range(len(events) - 1, -1, -1):
        start = events.starts[index : index + 1]
        position = int(numbers(events.data, start + 13, 4)[0])
        artificial = int(numbers(events.data, start + 17, 2)[0]) & ARTIFICIAL_FLAG
        if position and not artificial and events.codes[index] not in _BEATS:
            return unwrapped(position, at)
    return at


def unwrapped(position: int, before: int) -> int:
    """Return the true position behind its lower 32 bits, given that positions grow from ``before``,
    and by less than 2 GiB at a time."""
    true = (before & ~0xFFFFFFFF) + position
    return true + (1 << 32) if true < before - (1 << 31) else true
