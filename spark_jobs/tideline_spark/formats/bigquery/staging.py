"""Brings rows to BigQuery: as Parquet, by load jobs, into a table that expires by itself."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, types

from tideline.warehouse.bigquery.client import asking
from tideline.warehouse.bigquery.names import STAGED, TableName
from tideline_spark.formats.bigquery.access import DIALECT, BigQueryAccess
from tideline_spark.formats.bigquery.jobs import JobFailed
from tideline_spark.formats.bigquery.types import bigquery_type, to_bigquery
from tideline_spark.scratch import scratch_of

EXPIRY = timedelta(days=1)
"""The age at which BigQuery removes a table of staged rows that a killed run has left."""
_FILES_MAX = 8


@dataclass(frozen=True, slots=True)
class Staged:
    """Staged rows: their table, whose columns are numbered, and what the columns are."""

    name: TableName
    schema: types.StructType
    rows: int

    @property
    def sql(self) -> str:
        """The rows as SQL, a relation without an alias, with their own names."""
        listed = ", ".join(
            f"`{_numbered(at)}` AS {DIALECT.quote(name)}"
            for at, name in enumerate(self.schema.names)
        )
        return f"(SELECT {listed} FROM {self.name.sql})"  # noqa: S608  names are quoted


@contextmanager
def staged(access: BigQueryAccess, rows: DataFrame) -> Iterator[Staged]:
    """Stage ``rows`` for the context.

    Columns are numbered, so that none has a name that Parquet or a load job has no form of.
    """
    folder = Path(tempfile.mkdtemp(prefix="tideline-staged-", dir=scratch_of(access.session)))
    name = access.name.own(f"{STAGED}_{secrets.token_hex(8)}")
    try:
        schema = rows.schema
        listed = [
            to_bigquery(one.name, one.dataType).alias(_numbered(at))
            for at, one in enumerate(schema.fields)
        ]
        written = folder / "rows"
        rows.select(*listed).coalesce(_FILES_MAX).write.parquet(str(written))
        _make(access, name, schema)
        count = sum(_loaded(access, name, path) for path in sorted(written.glob("*.parquet")))
        yield Staged(name, schema, count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with asking(f"to remove {name}"):
            access.client.delete_table(str(name), not_found_ok=True)


def _make(access: BigQueryAccess, name: TableName, schema: types.StructType) -> None:
    until = (datetime.now(UTC) + EXPIRY).isoformat()
    listed = ", ".join(
        f"`{_numbered(at)}` {bigquery_type(one.dataType)}" for at, one in enumerate(schema.fields)
    )
    options = f"OPTIONS (expiration_timestamp = TIMESTAMP {DIALECT.literal(until)})"
    with asking(f"to make {name}"):
        access.client.query(f"CREATE TABLE {name.sql} ({listed}) {options}").result()


def _loaded(access: BigQueryAccess, name: TableName, path: Path) -> int:
    """Load one file; return how many rows it has."""
    # heavy: only pipelines with BigQuery tables need it
    from google.cloud.bigquery import LoadJobConfig, ParquetOptions

    options = ParquetOptions()  # type: ignore[no-untyped-call]
    options.enable_list_inference = True
    config = LoadJobConfig(
        source_format="PARQUET",
        write_disposition="WRITE_APPEND",
        create_disposition="CREATE_NEVER",
        parquet_options=options,
        decimal_target_types=["NUMERIC", "BIGNUMERIC"],
        labels=access.labels,
    )
    with path.open("rb") as file:
        try:
            job = access.jobs.load(
                f"{name.table}-{path.name[5:10]}", file, path.stat().st_size, str(name), config
            )
        except JobFailed as failed:
            raise failed.error from None
    return int(job.output_rows or 0)


def _numbered(at: int) -> str:
    return f"c{at}"
