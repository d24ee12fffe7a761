"""Columns of Iceberg tables that other programs change, which makes no snapshot: they are external
changes, and our own changes of columns are not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.spark.orders import ORDERS, SCHEMA, applied, order, run
from tests.spark.test_descriptions import say
from tideline.contract.errors import Unavailable
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.settings import Warehouse
from tideline.warehouse.iceberg.names import identifier_of
from tideline.warehouse.state import TargetState, read_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tideline_spark.formats.iceberg.table import IcebergTarget

SWAP = (
    "RENAME COLUMN status TO away",
    "RENAME COLUMN note TO status",
    "RENAME COLUMN away TO note",
)
"""Two columns of one type: every merge goes on, with other values under their names."""
SWAPPED = "version 1: RENAME COLUMN"


class Killed(BaseException):
    """As a signal ends the run."""


@pytest.fixture
def history(tmp_path: Path, spark: SparkSession) -> History:
    """A table with a row."""
    place = with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")
    use_catalog(spark, place)
    made = History(tmp_path, place=place)
    made.commit(Shaped(SCHEMA))
    made.commit(order("c", 1, "new", "n"))
    applied(made, spark)
    return made


def target_of(history: History, spark: SparkSession) -> IcebergTarget:
    from tideline_spark.formats.iceberg.table import IcebergTarget

    return IcebergTarget(spark.newSession(), history.target(ORDERS))


def alter(history: History, spark: SparkSession, *changes: str) -> None:
    """What another program does to the table."""
    name = ".".join(("tideline", *identifier_of(history.target(ORDERS))))
    for change in changes:
        spark.newSession().sql(f"ALTER TABLE {name} {change}")


def state_of(history: History) -> TargetState:
    """What the planner knows of the table."""
    app = history.plan().tables[0].app_id
    return read_target(history.target(ORDERS), app, history.settings.warehouse)


def named(history: History, spark: SparkSession) -> tuple[str, ...]:
    """The external changes that jobs and planner find, which are the same."""
    history.commit(order("c", history.last_number + 1, "new"))
    target, app = target_of(history, spark), history.plan().tables[0].app_id
    seen = target.look()
    found = target.since_ours(seen.commits(), app).external
    assert found == target.since_ours(target.commits(seen.number), app).external
    assert found == state_of(history).external
    return found


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        (SWAP, "RENAME COLUMN"),
        (("RENAME COLUMN note TO remark",), "RENAME COLUMN"),
        (("DROP COLUMN note",), "DROP COLUMN"),
        (("DROP COLUMN note", "ADD COLUMN note STRING"), "DROP COLUMN"),
        (("ADD COLUMN theirs INT", "ALTER COLUMN theirs TYPE BIGINT"), None),
        (("ADD COLUMN theirs INT COMMENT 'x'", "ALTER COLUMN note COMMENT 'y'"), None),
        (("RENAME COLUMN note TO remark", "RENAME COLUMN remark TO note"), None),
        (("SET TBLPROPERTIES ('team' = 'theirs')",), None),
    ],
    ids=[
        "swap",
        "rename",
        "drop",
        "drop and add",
        "add and widen",
        "comment",
        "and back",
        "property",
    ],
)
def test_what_others_do_to_columns_is_named(
    history: History, spark: SparkSession, changes: tuple[str, ...], kind: str | None
) -> None:
    """Where a name of ours stands for other values, or for none."""
    alter(history, spark, *changes)
    assert named(history, spark) == (() if kind is None else (f"version 1: {kind}",))


def test_a_column_of_theirs_is_noticed_once_rows_were_written_with_it(
    history: History, spark: SparkSession
) -> None:
    """It is part of what we found in the table then; its type and its drop are changes of that."""
    alter(history, spark, "ADD COLUMN theirs INT")
    history.commit(order("c", 2, "new"))
    assert applied(history, spark).external_changes == ()
    alter(history, spark, "ALTER COLUMN theirs TYPE BIGINT")
    assert named(history, spark) == ("version 2: CHANGE COLUMN TYPE",)
    alter(history, spark, "DROP COLUMN theirs")
    assert named(history, spark) == ("version 2: DROP COLUMN",)


def test_a_merge_names_it_once_and_every_later_state_remembers(
    history: History, spark: SparkSession
) -> None:
    """As long as no dump has healed it."""
    alter(history, spark, *SWAP)
    history.commit(order("c", 2, "new", "n"))
    receipt = applied(history, spark)
    assert (receipt.external_changes, receipt.complete_through_us) == ((SWAPPED,), None)
    assert named(history, spark) == ()
    assert state_of(history).unhealed == (SWAPPED,)
    receipt = applied(history, spark)
    assert (receipt.external_changes, receipt.complete_through_us) == ((), None)
    low = history.last_seq
    history.commit(order("r", 1, "new", "n"), deletes_before=[(ORDERS, low)])
    healed = applied(history, spark)
    assert (healed.external_changes, healed.complete_through_us is None) == ((), False)
    history.commit(order("c", 9, "new"))
    assert (state_of(history).external, state_of(history).unhealed) == ((), ())


def test_what_others_rewrite_afterwards_does_not_hide_it(
    history: History, spark: SparkSession
) -> None:
    """Neither a compaction of theirs nor one of ours."""
    alter(history, spark, *SWAP)
    name = ".".join(identifier_of(history.target(ORDERS)))
    session = spark.newSession()
    option = "options => map('rewrite-all', 'true')"
    session.sql(f"CALL tideline.system.rewrite_data_files('{name}', {option})").collect()
    assert target_of(history, spark).newest() == 1
    assert named(history, spark) == (SWAPPED,)
    assert applied(history, spark).external_changes == (SWAPPED,)
    assert named(history, spark) == ()


def test_a_change_while_a_run_merges_is_found_by_that_run(
    history: History, spark: SparkSession
) -> None:
    """Before the run's last look it begins again and knows of it; after that, the receipt has what
    the commit could not know, and so has every later look at the table."""
    from tideline_spark.merge import run_plan

    history.commit(order("c", 2, "new", "n"))
    met: list[str] = []

    def swap(point: str) -> None:
        if point == "before-commit" and not met:
            met.append(point)
            alter(history, spark, *SWAP)

    (receipt,) = run_plan(spark, history.plan(), on_point=swap).tables
    assert (receipt.outcome, receipt.external_changes) == (Outcome.APPLIED, (SWAPPED,))
    assert met == ["before-commit"]


def test_a_change_after_the_last_look_is_found_after_the_commit(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tideline_spark.formats.iceberg.table import IcebergTarget

    merge = IcebergTarget.merge

    def late(target: IcebergTarget, *given: Any, **more: Any) -> Any:
        alter(history, spark, *SWAP)
        return merge(target, *given, **more)

    history.commit(order("c", 2, "new", "n"))
    with monkeypatch.context() as patched:
        patched.setattr(IcebergTarget, "merge", late)
        receipt = applied(history, spark)
    assert (receipt.external_changes, receipt.complete_through_us) == ((SWAPPED,), None)
    assert named(history, spark) == (SWAPPED,), "the commit's own record does not have it"
    assert applied(history, spark).external_changes == (SWAPPED,)
    assert named(history, spark) == ()


WIDER = schema_of(
    ORDERS,
    {"id": "int64", "state": "string", "added": "int32", "note": "string"},
    ["id"],
)
STEPS = (
    ColumnStep(StepKind.RENAME, "state", was="status"),
    ColumnStep(StepKind.ADD, "added", type="int32"),
)


def test_our_own_changes_of_columns_are_ours(history: History, spark: SparkSession) -> None:
    """Also where the run is killed when it has made them, and before it has written a row."""
    from tideline_spark.merge import run_plan

    def dies(point: str) -> None:
        raise Killed

    history.commit(Shaped(WIDER, STEPS), Row(ORDERS, "c", {"id": 2, "state": "s", "added": 7}))
    plan = history.plan()
    with pytest.raises(Killed):
        run_plan(spark, plan, on_point=dies)
    names = target_of(history, spark).snapshot().schema.names
    assert {"state", "added"} < {*names}
    assert state_of(history).external == ()
    receipt = run(spark, plan)
    assert (receipt.outcome, receipt.external_changes) == (Outcome.APPLIED, ())
    wide = schema_of(
        ORDERS,
        {"id": "int64", "state": "string", "added": "int64", "note": "string"},
        ["id"],
    )
    step = ColumnStep(StepKind.WIDEN, "added", type="int64")
    history.commit(Shaped(wide, (step,)), Row(ORDERS, "c", {"id": 3, "added": 2**40}))
    plan = history.plan()
    with pytest.raises(Killed):
        run_plan(spark, plan, on_point=dies)
    assert target_of(history, spark).snapshot().schema["added"].dataType.simpleString() == "bigint"
    assert state_of(history).external == ()
    receipt = run(spark, plan)
    assert (receipt.outcome, receipt.external_changes) == (Outcome.APPLIED, ())
    assert [row["added"] for row in history.rows(spark, ORDERS)] == [None, 7, 2**40]


def test_a_column_that_a_file_lacks_is_not_declared_not_null(
    history: History, spark: SparkSession
) -> None:
    """Spark reads no column that is NOT NULL from a file without it, even if all of the file's rows
    are deleted. The column is declared once such files are rewritten."""
    wide = schema_of(
        ORDERS,
        {"id": "int64", "status": "string", "note": "string", "vip": "boolean"},
        ["id"],
    )
    steps = (ColumnStep(StepKind.ADD, "vip", type="boolean"),)
    not_null = ("id", "status", "vip")
    values = {"id": 1, "status": "new", "note": "n", "vip": True}
    history.commit(
        Shaped(wide, steps), Row(ORDERS, "u", values), states=say(history, not_null=not_null)
    )
    applied(history, spark)
    assert [row["vip"] for row in history.rows(spark, ORDERS)] == [True]
    assert target_of(history, spark).description.words().firm == {"id", "status"}
    name = ".".join(identifier_of(history.target(ORDERS)))
    spark.newSession().sql(
        f"CALL tideline.system.rewrite_data_files(table => '{name}',"
        " options => map('rewrite-all', 'true'))"
    )
    history.commit(states=say(history, "anything new", not_null=not_null))
    history.merge(spark)
    assert target_of(history, spark).description.words().firm == {"id", "status", "vip"}
    assert [row["vip"] for row in history.rows(spark, ORDERS)] == [True]


def test_a_rollback_behind_our_own_columns_is_no_change_of_theirs(
    history: History, spark: SparkSession
) -> None:
    """It takes back rows, not columns."""
    history.commit(Shaped(WIDER, STEPS), Row(ORDERS, "c", {"id": 2, "state": "s", "added": 7}))
    applied(history, spark)
    metadata = target_of(history, spark).look().metadata
    assert metadata is not None
    first = min(metadata.snapshots.values(), key=lambda one: one.version)
    name = ".".join(identifier_of(history.target(ORDERS)))
    call = f"CALL tideline.system.rollback_to_snapshot('{name}', {first.id})"
    spark.newSession().sql(call).collect()
    assert target_of(history, spark).newest() == 0
    assert state_of(history).external == ()
    alter(history, spark, "RENAME COLUMN state TO theirs")
    (named,) = state_of(history).external
    assert named.endswith(": RENAME COLUMN")


def test_our_change_of_columns_does_not_cover_theirs(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One since the run has looked is a conflict; the run begins again, and names it."""
    from tideline_spark.formats.iceberg.columns import IcebergColumns

    reshape, met = IcebergColumns.reshape, list[str]()

    def late(columns: IcebergColumns, *given: Any, **more: Any) -> Any:
        if not met:
            met.append("late")
            alter(history, spark, "ADD COLUMN theirs INT", "RENAME COLUMN _tl_pending TO away")
            alter(history, spark, "RENAME COLUMN away TO _tl_pending", *SWAP)
        return reshape(columns, *given, **more)

    history.commit(
        Shaped(
            schema_of(
                ORDERS,
                {"id": "int64", "status": "string", "note": "string", "added": "int32"},
                ["id"],
            ),
            (ColumnStep(StepKind.ADD, "added", type="int32"),),
        ),
        Row(ORDERS, "c", {"id": 2, "status": "s", "added": 7}),
    )
    monkeypatch.setattr(IcebergColumns, "reshape", late)
    receipt = applied(history, spark)
    assert (receipt.external_changes, receipt.conflicts) == ((SWAPPED,), 1)


def test_the_present_version_is_read_as_readers_see_it(
    history: History, spark: SparkSession
) -> None:
    """A snapshot alone is read in the columns of its own time: a verification would find nothing,
    and a rebuild would compare what nobody reads."""
    alter(history, spark, *SWAP, "ADD COLUMN theirs INT")
    target = target_of(history, spark)
    (row,) = target.rows(target.newest()).collect()
    (present,) = target.rows().collect()
    assert row == present
    assert (row["status"], row["note"], row["theirs"]) == ("n", "new", None)
    history.commit(order("c", 2, "new", "m"))
    applied(history, spark)
    (older,) = target.rows(0).collect()
    assert (older["status"], older["note"]) == ("new", "n")


def test_a_column_that_is_gone_stops_the_merge_by_name(
    history: History, spark: SparkSession
) -> None:
    alter(history, spark, "RENAME COLUMN note TO remark")
    history.commit(order("c", 2, "new", "n"))
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.FAILED
    assert "someone else has dropped or renamed there" in (receipt.error or "")
    alter(history, spark, "RENAME COLUMN remark TO note")
    assert applied(history, spark).external_changes == ()


def test_the_conflict_is_one_that_is_tried_again(history: History, spark: SparkSession) -> None:
    from tideline_spark.failures import SparkFailure, explain, is_conflict

    target = target_of(history, spark)
    target.look()
    alter(history, spark, *SWAP)
    metadata = target._access.metadata()
    assert metadata is not None
    with pytest.raises(SparkFailure) as caught:
        target._access.check_columns(metadata)
    assert is_conflict(caught.value)
    assert isinstance(explain(caught.value, "merging"), Unavailable)
