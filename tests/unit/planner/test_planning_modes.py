"""What a plan says of a table's mode and of its past, and the steps of a rebuild, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.fixtures.commits import commit_of_ours
from tests.fixtures.parts import HEARTBEAT_US, Emptied, History, Row, Shaped, schema_of
from tests.fixtures.progress import external_of
from tideline.contract.errors import Fenced, Misconfigured, Unavailable
from tideline.contract.layout import table_path
from tideline.contract.modes import Mode
from tideline.contract.plan import CommitMetadata, PlannedEnd, app_id
from tideline.contract.schema import parse_table
from tideline.planner import applied_state, begin_rebuild, next_step, plan_merge
from tideline.planner.consumers import known_consumers
from tideline.planner.history_parts import parts_lost
from tideline.planner.rebuild_steps import shadow_settings
from tideline.planner.table_status import TableStage
from tideline.settings import Settings
from tideline.settings.tables import TableSettings
from tideline.store.objects import open_store
from tideline_console.plan import run as show_plan
from tideline_console.status import read_status
from tideline_console.status import run as show_status

T = "public.t"


def row(key: int, op: str = "c") -> Row:
    return Row(T, op, {"id": key})


def as_mode(settings: Settings, mode: Mode) -> Settings:
    return settings.model_copy(update={"tables": {"*.*": TableSettings(mode=mode)}})


def apply(
    history: History,
    number: int,
    *,
    settings: Settings | None = None,
    mode: Mode = Mode.CURRENT,
    build: int = 0,
    generation: int = 0,
    table: str = T,
) -> None:
    """Make the target say that it has applied ``number``, as a merge, or a swap, would."""
    settings = history.settings if settings is None else settings
    app = app_id("shop", history.incarnation, table, generation, build)
    path = Path(table_path(settings.warehouse.url, parse_table(table)).removeprefix("file://"))
    entry = history.chain.read(number)
    assert entry is not None
    seq = entry.manifest.last_seq
    commit_metadata = CommitMetadata(
        app, "shop", history.incarnation, "earlier", 0, number, seq, digest=entry.digest
    )
    owner: dict[str, str | None] = {
        "tideline.pipeline": "shop",
        "tideline.incarnation": history.incarnation,
        "tideline.table": table,
        "tideline.mode": mode.value,
        "tideline.build": str(build),
    }
    rows = pa.table({"id": pa.array([number], pa.int32())})
    DeltaTable.create(
        path, rows.schema, configuration=owner, raise_if_key_not_exists=False, mode="overwrite"
    )
    commit_of_ours(path, rows, app, number, commit_metadata)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """1: the schema, 2: rows, 3: a truncate among rows, 4: a dump, 5: its end, 6: a row."""
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    made.commit(row(1), row(2))
    made.commit(row(3), Emptied(T), row(4))
    made.commit(row(4, "r"))
    made.commit(row(5), deletes_before=[(T, 6)])
    made.commit(row(6))
    return made


def test_ends_say_where_rows_end_without_a_change_of_their_own(history: History) -> None:
    settings = as_mode(history.settings, Mode.HISTORY)
    (table,) = plan_merge(settings, plan_id="all").tables
    assert table.mode is Mode.HISTORY
    assert (table.from_manifest, table.start_seq) == (0, 0)
    second = 1_000_000
    assert table.ends == (
        PlannedEnd(5, 4, HEARTBEAT_US + 3 * second),
        # Known at the end of the manifest in which the dump finished, of what was there before it.
        PlannedEnd(8, 6, HEARTBEAT_US + 5 * second),
    )


def test_only_modes_that_keep_the_past_need_it(history: History) -> None:
    (current,) = plan_merge(history.settings, plan_id="current").tables
    assert (current.from_manifest, current.start_seq) == (3, 6)
    store, state = open_store(history.settings.store), history.tables[T]
    assert parts_lost(history.chain, store, T, state, 3) is None
    first = history.chain.read(2)
    assert first is not None
    history.part_path(first.manifest.parts[0].key).unlink()
    assert parts_lost(history.chain, store, T, state, 3) == 2
    plan = plan_merge(as_mode(history.settings, Mode.APPEND), plan_id="append")
    assert plan.tables == ()
    assert "set its mode to current and merge it, then `tideline rebuild" in plan.delayed[T]
    assert "--since-dump" in plan.delayed[T]
    assert plan_merge(history.settings, plan_id="again").tables


def test_the_command_that_a_rebuild_without_its_past_names_works(history: History) -> None:
    apply(history, 5)
    first = history.chain.read(2)
    assert first is not None
    history.part_path(first.manifest.parts[0].key).unlink()
    record = begin_rebuild(history.settings, T, mode=Mode.APPEND)
    step = next_step(history.settings, record)
    assert step is not None
    assert f"`tideline rebuild {T} --mode append --since-dump --restart`" in step.delayed[T]
    record = begin_rebuild(
        history.settings,
        T,
        mode=Mode.APPEND,
        since_dump=True,
        restart="--restart" in step.delayed[T],
    )
    step = next_step(history.settings, record)
    assert step is not None
    assert (step.delayed, [table.from_manifest for table in step.tables]) == ({}, [3])


def test_a_target_keeps_its_mode_and_says_that_another_is_wanted(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(history, 3, mode=Mode.SOFT_DELETES)
    settings = as_mode(history.settings, Mode.HISTORY)
    (table,) = plan_merge(settings, plan_id="p").tables
    assert (table.mode, table.from_manifest) == (Mode.SOFT_DELETES, 3)
    progress = applied_state(settings).tables[T]
    assert (progress.mode, progress.mode_wanted) == (Mode.SOFT_DELETES, Mode.HISTORY)
    same = applied_state(as_mode(history.settings, Mode.SOFT_DELETES)).tables[T]
    assert same.mode_wanted is None
    show_status(settings, as_json=False)
    reported = capsys.readouterr().out
    assert (
        f"{T} is kept as soft_deletes, the settings say history: `tideline rebuild {T}`" in reported
    )


def test_plans_follow_the_build_that_the_target_says(history: History) -> None:
    apply(history, 3, build=2)
    (table,) = plan_merge(history.settings, plan_id="p").tables
    assert (table.build, table.from_manifest, table.create) == (2, 3, False)
    assert table.app_id == app_id("shop", history.incarnation, T, 0, 2)


def test_a_column_with_a_name_of_the_change_log_holds_the_table(tmp_path: Path) -> None:
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32", "_Before_id": "string"}, ["id"])))
    made.commit(Row(T, "c", {"id": 1}))
    held = plan_merge(as_mode(made.settings, Mode.APPEND), plan_id="append").delayed
    assert "'_Before_id'" in held[T]
    assert plan_merge(as_mode(made.settings, Mode.HISTORY), plan_id="history").tables


@pytest.mark.parametrize("mode", [Mode.SOFT_DELETES, Mode.HISTORY])
def test_a_table_without_a_key_is_not_kept_in_a_mode_that_needs_one(
    tmp_path: Path, mode: Mode
) -> None:
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32"}, [])))
    made.commit(row(1))
    plan = plan_merge(as_mode(made.settings, mode), plan_id="p")
    assert plan.tables == ()
    assert "it has no key" in plan.delayed[T]
    apply(made, 2, mode=Mode.APPEND)
    with pytest.raises(Misconfigured, match="it has no key"):
        begin_rebuild(made.settings, T, mode=mode)
    assert begin_rebuild(made.settings, T, mode=Mode.APPEND).build == 1


def test_a_rebuild_stops_where_the_live_table_stands(history: History) -> None:
    settings = history.settings
    with pytest.raises(Misconfigured, match="nothing is to be rebuilt"):
        begin_rebuild(settings, T)
    apply(history, 5)
    record = begin_rebuild(settings, T, mode=Mode.HISTORY)
    assert (record.build, record.generation, record.mode) == (1, 0, Mode.HISTORY)
    step = next_step(settings, record)
    assert step is not None
    (table,) = step.tables
    assert (table.create, table.from_manifest, table.to_manifest, table.build) == (True, 0, 5, 1)
    assert (table.mode, "~rebuild" in table.target) == (Mode.HISTORY, True)
    shadow = shadow_settings(settings, record)
    apply(history, 5, settings=shadow, mode=Mode.HISTORY, build=1)
    # Garbage is kept from what the rebuild still needs, and only of this table.
    tail = history.chain.read(6)
    assert tail is not None
    state = history.chain.open_state(tail)
    (own,) = known_consumers(settings, open_store(settings.store))
    assert own.applied(tail.manifest, state) == {T: 5}
    step = next_step(settings, record)
    assert step is not None
    (swap,) = step.swaps
    assert (step.tables, swap.to_manifest, swap.to_seq, swap.delete_before) == ((), 5, 8, 6)
    assert (swap.live_mode, swap.mode, swap.build) == (Mode.CURRENT, Mode.HISTORY, 1)
    # The live table moves on: the one beside follows before they are swapped.
    apply(history, 6)
    step = next_step(settings, record)
    assert step is not None
    assert [(one.from_manifest, one.to_manifest) for one in step.tables] == [(5, 6)]
    apply(history, 6, mode=Mode.HISTORY, build=1)
    assert next_step(settings, record) is None
    assert known_consumers(settings, open_store(settings.store)) == []


def test_of_two_rebuilds_one_wins_by_name(history: History) -> None:
    settings = history.settings
    apply(history, 5)
    record = begin_rebuild(settings, T, mode=Mode.HISTORY)
    assert begin_rebuild(settings, T, mode=Mode.HISTORY) == record
    with pytest.raises(Fenced, match="under way, as history"):
        begin_rebuild(settings, T, mode=Mode.APPEND)
    newer = begin_rebuild(settings, T, mode=Mode.APPEND, restart=True)
    assert newer.build == 2
    with pytest.raises(Fenced, match="took over"):
        next_step(settings, record)
    # A table that was removed and recreated: numbers are never used twice.
    apply(history, 5, build=2)
    assert begin_rebuild(settings, T).build == 3


def test_another_generation_ends_a_rebuild_that_was_killed(history: History) -> None:
    settings = history.settings
    apply(history, 6)
    record = begin_rebuild(settings, T)
    planned = next_step(settings, record)
    assert planned is not None
    low, number = history.last_seq, history.last_number
    generation = {"generation": 1, "generation_seq": low, "generation_manifest": number}
    history.commit(row(7, "r"), deletes_before=[(T, low)], states={T: generation})
    apply(history, 7, generation=1)
    with pytest.raises(Unavailable, match="began generation 1"):
        next_step(settings, record)
    newer = begin_rebuild(settings, T)
    assert (newer.build, newer.generation) == (2, 1)
    step = next_step(settings, newer)
    assert step is not None
    assert (step.tables[0].from_manifest, step.tables[0].generation) == (6, 1)
    assert step.plan_id != planned.plan_id


def test_what_others_did_since_our_last_commit_ends_the_claim_at_once(tmp_path: Path) -> None:
    """Nothing waits for the table, so that no merge would find out."""
    history = History(tmp_path)
    schema = schema_of(T, {"id": "int32"}, ["id"])
    history.commit(Shaped(schema), row(1), states={T: {"complete_seq": 1}})
    apply(history, 1)
    found = applied_state(history.settings).tables[T]
    assert (found.up_to_date, found.state) == (True, TableStage.ACTIVE)
    assert found.complete_through_us is not None
    table = DeltaTable(history.target(T).removeprefix("file://"))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    assert applied_state(history.settings).tables[T] == found
    table.delete()
    version = table.version()
    found = applied_state(history.settings).tables[T]
    assert (external_of(found), found.complete_through_us) == (
        (f"version {version}: DELETE",),
        None,
    )


def test_deletion_vectors_are_the_targets_own_and_plan_and_status_say_what_is_wanted(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = TableSettings(deletion_vectors=False)
    settings = history.settings.model_copy(update={"tables": {T: entry}})
    (new,) = plan_merge(settings, plan_id="new").tables
    assert not new.deletion_vectors, "one that is made is made as the settings say"
    apply(history, 3)
    (table,) = plan_merge(history.settings, plan_id="p").tables
    assert not table.deletion_vectors, "the target has none"
    show_plan(history.settings, [], as_json=False)
    show_status(history.settings, as_json=False)
    wanted = f"{T} is kept without deletion vectors, the settings say with: `tideline rebuild {T}`"
    assert capsys.readouterr().out.count(wanted) == 2
    show_plan(settings, [], as_json=False)
    show_status(settings, as_json=False)
    assert "deletion vectors" not in capsys.readouterr().out


def test_status_says_where_a_table_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = 'public."Order Details"'
    made = History(tmp_path)
    made.commit(Shaped(schema_of(name, {"id": "int32"}, ["id"])))
    (table,) = read_status(made.settings).tables
    assert table.target == f"{made.settings.warehouse.url}/public/Order~20Details"
    show_status(made.settings, as_json=False)
    reported = capsys.readouterr().out
    assert f"warehouse {made.settings.warehouse.url}: " in reported
    assert " public/Order~20Details" in reported
