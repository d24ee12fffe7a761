"""Tracks the progress of dumps: rates, obstacles, and times of retries."""

from __future__ import annotations

from collections import deque

from tideline.contract.answers import Circumstances
from tideline.contract.open_state import OpenRequest
from tideline.contract.pauses import growing_pause_s
from tideline_capture.core.chunks import ChunkOrder
from tideline_capture.core.snapshots.scheduler import ChunkScheduler
from tideline_capture.core.state import CoreState

RETRY_DELAY_S = 1.0
"""The delay between a chunk that could not be read (a lock, a fence) and the table's next try;
other tables continue in the meantime."""
RESTART_DELAY_MAX_S = 60.0
"""The longest delay of a copy that must restart again and again; it grows up to this."""
RATE_CHUNKS_MAX = 20
RATE_WINDOW_S = 120.0


class DumpStatus:
    """Tracks the progress of dumps. Times are monotonic seconds."""

    def __init__(self, state: CoreState, scheduler: ChunkScheduler) -> None:
        self._state = state
        self._scheduler = scheduler
        self._obstacles: dict[str, str] = {}
        self._restarts: dict[str, int] = {}
        self._rates = Rates()

    def delayed(self, table: str, reason: str) -> None:
        """Note that chunks of ``table`` cannot be read, or not be used, for now."""
        self._obstacles[table] = reason

    def goes_on(self, table: str) -> None:
        self._obstacles.pop(table, None)

    def restart_delay_s(self, table: str) -> float:
        """Return the delay before a copy restarts: longer each time, until one ends."""
        tries = self._restarts.get(table, 0)
        self._restarts[table] = tries + 1
        return growing_pause_s(tries, first_s=RETRY_DELAY_S, most_s=RESTART_DELAY_MAX_S)

    def note(self, order: ChunkOrder, rows: int, *, now: float) -> None:
        """Note that a chunk of ``rows`` was emitted."""
        self._rates.note(order.request_id, order.table, rows, now=now)

    def ended(self, order: ChunkOrder) -> None:
        """Note that a dump ended, with its last chunk."""
        self._restarts.pop(order.table, None)
        if order.request_id not in self._state.requests:
            self._rates.forget(order.request_id)

    def circumstances(self, item: OpenRequest, *, now: float) -> Circumstances:
        """Return what holds an open request up, and its tables' rates."""
        in_flight, request_id = self._scheduler.in_flight, item.request.request_id
        waits = {one.order.table: one.waiting for one in in_flight if one.waiting is not None}
        rates = {
            dump.table: rate
            for dump in item.dumps
            if (rate := self._rates.of(request_id, dump.table, now=now)) is not None
        }
        return Circumstances(
            paused=self._state.requests.is_paused(item),
            throttled=self._scheduler.governor.throttled_by(now=now),
            waiting={**self._obstacles, **waits},
            rates=rates,
        )


class Rates:
    """Rows per second of each dump, by request and table. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str], deque[tuple[float, int]]] = {}
        """(when, rows) of the last chunks."""

    def note(self, request_id: str, table: str, rows: int, *, now: float) -> None:
        """Note that a chunk of ``rows`` was emitted."""
        recent = self._recent.setdefault((request_id, table), deque(maxlen=RATE_CHUNKS_MAX))
        recent.append((now, rows))

    def forget(self, request_id: str) -> None:
        """Forget a request that ended."""
        for key in [key for key in self._recent if key[0] == request_id]:
            del self._recent[key]

    def of(self, request_id: str, table: str, *, now: float) -> float | None:
        """Return the rate over the last chunks, None before there are two of them.

        It also falls while a dump makes no progress.
        """
        recent = self._recent.get((request_id, table), ())
        chunks = [one for one in recent if now - one[0] < RATE_WINDOW_S]
        if len(chunks) < 2:
            return None
        span = max(now - chunks[0][0], 1e-3)
        # The first chunk's rows were read before the span began.
        return sum(rows for _, rows in chunks[1:]) / span
