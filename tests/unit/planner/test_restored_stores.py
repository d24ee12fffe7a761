"""Targets that have applied another chain than the store has: known by digest, not by number.

A store that was restored from its backup goes on with other manifests under the old numbers.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.fixtures.commits import commit_of_ours
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.errors import Unavailable
from tideline.contract.layout import shadow_url, table_path
from tideline.contract.open_state import OpenState
from tideline.contract.plan import STANDING_PROPERTY, CommitMetadata, app_id
from tideline.contract.schema import parse_table
from tideline.contract.verification import TableResult, Verification, VerificationOutcome
from tideline.planner import applied_state
from tideline.planner.consumers import known_consumers, register_warehouse
from tideline.planner.merges import Planning
from tideline.planner.rebuilds import begin_rebuild, next_step
from tideline.planner.table_status import TableStage
from tideline.planner.verified import store_verification
from tideline.store.objects import open_store

T = "public.t"
SCHEMA = schema_of(T, {"id": "int32"}, ["id"])


def row(key: int) -> Row:
    return Row(T, "c", {"id": key})


def apply(
    history: History, number: int, *, generation: int = 0, build: int = 0, **changes: Any
) -> None:
    """A commit of a merge that has applied manifest ``number``; ``changes`` of its stamp, and
    ``says=False``: the log has lost that."""
    entry = history.chain.read(number)
    assert entry is not None
    app = app_id("shop", "one", T, generation, build)
    says, standing = changes.pop("says", True), changes.pop("standing", None)
    commit_metadata = CommitMetadata(
        app, "shop", "one", "p", 0, number, entry.manifest.last_seq, digest=entry.digest
    )
    commit_metadata = msgspec.structs.replace(commit_metadata, **changes)
    url = history.settings.warehouse.url
    url = shadow_url(url, build) if build else url
    path = Path(table_path(url, parse_table(T)).removeprefix("file://"))
    rows = pa.table({"id": pa.array([number], pa.int32())})
    names = {"pipeline": "shop", "incarnation": "one", "table": T}
    owner = {f"tideline.{name}": value for name, value in names.items()}
    owner |= {} if standing is None else {STANDING_PROPERTY: standing}
    owner |= {"tideline.build": str(build)} if build else {}
    if not path.exists():
        DeltaTable.create(path, rows.schema, configuration=owner, raise_if_key_not_exists=False)
    commit_of_ours(path, rows, app, number, commit_metadata if says else None)


def made(root: Path, *keys: int) -> History:
    """A chain of a manifest for each key, behind one that makes the table and dumps it whole."""
    history = History(root)
    history.commit(Shaped(SCHEMA), deletes_before=[(T, 0)])
    for key in keys:
        history.commit(row(key))
    return history


@pytest.fixture
def lost(tmp_path: Path) -> History:
    """The chain before the restore; a target has applied all of it."""
    history = made(tmp_path / "lost", 1, 2, 3)
    apply(history, 4)
    return history


def restored(lost: History, *keys: int) -> History:
    """The store as the backup had it after the first key, gone on with ``keys``, beside the same
    warehouse."""
    history = made(lost.root.parent / "restored", 1, *keys)
    (history.root / "warehouse").symlink_to(lost.root / "warehouse")
    return history


@pytest.mark.parametrize("keys", [(), (7,), (7, 8), (7, 8, 9)])
def test_nothing_is_merged_into_a_target_of_the_lost_chain(
    lost: History, keys: tuple[int, ...]
) -> None:
    now = restored(lost, *keys)
    plan = now.plan()
    assert (plan.tables, plan.strayed) == ((), (T,))
    assert f"`tideline rebuild {T}`" in plan.delayed[T]
    found = applied_state(now.settings).tables[T]
    assert (found.state, found.reason) == (TableStage.TARGET_BLOCKED, plan.delayed[T])
    assert (found.merged, found.complete_through_us, found.up_to_date) == (None, None, False)


def test_no_verification_of_a_target_of_the_lost_chain_counts(lost: History) -> None:
    """Not even one that the backup has, of rows that were there before it."""
    now = restored(lost, 7, 8, 9)
    app = app_id("shop", "one", T, 0)
    verified = TableResult(T, VerificationOutcome.EQUAL, 1, 2, 2, target_version=0, app_id=app)
    store_verification(now.settings, Verification("v", "shop", "one", "v", (verified,)))
    found = applied_state(now.settings).verifications[T]
    assert found.broken == "its target has applied another chain than the store's"


def test_what_was_applied_before_the_backup_is_of_the_restored_chain_too(tmp_path: Path) -> None:
    before = made(tmp_path / "lost", 1, 2, 3)
    apply(before, 2)
    plan = restored(before, 7, 8).plan()
    assert (plan.delayed, plan.strayed) == ({}, ())
    assert [(table.from_manifest, table.to_manifest) for table in plan.tables] == [(2, 4)]


def test_a_target_that_a_merge_has_brought_past_the_tail_since_that_was_looked_up(
    tmp_path: Path,
) -> None:
    history = made(tmp_path, 1, 2, 3)
    apply(history, 4)
    plan = Planning(history.settings, open_store(history.settings.store)).plan("p", None, 3)
    assert (plan.tables, plan.strayed, plan.delayed) == ((), (), {})
    step = next_step(history.settings, begin_rebuild(history.settings, T))
    assert step is not None
    assert [(table.from_manifest, table.to_manifest) for table in step.tables] == [(0, 4)]


@pytest.mark.parametrize(("seq", "holds"), [(None, True), (77, False)])
def test_stamps_from_before_there_were_digests(
    tmp_path: Path, seq: int | None, holds: bool
) -> None:
    history = made(tmp_path, 1, 2)
    apply(history, 2, digest="", **({} if seq is None else {"seq": seq}))
    plan = history.plan()
    assert (plan.strayed == ()) is holds
    assert bool(plan.tables) is holds


def test_a_target_whose_log_has_lost_our_commit_does_not_count(tmp_path: Path) -> None:
    history = made(tmp_path, 1, 2)
    apply(history, 3, says=False)
    plan = history.plan()
    assert plan.strayed == (T,)
    assert "no longer shows" in plan.delayed[T]


@pytest.mark.parametrize(("number", "holds"), [(3, True), (2, False)])
def test_what_the_log_has_lost_may_stand_in_the_tables_properties(
    tmp_path: Path, number: int, holds: bool
) -> None:
    """`tideline maintain` sees to it; of an older commit than the last one it tells nothing."""
    history = made(tmp_path, 1, 2)
    apply(history, number)
    path = Path(history.target(T).removeprefix("file://"))
    commit_metadata = DeltaTable(path).history(1)[0]["userMetadata"]
    shutil.rmtree(path)
    apply(history, 3, says=False, standing=commit_metadata)
    assert (history.plan().strayed == ()) is holds


def test_a_target_of_a_generation_that_the_chain_lacks(tmp_path: Path) -> None:
    history = made(tmp_path, 1, 2)
    apply(history, 2)
    apply(history, 3, generation=2)
    plan = history.plan()
    assert plan.strayed == (T,)
    assert "generation 2" in plan.delayed[T]
    record = begin_rebuild(history.settings, T)
    step = next_step(history.settings, record)
    assert step is not None
    assert [table.build for table in step.tables] == [1]


def test_parts_are_kept_for_a_target_that_has_applied_another_chain(lost: History) -> None:
    now = restored(lost, 7, 8, 9)
    store = open_store(now.settings.store)
    tail = now.chain.tail()
    assert tail is not None
    state: OpenState = now.chain.open_state(tail)
    register_warehouse(now.settings, store)
    (consumer,) = known_consumers(now.settings, store, datetime.now(UTC))
    assert consumer.applied(tail.manifest, state) == {}
    (before,) = known_consumers(lost.settings, open_store(lost.settings.store)) or (None,)
    assert before is None or before.applied(tail.manifest, state) == {T: 4}


class TestRebuild:
    """The cure that is named."""

    def test_the_new_table_is_built_up_to_the_tail_and_takes_the_place(self, lost: History) -> None:
        now = restored(lost, 7, 8)
        record = begin_rebuild(now.settings, T)
        step = next_step(now.settings, record)
        assert step is not None
        (table,) = step.tables
        assert (table.from_manifest, table.to_manifest, table.build, step.delayed) == (0, 4, 1, {})
        entry = now.chain.read(4)
        assert entry is not None
        assert table.to_digest == entry.digest
        apply(now, 4, build=1)
        now.commit(row(9))  # While it was built.
        step = next_step(now.settings, record)
        assert step is not None
        (swap,) = step.swaps
        assert (swap.to_manifest, swap.to_digest, swap.live_to_manifest) == (4, entry.digest, 4)

    def test_what_a_rebuild_has_built_of_the_lost_chain_is_begun_once_more(
        self, lost: History
    ) -> None:
        apply(lost, 3, build=1)
        now = restored(lost, 7, 8)
        record = begin_rebuild(now.settings, T)
        step = next_step(now.settings, record)
        assert step is not None
        assert f"`tideline rebuild {T} --restart`" in step.delayed[T]
        record = begin_rebuild(now.settings, T, restart=True)
        step = next_step(now.settings, record)
        assert step is not None
        assert [table.build for table in step.tables] == [2]

    def test_not_before_a_dump_has_ended(self, tmp_path: Path) -> None:
        before = made(tmp_path / "lost", 1)
        apply(before, 2)
        now = History(tmp_path / "restored")
        now.commit(Shaped(SCHEMA))
        (now.root / "warehouse").symlink_to(before.root / "warehouse")
        record = begin_rebuild(now.settings, T)
        with pytest.raises(Unavailable, match="no dump of all") as raised:
            next_step(now.settings, record)
        assert "tideline dump" in (raised.value.hint or "")
