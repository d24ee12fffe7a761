"""One table in a warehouse of any format: what tests of targets have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.conformance.toy_format.reader import open_toy
from tests.conformance.toy_format.table import TOY
from tests.fixtures.parts import schema_of
from tideline.contract.maintenance import Decision, Thresholds
from tideline.contract.modes import Mode
from tideline.contract.plan import CommitMetadata, TablePlan, app_id
from tideline.contract.target_properties import lasting_properties, owner_properties
from tideline.settings import Warehouse
from tideline_spark.formats import registry
from tideline_spark.formats.base import TableFormat, Target
from tideline_spark.formats.statements import RowClause, RowMerge, of_source, of_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MORE: Mapping[str, tuple[TableFormat, Any]] = {
    "toy": (TOY, open_toy),
}

T = "public.t"
THRESHOLDS = Thresholds(1 << 20, 1, 1.0, 1 << 30, 168.0, 1)
REWRITE = Decision("asked", compact=True, purge=True)
APP = app_id("shop", "one", T, 0)
OTHER = app_id("market", "two", T, 0)
SCHEMA = schema_of(T, {"id": "int32", "a b": "string", "n": "int32"}, ["id"])
Rows = list[tuple[Any, ...]]
ROWS: Rows = [(1, "x", 10), (2, None, 20), (3, "z", None)]


class Case:
    """One table, and what commits to it are made of."""

    def __init__(self, spark: SparkSession, place: Warehouse) -> None:
        self.session = spark.newSession()
        self.place = place
        self.url = f"{place.root(place.format)}/public/odd%20name"
        self.target = self.open()

    def open(self) -> Target:
        return registry.open_target(self.session, self.url)

    def apart(self) -> Target:
        """In a session of its own, whose settings it may change."""
        return registry.open_target(self.session.newSession(), self.url)

    def view(
        self, rows: list[tuple[Any, ...]], columns: str = "id int, `a b` string, n int"
    ) -> str:
        self.session.createDataFrame(rows, columns).createOrReplaceTempView("given")
        return "given"

    def keys(self, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
        return self.session.createDataFrame(list(rows), "id int, `a b` string")

    def made(self, rows: Rows = ROWS) -> Target:
        properties = {**owner_properties(("shop", "one", T)), **lasting_properties(Mode.CURRENT, 0)}
        plan = plan_of(1)
        assert self.target.create(self.view(rows), plan, properties, commit_metadata(1)) == (
            len(rows),
            0,
            0,
        )
        return self.target

    def rows(self, version: int | None = None) -> Rows:
        return sorted(tuple(row) for row in self.open().rows(version).collect())


def plan_of(number: int) -> TablePlan:
    return TablePlan(T, "", SCHEMA, {}, (), 0, 0, number, 10 * number, APP, create=True)


def commit_metadata(number: int, app: str = APP, read: int | None = None) -> CommitMetadata:
    pipeline, incarnation, *_ = app.split("/")
    where = (number - 1, number, 10 * number)
    return CommitMetadata(app, pipeline, incarnation, f"plan-{number}", *where, read_version=read)


def upsert(source: str) -> RowMerge:
    """Rows of ``source`` are written where they are newer; NULL in ``n`` deletes; 9 is away."""
    values = {name: of_source(name) for name in SCHEMA.column_names}
    return RowMerge(
        source,
        f"{of_target('id')} = {of_source('id')}",
        (RowClause(f"{of_source('n')} IS NULL"), RowClause(values=values)),
        RowClause(f"{of_source('id')} < 9", values),
        RowClause(f"{of_target('id')} = 3 OR false", {"n": f"{of_target('id')} + 1"}),
    )
