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
from tideline_capture.core.events import WatermarkKind
from tideline_capture.sources.mysql.watermarks import PROBE_ROW, PROBE_WRITERS, TableWatermarks
from tideline_capture.sources.watermark_key import WatermarkKey

_WAIT_S = 30.0
_LOOK_S = 0.0005


class ProbeWriters:
    """Writes probes around the chunk of ``token`` while it is entered; `pass_on` waits for more."""

    def __init__(
        self, connect: Callable[[], Any], *, key: WatermarkKey, database: str, token: str
    ) -> None:
        self._token = token
        self._stopping = threading.Event()
        self._written = [0] * PROBE_WRITERS
        self._failures: list[TidelineError] = []
        self._watermarks = [
            TableWatermarks(connect(), key=key, database=database, writer=f"{PROBE_ROW}{writer}")
            for writer in range(PROBE_WRITERS)
        ]
        self._threads = [
            threading.Thread(target=self._write, args=(writer,), daemon=True)
            for writer in range(PROBE_WRITERS)
        ]

    def __enter__(self) -> ProbeWriters:
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
        for watermarks in self._watermarks:
            watermarks.close()

    def pass_on(self) -> None:
        """Return once every writer has written one more, begun after this."""
        wanted = [count + 2 for count in self._written]  # One may be on its way.
        end = time.monotonic() + _WAIT_S
        while any(now < then for now, then in zip(self._written, wanted, strict=True)):
            if self._failures:
                raise self._failures[0]
            if time.monotonic() > end:
                raise Unavailable("watermarks are not written: the source takes too long")
            time.sleep(_LOOK_S)

    def _write(self, writer: int) -> None:
        watermarks = self._watermarks[writer]
        while not self._stopping.is_set():
            number = self._written[writer] + 1
            try:
                watermarks.write(WatermarkKind.PROBE, f"{self._token}.{writer}.{number}")
            except TidelineError as error:
                self._failures.append(error)
                return
            self._written[writer] = number
