"""The binlog as a stream of transactions, decoded in bulk.

Events are looked at hundreds at a time: which are beginnings, ends, known table maps and rows is a
question to whole arrays, and the rows of one table in all of a batch are decoded together. Anything
else (`rare`) ends a batch, so that what it says applies exactly from there on.

A position is only ever given out between transactions: a stream that began inside one would lack
its table maps, and lose rows silently.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capture.core.events import (
    Boundary,
    CascadeSeen,
    Control,
    GapSeen,
    Int64Array,
    LogBatch,
    Rows,
)
from capture.sources.mysql.bulk import (
    OPERATIONS,
    Begins,
    EventColumns,
    numbers,
    prepares,
    read_begins,
    row_areas,
    unwrapped,
)
from capture.sources.mysql.connect import stream_failed
from capture.sources.mysql.decode import Walked, walk_events
from capture.sources.mysql.event_codes import ARTIFICIAL_FLAG, EVENT_KINDS, EventCode, Treatment
from capture.sources.mysql.framing import HEADER_BYTES, LEAD_BYTES
from capture.sources.mysql.images import PADDING
from capture.sources.mysql.log_state import LogState
from capture.sources.mysql.rare import RareEvents, Rules, replays
from capture.sources.mysql.table_cache import Known, Role, TableCache, table_ids
from capture.sources.mysql.unpack import COMPRESSED, STEP_BYTES, PayloadStream, plain_packet
from tideline.contract.errors import (
    CorruptData,
    InvariantBroken,
    Misconfigured,
    TidelineError,
    Unavailable,
)
from tideline.contract.position import MysqlPosition, SourcePosition

_NONE: Int64Array = np.empty(0, np.int64)
_PADDING = bytes(PADDING)
_EVENTS_PER_CHANGE = 4
"""Of a transaction with one change: GTID, table map, rows, end."""
_PACKED = np.zeros(256, np.bool_)
_PACKED[list(COMPRESSED)] = True
_PASSED = np.zeros(256, np.bool_)
"""Codes of events that need no look of their own."""
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
_BEATS = (EventCode.HEARTBEAT, EventCode.HEARTBEAT_V2)
_ERROR, _END = 0xFF, 0xFE


class BinlogReader:
    """A `LogReader`. ``state`` is where it begins, ``rare`` knows what single events mean."""

    def __init__(
        self,
        state: LogState,
        tables: TableCache,
        rare: RareEvents,
        rules: Rules,
    ) -> None:
        self.must_take = False
        self._state = state
        self._tables = tables
        self._rare = rare
        self._rules = rules
        self._ends_rare = False
        self._said = state.position

    @property
    def buffered_bytes(self) -> int:
        """See `LogReader.buffered_bytes`."""
        return self._state.source.accepted.bytes

    @property
    def at_commit(self) -> bool:
        """See `LogReader.at_commit`."""
        accepted = self._state.source.accepted
        return accepted.count > 0 and accepted.last_end == accepted.count - 1

    # -- reading -------------------------------------------------------------------------------

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        """See `LogReader.poll`. What is counted is row events, at least one if anything came: most
        other events come with every transaction."""
        messages_max *= _EVENTS_PER_CHANGE
        source = self._state.source
        buffer = source.buffer
        waiting = len(buffer.starts) - source.accepted.count
        if waiting < messages_max:
            waiting += buffer.frame(messages_max - waiting)
        if self._rare.has_marks and (source.accepted.count or self._rare.marks_ready):
            self.must_take = True
            return 1
        if not waiting:
            waiting = self._receive(messages_max)
        if not waiting:
            return 0
        return self._look(min(waiting, messages_max), until_commit=until_commit)

    def _receive(self, messages_max: int) -> int:
        source = self._state.source
        buffer = source.buffer
        if source.payload is not None:
            packets = source.payload.step()
            if packets:
                buffer.splice(len(buffer.starts), packets)
            else:
                source.payload = None
                buffer.unpark()
            return buffer.frame(messages_max)
        try:
            buffer.receive()
        except OSError as error:
            raise Unavailable(f"the replication stream ended: {error}") from None
        return buffer.frame(messages_max)

    def _look(self, count: int, *, until_commit: bool) -> int:
        """Accept those of the next ``count`` events that belong to the batch; how many."""
        source = self._state.source
        first = source.accepted.count
        data = source.buffer.view()
        starts = np.array(source.buffer.starts[first : first + count], np.int64)
        stops = source.buffer.stops(first, count)
        failed = np.flatnonzero(data[starts - 1])
        if len(failed):
            if not failed[0]:
                raise _stream_error(data[starts[0] - 1 : stops[0]].tobytes())
            count = int(failed[0])
        events = EventColumns(data, starts[:count], stops[:count] - source.checksum_bytes)
        packed = np.flatnonzero(_PACKED[events.codes])
        if len(packed):
            if not packed[0]:
                self._unpack(events, first)
                return 1  # Not nothing: that would be taken for the end of what has come.
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
        """Put plain events in the place of these, the first of which is compressed; of much that
        is compressed only the first part, for what it expands to is in memory at once."""
        source = self._state.source
        buffer = source.buffer
        packets: list[bytes] = []
        expanded = 0
        for place, code in enumerate(events.codes.tolist()):
            if code not in COMPRESSED:
                packets.append(buffer.packets(first + place, first + place + 1))
                continue
            plain = None if expanded > STEP_BYTES else self._expand(events, place)
            if plain is None:
                break
            packets.append(plain)
            expanded += len(plain)
        if not packets:
            source.payload = self._payload(events, 0)
            buffer.park(first)
            return
        packets.append(buffer.packets(first + len(packets), len(buffer.starts)))
        buffer.splice(first, b"".join(packets))

    def _expand(self, events: EventColumns, place: int) -> bytes | None:
        """The plain events that the one at ``place`` stands for, as packets; None when they are too
        many for one go."""
        code = int(events.codes[place])
        if code == EventCode.TRANSACTION_PAYLOAD:
            return self._payload(events, place).whole()
        header, size = events.header(place), self._state.source.checksum_bytes
        return plain_packet(code, header, events.body(place), checksum_bytes=size)

    def _payload(self, events: EventColumns, place: int) -> PayloadStream:
        size = self._state.source.checksum_bytes
        return PayloadStream(events.header(place), events.body(place), checksum_bytes=size)

    def _sort_out(self, events: EventColumns) -> tuple[int, Int64Array]:
        """The place of the first rare event (their number, if none is), and of ends before it."""
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

    # -- taking --------------------------------------------------------------------------------

    def take(self, next_seq: int) -> LogBatch:
        """See `LogReader.take`."""
        source = self._state.source
        accepted, has_rare = source.accepted, self._ends_rare
        self.must_take = self._ends_rare = False
        count = accepted.count
        if not has_rare and accepted.last_end >= 0:
            count = accepted.last_end + 1  # What is behind the last end may end with the next.
        if not count:
            placed = self._rare.place_marks()
            return LogBatch((), 0, placed, self._boundary(), self._inside, _NONE)
        starts, stops = accepted.take(count)
        raw = source.buffer.take(count, int(stops[-1]), _PADDING)
        events = EventColumns(np.frombuffer(raw, np.uint8), starts, stops - source.checksum_bytes)
        bulk = events.part(slice(0, len(events) - has_rare))
        if self._state.preparing is not None and self._state.replay is None:
            last = len(events) - 1 - (has_rare and not replays(int(events.codes[-1])))
            if last >= 0:
                self._rare.keep(raw[starts[0] - LEAD_BYTES : stops[last]])
        taken = self._take_bulk(bulk, next_seq)
        controls = taken.controls
        if has_rare:
            self._move(events.part(slice(len(events) - 1, None)))
            controls += self._rare.read(events, len(events) - 1)
        controls += self._rare.place_marks()
        return LogBatch(
            taken.rows,
            taken.changes,
            controls,
            self._boundary(),
            self._inside,
            _NONE,
            taken.unholdable,
        )

    def _boundary(self) -> Boundary | None:
        """Where the log stands now, if that is between two transactions and was not said yet. What
        was said last counts, not where this batch began: the last event of a transaction need not
        have a place of its own."""
        position = self._state.position
        if self._inside or position == self._said:
            return None
        self._said = position
        return Boundary(position)

    @property
    def _inside(self) -> bool:
        return self._state.open is not None

    def _take_bulk(self, bulk: EventColumns, next_seq: int) -> _Taken:
        state = self._state
        self._move(bulk)
        begins = read_begins(bulk)
        if state.replay is not None:  # Another transaction's GTID; ours began with its commit.
            begins = Begins(_NONE, _NONE, _NONE)
        rows = self._find_rows(bulk, begins)
        taken = self._decode(bulk, rows, next_seq, frozenset())
        ends = np.flatnonzero(bulk.codes == EventCode.XID)
        ends = np.sort(np.concatenate([ends, bulk.queries()[1]]))
        last_end = int(ends[-1]) if len(ends) else -1
        if state.replay is None:
            state.pass_over(bulk, begins, last_end)
            state.framed(bulk.queries()[0], last_end)
        state.wrote |= self._tables_taken(rows.ids[rows.places > last_end])
        return taken

    def _tables_taken(self, ids: Int64Array) -> frozenset[str]:
        """Those of these tables whose rows are taken."""
        known = [self._tables.get(table_id) for table_id in np.unique(ids).tolist()]
        taken = [one for one in known if one is not None and self._takes(one, frozenset())]
        return frozenset(str(one.name) for one in taken)

    def _move(self, events: EventColumns) -> None:
        """Follow the log's own positions, which have 32 bits: events are far smaller than that, so
        one that is less by much has wrapped around. Events made for this connection have none."""
        stream = self._state.source
        for place in range(len(events) - 1, -1, -1):
            at = events.starts[place : place + 1]
            position = int(numbers(events.data, at + 13, 4)[0])
            artificial = int(numbers(events.data, at + 17, 2)[0]) & ARTIFICIAL_FLAG
            if position and not artificial and events.codes[place] not in _BEATS:
                stream.at = unwrapped(position, stream.at)
                return

    def _find_rows(self, bulk: EventColumns, begins: Begins) -> _RowEvents:
        """The row events of chosen tables, and what their transactions are."""
        state = self._state
        places = np.flatnonzero(OPERATIONS[bulk.codes])
        if state.preparing is not None:
            if len(begins.places):
                raise CorruptData("the binlog has no end of an XA transaction")
            places = places[:0]
        ids = table_ids(bulk.data, bulk.starts[places] + HEADER_BYTES)
        begun = np.searchsorted(begins.places, places) - 1
        tx, ts = begins.tx, begins.ts
        if state.open is not None:
            tx, ts = np.append(tx, state.open.tx), np.append(ts, state.open.ts)
        elif len(places) and begun[0] < 0:
            raise CorruptData("the binlog has rows outside of any transaction")
        return _RowEvents(places, ids, tx[begun], ts[begun])

    def _decode(
        self, bulk: EventColumns, events: _RowEvents, next_seq: int, without: frozenset[str]
    ) -> _Taken:
        """All rows, by table. A table with a key that cannot be held is left out, and the others
        are numbered anew: sequences must not have holes."""
        groups, controls = self._walk(bulk, events, without)
        controls += self._cascaded(bulk, events)
        counts = np.zeros(len(events.places), np.int64)
        for group in groups:
            counts[group.chosen] = group.walked.rows_per_event
        first = next_seq + np.cumsum(counts) - counts
        rows = []
        for group in groups:
            schema, chosen, walked = group.known.schema, group.chosen, group.walked
            if schema is None:
                raise InvariantBroken("rows of a table without a schema")
            each = walked.rows_per_event
            within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
            decoded = walked.to_batch(
                schema,
                seq=np.repeat(first[chosen], each) + within,
                tx=np.repeat(events.tx[chosen], each),
                ts=np.repeat(events.ts[chosen], each),
            )
            if decoded.key_overflow:
                rest = self._decode(bulk, events, next_seq, without | {schema.table})
                left_out = ((schema.table, decoded.key_overflow[0]), *rest.unholdable)
                return _Taken(rest.rows, rest.changes, rest.controls, left_out)
            rows.append(
                Rows(
                    schema,
                    decoded.batch,
                    before_rows=decoded.before_rows,
                    overflow_rows=decoded.overflow_rows,
                )
            )
        return _Taken(tuple(rows), int(counts.sum()), controls)

    def _walk(
        self, bulk: EventColumns, events: _RowEvents, without: frozenset[str]
    ) -> tuple[list[_Group], tuple[Control, ...]]:
        """The row events of captured tables, by version of a table, walked through."""
        by_version: dict[int, tuple[Known, list[int]]] = {}
        for table_id in np.unique(events.ids).tolist():
            known = self._tables.get(table_id)
            if known is None:
                raise CorruptData("the binlog has rows of a table that it did not describe")
            if self._takes(known, without):
                by_version.setdefault(id(known), (known, []))[1].append(table_id)
        groups, gaps = [], []
        for known, table_numbers in by_version.values():
            if known.table is None:
                raise known.error or InvariantBroken(f"{known.name} was not read")
            chosen = np.flatnonzero(np.isin(events.ids, table_numbers))
            areas = row_areas(bulk, events.places[chosen], len(known.table.columns))
            if areas.partial.any():
                gaps.append(self._refuse_partial(known))
                chosen, starts = chosen[~areas.partial], areas.starts[~areas.partial]
            else:
                starts = areas.starts
            places = events.places[chosen]
            kinds = OPERATIONS[bulk.codes[places]]
            if len(places):
                walked = walk_events(bulk.data, starts, bulk.stops[places], kinds, known.table)
                groups.append(_Group(known, chosen, walked))
        return groups, tuple(gaps)

    def _cascaded(self, bulk: EventColumns, events: _RowEvents) -> tuple[Control, ...]:
        """What updates and deletes of these rows may have changed elsewhere."""
        changed = OPERATIONS[bulk.codes[events.places]] != ord("c")
        children: set[str] = set()
        for table_id in np.unique(events.ids[changed]).tolist():
            known = self._tables.get(table_id)
            if known is not None:
                children |= self._rules.children_of(known.name)
        return (CascadeSeen(tuple(sorted(children))),) if children else ()

    def _takes(self, known: Known, without: frozenset[str]) -> bool:
        table = str(known.name)
        chosen = known.role is Role.CHOSEN and table not in without
        return chosen and self._rules.captures(table)

    def _refuse_partial(self, known: Known) -> Control:
        """A session may leave columns out at any time; what is not there must not become NULL."""
        reason = f"the log has only some columns of rows of {known.name}"
        if not self._rules.goes_on:
            raise Misconfigured(
                f"{reason}, before {self._state.position}: binlog_row_image was not FULL",
                hint="SET GLOBAL binlog_row_image = 'FULL', end sessions that set another, and set"
                ' source.on_gap = "dump" for once: the table is then dumped anew',
            )
        return GapSeen(reason, (str(known.name),))

    # -- the end -------------------------------------------------------------------------------

    def confirm(self, position: SourcePosition) -> None:
        """See `LogReader.confirm`. The server keeps its log by its own rule: nothing to tell."""
        if not isinstance(position, MysqlPosition):
            raise InvariantBroken(f"{position} is no position of a binlog")

    def wait(self, timeout_s: float) -> None:
        self._state.source.buffer.wait(timeout_s)

    def close(self) -> None:
        self._rare.close()
        self._state.close()


@dataclass(frozen=True, slots=True)
class _RowEvents:
    """Row events: their places in the batch, their tables' numbers, their transactions."""

    places: Int64Array
    ids: Int64Array
    tx: Int64Array
    ts: Int64Array


@dataclass(frozen=True, slots=True)
class _Group:
    """The row events (``chosen`` of a `_RowEvents`) of one version of a table."""

    known: Known
    chosen: Int64Array
    walked: Walked


@dataclass(frozen=True, slots=True)
class _Taken:
    rows: tuple[Rows, ...]
    changes: int
    controls: tuple[Control, ...]
    unholdable: tuple[tuple[str, str], ...] = ()


def _stream_error(payload: bytes) -> TidelineError:
    """Our error for a packet that is no event: the server ends the stream."""
    if payload[0] == _ERROR:
        number = int.from_bytes(payload[1:3], "little")
        return stream_failed(number, payload[9:].decode(errors="replace"))
    if payload[0] == _END:
        return Unavailable("the server ended the replication stream")
    return CorruptData(f"a packet of the replication stream begins with {payload[0]}")
