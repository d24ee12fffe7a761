"""What Airflow's plugin loader finds: the rest is the package `tideline_airflow` next to it.

The loader executes every file of this folder under its bare name, so everything but this class is
kept from it by ``.airflowignore`` and imported as a package.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from tideline_airflow import pools


class TidelinePlugin(AirflowPlugin):
    name = "tideline"
    listeners = [pools]  # noqa: RUF012
