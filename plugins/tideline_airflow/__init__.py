"""Tideline in Airflow: hook, operators, trigger and assets. Airflow decides when, other processes
work.

Importing any module here is cheap; code that reads chain or tables is imported when a task runs.
"""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's entry for `airflow providers list`."""
    return {
        "package-name": "airflow-provider-tideline",
        "name": "Tideline",
        "description": "Dump requests to a capture worker, and Spark jobs that merge and verify.",
    }
