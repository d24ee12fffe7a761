"""Probes, watermarks written without a pause while a snapshot is taken, so that its place in the
log is known between two of them.

Transactions become visible in the order of the log. A snapshot that shows one probe and not the
next one was taken between them; the more often they come, the fewer other transactions lie between.
Several connections write them, each to a separate row: so there is one in nearly every group of
transactions that the server commits together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tideline.contract.errors import TidelineError, Unavailable
from tideline_capture.core.events import MarkKind
from tideline_capture.sources.mark_key import MarkKey
from tideline_capture.sources.mysql.watermarks import LANE, LANES, WrittenMarks

_WAIT_S = 30.0
_LOOK_S = 0.0005


class Pulses:
    """Writes probes around the chunk of ``token`` while it is entered; `pass_on` waits for more."""

    def __init__(
        self, connect: Callable[[], Any], *, key: MarkKey, database: str, token: str
    ) -> None:
        self._token = token
        self._stopping = threading.Event()
        self._written = [0] * LANES
        self._failures: list[TidelineError] = []
        self._marks = [
            WrittenMarks(connect(), key=key, database=database, lane=f"{LANE}{lane}")
            for lane in range(LANES)
        ]
        self._threads = [
            threading.Thread(target=self._write, args=(lane,), daemon=True) for lane in range(LANES)
        ]

    def __enter__(self) -> Pulses:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_WAIT_S)
        for marks in self._marks:
            marks.close()

    def pass_on(self) -> None:
        """Return once every lane has written one more, begun after this."""
        wanted = [count + 2 for count in self._written]  # One may be on its way.
        end = time.monotonic() + _WAIT_S
        while any(now < then for now, then in zip(self._written, wanted, strict=True)):
            if self._failures:
                raise self._failures[0]
            if time.monotonic() > end:
                raise Unavailable("marks are not written: the source takes too long")
            time.sleep(_LOOK_S)

    def _write(self, lane: int) -> None:
        marks = self._marks[lane]
        while not self._stopping.is_set():
            number = self._written[lane] + 1
            try:
                marks.write(MarkKind.PULSE, f"{self._token}.{lane}.{number}")
            except TidelineError as error:
                self._failures.append(error)
                return
            self._written[lane] = number
