"""Watermarks without a row: for sources that may not be written to.

Such a watermark is a place in the log that is passed to the reader. A window opens where the reader
stands when it is asked to, and ends once it has passed what the server had committed at that later
moment; both are between transactions. The chunk must see every transaction that the reader had
passed when the window opened, although the server sends a transaction before it makes it visible:
so `RegistryWatermarks` waits for that before anything is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tideline.contract.errors import Unavailable
from tideline.contract.position import MysqlPosition
from tideline_capture.core.events import Watermark, WatermarkKind
from tideline_capture.sources.mysql.binlog.gtid import GtidSet
from tideline_capture.sources.mysql.connect import querying
from tideline_capture.sources.mysql.watermarks import read_clock

_VISIBLE_TIMEOUT_S = 60.0
_PAUSE_S = 0.01
_UNSEEN = "what the log holds does not become visible"
_OPENING = (WatermarkKind.LOW, WatermarkKind.CATALOG_LOW)

Reached = Callable[[MysqlPosition], bool]


@dataclass(slots=True)
class _Wanted:
    watermark: Watermark
    reached: Reached
    placed: threading.Event = field(default_factory=threading.Event)
    position: MysqlPosition | None = None


class WatermarkRegistry:
    """The registry where other threads ask the reader for watermarks; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: list[_Wanted] = []
        self._closed = False

    @property
    def empty(self) -> bool:
        return not self._wanted

    def ask(self, watermark: Watermark, reached: Reached) -> _Wanted:
        """Place ``watermark`` where the reader stands once ``reached`` is true of its position."""
        wanted = _Wanted(watermark, reached)
        with self._lock:
            self._wanted.append(wanted)
            if self._closed:
                wanted.placed.set()
        return wanted

    def close(self) -> None:
        """End all waits for a watermark without one: the log is no longer read."""
        with self._lock:
            self._closed = True
            for wanted in self._wanted:
                wanted.placed.set()

    def is_awaited(self, position: MysqlPosition) -> bool:
        """Return whether the place of some watermark is here."""
        return any(wanted.reached(position) for wanted in list(self._wanted))

    def take_at(self, position: MysqlPosition) -> tuple[Watermark, ...]:
        """Return the watermarks whose place is here, between two transactions; called in the
        reader's thread."""
        with self._lock:
            here = [wanted for wanted in self._wanted if wanted.reached(position)]
            self._wanted = [wanted for wanted in self._wanted if wanted not in here]
        for wanted in here:
            wanted.position = position
            wanted.placed.set()
        return tuple(wanted.watermark for wanted in here)


class RegistryWatermarks:
    """`WatermarkWriter` through a `WatermarkRegistry`. ``connection`` is in autocommit, for
    questions to the server."""

    def __init__(self, connection: Any, registry: WatermarkRegistry, *, flavour: str) -> None:
        self._connection = connection
        self._registry = registry
        self._flavour = flavour
        self._lock = threading.Lock()
        self._low: MysqlPosition | None = None

    def write(self, kind: WatermarkKind, token: str) -> None:
        """See `WatermarkWriter.write`. For a watermark that opens something, returns once it is
        placed and all that lies before it can be seen."""
        with querying(), self._lock, self._connection.cursor() as cursor:
            if kind in _OPENING:
                self._open(cursor, kind, token)
            else:
                self._close(cursor, kind, token)

    def begin(self, cursor: Any) -> None:
        """See `WatermarkWriter.begin`."""
        low, end = self._low, time.monotonic() + _VISIBLE_TIMEOUT_S
        while True:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            if self._flavour == "mysql" or low is None or self._shows(cursor, low):
                return
            cursor.execute("ROLLBACK")
            if time.monotonic() > end:
                raise Unavailable(_UNSEEN)
            time.sleep(_PAUSE_S)

    def shown(self, cursor: Any, token: str) -> tuple[tuple[str, int], ...]:
        """See `WatermarkWriter.shown`: without anything written there are no probes."""
        return ()

    def check(self, cursor: Any) -> None:
        """See `WatermarkWriter.check`: nothing is written that anyone could change."""

    def close(self) -> None:
        self._connection.close()

    def _open(self, cursor: Any, kind: WatermarkKind, token: str) -> None:
        # However long it takes: the reader may be in the middle of a huge transaction.
        wanted = self._registry.ask(Watermark(kind, token, 0), lambda position: True)
        wanted.placed.wait()
        if wanted.position is None:
            raise Unavailable("the log is no longer read")
        if kind is WatermarkKind.LOW:
            self._low = wanted.position
        if self._flavour == "mysql":
            self._await_visible(cursor, wanted.position.gtids)

    def _await_visible(self, cursor: Any, gtids: str) -> None:
        """Wait until the transactions are visible: MySQL sends a transaction before it makes it
        visible, and counts it as executed after."""
        if not gtids:
            return
        cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (gtids, _VISIBLE_TIMEOUT_S))
        if cursor.fetchone()[0]:
            raise Unavailable(_UNSEEN)

    def _shows(self, cursor: Any, low: MysqlPosition) -> bool:
        """Return whether MariaDB's snapshot shows all that the log holds before ``low``."""
        return _snapshot(cursor).order >= low.order

    def _close(self, cursor: Any, kind: WatermarkKind, token: str) -> None:
        # The clock first: all that was committed until then is before the watermark.
        watermark = Watermark(kind, token, read_clock(cursor))
        self._registry.ask(watermark, self._reached(cursor))

    def _reached(self, cursor: Any) -> Reached:
        if self._flavour == "mysql":
            # What was purged may never have been in this server's log.
            cursor.execute("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged)")
            return _covers(str(cursor.fetchone()[0]))
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        order = _snapshot(cursor).order
        cursor.execute("COMMIT")
        return lambda position: position.order >= order


def _covers(text: str) -> Reached:
    """Return whether a position has all of ``text``. The reader asks at every turn, and most of the
    time about the same position as before."""
    wanted = GtidSet.parse(text.replace("\n", ""))
    seen_gtids, found = "", GtidSet.parse("").contains(wanted)

    def reached(position: MysqlPosition) -> bool:
        nonlocal seen_gtids, found
        if position.gtids != seen_gtids:
            seen_gtids = position.gtids
            found = GtidSet.parse(seen_gtids).contains(wanted)
        return found

    return reached


def _snapshot(cursor: Any) -> MysqlPosition:
    """Return the place in MariaDB's log of this transaction's consistent snapshot."""
    cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
    found = {name.lower(): value for name, value in cursor.fetchall()}
    return MysqlPosition(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))
