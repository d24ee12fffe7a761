"""A verification ends doubts from before its rows were read: a real store, real Delta logs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.fixtures.parts import HEARTBEAT_US, History, Shaped
from tests.fixtures.progress import external_of
from tests.unit.planner.test_planner import apply
from tests.unit.planner.test_verifying import SCHEMA, T, accept, planned, read, row
from tideline.contract.open_state import TableCondition
from tideline.contract.timeliness import Stage
from tideline.contract.verification import TableResult, Verification, VerificationOutcome
from tideline.planner import applied_state, plan_merge
from tideline.planner.table_status import TableStage, TableStatus
from tideline.planner.verified import store_verification
from tideline_console.plan import read_preview
from tideline_console.status import read_status

SECOND = 1_000_000


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Row 1, dumped whole, in manifest 2; merged."""
    found = History(tmp_path)
    found.commit(Shaped(SCHEMA))
    found.commit(row(1), deletes_before=[(T, 0)])
    apply(found, 2)
    return found


def doubt(history: History, times: int, since: int = 1) -> None:
    """The source's table is found in doubt for the ``times``-th time."""
    state = {
        "condition": TableCondition.NEEDS_RESNAPSHOT,
        "since_seq": since,
        "reason": "the table was rewritten",
        "doubts": times,
    }
    history.commit(states={T: state})


def prove(history: History) -> TableResult:
    """Read the table and find it equal."""
    accept(history)
    finished = read(history, 0)
    [check] = planned(history, finished, name=f"v.{finished}").plan.tables
    found = TableResult(
        T,
        VerificationOutcome.EQUAL,
        seq=check.applied_seq,
        manifest_number=check.applied,
        source_time_us=check.source_time_us,
        target_version=check.target_version,
        app_id=check.app_id,
        doubts=check.doubts,
    )
    keep(history, found)
    return found


def keep(history: History, verified: TableResult) -> None:
    result = Verification("v", "shop", history.incarnation, "v", (verified,))
    store_verification(history.settings, result)


def table(history: History) -> TableStatus:
    (one,) = read_status(history.settings).tables
    return one


def test_a_verification_ends_a_doubt_of_the_source(history: History) -> None:
    doubt(history, 1)
    assert [one.table for one in read_preview(history.settings, None).dumps] == [T]
    doubted = table(history)
    assert (doubted.state, doubted.complete_through_us) == (TableStage.NEEDS_RESNAPSHOT, None)
    assert doubted.late is not None and doubted.late.stage is Stage.TABLE
    verified = prove(history)
    assert verified.doubts == 1
    proven = table(history)
    assert (proven.state, proven.reason, proven.since_seq) == (TableStage.ACTIVE, None, None)
    assert proven.verified is not None and proven.verified.invalid is None
    newest = HEARTBEAT_US + 3 * SECOND
    assert proven.complete_through_us == newest
    assert applied_state(history.settings).tables[T].complete_through_us == newest
    assert read_preview(history.settings, None).dumps == ()
    # What is merged from then on is complete, too.
    history.commit(row(2))
    [plan] = plan_merge(history.settings, plan_id="later").tables
    assert plan.complete_through_us is not None


def test_a_doubt_that_comes_after_it_is_one_and_ends_the_verification(history: History) -> None:
    """Its rows were read before: and the source says only that they were equal long ago."""
    doubt(history, 1)
    verified = prove(history)
    doubt(history, 2)
    found = table(history)
    assert (found.state, found.since_seq) == (TableStage.NEEDS_RESNAPSHOT, 1)
    assert found.complete_through_us is None
    assert found.verified is not None
    assert (
        found.verified.invalid
        == "its state is needs-resnapshot since seq 1: the table was rewritten"
    )
    history.commit(row(2))
    [plan] = plan_merge(history.settings, plan_id="later").tables
    assert plan.complete_through_us is None
    apply(history, history.last_number)
    keep(history, msgspec.structs.replace(verified, doubts=2))
    assert table(history).state is TableStage.ACTIVE


def test_a_verification_from_before_a_doubt_stands_beside_it(history: History) -> None:
    verified = prove(history)
    history.commit(row(2))
    apply(history, history.last_number)
    doubt(history, 1, since=verified.seq + 1)
    found = table(history)
    assert (found.state, found.since_seq) == (TableStage.NEEDS_RESNAPSHOT, verified.seq + 1)
    assert found.verified is not None
    assert (found.verified.seq, found.verified.invalid) == (verified.seq, None)


def test_rows_that_were_read_before_the_doubt_was_found_prove_nothing_of_it(
    history: History,
) -> None:
    """It is found between the request and the end of reading: nobody knows which came first."""
    accept(history)
    doubt(history, 1)
    finished = read(history, 0)
    [check] = planned(history, finished, name="v.1").plan.tables
    assert check.doubts == 0


def test_a_worker_that_does_not_count_doubts_has_none_ended(history: History) -> None:
    doubt(history, 0)
    assert prove(history).doubts == 0
    assert table(history).state is TableStage.NEEDS_RESNAPSHOT


def test_a_verification_ends_what_others_did_before_it_and_not_what_they_do_after(
    history: History,
) -> None:
    path = history.target(T).removeprefix("file://")
    more = pa.table({"id": pa.array([9], pa.int32())})
    write_deltalake(path, more, mode="append")
    changed = table(history)
    assert (changed.state, changed.complete_through_us) == (TableStage.NEEDS_RESNAPSHOT, None)
    prove(history)
    proven = table(history)
    assert proven.state is TableStage.ACTIVE
    assert proven.complete_through_us is not None
    assert external_of(applied_state(history.settings).tables[T]) == ()
    write_deltalake(path, more, mode="append")
    again = table(history)
    assert again.state is TableStage.NEEDS_RESNAPSHOT
    assert again.verified is not None and again.verified.invalid is not None
    DeltaTable(path).optimize.compact()
    assert table(history).state is TableStage.NEEDS_RESNAPSHOT


def test_a_table_that_was_never_dumped_is_complete_once_it_is_proven(history: History) -> None:
    history.tables[T] = msgspec.structs.replace(history.tables[T], complete_seq=None)
    history.commit(states={T: {}})
    assert table(history).complete_through_us is None
    prove(history)
    found = table(history)
    assert found.complete_through_us is not None
    assert found.late is not None and found.late.stage is not Stage.TABLE
