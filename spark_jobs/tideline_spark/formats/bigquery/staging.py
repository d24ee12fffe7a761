"""Brings rows to BigQuery: as Parquet, by load jobs, into a table that expires by itself.

The files are the driver's, or in a bucket (`bucket`).
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, types

from tideline.contract.errors import TidelineError
from tideline.warehouse.bigquery.client import asking
from tideline.warehouse.bigquery.names import STAGED, TableName
from tideline_spark.formats.bigquery.access import DIALECT, BigQueryAccess
from tideline_spark.formats.bigquery.bucket import BucketFolder
from tideline_spark.formats.bigquery.jobs import JobFailed
from tideline_spark.formats.bigquery.types import bigquery_type, to_bigquery
from tideline_spark.scratch import scratch_of

if TYPE_CHECKING:
    from google.cloud.bigquery import LoadJobConfig

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
    name = access.name.own(f"{STAGED}_{secrets.token_hex(8)}")
    schema = rows.schema
    listed = [
        to_bigquery(one.name, one.dataType).alias(_numbered(at))
        for at, one in enumerate(schema.fields)
    ]
    bring = _upload if access.place.staging is None else _load_from_bucket
    try:
        count = bring(access, name, rows.select(*listed), partial(_make, access, name, schema))
        yield Staged(name, schema, count)
    finally:
        # It expires by itself, and what the run has done or met counts.
        with suppress(TidelineError), asking(f"to remove {name}"):
            access.client.delete_table(str(name), not_found_ok=True)


def _upload(
    access: BigQueryAccess, name: TableName, rows: DataFrame, make: Callable[[], None]
) -> int:
    """Write files where the driver is, and upload each; return the number of rows."""
    with tempfile.TemporaryDirectory(
        prefix="tideline-staged-", dir=scratch_of(access.session), ignore_cleanup_errors=True
    ) as folder:
        written = Path(folder) / "rows"
        rows.coalesce(_FILES_MAX).write.parquet(str(written))
        make()
        return sum(_loaded(access, name, path) for path in sorted(written.glob("*.parquet")))


def _load_from_bucket(
    access: BigQueryAccess, name: TableName, rows: DataFrame, make: Callable[[], None]
) -> int:
    """Have executors write files to the bucket, and BigQuery load them; return the number of
    rows."""
    url = f"{access.place.staging}/{name.dataset}/{name.table}"
    folder = BucketFolder(access.session, url)
    try:
        rows.write.parquet(url)
        make()
        job = access.jobs.load_from(name.table, f"{url}/*.parquet", str(name), _config(access))
        return int(job.output_rows or 0)
    except JobFailed as failed:
        raise failed.error from None
    finally:
        folder.remove()


def _make(access: BigQueryAccess, name: TableName, schema: types.StructType) -> None:
    until = (datetime.now(UTC) + EXPIRY).isoformat()
    listed = ", ".join(
        f"`{_numbered(at)}` {bigquery_type(one.dataType)}" for at, one in enumerate(schema.fields)
    )
    options = f"OPTIONS (expiration_timestamp = TIMESTAMP {DIALECT.literal(until)})"
    with asking(f"to make {name}"):
        access.jobs.query(f"CREATE TABLE {name.sql} ({listed}) {options}")


def _loaded(access: BigQueryAccess, name: TableName, path: Path) -> int:
    """Load one file; return how many rows it has."""
    with path.open("rb") as file:
        try:
            job = access.jobs.load(
                f"{name.table}-{path.name[5:10]}",
                file,
                path.stat().st_size,
                str(name),
                _config(access),
            )
        except JobFailed as failed:
            raise failed.error from None
    return int(job.output_rows or 0)


def _config(access: BigQueryAccess) -> LoadJobConfig:
    # heavy: only pipelines with BigQuery tables need it
    from google.cloud.bigquery import LoadJobConfig, ParquetOptions

    options = ParquetOptions()  # type: ignore[no-untyped-call]
    options.enable_list_inference = True
    return LoadJobConfig(
        source_format="PARQUET",
        write_disposition="WRITE_APPEND",
        create_disposition="CREATE_NEVER",
        parquet_options=options,
        decimal_target_types=["NUMERIC", "BIGNUMERIC"],
        labels=access.labels,
    )


def _numbered(at: int) -> str:
    return f"c{at}"
