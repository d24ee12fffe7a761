"""How dumps get on: how fast, what holds them up, and when they are tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tideline.contract.manifest import OpenRequest
from tideline_capture.core.events import ChunkOrder
from tideline_capture.core.orders import Orders
from tideline_capture.core.rates import Rates
from tideline_capture.core.requests import Circumstances

if TYPE_CHECKING:
    from tideline_capture.core.worker import Worker

RETRY_DELAY_S = 1.0
"""Between a chunk that could not be read (a lock, a fence) and the table's next try; other tables
go on meanwhile."""
ANEW_DELAY_MAX_S = 60.0
"""A copy that must begin anew again and again waits longer each time, up to this."""


class Pace:
    """``core`` is the worker it is part of. Times are monotonic seconds."""

    def __init__(self, core: Worker, orders: Orders) -> None:
        self._core = core
        self._orders = orders
        self._trouble: dict[str, str] = {}
        self._anew: dict[str, int] = {}
        self._rates = Rates()

    def held_up(self, table: str, reason: str) -> None:
        """Chunks of ``table`` cannot be read, or not be used, for now."""
        self._trouble[table] = reason

    def goes_on(self, table: str) -> None:
        self._trouble.pop(table, None)

    def anew_after_s(self, table: str) -> float:
        """How long a copy that begins anew waits before that: longer each time, until one ends."""
        tries = self._anew.get(table, 0)
        self._anew[table] = tries + 1
        return min(ANEW_DELAY_MAX_S, RETRY_DELAY_S * 2.0 ** min(tries, 16))

    def note(self, order: ChunkOrder, rows: int, *, now: float) -> None:
        """A chunk of ``rows`` was emitted."""
        self._rates.note(order.request_id, order.table, rows, now=now)

    def ended(self, order: ChunkOrder) -> None:
        """A dump ended, with its last chunk."""
        self._anew.pop(order.table, None)
        if order.request_id not in self._core.requests:
            self._rates.forget(order.request_id)

    def circumstances(self, item: OpenRequest, *, now: float) -> Circumstances:
        """What an open request is held up by, and how fast its tables get on."""
        readings, request_id = self._orders.readings, item.request.request_id
        waits = {one.order.table: one.waiting for one in readings if one.waiting is not None}
        rates = {
            dump.table: rate
            for dump in item.dumps
            if (rate := self._rates.of(request_id, dump.table, now=now)) is not None
        }
        return Circumstances(
            paused=self._core.requests.is_paused(item),
            throttled=self._orders.governor.throttled_by(now=now),
            waiting={**self._trouble, **waits},
            rates=rates,
        )
