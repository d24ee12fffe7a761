"""The handling of the log's single events: files, table maps, our watermarks, heartbeats.

Each is read with nothing of its batch behind it, so its meaning applies from there on. Statements
and XA transactions are separate modules (`ddl.logged`, `xa`). An unknown event stops the
reader, whatever the server says about ignoring it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tideline.contract.errors import CorruptData, TidelineError
from tideline.contract.position import SourcePosition
from tideline_capture.core.events import Control, SchemaSeen, Unreadable
from tideline_capture.sources.mysql.binlog.bulk import OPERATIONS, EventColumns, row_areas
from tideline_capture.sources.mysql.binlog.checksums import CHECKSUM_BYTES, has_checksum
from tideline_capture.sources.mysql.binlog.decode import walk_events
from tideline_capture.sources.mysql.binlog.event_codes import EventCode, is_gap, refusal
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES
from tideline_capture.sources.mysql.binlog.log_events import (
    parse_format_description,
    parse_heartbeat,
    parse_heartbeat_v2,
    parse_query,
    parse_rotate,
)
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.rules import LogRules
from tideline_capture.sources.mysql.binlog.table_cache import Role, TableCache
from tideline_capture.sources.mysql.binlog.xa import XaTransactions
from tideline_capture.sources.mysql.ddl.logged import LoggedStatements
from tideline_capture.sources.mysql.watermark_registry import WatermarkRegistry
from tideline_capture.sources.mysql.watermarks import parse_watermark
from tideline_capture.sources.watermark_key import WatermarkKey

_DUMMY_ID = 0xFFFFFF
"""MySQL ends a statement that changed no row with a row event of no table."""


class RareEvents:
    """Reads single events, and moves `LogState` on. ``prepared`` is where prepared transactions
    are."""

    def __init__(
        self,
        state: LogState,
        tables: TableCache,
        registry: WatermarkRegistry,
        *,
        key: WatermarkKey,
        prepared: Mapping[str, SourcePosition],
        rules: LogRules,
    ) -> None:
        self._state = state
        self._tables = tables
        self._registry = registry
        self._key = key
        self._rules = rules
        self._xa = XaTransactions(state, rules, prepared=prepared)
        self._statements = LoggedStatements(state, tables, rules=rules, xa=self._xa)

    # -- watermarks by place -------------------------------------------------------------------

    @property
    def has_watermarks(self) -> bool:
        """Return whether watermarks wait to be placed."""
        return not self._registry.empty

    @property
    def watermarks_ready(self) -> bool:
        """Return whether this is the place of one of them."""
        return self._state.open is None and self._registry.is_awaited(self._state.position)

    def watermarks_here(self) -> tuple[Control, ...]:
        """Return the watermarks whose place is here, if this is between two transactions."""
        if self._registry.empty or self._state.open is not None:
            return ()
        return self._registry.take_at(self._state.position)

    def close(self) -> None:
        """Report that no more watermarks will be placed."""
        self._registry.close()

    # -- events --------------------------------------------------------------------------------

    def read(self, events: EventColumns, index: int) -> tuple[Control, ...]:
        """Handle the event at ``take_at``; return the controls that it causes."""
        code = int(events.codes[index])
        if code == EventCode.TABLE_MAP:
            return self._describe(events.body(index))
        if OPERATIONS[code]:
            return self._read_watermark(events, index)
        if code == EventCode.QUERY:
            return self._statements.read(parse_query(events.body(index)))
        if code == EventCode.ROTATE:
            return self._rotate(events, index)
        if code == EventCode.FORMAT_DESCRIPTION:
            return self._begin_file(events, index)
        if code == EventCode.XA_PREPARE:
            return self._xa.prepare(events.body(index))
        if code == EventCode.MARIADB_GTID:
            return self._xa.begin(events.part(slice(index, index + 1)))
        if code in (EventCode.HEARTBEAT, EventCode.HEARTBEAT_V2):
            return self._beat(events, index)
        if code == EventCode.STOP:
            return ()
        return self._refuse(events, index)

    def keep(self, packets: bytes) -> None:
        """See `XaTransactions.keep`."""
        self._xa.keep(packets)

    def _describe(self, body: bytes) -> tuple[Control, ...]:
        known = self._tables.add(body)
        if known.role is not Role.CHOSEN:
            return ()
        if known.schema is None:
            return (Unreadable(str(known.name)),)
        return (SchemaSeen(known.schema, keyless=self._tables.takes_keyless(known.name)),)

    def _read_watermark(self, events: EventColumns, index: int) -> tuple[Control, ...]:
        at = np.array([index])
        table_id = int(events.numbers(at, HEADER_BYTES, 6)[0])
        known = self._tables.get(table_id)
        if known is None and table_id == _DUMMY_ID:
            return ()
        if known is None or known.role is not Role.OURS:
            raise CorruptData("the binlog has rows of a table that it did not describe")
        if known.table is None:
            return ()  # Altered by others: `WatermarkWriter.check` reports that.
        areas = row_areas(events, at, len(known.table.columns))
        kinds = OPERATIONS[events.codes[at]]
        walked = walk_events(events.data, areas.starts, events.stops[at], kinds, known.table)
        count = int(walked.rows_per_event[0])
        if areas.partial.any() or not known.table.key:
            return ()  # Not as we write it; the watermark that is waited for does not come.
        none = np.zeros(count, np.int64)
        batch = walked.to_batch(known.table.schema, seq=none, tx=none, ts=none).rows.batch
        watermarks = [parse_watermark(row, self._key) for row in batch.to_pylist()]
        return tuple(watermark for watermark in watermarks if watermark is not None)

    # -- files ---------------------------------------------------------------------------------

    def _rotate(self, events: EventColumns, index: int) -> tuple[Control, ...]:
        """Move on to the next file.

        Before a file has said whether there are checksums, MySQL puts one behind this event, and
        MariaDB may: the bytes decide. A wrong checksum would be taken for a part of the name, which
        no file has.
        """
        source = self._state.source
        whole = _whole(events, index, source.checksum_bytes)
        if source.checksum_bytes or has_checksum(whole):
            whole = whole[:-CHECKSUM_BYTES]
        rotate = parse_rotate(whole[HEADER_BYTES:])
        moved = (rotate.file, rotate.position) != (source.file, source.at)
        if moved and self._state.open is not None and self._state.replay is None:
            raise CorruptData(f"a transaction in {source.file} does not end in that file")
        source.file, source.at = rotate.file, rotate.position
        source.awaits_description = True
        self._tables.begin_file()
        return ()

    def _begin_file(self, events: EventColumns, index: int) -> tuple[Control, ...]:
        whole = _whole(events, index, self._state.source.checksum_bytes)
        description = parse_format_description(whole[HEADER_BYTES:])
        source = self._state.source
        source.checksum_bytes = CHECKSUM_BYTES if description.checksummed else 0
        source.awaits_description = False
        self._tables.begin_file(description.server_version)
        return ()

    def _beat(self, events: EventColumns, index: int) -> tuple[Control, ...]:
        """Follow a heartbeat, which comes when nothing was sent for a while: while the server skips
        what we have, it moves the position."""
        source = self._state.source
        body, low = events.body(index), int(events.numbers(np.array([index]), 13, 4)[0])
        old = events.codes[index] == EventCode.HEARTBEAT
        beat = parse_heartbeat(body, header_position=low) if old else parse_heartbeat_v2(body)
        at = low if beat.position is None else beat.position
        if self._state.open is None and beat.file == source.file and at > source.at:
            source.at = at
        return ()

    def _refuse(self, events: EventColumns, index: int) -> tuple[Control, ...]:
        """Refuse events that do not hold what was changed, or are not known at all."""
        code = int(events.codes[index])
        flags = int(events.numbers(np.array([index]), 17, 2)[0])
        error = refusal(code, flags)
        if not is_gap(code):
            raise error
        if code == EventCode.PARTIAL_UPDATE_ROWS:
            return self._refuse_partial(events, index, error)
        gap = self._rules.gap(error, self._state)
        if code == EventCode.INCIDENT:  # Its transaction has nothing else.
            self._state.end()
        return (gap,)

    def _refuse_partial(
        self, events: EventColumns, index: int, error: TidelineError
    ) -> tuple[Control, ...]:
        known = self._tables.get(int(events.numbers(np.array([index]), HEADER_BYTES, 6)[0]))
        if known is None:
            raise CorruptData("the binlog has rows of a table that it did not describe")
        if known.role is not Role.CHOSEN or not self._rules.captures(str(known.name)):
            return ()
        named = type(error)(f"{error.message}, of {known.name}", error.hint)
        return (self._rules.gap(named, self._state, tables=(str(known.name),)),)


def _whole(events: EventColumns, index: int, checksum_bytes: int) -> bytes:
    """Return the event with its header and all bytes behind its body."""
    stop = int(events.stops[index]) + checksum_bytes
    return events.data[int(events.starts[index]) : stop].tobytes()
