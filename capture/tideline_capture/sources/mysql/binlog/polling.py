"""The events of the next batch: received, checked, and accepted as far as the batch goes.

Hundreds of events are examined with a few operations on whole arrays. A batch ends behind the first
event that needs separate handling (a rare one), so that its meaning applies exactly from there on;
compressed events are first replaced by the plain ones they stand for. Accepted events stay in the
stream's buffer until they are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tideline.contract.errors import CorruptData, Misconfigured, TidelineError, Unavailable
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.decoding import too_large
from tideline_capture.sources.mysql.binlog.bulk import OPERATIONS, EventColumns, prepares
from tideline_capture.sources.mysql.binlog.event_codes import EVENT_KINDS, EventCode, Treatment
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES, LEAD_BYTES, Buffer
from tideline_capture.sources.mysql.binlog.intact import check_events
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.rare import RareEvents
from tideline_capture.sources.mysql.binlog.table_cache import TableCache, table_ids
from tideline_capture.sources.mysql.binlog.unpack import (
    COMPRESSED,
    STEP_BYTES,
    PayloadStream,
    plain_packet,
)
from tideline_capture.sources.mysql.connect import is_rival, stream_failed
from tideline_capture.sources.mysql.types.images import PADDING

_PADDING = bytes(PADDING)
_EVENTS_PER_CHANGE = 4
"""The events of a transaction with one change: GTID, table map, rows, end."""
_PACKED = np.zeros(256, np.bool_)
_PACKED[list(COMPRESSED)] = True
_PASSED = np.zeros(256, np.bool_)
"""Codes of events that need no separate handling."""
_PASSED[[code for code, kind in EVENT_KINDS.items() if kind.treatment is Treatment.IGNORED]] = True
_PASSED[
    [
        EventCode.XID,
        EventCode.GTID,
        EventCode.ANONYMOUS_GTID,
        EventCode.GTID_TAGGED,
        EventCode.PREVIOUS_GTIDS,
        EventCode.MARIADB_GTID,
        EventCode.MARIADB_GTID_LIST,
    ]
] = True
_ERROR, _END = 0xFF, 0xFE


@dataclass(frozen=True, slots=True)
class Polled:
    """The events of a batch. ``ends_rare``: the last one needs separate handling; all others are
    understood in bulk. ``stops`` are their ends with their checksums, in ``raw``."""

    raw: bytes | bytearray
    events: EventColumns
    stops: Int64Array
    ends_rare: bool

    @property
    def bulk(self) -> EventColumns:
        """The events without a rare one at the end."""
        return self.events.part(slice(0, len(self.events) - self.ends_rare))

    def packets(self, count: int) -> bytes:
        """Return the first ``count`` events, as packets."""
        return bytes(self.raw[self.events.starts[0] - LEAD_BYTES : self.stops[count - 1]])


class Poller:
    """Fills the batch, and returns it. ``must_take``: it is complete, nothing may be added."""

    def __init__(self, state: LogState, tables: TableCache, rare: RareEvents) -> None:
        self.must_take = False
        self._state = state
        self._tables = tables
        self._rare = rare
        self._ends_rare = False

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        """See `LogReader.poll`. Counts row events, at least one if anything came: most other events
        come with every transaction."""
        messages_max *= _EVENTS_PER_CHANGE
        source = self._state.source
        buffer = source.buffer
        waiting = len(buffer.starts) - source.accepted.count
        if waiting < messages_max:
            waiting += buffer.frame(messages_max - waiting)
        if self._rare.has_watermarks and (source.accepted.count or self._rare.watermarks_ready):
            self.must_take = True
            return 1
        if not waiting:
            waiting = self._receive(messages_max)
        if not waiting:
            return 0
        return self._look(min(waiting, messages_max), until_commit=until_commit)

    def take(self) -> Polled | None:
        """Return the events that were accepted, up to the last end of a transaction if one ended;
        None if there are none. They are no longer in the stream."""
        source = self._state.source
        accepted, ends_rare = source.accepted, self._ends_rare
        self.must_take = self._ends_rare = False
        count = accepted.count
        if not ends_rare and accepted.last_end >= 0:
            count = accepted.last_end + 1  # What is behind the last end may end with the next.
        if not count:
            return None
        starts, stops = accepted.take(count)
        raw = source.buffer.take(count, int(stops[-1]), _PADDING)
        events = EventColumns(np.frombuffer(raw, np.uint8), starts, stops - source.checksum_bytes)
        return Polled(raw, events, stops, ends_rare)

    def _receive(self, messages_max: int) -> int:
        source = self._state.source
        buffer = source.buffer
        if source.payload is not None:
            packets = source.payload.step()
            if packets:
                buffer.splice(len(buffer.starts), *packets)
            else:
                source.payload = None
                buffer.take_back()
            return buffer.frame(messages_max)
        if buffer.awaited() > source.event_bytes_max:
            raise self._too_large(buffer.awaited())
        try:
            buffer.receive()
        except OSError as error:
            raise Unavailable(f"the replication stream ended: {error}") from None
        return buffer.frame(messages_max)

    def _look(self, count: int, *, until_commit: bool) -> int:
        """Accept those of the next ``count`` events that belong to the batch; return how many row
        events there are, at least 1."""
        source = self._state.source
        first = source.accepted.count
        data = source.buffer.view()
        starts = np.array(source.buffer.starts[first : first + count], np.int64)
        stops = source.buffer.stops(first, count)
        failed = np.flatnonzero(data[starts - 1])
        if len(failed):
            if not failed[0]:
                error = _stream_error(data[starts[0] - 1 : stops[0]].tobytes())
                if is_rival(error.message):
                    source.on_rival()
                raise error
            count = int(failed[0])
        largest = int((stops[:count] - starts[:count]).max())
        if largest > source.event_bytes_max:
            raise self._too_large(largest)
        count = check_events(source, data, starts[:count], stops[:count])
        events = EventColumns(data, starts[:count], stops[:count] - source.checksum_bytes)
        packed = np.flatnonzero(_PACKED[events.codes])
        if len(packed):
            if not packed[0]:
                self._unpack(events, first)
                return 1  # Not 0: that would be taken for the end of what has come.
            count = int(packed[0])
            events = EventColumns(data, starts[:count], events.stops[:count])
        rare, commits = self._sort_out(events)
        taken = min(count, rare + 1)
        if until_commit and len(commits) and commits[0] < taken:
            taken = int(commits[0]) + 1
        self.must_take = self._ends_rare = taken == rare + 1
        ends = commits[commits < taken]
        last_end = int(ends[-1]) if len(ends) else -1
        source.accepted.add(starts[:taken], stops[:taken], last_end)
        return max(1, int(np.count_nonzero(OPERATIONS[events.codes[:taken]])))

    def _unpack(self, events: EventColumns, first: int) -> None:
        """Replace these events, the first of which is compressed, with plain ones. Of many
        compressed bytes only the first part is replaced, as its expansion is in memory at once."""
        source = self._state.source
        buffer = source.buffer
        packets: list[Buffer] = []
        expanded = done = 0
        for place, code in enumerate(events.codes.tolist()):
            if code not in COMPRESSED:
                packets.append(buffer.packets(first + place, first + place + 1))
            elif expanded > STEP_BYTES or (plain := self._expand(events, place)) is None:
                break
            else:
                packets += plain
                expanded += sum(map(len, plain))
            done += 1
        if not done:
            source.payload = self._payload(events, 0)
            buffer.set_aside(first)
            return
        packets.append(buffer.packets(first + done, len(buffer.starts)))
        buffer.splice(first, *packets)

    def _expand(self, events: EventColumns, place: int) -> list[Buffer] | None:
        """Return the plain events that the one at ``place`` stands for, as packets; None when they
        are too many for one step."""
        code = int(events.codes[place])
        if code == EventCode.TRANSACTION_PAYLOAD:
            return self._payload(events, place).whole()
        source = self._state.source
        return plain_packet(
            code,
            events.header(place),
            events.body(place),
            checksum_bytes=source.checksum_bytes,
            event_bytes_max=source.event_bytes_max,
        )

    def _payload(self, events: EventColumns, place: int) -> PayloadStream:
        source = self._state.source
        return PayloadStream(
            events.header(place),
            events.body(place),
            checksum_bytes=source.checksum_bytes,
            event_bytes_max=source.event_bytes_max,
        )

    def _too_large(self, size: int) -> Misconfigured:
        source = self._state.source
        return too_large(size, source.event_bytes_max, f"behind {source.file} at {source.at}")

    def _sort_out(self, events: EventColumns) -> tuple[int, Int64Array]:
        """Return the place of the first rare event (the number of events, if none is), and of ends
        before it."""
        passed = _PASSED[events.codes]
        begins, commits, savepoints = events.queries()
        for places in (begins, commits, savepoints):
            passed[places] = True
        maps = np.flatnonzero(events.codes == EventCode.TABLE_MAP)
        if len(maps):
            news = self._tables.first_news(events.data, events.starts[maps], events.stops[maps])
            passed[maps[:news]] = True
        rows = np.flatnonzero(OPERATIONS[events.codes])
        if len(rows):
            ids = table_ids(events.data, events.starts[rows] + HEADER_BYTES)
            passed[rows] = True
            for table_id in np.unique(ids).tolist():
                if not self._tables.is_bulk(table_id):
                    passed[rows[ids == table_id]] = False
        gtids = np.flatnonzero(events.codes == EventCode.MARIADB_GTID)
        passed[gtids[prepares(events, gtids)]] = False
        waiting = np.flatnonzero(~passed)
        rare = int(waiting[0]) if len(waiting) else len(events)
        ends = np.concatenate([np.flatnonzero(events.codes == EventCode.XID), commits])
        return rare, np.sort(ends[ends < rare])


def _stream_error(payload: bytes) -> TidelineError:
    """Return our error for a packet that is no event: the server ends the stream."""
    if payload[0] == _ERROR:
        number = int.from_bytes(payload[1:3], "little")
        return stream_failed(number, payload[9:].decode(errors="replace"))
    if payload[0] == _END:
        return Unavailable("the server ended the replication stream")
    return CorruptData(f"a packet of the replication stream begins with {payload[0]}")
