"""What Airflow has moved or added since 3.1, the oldest that this package runs on.

Everything here, tests included, takes these names from this module.
"""

from __future__ import annotations

from typing import Any

try:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        TaskDeferred,
    )
except ImportError:  # Airflow 3.1
    from airflow.exceptions import (  # type: ignore[attr-defined,no-redef]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        TaskDeferred,
    )
try:
    from airflow.sdk import CronDataIntervalTimetable
except ImportError:  # Airflow 3.1
    from airflow.timetables.interval import (  # type: ignore[assignment]
        CronDataIntervalTimetable,
    )

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "CronDataIntervalTimetable",
    "TaskDeferred",
    "dag_bag",
    "plugin_errors",
]


def dag_bag(folder: str | None = None) -> Any:
    """Make Airflow's bag of the DAGs in ``folder``; None: the one in its settings."""
    try:
        # heavy: for `tideline doctor` alone
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag  # type: ignore[no-redef]
    return DagBag(folder)


def plugin_errors() -> dict[str, str]:
    """Return why each plugin that Airflow could not load failed, by its file or entry point."""
    # heavy: for `tideline doctor` alone
    from airflow import plugins_manager

    found = vars(plugins_manager).get("import_errors")  # Airflow 3.1
    return dict(plugins_manager.get_import_errors() if found is None else found)
