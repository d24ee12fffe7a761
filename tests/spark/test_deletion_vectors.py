"""Tables without deletion vectors: made so, merged so, and switched to and fro by rebuilds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.spark.test_rebuild import Killed, Rebuilder
from tideline.contract.modes import Mode
from tideline.planner import begin_rebuild, next_step
from tideline.settings.tables import TableSettings
from tideline_console.plan import read_preview
from tideline_console.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "public.orders"
SCHEMA = schema_of(ORDERS, {"id": "int64", "status": "string"}, ["id"])


def order(op: str, key: int, status: str | None = None) -> Row:
    return Row(ORDERS, op, {"id": key, "status": status})


def choose(history: History, *, vectors: bool, mode: Mode = Mode.CURRENT) -> None:
    entry = TableSettings(deletion_vectors=vectors, mode=mode)
    history.settings = history.settings.model_copy(update={"tables": {"*.*": entry}})


def vectors_in(history: History) -> int:
    """How many files were ever added to the live table with a deletion vector."""
    folder = Path(history.target(ORDERS).removeprefix("file://")) / "_delta_log"
    actions = [
        json.loads(line) for path in folder.glob("*.json") for line in path.read_text().splitlines()
    ]
    return sum("deletionVector" in action.get("add", {}) for action in actions)


def read_without_vectors(history: History) -> list[dict[str, Any]]:
    """The rows, through a reader that refuses tables whose readers must know deletion vectors."""
    table = DeltaTable(history.target(ORDERS).removeprefix("file://"))
    found: list[dict[str, Any]] = table.to_pyarrow_table().select(["id", "status"]).to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def change(history: History) -> None:
    """Each kind of change that marks rows of files as deleted."""
    history.commit(order("u", 1, "paid"), order("d", 2), order("c", 50, "late"))


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(SCHEMA))
    made.commit(*(order("c", key, "new") for key in range(1, 40)))
    return made


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.SOFT_DELETES, Mode.HISTORY])
def test_no_merge_writes_deletion_vectors_into_such_a_table(
    history: History, spark: SparkSession, mode: Mode
) -> None:
    choose(history, vectors=True, mode=mode)
    history.merge(spark)
    change(history)
    history.merge(spark)
    assert vectors_in(history), "these changes would be written as deletion vectors"
    other = History(history.root / "other")
    choose(other, vectors=False, mode=mode)
    other.commit(Shaped(SCHEMA))
    other.commit(*(order("c", key, "new") for key in range(1, 40)))
    other.merge(spark)
    change(other)
    other.merge(spark)
    low = other.last_seq
    other.commit(*(order("r", key, "dumped") for key in range(1, 10)))
    other.commit(deletes_before=[(ORDERS, low)])
    other.merge(spark)
    other.commit(Emptied(ORDERS), order("c", 7, "again"))
    other.merge(spark)
    assert vectors_in(other) == 0
    live = [row for row in other.rows(spark, ORDERS) if row.get("_tl_current", True)]
    live = [row for row in live if not row.get("_tl_deleted")]
    assert [(row["id"], row["status"]) for row in live] == [(7, "again")]
    assert (7, "again") in [(row["id"], row["status"]) for row in read_without_vectors(other)]


def test_a_rebuild_switches_a_table_to_and_fro(
    history: History, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    rebuilder = Rebuilder(history, spark)
    history.merge(spark)
    change(history)
    history.merge(spark)
    (table,) = read_status(history.settings).tables
    assert (table.deletion_vectors, table.deletion_vectors_wanted) == (True, None)
    with pytest.raises(DeltaError, match=r"(?i)deletion.?vectors"):
        read_without_vectors(history)

    choose(history, vectors=False)
    (table,) = read_status(history.settings).tables
    assert (table.deletion_vectors, table.deletion_vectors_wanted) == (True, False)
    history.commit(order("u", 3, "paid"))
    (planned,) = read_preview(history.settings, None).tables
    assert planned.vectors_to is False
    history.merge(spark)
    rows = history.rows(spark, ORDERS)
    _, reported = rebuilder.all()
    assert reported[-1] == "applied", reported
    assert history.rows(spark, ORDERS) == rows
    expected = [{"id": row["id"], "status": row["status"]} for row in rows]
    assert read_without_vectors(history) == expected
    (table,) = read_status(history.settings).tables
    assert (table.deletion_vectors, table.deletion_vectors_wanted) == (False, None)
    assert (table.state.value, table.reason) == ("active", None), "none of it is someone else's"
    before = vectors_in(history)
    history.commit(order("u", 4, "paid"), order("d", 5))
    assert history.merge(spark).tables[0].external_changes == ()
    assert vectors_in(history) == before

    choose(history, vectors=True)
    _, reported = rebuilder.all()
    assert reported[-1] == "applied", reported
    history.commit(order("u", 6, "paid"))
    history.merge(spark)
    assert vectors_in(history) > before


def test_killed_behind_the_swap_it_is_still_told_and_can_be_done(
    history: History, spark: SparkSession
) -> None:
    rebuilder = Rebuilder(history, spark)
    history.merge(spark)
    choose(history, vectors=False)
    record = begin_rebuild(history.settings, ORDERS)
    with pytest.raises(Killed):
        while plan := next_step(history.settings, record):
            rebuilder.run(plan, kill_at="after-swap")
    (table,) = read_status(history.settings).tables
    assert (table.deletion_vectors, table.deletion_vectors_wanted) == (True, False)
    _, reported = rebuilder.all()
    assert reported[-1] == "applied", reported
    assert len(read_without_vectors(history)) == 39
