"""``tideline capture``: run the worker in this process until a signal to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tideline.settings import Settings, load_settings, settings_path

if TYPE_CHECKING:
    from tideline_capture.live import SettingsFile


def run(settings: Settings, config: Path | None, *, until_idle_s: float | None) -> None:
    """Run until a signal to stop, or until idle for ``until_idle_s``; raises the worker's errors.

    The settings of the file at ``config`` are followed while it runs. Fenced means that another
    worker took over while this one could not write.
    """
    from tideline_capture.app import run_worker

    run_worker(settings, file=followed(settings_path(config)), until_idle_s=until_idle_s)


def followed(path: Path) -> SettingsFile:
    """Return the settings' file at ``path``, as a worker follows it."""
    from tideline_capture.live import SettingsFile

    def modified() -> float | None:
        try:
            return path.stat().st_mtime
        except OSError:
            return None

    return SettingsFile(modified, lambda: load_settings(path))
