"""The commands of a running Tideline, in one place.

The demo starts exactly these, but for the merger, and so does ``docker-compose.yml``: a test
compares the two. Each is the words after the program's folder, so that a caller may put its own
``bin`` in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

WORKER: tuple[str, ...] = ("tideline", "capture")
"""The capture worker; the settings file is named by ``--config`` or ``TIDELINE_CONFIG``."""

MERGER: tuple[str, ...] = ("tideline", "merge", "--follow")
"""The merger, in a profile of its own; without it, Airflow's tasks merge."""

AIRFLOW_MIGRATE: tuple[str, ...] = ("airflow", "db", "migrate")
"""Runs to its end before any component of Airflow starts."""

AIRFLOW: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "api-server": ("airflow", "api-server"),
        "scheduler": ("airflow", "scheduler", "--skip-serve-logs"),
        "dag-processor": ("airflow", "dag-processor"),
        "triggerer": ("airflow", "triggerer", "--skip-serve-logs"),
    }
)
"""Airflow's four components. ``airflow standalone`` leaves children behind, and the log servers
would listen on every address."""


def worker(config: str | None = None) -> tuple[str, ...]:
    """Return the worker's command with its settings file, or relying on ``TIDELINE_CONFIG``."""
    return WORKER if config is None else (*WORKER, "--config", config)
