"""Settings that change while the worker runs: which tables are captured, and the worker's limits.

The file is looked at every few seconds. Where it says something new of these, the session ends at a
transaction's end and the next one begins with it, from what is durable: nothing is captured twice,
and nothing is missed. A file with mistakes changes nothing, and what needs a restart says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from tideline.contract.errors import Misconfigured
from tideline.settings import Settings

LOOK_S = 2.0
_LIVE = ("capture", "merge")
_LIVE_OF_SOURCE = ("tables", "exclude")
_FIXED_OF_CAPTURE = (
    "heartbeat_s",
    "takeover_after_s",
    "metrics_address",
    "metrics_port",
    "request_claim_s",
    "rollup_part_bytes_max",
    "rollup_file_bytes_max",
)
"""What outlives sessions goes by these."""

log = structlog.get_logger("tideline.settings")


class LiveSettings:
    """``current`` are the settings in force. ``modified`` tells when the file was changed last
    (None: there is none), ``load`` reads it."""

    def __init__(
        self,
        settings: Settings,
        *,
        modified: Callable[[], float | None] = lambda: None,
        load: Callable[[], Settings] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.current = settings
        self._modified = modified
        self._load = load
        self._clock = clock
        self._seen = modified()
        self._looked_at = clock()

    def changed(self) -> bool:
        """Whether ``current`` is new since this was asked last. Looks every `LOOK_S` at most."""
        if self._load is None or self._clock() - self._looked_at < LOOK_S:
            return False
        self._looked_at = self._clock()
        modified = self._modified()
        if modified is None or modified == self._seen:
            return False
        self._seen = modified
        try:
            read = self._load()
        except Misconfigured as error:
            log.warning("the settings file has mistakes: nothing of it is used", reason=str(error))
            return False
        merged = _merged(self.current, read)
        if merged != read:
            log.warning("some of what changed in the settings file needs a restart")
        news = merged != self.current
        self.current = merged
        return news


def _merged(current: Settings, read: Settings) -> Settings:
    """``current`` with all of ``read`` that may change while the worker runs."""
    source = current.source.model_copy(
        update={name: getattr(read.source, name) for name in _LIVE_OF_SOURCE}
    )
    fixed = {name: getattr(current.capture, name) for name in _FIXED_OF_CAPTURE}
    update = {name: getattr(read, name) for name in _LIVE}
    update["capture"] = read.capture.model_copy(update=fixed)
    return current.model_copy(update={**update, "source": source})
