"""The binlog as a stream of transactions, decoded in bulk.

`Poller` collects the events of the next batch, and `BulkRows` decodes the rows of the frequent
ones; the last event may be of another kind, and is read separately (`RareEvents`) behind them. Here
the three are joined, and the log's own position is followed.

A position is only returned between transactions: a stream that began inside one would lack its
table maps, and lose rows silently.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tideline.contract.errors import InvariantBroken
from tideline.contract.position import MysqlPosition, SourcePosition
from tideline_capture.core.events import Boundary, Control, Int64Array, LogBatch
from tideline_capture.sources.decoding import decoding
from tideline_capture.sources.mysql.binlog.bulk import EventColumns, position_behind
from tideline_capture.sources.mysql.binlog.bulk_rows import BulkRows, Taken
from tideline_capture.sources.mysql.binlog.log_state import LogState
from tideline_capture.sources.mysql.binlog.polling import Polled, Poller
from tideline_capture.sources.mysql.binlog.rare import RareEvents
from tideline_capture.sources.mysql.binlog.rules import LogRules
from tideline_capture.sources.mysql.binlog.table_cache import TableCache
from tideline_capture.sources.mysql.binlog.xa import replays

_NONE: Int64Array = np.empty(0, np.int64)


class BinlogReader:
    """A `LogReader`. ``state`` is where it begins, ``rare`` handles single events."""

    def __init__(
        self,
        state: LogState,
        tables: TableCache,
        rare: RareEvents,
        rules: LogRules,
    ) -> None:
        self._state = state
        self._rare = rare
        self._poller = Poller(state, tables, rare)
        self._bulk = BulkRows(state, tables, rules)
        self._reported = state.position

    @property
    def buffered_bytes(self) -> int:
        """See `LogReader.buffered_bytes`."""
        return self._state.source.accepted.bytes

    @property
    def at_commit(self) -> bool:
        """See `LogReader.at_commit`."""
        accepted = self._state.source.accepted
        return accepted.count > 0 and accepted.last_end == accepted.count - 1

    @property
    def must_take(self) -> bool:
        """See `LogReader.must_take`."""
        return self._poller.must_take

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        """See `LogReader.poll` and `Poller.poll`."""
        with decoding(self._log_position()):
            return self._poller.poll(messages_max, until_commit=until_commit)

    def take(self, next_seq: int) -> LogBatch:
        """See `LogReader.take`."""
        with decoding(self._log_position()):
            return self._take(next_seq)

    def _log_position(self) -> Callable[[], str]:
        """Return a function that names where the next events begin; called after an error, when the
        stream may have moved on."""
        source = self._state.source
        file, at = source.file, source.at
        return lambda: f"in an event of {file}:{at} or behind it"

    def _take(self, next_seq: int) -> LogBatch:
        polled = self._poller.take()
        taken = Taken()
        found: tuple[Control, ...] = ()
        if polled is not None:
            self._keep(polled)
            bulk = polled.bulk
            self._move(bulk)
            taken = self._bulk.take(bulk, next_seq)
            if polled.ends_rare:
                found = self._read_rare(polled.events)
        controls = (*taken.controls, *found, *self._rare.watermarks_here())
        return LogBatch(
            taken.rows,
            taken.changes,
            controls,
            self._boundary(),
            self._inside,
            _NONE,
            taken.unholdable,
        )

    def _keep(self, polled: Polled) -> None:
        """Keep the events of a transaction that is being prepared until its end."""
        if self._state.preparing is None or self._state.replay is not None:
            return
        codes = polled.events.codes
        count = len(codes) - (polled.ends_rare and not replays(int(codes[-1])))
        if count:
            self._rare.keep(polled.packets(count))

    def _read_rare(self, events: EventColumns) -> tuple[Control, ...]:
        last = len(events) - 1
        self._move(events.part(slice(last, None)))
        return self._rare.read(events, last)

    def _move(self, events: EventColumns) -> None:
        """Follow the log's own positions."""
        stream = self._state.source
        stream.at = position_behind(events, stream.at)

    def _boundary(self) -> Boundary | None:
        """Return where the log stands now, if that is between two transactions and was not reported
        yet. The last report counts, not where this batch began: the last event of a transaction
        need not have a separate place."""
        position = self._state.position
        if self._inside or position == self._reported:
            return None
        self._reported = position
        return Boundary(position)

    @property
    def _inside(self) -> bool:
        return self._state.open is not None

    def confirm(self, position: SourcePosition) -> None:
        """See `LogReader.confirm`. The server keeps its log by its own rule: it needs no report."""
        if not isinstance(position, MysqlPosition):
            raise InvariantBroken(f"{position} is no position of a binlog")

    def wait(self, timeout_s: float) -> None:
        self._state.source.buffer.wait(timeout_s)

    def close(self) -> None:
        self._rare.close()
        self._state.close()
