# ruff: noqa: S608  statements are made of constants and paths
"""A table of the ladder in each format: the target of Tideline's merges, and a copy of it that a
plain MERGE changes as one would write it by hand."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tideline.settings import Settings
from tideline.settings.iceberg import IcebergSettings
from tideline.warehouse.iceberg.catalog import iceberg_settings

FORMATS = ("delta", "iceberg")
_PLAIN = """
MERGE INTO {twin} t USING plain s ON t.id = s.id
WHEN MATCHED AND s._tl_seq > t._tl_seq THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


class LadderTarget(Protocol):
    """The table ``orders`` in one format. ``settings``: the pipeline's, with the warehouse of this
    format; ``target`` and ``twin``: the table and its copy in SQL."""

    settings: Settings
    target: str
    twin: str

    def session(self) -> Any:
        """Return the Spark session that reaches both."""
        ...

    def make_twin(self) -> None:
        """Copy the target."""
        ...


class DeltaLadder:
    """Without bounds and deletion vectors, which are off in a table that is made by hand."""

    def __init__(self, spark: Any, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self._spark = spark
        self._path = Path(settings.warehouse.url.removeprefix("file://")) / "public" / "orders"
        self._copy = self._path.parent / "plain"
        self.target, self.twin = f"delta.`{self._path}`", f"delta.`{self._copy}`"

    def session(self) -> Any:
        return self._spark

    def make_twin(self) -> None:
        shutil.copytree(self._path, self._copy)
        self._spark.sql(
            f"ALTER TABLE {self.twin} SET TBLPROPERTIES ('delta.enableDeletionVectors'='false')"
        )


class IcebergLadder:
    """As Iceberg makes a table that nothing else is asked of: a merge writes whole files."""

    target = "tideline.public.orders"
    twin = "tideline.public.plain"

    def __init__(self, spark: Any, settings: Settings, folder: Path) -> None:
        catalog = IcebergSettings(catalog="jdbc", url=f"sqlite:///{folder / 'catalog.db'}")
        lake = {"format": "iceberg", "iceberg": catalog, "url": (folder / "lake").as_uri()}
        place = settings.warehouse.model_copy(update=lake)
        self.settings = settings.model_copy(update={"warehouse": place})
        for name, value in iceberg_settings(place).items():
            spark._jsc.sc().conf().set(name, value)
        self._spark = spark.newSession()

    def session(self) -> Any:
        return self._spark

    def make_twin(self) -> None:
        self._spark.sql(f"CREATE TABLE {self.twin} USING iceberg AS TABLE {self.target}")


_OF_FORMAT: Mapping[str, type[DeltaLadder] | type[IcebergLadder]] = {
    "delta": DeltaLadder,
    "iceberg": IcebergLadder,
}


def open_ladder(table_format: str, spark: Any, settings: Settings, folder: Path) -> LadderTarget:
    """Return the table of ``table_format``; ``folder`` is its catalog's, where it needs one."""
    return _OF_FORMAT[table_format](spark, settings, folder)


def merge_plainly(table: LadderTarget, paths: list[str]) -> None:
    """Merge the rows of parts, already folded, into the copy."""
    session = table.session()
    source = session.read.parquet(*paths).drop("_tl_op", "_tl_tx")
    for name, kind in (("_tl_overflow", "map<string,string>"), ("_tl_pending", "array<string>")):
        source = source.selectExpr("*", f"cast(null AS {kind}) AS {name}")
    source.createOrReplaceTempView("plain")
    session.sql(_PLAIN.format(twin=table.twin)).collect()


def check_equal(table: LadderTarget) -> None:
    """Check that both tables are equal, so that the measured work was the same."""
    figures = "count(*) rows, sum(amount) amount, sum(_tl_seq) seqs"
    sums = [
        table.session().sql(f"SELECT {figures} FROM {name}").collect()[0]
        for name in (table.target, table.twin)
    ]
    if sums[0] != sums[1]:
        raise AssertionError(f"the tables differ: {sums}")
