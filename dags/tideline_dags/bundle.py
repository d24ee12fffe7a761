"""The bundle by which Airflow finds the DAGs of the installed provider.

In Airflow's settings, ``[dag_processor] dag_bundle_config_list`` gets this entry::

    {"name": "tideline", "classpath": "tideline_dags.bundle.TidelineDagBundle", "kwargs": {}}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.local import LocalDagBundle


class TidelineDagBundle(LocalDagBundle):
    """The folder of this package, wherever it is installed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(path=str(Path(__file__).parent), **kwargs)
