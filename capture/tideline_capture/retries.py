"""Logs a store's requests that are retried for long."""

from __future__ import annotations

import threading
from time import monotonic

import structlog
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

TOLD_AFTER_S = 1.0
"""A request that is answered sooner is not reported."""

log = structlog.get_logger("tideline.store")

_series = threading.local()
"""The time of this thread's request's first failure: time-outs count, not only pauses."""


def tell_retries() -> None:
    """Log each request that waits for longer than `TOLD_AFTER_S`, at each of its retries."""
    set_on_retry_hooks([_tell])


def _tell(details: RetryDetails) -> None:
    if details.retry_num == 1:
        _series.failed_at = monotonic()
    waited_s = monotonic() - _series.failed_at + details.wait_for
    if waited_s >= TOLD_AFTER_S:
        log.warning(
            "the store does not answer; it is asked again",
            reason=str(details.caused_by),
            waited_s=round(waited_s, 1),
        )
