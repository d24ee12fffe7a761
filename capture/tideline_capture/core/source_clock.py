"""The source's time through which the chain is complete, by trusted heartbeats.

A heartbeat's clock was read before it was written, so all that had been committed by then is before
it in the log. But a clock may be wrong: one that jumps forward and back again would have claimed
completeness for hours to come. So of two clocks the earlier one is believed, the source's and, as
it was when the heartbeat was about to be written, this machine's. The next heartbeat may take back
what the one before it said.

Only heartbeats that this session wrote are believed, each once. What is read again from before the
session is thereby complete through the time at which the chain stood, until its first heartbeat
comes.
"""

from __future__ import annotations

from tideline_capture.core.events import Watermark
from tideline_capture.core.facts import CatalogRound


class SourceClock:
    """The clock; ``time_us`` is that time, µs UTC; None: not known yet."""

    def __init__(self, time_us: int | None) -> None:
        self.time_us = time_us
        self._written: dict[str, int] = {}

    def on_round(self, observed: CatalogRound) -> None:
        """Note that the heartbeat that ends the round is about to be written."""
        if observed.at_us is not None:
            self._written[observed.token] = observed.at_us

    def on_heartbeat(self, watermark: Watermark) -> None:
        """Take a heartbeat that came through the log; those before it that did not come will
        not."""
        if watermark.token not in self._written:
            return
        while (first := next(iter(self._written))) != watermark.token:
            del self._written[first]
        self.time_us = min(watermark.clock_us, self._written.pop(watermark.token))
