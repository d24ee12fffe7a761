"""Sets the merger's log up: printable lines, as the worker's."""

from __future__ import annotations

import time

from tideline.programs.logs import keep_to_lines, log_retries


def set_up_log() -> None:
    """Make every line of the log printable, and log requests to the store that wait for long."""
    keep_to_lines()
    log_retries(time.monotonic)
