"""Plans made from a real store and real Delta logs, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.fixtures.commits import commit_of_ours
from tests.fixtures.parts import HEARTBEAT_US, History, Row, Shaped, blocked, schema_of
from tideline.contract import layout
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.plan import CommitMetadata, app_id
from tideline.contract.receipt import Receipt, encode_receipt
from tideline.planner import WarehouseTables, applied_state, plan_merge, read_receipt
from tideline.planner.table_status import Through
from tideline.store.chain import Chain
from tideline.store.objects import open_store

T = "public.t"
U = 'public."odd table%"'


def row(key: int, table: str = T) -> Row:
    return Row(table, "c", {"id": key})


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    return made


def apply(
    history: History,
    manifest_number: int,
    table: str = T,
    *,
    plan_id: str = "earlier",
    **changes: Any,
) -> None:
    """Make the target say that it has applied ``manifest_number``, as a merge would."""
    pipeline, incarnation = history.settings.pipeline, history.incarnation
    app = app_id(pipeline, incarnation, table, 0)
    entry = history.chain.read(manifest_number)
    assert entry is not None
    commit_metadata = CommitMetadata(
        app_id=app,
        pipeline=pipeline,
        incarnation=incarnation,
        plan_id=plan_id,
        from_manifest=0,
        to_manifest=manifest_number,
        seq=entry.manifest.last_seq,
        complete_through_us=entry.manifest.source_time_us,
        digest=entry.digest,
    )
    owner = {
        "tideline.pipeline": pipeline,
        "tideline.incarnation": incarnation,
        "tideline.table": table,
        **changes,
    }
    path = Path(history.target(table).removeprefix("file://"))
    rows = pa.table({"id": pa.array([manifest_number], pa.int32())})
    if not path.exists():
        DeltaTable.create(path, rows.schema, configuration=owner, raise_if_key_not_exists=False)
    commit_of_ours(path, rows, app, manifest_number, commit_metadata)


def test_a_chain_without_a_table_gives_an_empty_plan(tmp_path: Path) -> None:
    """As it is while the first worker prepares the source, or where the settings match no table."""
    empty = History(tmp_path)
    empty.commit()
    plan = plan_merge(empty.settings, plan_id="early")
    assert (plan.tables, plan.to_manifest) == ((), empty.last_number)


def test_a_plan_is_made_once(history: History) -> None:
    first = plan_merge(history.settings, plan_id="daily/2024-01-01 +00:00")
    assert [(t.table, t.create) for t in first.tables] == [(T, True)]
    history.commit(row(1))
    assert plan_merge(history.settings, plan_id="daily/2024-01-01 +00:00") == first
    assert plan_merge(history.settings, plan_id="next") != first


def test_a_plan_goes_on_from_the_targets_transaction_version(history: History) -> None:
    history.commit(row(1))
    apply(history, 2)
    assert history.plan().tables == ()
    history.commit(row(2))
    history.commit()
    (table,) = history.plan().tables
    assert (table.from_manifest, table.from_seq, table.to_manifest, table.create) == (
        2,
        2,
        4,
        False,
    )
    assert [part.rows for part in table.parts] == [1]


def test_no_manifest_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="tideline capture"):
        History(tmp_path).plan()


def test_unknown_tables_are_named(history: History) -> None:
    with pytest.raises(Misconfigured, match=r"public\.nope"):
        history.plan(T, "public.nope")


@pytest.mark.parametrize(
    ("owner", "named"),
    [
        ({"tideline.incarnation": "zero"}, "incarnation zero"),
        ({"tideline.pipeline": "other"}, "pipeline other"),
        ({"tideline.table": "public.x"}, "public.x"),
    ],
)
def test_a_target_of_another_history_is_a_named_stop(
    history: History, owner: dict[str, str], named: str
) -> None:
    apply(history, 1, **owner)
    with pytest.raises(Misconfigured, match=named) as raised:
        history.plan()
    assert "warehouse.url" in (raised.value.hint or "")
    assert "remove" in (raised.value.hint or "")
    assert named in (applied_state(history.settings).tables[T].reason or "")


def test_a_table_that_is_not_tidelines_is_not_touched(history: History) -> None:
    path = history.target(T).removeprefix("file://")
    write_deltalake(path, pa.table({"x": [1]}))
    with pytest.raises(Misconfigured, match="did not make"):
        history.plan()


def test_a_target_ahead_of_the_chain_is_held(history: History, tmp_path: Path) -> None:
    history.commit(row(1))
    apply(history, 2)
    behind = History(tmp_path / "copy")
    behind.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    (tmp_path / "copy" / "warehouse").symlink_to(tmp_path / "warehouse")
    plan = behind.plan()
    assert plan.tables == ()
    assert "does not reach" in plan.delayed[T]


def test_an_unreadable_log_is_unavailable(history: History) -> None:
    apply(history, 1)
    log = Path(history.target(T).removeprefix("file://")) / "_delta_log"
    for file in log.glob("*.json"):
        file.write_text("{")
    with pytest.raises(Unavailable, match="_delta_log"):
        history.plan()


def test_a_restore_is_seen_without_spark(history: History) -> None:
    history.commit(row(1))
    apply(history, 1)
    apply(history, 2)
    history.commit(row(2))
    table = DeltaTable(history.target(T).removeprefix("file://"))
    table.restore(1)
    assert "RESTORE" in history.plan().delayed[T]
    assert "RESTORE" in (applied_state(history.settings).tables[T].reason or "")


def test_only_what_may_hold_data_is_read(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.commit(row(1))
    apply(history, 2)
    for _ in range(50):
        history.commit()
    history.commit(row(2))
    read: list[int] = []
    ranges = history.chain.ranges

    def spy(chain: Any, first: int, last: int) -> Any:
        read.extend(range(first, last + 1))
        return ranges(first, last)

    monkeypatch.setattr(Chain, "ranges", spy)
    (table,) = history.plan().tables
    assert (table.from_manifest, len(table.parts)) == (2, 1)
    assert min(read) == 3


def test_a_table_far_behind_does_not_hold_up_the_others(tmp_path: Path) -> None:
    history = History(tmp_path, merge={"parts_max": 2})
    history.commit(
        Shaped(schema_of(T, {"id": "int32"}, ["id"])), Shaped(schema_of(U, {"id": "int32"}, ["id"]))
    )
    for key in range(1, 8):
        history.commit(row(key), row(key, U))
    apply(history, 7, U)
    plan = history.plan()
    assert {t.table: (t.from_manifest, t.to_manifest) for t in plan.tables} == {
        T: (0, 3),
        U: (7, 8),
    }
    assert (plan.to_manifest, plan.tail) == (8, 8)


def test_a_blocked_table_that_stands_at_its_event_reads_nothing(history: History) -> None:
    history.commit(row(1))
    history.commit(row(2), states={T: blocked(history.last_seq + 1, "retype")})
    for key in range(3, 6):
        history.commit(row(key))
    (table,) = history.plan().tables
    assert table.to_manifest == 2
    apply(history, 2)
    plan = history.plan()
    assert (plan.tables, plan.to_manifest) == ((), history.last_number)
    assert plan.delayed == {T: "schema-blocked since sequence 3: retype"}


def test_progress_of_every_table(history: History) -> None:
    history.commit(Shaped(schema_of(U, {"id": "int32"}, ["id"])), deletes_before=[(T, 0), (U, 0)])
    history.commit(row(1), row(1, U))
    new = applied_state(history.settings).tables
    assert (new[T].merged, new[T].complete_through_us, new[T].up_to_date) == (None, None, False)
    apply(history, 3)
    apply(history, 2, U)
    history.commit()
    found = applied_state(history.settings).tables
    # Nothing of T waits: it is complete through the tail, though its target names manifest 3.
    assert found[T].merged == Through(4, 4, HEARTBEAT_US + 4_000_000)
    assert found[T].up_to_date
    assert found[T].complete_through_us == HEARTBEAT_US + 4_000_000
    waits = found[U].merged
    assert waits is not None and (waits.manifest_number, waits.seq) == (2, 2)
    assert not found[U].up_to_date
    assert found[U].complete_through_us == HEARTBEAT_US + 2_000_000


def test_progress_of_a_pipeline_that_has_not_begun(tmp_path: Path) -> None:
    assert applied_state(History(tmp_path).settings) == WarehouseTables()


def test_receipts_are_read_from_next_to_the_plan(history: History) -> None:
    settings = history.settings
    assert read_receipt(settings, "p") is None
    receipt = Receipt("p", settings.pipeline, "one", ())
    key = layout.receipt_key(settings.pipeline, "p")
    open_store(settings.store).put(key, encode_receipt(receipt))
    assert read_receipt(settings, "p") == receipt
