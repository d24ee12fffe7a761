"""Reserves a table for a rebuild: the merger leaves it alone while two tables are compared and
swapped.

A swap needs the live table to stand still at one manifest. A merger that merges it every few
seconds would never let it. Redis decides nothing here either: without it, or after a reservation
was lost, the swap is refused and tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from types import TracebackType
from typing import Self

from tideline.contract.errors import TidelineError
from tideline.control.merger import MergerClient
from tideline.settings import Settings

RESERVED_S = 15.0
"""The time after which a reservation that is not repeated ends: who asked for it is gone."""
_REPEAT_S = 3.0
_LEFT_WITHIN_S = 120.0
"""The time that the merge of the table which is under way is given to end."""
_LOOK_S = 0.5


class Reservation:
    """One table, reserved from `begin` to the end of the context. ``report`` takes a problem."""

    def __init__(self, settings: Settings, table: str, report: Callable[[str], None]) -> None:
        self._settings = settings
        self._table = table
        self._report = report
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> bool:
        """Reserve the table, unless it is. Return whether a merger has left it alone since, so that
        it may stand elsewhere than before."""
        if self._thread is not None:
            return False
        self._thread = threading.Thread(target=self._repeat, name="reservation", daemon=True)
        self._thread.start()
        end_s = time.monotonic() + _LEFT_WITHIN_S
        try:
            with closing(self._client()) as client:
                client.reserve(self._table)
                while time.monotonic() < end_s:
                    status = client.status()
                    if status is None:
                        return False
                    if self._table in status.reserved:
                        return True
                    self._ended.wait(_LOOK_S)
            self._report(f"the merger has not left {self._table} alone")
        except TidelineError as error:
            self._report(f"the merger cannot be asked to leave {self._table} alone: {error}")
        return False

    def _repeat(self) -> None:
        while not self._ended.wait(_REPEAT_S):
            self._tell(lambda client: client.reserve(self._table))

    def _tell(self, what: Callable[[MergerClient], None]) -> None:
        try:
            with closing(self._client()) as client:
                what(client)
        except TidelineError:
            return  # It ends by itself, or the swap is refused.

    def _client(self) -> MergerClient:
        return MergerClient(self._settings.control, self._settings.pipeline)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._tell(lambda client: client.give_back(self._table))


class ReservedTables:
    """The tables that are reserved, to a merger that asks again and again. Sans I/O."""

    def __init__(self) -> None:
        self._renewals: dict[str, tuple[float, float]] = {}

    def at(self, found: Mapping[str, float] | None, now_s: float) -> tuple[list[str], list[str]]:
        """Return the tables that are reserved, and those whose reservations have lapsed.

        ``found``: when each was last reserved, by any clock (None: not known, as before); ``now_s``
        is a monotonic one.
        """
        known = self._renewals
        if found is None:
            found = {table: renewed for table, (renewed, _) in known.items()}
        self._renewals = {
            table: (renewed, known[table][1] if known.get(table, (None,))[0] == renewed else now_s)
            for table, renewed in found.items()
        }
        old = {table for table, (_, at_s) in self._renewals.items() if now_s - at_s > RESERVED_S}
        return sorted(self._renewals.keys() - old), sorted(old)
