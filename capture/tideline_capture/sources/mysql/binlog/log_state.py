"""The reader's state in the log: between transactions, in one, or reading one again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from tideline.contract.position import MysqlPosition
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.mysql.binlog.bulk import (
    MARIADB_FLAGS_AT,
    EventColumns,
    TransactionStarts,
)
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.executed import Executed
from tideline_capture.sources.mysql.binlog.gtid_events import STANDALONE
from tideline_capture.sources.mysql.binlog.stream import BinlogStream

_NOWHERE = MysqlPosition("", 0)


@dataclass(frozen=True, slots=True)
class LogTransaction:
    """The open transaction. ``tx`` and ``ts`` are the values for its rows; ``start`` is where its
    first event begins. ``standalone``: one statement, and no commit after it (only ``mariadb`` says
    so); ``framed``: a commit will come, whatever comes before it."""

    tx: int
    ts: int
    start: MysqlPosition
    mariadb: bool = False
    standalone: bool = False
    framed: bool = False


@dataclass(slots=True)
class LogState:
    """The state that changes while the log is read; owned by the reader.

    ``preparing`` names the XA transaction whose rows pass by and are left for its commit.
    ``replay`` is the stream that its rows are then read from, ``stream`` the log itself. ``wrote``:
    the tables of which rows of the open transaction were already returned.
    """

    stream: BinlogStream
    executed: Executed
    open: LogTransaction | None = None
    preparing: str | None = None
    replay: BinlogStream | None = None
    least: MysqlPosition = _NOWHERE
    wrote: frozenset[str] = frozenset()

    @property
    def source(self) -> BinlogStream:
        """The stream that is read now."""
        return self.replay or self.stream

    @property
    def position(self) -> MysqlPosition:
        """The position of the log itself; can be resumed from when no transaction is open.

        A stream that was found by GTID begins with a whole file. Until it reaches the place of the
        one before it, its own place would be a step back: ``least`` is returned.
        """
        stream, by_gtid = self.stream, self.least.by_gtid
        here = MysqlPosition(stream.file, stream.at, str(self.executed), by_gtid)
        if by_gtid and here.order < self.least.order:
            return replace(here, file=self.least.file, offset=self.least.offset)
        return here

    def pass_over(
        self, events: EventColumns, transactions: TransactionStarts, last_end: int
    ) -> None:
        """Record that transactions began, and that the last one that ended did so at the place
        ``last_end`` (-1: none did)."""
        self.executed.begin_all(events, transactions.indices, last_end)
        if last_end >= 0:
            self.open, self.wrote = None, frozenset()
        if len(transactions.indices) and transactions.indices[-1] > last_end:
            tx, ts = int(transactions.tx[-1]), int(transactions.ts[-1])
            last = int(transactions.indices[-1])
            flags = int(events.data[events.starts[last] + MARIADB_FLAGS_AT])
            mariadb = bool(events.codes[last] == EventCode.MARIADB_GTID)
            standalone = mariadb and bool(flags & STANDALONE)
            start = self._start_of(events, last)
            self.open = LogTransaction(tx, ts, start, mariadb, standalone)

    def framed(self, begun: Int64Array, last_end: int) -> None:
        """Record MySQL's statement BEGIN at these indices: inside of it, only an end ends the
        transaction."""
        if self.open is not None and len(begun) and begun[-1] > last_end:
            self.open = dataclasses.replace(self.open, framed=True)

    def _start_of(self, events: EventColumns, index: int) -> MysqlPosition:
        """Return where the event begins: the event holds its end, and the rest follows."""
        end = int(events.numbers(np.array([index]), 13, 4)[0])
        size = int(events.numbers(np.array([index]), 9, 4)[0])
        high = self.stream.at & ~0xFFFFFFFF
        start = high + end - size
        return MysqlPosition(self.stream.file, start if start <= self.stream.at else start - 2**32)

    def end(self) -> None:
        """Record that the open transaction has ended."""
        self.executed.end()
        self.open = self.preparing = None
        self.wrote = frozenset()

    def close(self) -> None:
        for stream in (self.replay, self.stream):
            if stream is not None:
                stream.close()
