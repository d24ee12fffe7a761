"""The row counts of a script's MERGE: each statement of a script is a job of BigQuery's, too."""

from __future__ import annotations

from typing import Any

from tideline.warehouse.bigquery.client import asking
from tideline_spark.formats.bigquery.access import BigQueryAccess
from tideline_spark.formats.state import RowCounts


def rows_changed(access: BigQueryAccess, job: Any) -> RowCounts:
    """Return the rows that the MERGE of the script ``job`` has inserted, updated and deleted."""
    with asking(f"to count the rows changed in {access.name}"):
        for child in access.client.list_jobs(parent_job=job):
            stats = getattr(child, "dml_stats", None)
            if child.statement_type == "MERGE" and stats is not None:
                return RowCounts(
                    stats.inserted_row_count, stats.updated_row_count, stats.deleted_row_count
                )
    return RowCounts()
