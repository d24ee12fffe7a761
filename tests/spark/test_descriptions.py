# ruff: noqa: S608  statements are made of constants
"""Comments and NOT NULL in the warehouse: they follow the source, and never keep a row out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.fixtures.progress import external_of
from tests.spark.test_rebuild import Rebuilder
from tideline.contract.description import DESCRIPTION_PROPERTY, Described, describe
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.planner import applied_state
from tideline.settings.tables import TableSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "public.orders"
COLUMNS = {"id": "int64", "status": "string", "amount": "decimal(10,2)", "note": "string"}
SCHEMA = schema_of(ORDERS, COLUMNS, ["id"])


def order(op: str, key: int, **other: Any) -> Row:
    marks = {name: other.pop(name) for name in ("unchanged", "overflow") if name in other}
    values = {"status": "new", "amount": None, "note": f"n{key}"} | other
    return Row(ORDERS, op, {"id": key, **values}, **marks)


def say(
    history: History,
    comment: str | None = None,
    columns: Mapping[str, str | None] | None = None,
    not_null: tuple[str, ...] = (),
) -> dict[str, dict[str, Any]]:
    """What a worker's look at the catalog does: the description, and who names it."""
    found = describe(ORDERS, comment, columns or {}, not_null)
    history.chain.write_description(found)
    return {ORDERS: {"description": found.fingerprint}}


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reader finds: of the table and its columns, and which are NOT NULL."""

    comment: str | None
    comments: dict[str, str]
    firm: set[str]
    reported: tuple[str, ...]


def shown(history: History) -> Shown:
    """By a reader that is not the writer."""
    table = DeltaTable(history.target(ORDERS).removeprefix("file://"))
    fields = table.schema().fields
    comments = {f.name: str(f.metadata["comment"]) for f in fields if "comment" in f.metadata}
    return Shown(
        table.metadata().description,
        comments,
        {f.name for f in fields if not f.nullable},
        Described.parse(table.metadata().configuration.get(DESCRIPTION_PROPERTY)).not_null,
    )


def merged(history: History, spark: SparkSession) -> None:
    """Merge, and find that nothing is left to do."""
    (receipt,) = history.merge(spark).tables
    assert (receipt.outcome, receipt.error) == (Outcome.APPLIED, None)
    assert (receipt.warnings, receipt.external_changes) == ((), ())
    assert history.plan().nothing_to_do
    progress = applied_state(history.settings).tables[ORDERS]
    assert external_of(progress) == (), "nobody else has changed anything"


def keep_as(history: History, mode: Mode) -> None:
    entry = TableSettings(mode=mode)
    history.settings = history.settings.model_copy(update={"tables": {"*.*": entry}})


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(SCHEMA))
    made.commit(*(order("c", key) for key in range(1, 4)))
    return made


def test_comments_come_with_the_table_and_follow_without_a_row(
    history: History, spark: SparkSession
) -> None:
    words = 'it\'s `what` "they" paid\nfor; \\ é 🦆'
    history.commit(states=say(history, words, {"id": "key", "note": words}))
    merged(history, spark)
    assert shown(history) == Shown(words, {"id": "key", "note": words}, {"id"}, ("id",))
    rows = history.rows(spark, ORDERS)
    own = f"ALTER TABLE delta.`{history.target(ORDERS)}` ALTER COLUMN status COMMENT 'ours'"
    spark.sql(own)

    history.commit(states=say(history, None, {"note": "free text", "amount": "in EUR"}))
    plan = history.plan()
    assert (plan.tables, len(plan.descriptions)) == ((), 1)
    receipt = history.merge(spark)
    assert (receipt.tables, receipt.warnings) == ((), ())
    assert history.plan().nothing_to_do
    comments = {"status": "ours", "note": "free text", "amount": "in EUR"}
    assert shown(history) == Shown(None, comments, {"id"}, ("id",))
    assert history.rows(spark, ORDERS) == rows
    assert external_of(applied_state(history.settings).tables[ORDERS]) == ()
    history.commit(order("u", 1, status="paid"))
    merged(history, spark)


def test_a_table_of_a_chain_from_before_is_left_as_it_is(
    history: History, spark: SparkSession
) -> None:
    merged(history, spark)
    assert shown(history) == Shown(None, {}, set(), ())
    history.commit(states=say(history, "orders"))
    history.merge(spark)
    assert shown(history) == Shown("orders", {}, {"id"}, ("id",))


def test_not_null_is_declared_where_no_row_lacks_a_value(
    history: History, spark: SparkSession
) -> None:
    history.commit(order("c", 4, note=None))
    history.commit(states=say(history, not_null=("id", "status", "note")))
    merged(history, spark)
    assert shown(history) == Shown(None, {}, {"id", "status"}, ("id", "status", "note"))
    history.commit(order("u", 4), order("d", 3), order("c", 9))
    merged(history, spark)
    history.commit(states=say(history, "anything new", not_null=("id", "status", "note")))
    history.merge(spark)
    assert shown(history).firm == {"id", "status", "note"}, "looked at again with each news"
    target = f"delta.`{history.target(ORDERS)}`"
    with pytest.raises(Exception, match="NOT_NULL_CONSTRAINT"):
        spark.sql(f"UPDATE {target} SET status = NULL WHERE id = 9").collect()


def test_what_may_be_null_again_is_so_before_the_rows_come(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tideline_spark.table_run

    history.commit(states=say(history, not_null=("status", "note")))
    merged(history, spark)
    assert shown(history).firm == {"id", "status", "note"}
    history.commit(order("c", 5, status=None), states=say(history, not_null=("note",)))
    gave_way: list[object] = []
    monkeypatch.setattr(tideline_spark.table_run, "give_way", lambda *_: gave_way.append(1))
    merged(history, spark)
    assert not gave_way, "known before, so that nothing had to fail first"
    assert shown(history).firm == {"id", "note"}
    assert history.rows(spark, ORDERS)[-1]["status"] is None


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.SOFT_DELETES, Mode.HISTORY])
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(order("c", 9, status=None), id="older-than-the-word"),
        pytest.param(order("c", 9, amount=None, overflow={"amount": "NaN"}), id="overflow"),
        pytest.param(order("u", 9, note=None, unchanged=("note",)), id="pending"),
        pytest.param(Row(ORDERS, "d", {"id": 9}), id="deleted-unseen"),
    ],
)
def test_a_row_without_a_value_is_never_kept_out(
    tmp_path: Path, spark: SparkSession, mode: Mode, row: Row
) -> None:
    history = History(tmp_path)
    keep_as(history, mode)
    history.commit(Shaped(SCHEMA))
    everything = ("id", "status", "amount", "note")
    history.commit(*(order("c", key, amount=Decimal(key)) for key in (1, 2)))
    history.commit(states=say(history, not_null=everything))
    merged(history, spark)
    assert shown(history).firm == set(everything)

    history.commit(row, order("u", 1, status="paid", amount=Decimal(5)))
    merged(history, spark)
    rows = history.rows(spark, ORDERS)
    lacking = {n for n in everything if any(one[n] is None for one in rows)}
    assert shown(history).firm == set(everything) - lacking
    assert shown(history).reported == everything, "the source's word is there all the same"
    if row.op != "d":
        assert lacking
        assert 9 in [one["id"] for one in rows]
    history.commit(order("u", 2, status="paid", amount=Decimal(6)), Emptied(ORDERS))
    history.commit(order("c", 11, amount=Decimal(1)))
    merged(history, spark)


def test_a_log_of_changes_only_says_it(history: History, spark: SparkSession) -> None:
    keep_as(history, Mode.APPEND)
    history.commit(states=say(history, "orders", {"note": "free"}, ("status", "note")))
    merged(history, spark)
    history.commit(Row(ORDERS, "d", {"id": 1}), Emptied(ORDERS))
    merged(history, spark)
    assert shown(history) == Shown("orders", {"note": "free"}, set(), ("id", "status", "note"))


@pytest.mark.parametrize("drop", ["keep", "drop"])
def test_columns_that_go_come_and_are_renamed(
    history: History, spark: SparkSession, drop: Any
) -> None:
    entry = TableSettings(dropped_columns=drop)
    history.settings = history.settings.model_copy(update={"tables": {"*.*": entry}})
    texts = {"status": "state", "note": "free"}
    history.commit(states=say(history, None, texts, ("status", "note")))
    merged(history, spark)
    assert shown(history).firm == {"id", "status", "note"}

    columns = {"id": "int64", "state": "string", "amount": "decimal(10,2)", "weight": "int32"}
    after = schema_of(ORDERS, columns, ["id"])
    steps = (
        ColumnStep(StepKind.DROP, "note"),
        ColumnStep(StepKind.RENAME, "state", was="status"),
        ColumnStep(StepKind.ADD, "weight", type="int32", default="7"),
    )
    texts = {"state": "state", "weight": "in kg"}
    if drop == "drop":
        del texts["state"]  # The source removes the comment of the column that it renames.
    history.commit(
        Shaped(after, steps),
        Row(ORDERS, "c", {"id": 12, "state": "new", "amount": None, "weight": 1}),
        states=say(history, None, texts, ("state", "weight")),
    )
    merged(history, spark)
    assert shown(history) == Shown(
        None, texts, {"id", "state", "weight"}, ("id", "state", "weight")
    )
    assert [row["weight"] for row in history.rows(spark, ORDERS)] == [7, 7, 7, 1]


def test_a_plan_that_leaves_more_waiting_declares_nothing_yet(
    tmp_path: Path, spark: SparkSession
) -> None:
    history = History(tmp_path, merge={"parts_max": 1})
    history.commit(Shaped(SCHEMA))
    history.commit(order("c", 1, status=None))
    history.commit(order("u", 1, status="set"), states=say(history, not_null=("status",)))
    receipt = history.merge(spark)
    assert receipt.tables[0].applied_manifest < history.last_number
    assert shown(history).firm == set()
    merged(history, spark)
    assert shown(history).firm == {"id", "status"}


def test_a_rebuilt_table_says_the_same_and_what_others_wrote(
    history: History, spark: SparkSession
) -> None:
    history.commit(states=say(history, "orders", {"note": "free"}, ("status", "note")))
    merged(history, spark)
    spark.sql(f"ALTER TABLE delta.`{history.target(ORDERS)}` ALTER COLUMN status COMMENT 'ours'")
    before = shown(history)
    for mode in (Mode.HISTORY, Mode.CURRENT):
        _, reported = Rebuilder(history, spark).all(mode)
        assert reported[-1] == "applied", reported
        assert shown(history) == before
        assert history.plan().nothing_to_do


def test_rows_that_come_while_it_is_looked_at_leave_nothing_declared(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tideline_spark.formats.delta.description import DeltaDescription

    merged(history, spark)
    insert = (
        f"INSERT INTO delta.`{history.target(ORDERS)}` (id, status, _tl_seq) VALUES (77,NULL,1)"
    )
    look = DeltaDescription.without_null

    def look_and_write(self: DeltaDescription, columns: frozenset[str]) -> frozenset[str]:
        found = look(self, columns)
        if "status" in columns:
            spark.sql(insert)
        return found

    monkeypatch.setattr(DeltaDescription, "without_null", look_and_write)
    history.commit(states=say(history, "orders", not_null=("status",)))
    history.merge(spark)
    assert shown(history).firm == set()
    assert not history.plan().nothing_to_do, "it is decided again"
    monkeypatch.undo()
    history.merge(spark)
    assert shown(history).firm == {"id"}
