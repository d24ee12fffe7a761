"""Names that Airflow has moved or added since 3.1, the oldest that this package runs on.

Everything here, tests included, takes these names from this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger

try:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferred,
    )
except ImportError:  # Airflow 3.1
    from airflow.exceptions import (  # type: ignore[attr-defined,no-redef]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferred,
    )
try:
    from airflow.sdk import CronDataIntervalTimetable
except ImportError:  # Airflow 3.1
    from airflow.timetables.interval import (  # type: ignore[assignment]
        CronDataIntervalTimetable,
    )

TRIGGERS_HEAR = hasattr(BaseTrigger, "on_kill")
"""Whether a trigger hears that a user clears or marks its task. Before 3.3 none does, and the API
shows the arguments of a trigger to everyone who may see the task."""

__all__ = [
    "TRIGGERS_HEAR",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "CronDataIntervalTimetable",
    "TaskDeferred",
    "bundle_folders",
    "dag_bag",
    "failing_at_once",
    "plugin_errors",
]


def failing_at_once(*errors: str) -> dict[str, Any]:
    """Return a task's arguments that give ``errors``, full names of exceptions, no second try.

    None before Airflow 3.3, which has no such policies: these are tried again like all others.
    """
    try:
        # heavy: not there before Airflow 3.3
        from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
    except ImportError:
        return {}
    reason = "another try would find the same"
    rule = RetryRule(exception=list(errors), action=RetryAction.FAIL, reason=reason)
    return {"retry_policy": ExceptionRetryPolicy([rule])}


def dag_bag(folder: str) -> Any:
    """Make Airflow's bag of the DAGs in ``folder``, where their files find each other's modules."""
    try:
        # heavy: for `tideline doctor` alone
        from airflow.dag_processing.dagbag import BundleDagBag
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import BundleDagBag  # type: ignore[no-redef]
    return BundleDagBag(folder, bundle_path=Path(folder))


def bundle_folders() -> tuple[dict[str, str], dict[str, str]]:
    """Return the folder of each bundle of DAGs in Airflow's settings, by the bundle's name; and the
    kind of error of each that could not be fetched (its text may quote an address with a token)."""
    # heavy: for `tideline doctor` alone
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    folders, failed = {}, {}
    manager = DagBundlesManager()  # type: ignore[no-untyped-call]
    for bundle in manager.get_all_dag_bundles():
        try:
            bundle.initialize()
            folders[bundle.name] = str(bundle.path)
        except Exception as why:  # noqa: BLE001  bundles are anyone's classes
            failed[bundle.name] = type(why).__name__
    return folders, failed


def plugin_errors() -> dict[str, str]:
    """Return why each plugin that Airflow could not load failed, by its file or entry point."""
    # heavy: for `tideline doctor` alone
    from airflow import plugins_manager

    found = vars(plugins_manager).get("import_errors")  # Airflow 3.1
    return dict(plugins_manager.get_import_errors() if found is None else found)
