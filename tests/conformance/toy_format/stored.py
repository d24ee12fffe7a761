"""A toy table's rows: every commit of data writes all of them once more."""

from __future__ import annotations

import json
import uuid
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F

from tests.conformance.toy_format.log import CONFLICT, Entry, ToyLog, VersionTaken
from tideline_spark.schemas import column as col
from tideline_spark.schemas import no_rows


class ToyTable:
    """A table's log and rows; commits of it, of which a lost race is a failure of Spark's."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.session = session
        self.log = ToyLog(path)

    def rows(self, entry: Entry) -> DataFrame:
        if not entry.folder:
            return no_rows(self.session, schema_of_entry(entry))
        stored = self.session.read.parquet(str(self.log.path / entry.folder))
        return stored.select(*(_stored(*one) for one in entry.columns))

    def write(self, rows: DataFrame) -> dict[str, Any]:
        """What a commit says of ``rows``, which are stored under neutral names."""
        folder = f"rows-{uuid.uuid4().hex}"
        plain = rows.toDF(*(f"c{at}" for at in range(len(rows.columns))))
        plain.write.parquet(str(self.log.path / folder))
        columns = [
            [one.name, one.dataType.json(), f"c{at}"] for at, one in enumerate(rows.schema.fields)
        ]
        return {"folder": folder, "columns": columns}

    def commit(self, base: Entry, operation: str, **changes: Any) -> Entry:
        try:
            return self.log.commit(base, operation, **changes)
        except VersionTaken:
            raise PySparkException(message=f"[{CONFLICT}]") from None


def _stored(name: str, kind: str, stored: str | None) -> Column:
    value = F.lit(None) if stored is None else col(stored)
    return value.cast(_type(kind)).alias(name)


def _type(kind: str) -> types.DataType:
    one = {"name": "c", "type": json.loads(kind), "nullable": True, "metadata": {}}
    return types.StructType.fromJson({"type": "struct", "fields": [one]}).fields[0].dataType


def schema_of_entry(entry: Entry) -> types.StructType:
    return types.StructType([types.StructField(one[0], _type(one[1])) for one in entry.columns])
