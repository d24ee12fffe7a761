"""Sets a program's log up: printable lines, and requests to the store that are retried for long.

Both are settings of libraries (structlog, stamina) for the whole process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

from tideline.contract.printable import printable

LOGGED_AFTER_S = 1.0
"""A request that is answered sooner is not logged."""

log = structlog.get_logger("tideline.store")


def keep_to_lines() -> None:
    """Make every log line one of ours, whatever a name contains: its texts are `printable`.

    Other configuration stays; a second call changes nothing.
    """
    processors = structlog.get_config()["processors"]
    if one_line not in processors:
        processors.insert(0, one_line)
        structlog.configure(processors=processors)


def one_line(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Return the event with texts that are `printable`, also those in lists."""
    for name, value in event.items():
        event[name] = _shown(value)
    return event


class _Shown(str):
    """A text that was made printable; in quotes it is not escaped a second time."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{self}'"


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        text = printable(value)
        return value if text == value else _Shown(text)
    if isinstance(value, list | tuple):
        return type(value)(map(_shown, value)) if type(value) in (list, tuple) else value
    return value


def log_retries(clock: Callable[[], float]) -> None:
    """Log each request that waits for longer than `LOGGED_AFTER_S`, at each of its retries."""
    # By thread, the time of its request's first failure: time-outs count, not only pauses.
    series = threading.local()

    def on_retry(details: RetryDetails) -> None:
        if details.retry_num == 1:
            series.failed_at = clock()
        waited_s = clock() - series.failed_at + details.wait_for
        if waited_s >= LOGGED_AFTER_S:
            log.warning(
                "the store does not answer; it is asked again",
                reason=str(details.caused_by),
                waited_s=round(waited_s, 1),
            )

    set_on_retry_hooks([on_retry])
