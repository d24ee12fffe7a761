"""The plugin that Airflow loads at its start, from the distribution or from its plugins' folder."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from tideline_airflow import pools


class TidelinePlugin(AirflowPlugin):
    """Makes the pool of Spark jobs."""

    name = "tideline"
    listeners = [pools]  # noqa: RUF012
