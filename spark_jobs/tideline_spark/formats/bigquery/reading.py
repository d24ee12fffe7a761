# ruff: noqa: S608  statements are made of quoted names, literals and our own expressions
"""Reads rows of BigQuery into Spark: through Google's client into files, which Spark reads.

The files are the driver's; on a cluster they go on to the bucket of staged rows, where executors
see them.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, types

from tideline.cluster_spark import is_cluster
from tideline.warehouse.bigquery.client import asking
from tideline.warehouse.bigquery.log import Commit, ended_ms
from tideline_spark.formats.bigquery.access import DIALECT, BigQueryAccess
from tideline_spark.formats.bigquery.bucket import BucketFolder
from tideline_spark.formats.bigquery.types import from_bigquery
from tideline_spark.formats.statements import TARGET
from tideline_spark.schemas import no_rows
from tideline_spark.scratch import scratch_of

if TYPE_CHECKING:
    from google.cloud.bigquery import Client


class Reading:
    """The rows that one target has read. Their files are removed with its session, which frames
    hold."""

    def __init__(self, access: BigQueryAccess) -> None:
        self._access = access
        self._folder: Path | None = None
        self._bucket: BucketFolder | None = None

    def frame(self, rows: Any, schema: types.StructType) -> DataFrame:
        """Return the rows of Google's iterator ``rows``, all read before this returns."""
        path = self._new_file()
        with asking(f"to read rows of {self._access.name}"):
            count = _written(path, rows.to_arrow_iterable(), schema)
        session = self._access.session
        if not count:
            return no_rows(session, schema)
        read = session.read.parquet(self._seen_by_all(path))
        return read.select(*(from_bigquery(one.name, one.dataType) for one in schema.fields))

    def selected(self, schema: types.StructType, where: Sequence[str], past: str = "") -> DataFrame:
        """Return the columns of ``schema`` of the rows that satisfy each condition of ``where``, in
        BigQuery's SQL, of the table as it is or was in the ``past``, a clause."""
        sql = selection(self._access.name.sql, schema, where, past)
        return self.frame(self._access.ask(sql), schema)

    def _new_file(self) -> Path:
        if self._folder is None:
            place = scratch_of(self._access.session)
            self._folder = Path(tempfile.mkdtemp(prefix="tideline-read-", dir=place))
            weakref.finalize(self._access.session, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / f"{secrets.token_hex(8)}.parquet"

    def _seen_by_all(self, file: Path) -> str:
        """Return where every executor sees ``file``, which moves there."""
        access, session = self._access, self._access.session
        if not is_cluster(str(session.sparkContext.master)):
            return str(file)
        if self._bucket is None:
            url = f"{access.place.staging}/{access.name.dataset}/{file.parent.name}"
            self._bucket = BucketFolder(session, url)
            weakref.finalize(session, self._bucket.remove)
        return self._bucket.take(file)


def as_of(client: Client, commit: Commit) -> str:
    """Return the clause of a table as ``commit`` has left it."""
    at = 1_000 * ended_ms(client, commit) if commit.job else commit.at_us
    moment = datetime.fromtimestamp(at / 1_000_000, UTC).isoformat()
    return f" FOR SYSTEM_TIME AS OF TIMESTAMP {DIALECT.literal(moment)}"


def selection(table: str, schema: types.StructType, where: Sequence[str], past: str = "") -> str:
    """Return the query of `Reading.selected` of ``table``, a name in SQL."""
    listed = ", ".join(map(DIALECT.quote, schema.names))
    conditions = f" WHERE {' AND '.join(where)}" if where else ""
    return f"SELECT {listed} FROM {table} AS {TARGET}{past}{conditions}"


def _written(path: Path, batches: Iterable[pa.RecordBatch], schema: types.StructType) -> int:
    """Write batches to one file; return how many rows there were."""
    decimals = {
        one.name: pa.decimal128(one.dataType.precision, one.dataType.scale)
        for one in schema.fields
        if isinstance(one.dataType, types.DecimalType)
    }
    writer: pq.ParquetWriter | None = None
    count = 0
    for batch in batches:
        table = pa.Table.from_batches([batch])
        for name, kind in decimals.items():
            at = table.column_names.index(name)
            table = table.set_column(at, name, table.column(at).cast(kind))
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
        count += table.num_rows
    if writer is not None:
        writer.close()
    return count
