"""A table of every mode and the steps of its move to another table format, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.bigquery_place import with_bigquery
from tests.fixtures.iceberg import use_catalog, with_catalog, with_iceberg
from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan
from tideline.contract.rebuild import RebuildRecord
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.planner import begin_rebuild, next_step
from tideline.planner.runs import store_receipt
from tideline.planner.targets import live_url
from tideline.settings import Warehouse

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet
    from pyspark.sql import SparkSession

T = "public.orders"
SCHEMA = schema_of(
    T,
    {
        "id": "int64",
        "small": "int16",
        "status": "string",
        "note": "string",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "price": "decimal(10,2)",
        "weight": "float64",
        "raw": "binary",
        "active": "boolean",
        "day": "date",
    },
    ["id"],
)
DIRECTIONS = (("delta", "iceberg"), ("iceberg", "delta"))
BY_BIGQUERY = (
    ("iceberg", "bigquery"), ("bigquery", "delta"), ("delta", "bigquery"), ("bigquery", "iceberg")
)  # fmt: skip


def in_the_long_run(ways: Sequence[tuple[str, str]], *, but: int = 0) -> list[ParameterSet]:
    """The parameters of ``ways``, which long runs alone take, but for the first ``but`` ones."""
    marks = [() if at < but else pytest.mark.long for at in range(len(ways))]
    return [pytest.param(*way, marks=one) for way, one in zip(ways, marks, strict=True)]


class Killed(BaseException):
    """As a signal ends the run."""


def row(op: str, key: int, status: str | None = None, note: str | None = None, **m: Any) -> Row:
    values = {
        "id": key,
        "small": -32768 + key,
        "status": status,
        "note": note,
        "at": datetime(2024, 2, 29, 23, 59, 59, key, UTC),
        "local": datetime(2024, 3, 31, 2, 30, 0, key),
        "price": Decimal(key) / 4,
        "weight": key / 3,
        "raw": bytes([0, key]),
        "active": key % 2 == 0,
        "day": date(2024, 2, key % 28 + 1),
    }
    return Row(T, op, values, **m)


def history_in(
    root: Path, spark: SparkSession, table_format: str, settings: Mapping[str, Any]
) -> History:
    """A pipeline whose table is made in ``table_format``, with places for Delta and Iceberg."""
    place = with_catalog(Warehouse(url=(root / "warehouse").as_uri()), root / "catalog.db")
    place = place.model_copy(update={"format": table_format})
    use_catalog(spark, place)
    return History(root, place=place, tables={T: settings} if settings else {})


def history_by_bigquery(
    root: Path, request: pytest.FixtureRequest, table_format: str, settings: Mapping[str, Any]
) -> History:
    """The same, with a place in BigQuery, in the emulator, too."""
    url = (root / "warehouse").as_uri()
    place = with_iceberg(request, Warehouse(url=url), root / "catalog.db")
    place = with_bigquery(request, place).model_copy(update={"format": table_format})
    return History(root, place=place, tables={T: settings})


def history_of_formats(
    root: Path, request: pytest.FixtureRequest, held: str, to: str, settings: Mapping[str, Any]
) -> History:
    """A pipeline whose table is made in ``held``, with places for it and for ``to``."""
    if "bigquery" in (held, to):
        return history_by_bigquery(root, request, held, settings)
    return history_in(root, request.getfixturevalue("spark"), held, settings)


def eventful(history: History, spark: SparkSession) -> None:
    """Rows that were changed, moved, deleted, emptied and dumped, in several merges."""
    history.commit(Shaped(SCHEMA))
    history.commit(row("c", 1, "new", "n1"), row("c", 2, "new", "n2"))
    assert answered(history.merge(spark)) == [("applied", None)]
    history.commit(Emptied(T), *(row("c", key, "new", f"n{key}") for key in range(1, 6)))
    low = history.last_seq
    history.commit(*(row("r", key, "new", f"n{key}") for key in range(1, 6)))
    assert answered(history.merge(spark)) == [("applied", None)]
    history.commit(row("d", 2), deletes_before=[(T, low)])
    history.commit(
        row("u", 1, "paid", unchanged=("note",)),
        row("u", 30, "moved", before={"id": 3}, unchanged=("note",)),
        row("u", 4, "odd", "x", overflow={"price": "1e99", "at": "infinity"}),
    )
    assert answered(history.merge(spark)) == [("applied", None)]


class Mover:
    """Takes a move's steps, as the command does."""

    def __init__(self, history: History, spark: SparkSession, to: str) -> None:
        self.history = history
        self.spark = spark
        self.to = to

    @property
    def settings(self) -> Any:
        return self.history.settings

    def begin(self, **options: Any) -> RebuildRecord:
        return begin_rebuild(self.settings, T, to=self.to, **options)

    def step(self, record: RebuildRecord, **options: Any) -> Plan:
        plan = next_step(self.settings, record, **options)
        assert plan is not None
        assert not plan.delayed, plan.delayed
        return plan

    def run(self, plan: Plan, on_point: Callable[[str], None] = lambda point: None) -> TableReceipt:
        from tideline_spark.merge import run_plan

        receipt = run_plan(self.spark, plan, on_point=on_point)
        store_receipt(self.settings, receipt)
        (one,) = receipt.tables
        return one

    def killed(self, plan: Plan, point: str) -> None:
        """Run ``plan`` until it dies at ``point``, which it must come to."""

        def dies(reached: str) -> None:
            if reached == point:
                raise Killed

        try:
            self.run(plan, dies)
        except Killed:
            return
        raise AssertionError(f"the run never came to {point}")

    def all(self, **options: Any) -> list[TableReceipt]:
        """Move to the end; returns what the steps answered."""
        accept = options.pop("accept_differences", False)
        record = self.begin(**options)
        receipts: list[TableReceipt] = []
        while plan := next_step(self.settings, record, accept_differences=accept):
            assert not plan.delayed, plan.delayed
            receipts.append(self.run(plan))
            if receipts[-1].outcome is Outcome.FAILED:
                break
        return receipts


def dicts_at(spark: SparkSession, url: str) -> list[dict[str, Any]]:
    """All rows of the table at ``url``, with every column."""
    from tideline_spark.formats.registry import open_target

    rows = open_target(spark.newSession(), url).rows().collect()
    return [one.asDict(recursive=True) for one in rows]


def rows_at(spark: SparkSession, url: str) -> list[str]:
    """The same as texts, in an order of their own; without the batches of a log of changes."""
    found = dicts_at(spark, url)
    for one in found:
        one.pop("_batch_id", None)
    return sorted(repr(sorted(one.items())) for one in found)


def types_at(spark: SparkSession, url: str) -> list[tuple[str, str]]:
    from tideline_spark.formats.registry import open_target

    return list(open_target(spark.newSession(), url).rows().dtypes)


def comments_at(spark: SparkSession, url: str) -> Mapping[str, str]:
    from tideline_spark.formats.registry import open_target

    return open_target(spark.newSession(), url).description.words().comments


def properties_at(spark: SparkSession, url: str) -> Mapping[str, str]:
    from tideline_spark.formats.registry import open_target

    return open_target(spark.newSession(), url).snapshot().properties


def url_of(history: History) -> str:
    return live_url(history.settings, T)


def keeps(mode: Mode) -> Mapping[str, Any]:
    return {"mode": mode.value}


def answered(receipt: Receipt) -> list[tuple[str, str | None]]:
    return [(one.outcome.value, one.error) for one in receipt.tables]
