"""``python -m tideline_spark.class_training FOLDER``: a small merge, run for the classes it loads.

It loads the classes that a real merge loads: Parquet parts are counted and folded, and a table of
the warehouse's format is made, merged into, overwritten and read. Java writes ``classes.jsa`` into
the folder when it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from tideline.contract.maintenance import Thresholds
from tideline.contract.part import DELETED, UPDATED
from tideline.contract.plan import CommitMetadata, TablePlan, app_id
from tideline.contract.schema import TableSchema
from tideline.local_spark import SHORT_LIVED, archive_option
from tideline.warehouse.job_jars import job_jars
from tideline_spark.formats.registry import open_target
from tideline_spark.formats.statements import RowClause, RowMerge, of_source, of_target
from tideline_spark.session import end_session, make_session

_THRESHOLDS = Thresholds(1, 1, 1.0, 1, 168.0, 1)
_COLUMNS = (
    "id",
    "cast(id % 9 AS int) AS number",
    "cast(id AS decimal(12,2)) AS amount",
    "cast(id AS double) AS weight",
    "concat('note ', id) AS note",
    "id % 2 = 0 AS active",
    "timestamp_micros(id) AS at",
    "timestamp_micros(id)::timestamp_ntz AS local",
    "date_from_unix_date(cast(id AS int)) AS day",
    "cast('x' AS binary) AS bytes",
    "cast(null AS map<string, string>) AS more",
    "cast(null AS array<string>) AS names",
    "id AS seq",
    f"if(id % 50 = 0, '{DELETED}', '{UPDATED}') AS op",
)
_TABLE = "training.rows"
_APP = app_id("training", "one", _TABLE, 0)


def train(spark: SparkSession, folder: Path) -> None:
    """Make a table in ``folder``, merge changes into it, and inspect it as a merge does."""
    spark = spark.newSession()  # A target's own, and its views are of this session.
    rows = spark.range(200).selectExpr(*_COLUMNS)
    rows.write.parquet(str(folder / "parts"))
    rows.createOrReplaceTempView("rows")
    target = open_target(spark, str(folder / "table"))
    target.snapshot()
    target.create("rows", _plan(), {}, _stamp(1))
    target.snapshot()
    changes = spark.read.schema(rows.schema).parquet(str(folder / "parts"))
    _look(changes)
    newest = Window.partitionBy("id").orderBy(F.col("seq").desc())
    folded = changes.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank")
    folded.union(folded.selectExpr("id + 150 AS id", *folded.columns[1:])).groupBy("id").agg(
        *(F.max_by(name, "seq").alias(name) for name in folded.columns[1:10]),
        *(F.first(name).alias(name) for name in folded.columns[10:]),
    ).createOrReplaceTempView("changes")
    target.merge(_merge(folded.columns), _stamp(2))
    target.look().commit_of("none", 0)
    target.files.measure(_THRESHOLDS)
    target.overwrite(folded.where("id < 10"), "id < 10", _stamp(3))
    target.rows().where("id > 5").orderBy("id").collect()


def _plan() -> TablePlan:
    schema = TableSchema(_TABLE, (), ("id",))
    return TablePlan(_TABLE, "", schema, {}, (), 0, 0, 1, 1, _APP, create=True)


def _stamp(number: int) -> CommitMetadata:
    return CommitMetadata(_APP, "training", "one", "training", number - 1, number, number)


def _merge(columns: Sequence[str]) -> RowMerge:
    """Return a merge of the view ``changes`` by id, in which the higher sequence wins."""
    values = {name: of_source(name) for name in columns}
    newer = f"{of_source('seq')} >= {of_target('seq')}"
    gone = f"{of_source('op')} = '{DELETED}'"
    return RowMerge(
        source="changes",
        on=f"{of_target('id')} = {of_source('id')} AND {of_target('id')} BETWEEN 0 AND 1000",
        matched=(RowClause(f"{gone} AND {newer}"), RowClause(newer, values)),
        inserted=RowClause(f"NOT ({gone})", values),
    )


def _look(changes: Any) -> None:
    """Count the changes as parts are counted against the plan."""
    changes = changes.withColumn("file", F.input_file_name())
    changes.groupBy("file", "op").agg(
        F.count(F.lit(1)), F.min("seq"), F.max("seq"), F.sum((F.col("id") > 3).cast("long"))
    ).collect()
    changes.select(F.explode(F.array("note", "op")).alias("name")).distinct().collect()


def main(folder: Path) -> None:
    """Run the training merge, and wait until Java has ended."""
    archive = archive_option(folder / "classes.jsa", "ArchiveClassesAtExit")
    session = make_session(
        master="local[2]",
        driver_memory="2g",
        jars=job_jars(),
        app_name="tideline classes",
        scratch=folder,
        java_options=f"{SHORT_LIVED} {archive}",
    )
    gateway: Any = session.sparkContext._gateway
    try:
        train(session, folder)
    finally:
        end_session(session)
        # Java ends when its input closes; the archive exists once it has ended.
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
