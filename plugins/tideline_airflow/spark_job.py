"""What the operators share that start a Spark job of Tideline's, by the Spark provider's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from tideline.contract.errors import Misconfigured
from tideline.local_spark import LOCAL, short_lived
from tideline.settings.sections import Merge
from tideline_airflow.pools import SPARK_POOL

CONNECTION_VARIABLE = "TIDELINE_SPARK_CONN_ID"


class SparkJobOperator(SparkSubmitOperator):
    """Takes a slot of the pool `pools.SPARK_POOL`, and the connection of `CONNECTION_VARIABLE`."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("pool", SPARK_POOL)
        kwargs.setdefault("conn_id", os.environ.get(CONNECTION_VARIABLE, "spark_default"))
        # Our receipts tell what a killed try has done, in every deploy mode.
        kwargs.setdefault("durable", False)
        super().__init__(**kwargs)

    def submit(self, program: str, arguments: Sequence[str], merge: Merge, context: Any) -> None:
        """Run ``program`` with spark-submit; what the task itself was given goes before the
        settings. Raises AirflowException when the job fails."""
        self.application, self.application_args = program, list(arguments)
        self.jars = self.jars or merge.jars
        self._driver_memory = self._driver_memory or merge.driver_memory
        local = self._get_hook()._connection["master"].startswith("local")
        self.conf = {**(local_settings() if local else {}), **(self.conf or {})}
        self._hook = None
        SparkSubmitOperator.execute(self, context)


def at_once(merge: Merge) -> list[str]:
    """The argument that says how many tables a job works on side by side; none by default."""
    return [] if merge.tables_at_once is None else ["--tables-at-once", str(merge.tables_at_once)]


def local_settings() -> dict[str, str]:
    """Of jobs on a local master, under ``conf``."""
    return {**LOCAL, "spark.driver.extraJavaOptions": short_lived()}


def application(variable: str, program: str) -> str:
    """The path of a job's program: what the environment's ``variable`` names, else the installed
    one.

    Found and not imported: it needs Spark.
    """
    named = os.environ.get(variable)
    if named:
        return named
    spec = find_spec("spark_jobs")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    for folder in folders:
        if (path := Path(folder) / program).exists():
            return str(path)
    raise Misconfigured(
        f"spark_jobs/{program} is not installed here",
        hint=f"install the tideline package, or set {variable}",
    )
