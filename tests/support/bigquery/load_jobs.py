"""Load jobs of small tables, as tests make them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.cloud import bigquery

if TYPE_CHECKING:
    from tests.fixtures.bigquery import Dataset


def load(
    dataset: Dataset,
    columns: dict[str, list[Any]] | pa.Table,
    table: str = "staged",
    *,
    job_id: str | None = None,
    resumable: bool = False,
    **options: Any,
) -> bigquery.LoadJob:
    """Load columns as a Parquet file; return the job, which may not have ended. ``options`` are
    those of a load job; without one the rows replace the table."""
    rows = columns if isinstance(columns, pa.Table) else pa.table(columns)
    file = io.BytesIO()
    pq.write_table(rows, file)
    known = {"source_format": "PARQUET", "write_disposition": "WRITE_TRUNCATE"}
    return dataset.client.load_table_from_file(
        file,
        f"{dataset.name}.{table}",
        rewind=True,
        size=None if resumable else len(file.getvalue()),
        job_id=job_id,
        job_config=bigquery.LoadJobConfig(**known | options),
    )
