"""``tideline capture``: run the worker in this process until it is told to stop."""

from __future__ import annotations

from tideline.settings import Settings


def run(settings: Settings, *, until_idle_s: float | None) -> None:
    """Run until SIGTERM or SIGINT, or until idle for ``until_idle_s``; raises the worker's errors.

    Fenced means that another worker took over while this one could not write.
    """
    from capture.app import run_worker

    run_worker(settings, until_idle_s=until_idle_s)
