"""Small plans: their rows come to the driver once, whole, counted; what a merge of them costs."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.spark.orders import applied, content, order, run
from tideline.contract.receipt import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = "public.everything"
KINDS = {
    "id": "int64",
    "tiny": "int8",
    "small": "int16",
    "whole": "int32",
    "price": "decimal(38,9)",
    "single": "float32",
    "double": "float64",
    "flag": "boolean",
    "text": "string",
    "raw": "binary",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
}
EDGES: tuple[dict[str, Any], ...] = (
    {"id": 1},
    {
        "id": 2**63 - 1,
        "tiny": -128,
        "small": -(2**15),
        "whole": 2**31 - 1,
        "price": Decimal("-99999999999999999999999999999.999999999"),
        "single": float("inf"),
        "double": 5e-324,
        "flag": False,
        "text": "",
        "raw": b"",
        "day": date(1, 1, 1),
        "at": datetime(1, 1, 1, tzinfo=UTC),
        "local": datetime(1, 1, 1),
    },
    {
        "id": -(2**63),
        "price": Decimal("0.000000001"),
        "single": -0.0,
        "double": float("-inf"),
        "flag": True,
        "text": "\0 ' \\ ` \U0001f40b ‮ \r\n",
        "raw": bytes(range(256)),
        "day": date(9999, 12, 31),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "local": datetime(1582, 10, 10, 1, 2, 3, 4),
    },
)


def made(spark: SparkSession, root: Path) -> list[dict[str, Any]]:
    """The rows of a target that was made of one plan and changed by another."""
    from tideline_spark.schemas import spark_type

    history = History(root)
    schema = schema_of(T, KINDS, ["id"])
    history.commit(Shaped(schema))
    texts = {"day": "infinity", "price": "NaN"}
    history.commit(
        *(Row(T, "c", values) for values in EDGES),
        Row(T, "c", {"id": 4, "text": "moves"}, overflow=texts),
        parts_per_table=2,
    )
    applied(history, spark)
    history.commit(
        Row(T, "u", {"id": 5}, before={"id": 4}, unchanged=("text",), overflow=texts),
        Row(T, "u", {**EDGES[1], "text": "again"}),
        Row(T, "d", {"id": 1}),
    )
    receipt = applied(history, spark)
    assert (receipt.rows_read, receipt.pending) == (3, 0)
    frame = spark.newSession().read.format("delta").load(history.target(T))
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    assert {c.name: kinds[c.name] for c in schema.columns} == {
        c.name: spark_type(c.logical) for c in schema.columns
    }
    found: list[dict[str, Any]] = frame.toArrow().sort_by("id").to_pylist()
    return found


def test_every_value_is_what_it_is_without_the_detour(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tideline_spark import local_parts

    small = made(spark, tmp_path / "small")
    monkeypatch.setattr(local_parts, "TARGET_BYTES_MAX", -1)
    untuned = made(spark, tmp_path / "untuned")
    monkeypatch.setattr(local_parts, "ROWS_MAX", 0)
    from_files = made(spark, tmp_path / "files")
    assert small == untuned == from_files
    found = {row["id"]: row for row in small}
    assert found.keys() == {5, 2**63 - 1, -(2**63)}
    assert found[5]["text"] == "moves"
    assert dict(found[5]["_tl_overflow"]) == {"day": "infinity", "price": "NaN"}
    assert found[-(2**63)]["raw"] == bytes(range(256))
    assert found[-(2**63)]["text"] == EDGES[2]["text"]


def test_a_row_that_is_too_long_is_not_brought(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However well it was compressed: its length counts, not its part's."""
    from tideline_spark import local_parts, table_run

    brought: list[Any] = []

    def read_local(*given: Any) -> Any:
        brought.append(local_parts.read_local(*given))
        return brought[-1]

    monkeypatch.setattr(table_run, "read_local", read_local)
    monkeypatch.setattr(local_parts, "BYTES_MAX", 3_000)
    history.commit(*(order("c", key, "new", "n" * 100) for key in range(3)))
    applied(history, spark)
    history.commit(*(order("u", key, "paid", "z" * (1_001 if key == 1 else 3)) for key in range(3)))
    assert applied(history, spark).updated == 3
    assert content(history, spark)[1] == ("paid", "z" * 1_001)
    history.commit(order("c", 7, "new", overflow={"status": "t" * 3_001}))
    applied(history, spark)
    history.commit(order("u", 7, "kept", unchanged=("note",)))
    applied(history, spark)
    assert [one is None for one in brought] == [False, True, True, False]


@pytest.mark.parametrize("local", [True, False])
def test_parts_that_hold_something_else_are_refused(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    """Both ways of counting name the part and what of it differs."""
    from msgspec.structs import replace

    from tideline_spark import local_parts

    if not local:
        monkeypatch.setattr(local_parts, "ROWS_MAX", 0)
    history.commit(
        order("c", 1, "new"),
        order("u", 1, "paid", unchanged=("note",)),
        order("u", 2, "moved", before={"id": 1}),
    )
    plan = history.plan()
    [table] = plan.tables
    [part] = table.parts
    for changed, reported in (
        ({"operations": {"c": 2, "u": 1}}, "rows by operation"),
        ({"first_seq": part.first_seq - 1}, "first sequence"),
        ({"last_seq": part.last_seq + 1}, "last sequence"),
        ({"unchanged_rows": 0}, "rows with unchanged columns"),
        ({"before_rows": 2}, "rows with a before-key"),
    ):
        other = replace(table, parts=(replace(part, **changed),))
        receipt = run(spark, replace(plan, tables=(other,)))
        assert receipt.outcome is Outcome.FAILED
        assert receipt.error_kind == "CorruptData"
        assert reported in (receipt.error or "") and part.key in (receipt.error or "")
    assert run(spark, plan).outcome is Outcome.APPLIED


def test_a_merge_of_few_rows_into_a_small_table_is_eight_jobs(
    history: History, spark: SparkSession
) -> None:
    history.commit(*(order("c", key, "new") for key in range(200)))
    applied(history, spark)
    history.commit(order("u", 3, "paid"), order("d", 4), order("c", 900, "new"))
    before = jobs(spark)
    merged = applied(history, spark)
    assert (merged.inserted, merged.updated, merged.deleted) == (1, 1, 1)
    found = jobs(spark) - before
    assert found.total() <= 8, found


def jobs(spark: SparkSession) -> Counter[str]:
    """All jobs of the application so far, by what they are called."""
    context: Any = spark._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    listed = context.statusStore().jobsList(None)
    found = (listed.apply(at) for at in range(listed.size()))
    return Counter(f"{job.jobId()} {job.name()} {job.description()}" for job in found)
