"""Plans over blocks: the same rows and results as over parts, in a bounded number of requests."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from devtools.simulation.fold_model import Change, State, fold
from tests.fixtures.blocks import (
    PLAIN,
    PLAIN_SCHEMA,
    random_history,
    roll_up,
    rows_of,
    store_of,
)
from tests.fixtures.parts import History, Row, Shaped, blocked, schema_of
from tests.unit.planner.test_planner import apply
from tideline.contract import layout
from tideline.contract.errors import CorruptData
from tideline.contract.plan import Plan, TablePlan, decode_plan
from tideline.planner import plan_merge, read_inputs
from tideline.store.objects import ObjectStore

pytestmark = pytest.mark.usefixtures("blocks_of_ten")


def row(key: int) -> Row:
    return Row(PLAIN, "c", {"id": key, "v": f"v{key}"})


def plain(root: Path, manifests: int, **settings: Any) -> History:
    history = History(root, **settings)
    history.commit(Shaped(PLAIN_SCHEMA))
    for number in range(2, manifests + 1):
        history.commit(row(number))
    return history


def without_blocks(history: History, root: Path) -> History:
    """A copy of the history as it is now, with the same warehouse, before anything is rolled up."""
    shutil.copytree(history.root, root)
    copy = History(root)
    copy.schemas = dict(history.schemas)
    return copy


def by_seq(history: History, table: TablePlan) -> list[dict[str, Any]]:
    return sorted(rows_of(history, table.parts), key=lambda row: row["_tl_seq"])


def rolled(table: TablePlan) -> list[str]:
    return [p.key for p in table.parts if layout.parse_rollup_key(p.key) is not None]


def folded(history: History, table: TablePlan) -> dict[tuple[object, ...], State]:
    """The fold of what the plan names, by the model in plain Python."""
    key = table.schema.key
    columns = tuple(name for name in table.schema.column_names if name not in key)
    changes = []
    for found in rows_of(history, table.parts):
        unchanged = found.get("_tl_unchanged", [])
        texts = dict(found.get("_tl_overflow", []))
        before = {name: found.get(f"_tl_before_{name}") for name in key}
        changes.append(
            Change(
                found["_tl_seq"],
                found["_tl_op"],
                tuple(found.get(name) for name in key),
                {n: (found.get(n), texts.get(n)) for n in columns if n not in unchanged},
                before=tuple(
                    found.get(name) if before[name] is None else before[name] for name in key
                )
                if any(value is not None for value in before.values())
                else None,
            )
        )
    return fold(changes, columns, truncates=table.truncates, delete_before=table.delete_before)


def same_but_for_parts(one: TablePlan, other: TablePlan) -> bool:
    """Whether the plans say the same of the table, but for what to read and where it lies."""
    shape = {"parts": (), "target": "", "schemas": {}}
    return msgspec.structs.replace(one, **shape) == msgspec.structs.replace(other, **shape)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_the_result_is_that_of_the_parts(tmp_path: Path, seed: int) -> None:
    """Random histories, from random places on: every plan is compared in what it reads, row for
    row, in what it says, and in what the fold makes of it."""
    random = Random(seed)
    history = random_history(tmp_path / "one", seed + 100, 45)
    used = 0
    for at in sorted({0, *random.sample(range(1, 45), 2)}):
        if at:
            apply(history, at, PLAIN)
        loose = without_blocks(history, tmp_path / f"loose{at}")
        expected = loose.plan(plan_id=f"p{at}")
        roll_up(history)
        plan = history.plan(plan_id=f"p{at}")
        assert [t.table for t in plan.tables] == [t.table for t in expected.tables]
        assert (plan.to_manifest, plan.tail, plan.delayed) == (
            expected.to_manifest,
            expected.tail,
            expected.delayed,
        )
        for table, other in zip(plan.tables, expected.tables, strict=True):
            used += len(rolled(table))
            assert same_but_for_parts(table, other)
            assert by_seq(history, table) == by_seq(loose, other)
            assert folded(history, table) == folded(loose, other)
            assert sum(p.rows for p in table.parts) == sum(p.rows for p in other.parts)
        shutil.rmtree(tmp_path / "one" / "store" / "shop" / "blocks")
    assert used > 4


def test_whole_blocks_then_parts(tmp_path: Path) -> None:
    history = plain(tmp_path, 34)
    apply(history, 5, PLAIN)
    roll_up(history)
    (table,) = history.plan().tables
    kinds = [layout.parse_rollup_key(part.key) for part in table.parts]
    assert kinds == [None] * 5 + [2, 3] + [None] * 4
    assert (table.from_manifest, table.to_manifest) == (5, 34)
    assert [part.rows for part in table.parts] == [1] * 5 + [10, 10] + [1] * 4


def test_a_plan_is_pinned_though_a_block_appears(tmp_path: Path) -> None:
    history = plain(tmp_path, 12)
    before = history.plan(plan_id="one")
    roll_up(history)
    assert history.plan(plan_id="one") == before
    assert rolled(before.tables[0]) == []
    assert len(rolled(history.plan(plan_id="two").tables[0])) == 1


def test_caps_count_what_is_read(tmp_path: Path) -> None:
    history = plain(tmp_path, 45, merge={"parts_max": 3})
    apply(history, 10, PLAIN)
    loose = history.plan()
    assert (loose.to_manifest, loose.tail) == (13, 45)
    roll_up(history)
    plan = history.plan()
    assert (plan.to_manifest, len(plan.tables[0].parts)) == (40, 3)


def test_caps_do_not_count_what_is_applied(tmp_path: Path) -> None:
    other = "public.other"
    history = History(tmp_path, merge={"parts_max": 2})
    history.commit(Shaped(PLAIN_SCHEMA), Shaped(schema_of(other, {"id": "int64"}, ["id"])))
    for number in range(2, 31):
        history.commit(row(number), Row(other, "c", {"id": number}))
    roll_up(history)
    apply(history, 30, other)
    assert (history.plan().to_manifest, history.plan().tail) == (20, 30)


def test_a_table_is_not_made_before_its_schema_is_known(tmp_path: Path) -> None:
    """Its first schema lies behind what this plan reads; the one in force now is another."""
    other = "public.other"
    history = plain(tmp_path, 33, merge={"parts_max": 2})
    for columns in ({"id": "int64"}, {"id": "int64", "v": "string"}):
        history.commit(Shaped(schema_of(other, columns, ["id"])))
    roll_up(history)
    plan = history.plan()
    assert (plan.to_manifest, [table.table for table in plan.tables]) == (20, [PLAIN])


def test_a_block_above_the_caps_is_taken_in_parts(tmp_path: Path) -> None:
    history = plain(tmp_path, 25)
    roll_up(history)
    size = history.chain.read(15)
    assert size is not None
    block = history.chain.read_block(2)
    assert block is not None
    limit = size.manifest.parts[0].bytes * 2
    assert block.files[0].bytes > limit or limit < 2000
    capped = History(tmp_path, merge={"bytes_max": 100})
    apply(history, 10, PLAIN)
    plan = capped.plan()
    assert (plan.to_manifest, rolled(plan.tables[0])) == (11, [])


def test_a_blocked_table_is_read_up_to_its_event(tmp_path: Path) -> None:
    history = plain(tmp_path, 14)
    stop = history.last_seq + 1
    history.commit(row(90), states={PLAIN: blocked(stop, "retype")})
    for number in range(16, 24):
        history.commit(row(number))
    roll_up(history)
    (table,) = history.plan().tables
    assert table.to_manifest == 14
    assert [part.rows for part in table.parts] == [9, 1, 1, 1, 1]


def test_a_dump_heals_a_target_that_was_set_back_whatever_the_caps(tmp_path: Path) -> None:
    """The plan ends where the dump did, in the middle of a block, and lacks nothing before it."""
    history = plain(tmp_path, 12, merge={"parts_max": 2})
    for number in (2, 5, 10):
        apply(history, number, PLAIN)
    DeltaTable(history.target(PLAIN).removeprefix("file://")).restore(1)
    low = history.last_seq
    for number in range(13, 35):
        history.commit(row(number))
    history.commit(deletes_before=[(PLAIN, low)])
    while history.last_number < 41:
        history.commit(row(history.last_number))
    roll_up(history)
    (table,) = history.plan().tables
    assert (table.from_manifest, table.to_manifest, table.delete_before) == (10, 35, low)
    assert sum(part.rows for part in table.parts) == 24
    assert len(rolled(table)) == 2


def test_a_dump_that_began_inside_the_first_manifest_of_a_block(tmp_path: Path) -> None:
    history = plain(tmp_path, 10)
    history.commit(row(11), row(12), parts_per_table=2)
    low = history.last_seq - 1
    history.commit(deletes_before=[(PLAIN, low)])
    while history.last_number < 31:
        history.commit(row(history.last_number))
    roll_up(history)
    (table,) = history.plan().tables
    assert (table.from_manifest, table.delete_before) == (10, low)
    assert min(part.first_seq for part in table.parts) == low + 1
    assert len(rolled(table)) == 1


def test_what_cannot_be_merged_does_not_fill_the_caps(tmp_path: Path) -> None:
    """A table that is blocked, with more behind its event than a plan may read, and a quiet one
    that is applied up to the middle of a block."""
    other = "public.other"
    history = History(tmp_path, merge={"parts_max": 3})
    history.commit(Shaped(PLAIN_SCHEMA), Shaped(schema_of(other, {"id": "int64"}, ["id"])))
    history.commit(row(2), Row(other, "c", {"id": 2}))
    history.commit(states={other: blocked(history.last_seq + 1, "retype")})
    for number in range(4, 24):
        history.commit(Row(other, "c", {"id": number}))
    history.commit(row(24))
    apply(history, 2, other)
    apply(history, 2, PLAIN)
    for _ in range(2):
        plan = history.plan()
        assert [(t.table, t.to_manifest, sum(p.rows for p in t.parts)) for t in plan.tables] == [
            (PLAIN, 24, 1)
        ]
        roll_up(history)


def test_a_quiet_table_beside_one_that_reads_blocks(tmp_path: Path) -> None:
    other = "public.other"
    history = History(tmp_path)
    history.commit(Shaped(PLAIN_SCHEMA), Shaped(schema_of(other, {"id": "int64"}, ["id"])))
    history.commit(row(2), Row(other, "c", {"id": 2}))
    history.commit(Row(other, "c", {"id": 3}))
    while history.last_number < 21:
        history.commit(row(history.last_number))
    apply(history, 5, other)
    roll_up(history)
    (table,) = history.plan().tables
    assert (table.table, len(rolled(table)), table.to_manifest) == (PLAIN, 2, 21)


def test_a_roll_up_that_is_gone_is_read_from_its_parts(tmp_path: Path) -> None:
    history = plain(tmp_path, 23)
    _, second = roll_up(history)
    store_of(history).delete(second.files[0].key)
    (table,) = history.plan().tables
    assert [part.rows for part in table.parts] == [9] + [1] * 13


def test_a_block_that_is_gone_is_done_without(tmp_path: Path) -> None:
    history = plain(tmp_path, 23)
    roll_up(history)
    store_of(history).delete(layout.block_key("shop", 1))
    (table,) = history.plan().tables
    assert [part.rows for part in table.parts] == [1] * 9 + [10] + [1] * 3


def test_a_block_that_is_damaged_is_a_named_error(tmp_path: Path) -> None:
    history = plain(tmp_path, 12)
    (block,) = roll_up(history)
    key = layout.block_key("shop", 1)
    raw = store_of(history).get(key)
    assert raw is not None
    less = msgspec.structs.replace(block, files=())
    for bad in (b"{}", raw.replace(b'"c"', b'"u"', 1), msgspec.json.encode(less)):
        store_of(history).put(key, bad)
        with pytest.raises(CorruptData, match=r"block 1|blocks/000000000001"):
            history.plan()


def test_few_requests_whatever_the_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = plain(tmp_path, 103)
    roll_up(history)
    asked: list[str] = []
    get, exists = ObjectStore.get, ObjectStore.exists

    def spy_get(store: ObjectStore, key: str) -> bytes | None:
        asked.append(key)
        return get(store, key)

    def spy_exists(store: ObjectStore, key: str) -> bool:
        asked.append(key)
        return exists(store, key)

    monkeypatch.setattr(ObjectStore, "get", spy_get)
    monkeypatch.setattr(ObjectStore, "exists", spy_exists)
    (table,) = history.plan().tables
    assert (table.to_manifest, sum(part.rows for part in table.parts)) == (103, 102)
    # 10 blocks, 10 looks at their roll-ups, 3 manifests, the tail, the schema, the plan itself.
    assert len(asked) < 10 + 10 + 3 + 30


def test_reading_ends_where_the_caps_are_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = plain(tmp_path, 63, merge={"parts_max": 2})
    roll_up(history)
    asked: list[str] = []
    get = ObjectStore.get

    def spy(store: ObjectStore, key: str) -> bytes | None:
        asked.append(key)
        return get(store, key)

    monkeypatch.setattr(ObjectStore, "get", spy)
    assert history.plan().to_manifest == 20
    assert len([key for key in asked if "/blocks/" in key]) == 3


def test_a_table_that_was_quiet_for_longer_than_a_plan_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next change lies behind what one plan looks at, and its last state is not the newest."""
    monkeypatch.setattr(read_inputs, "MANIFESTS_MAX", 20)
    monkeypatch.setattr("tideline.planner.chain_index.STATE_DISTANCE_MAX", 2)
    history = plain(tmp_path, 3)
    apply(history, 3, PLAIN)
    for _ in range(60):
        history.commit()
    history.commit(row(900))
    for _ in range(30):
        history.commit()
    (table,) = history.plan().tables
    assert (table.from_manifest, [part.rows for part in table.parts]) == (3, [1])


def test_a_table_rebuilt_begins_with_its_latest_full_dump(tmp_path: Path) -> None:
    history = plain(tmp_path, 12)
    low = history.last_seq
    history.commit(row(500))
    for key in range(2, 7):
        history.commit(Row(PLAIN, "r", {"id": key, "v": "dumped"}))
    history.commit(deletes_before=[(PLAIN, low)])
    for number in range(100, 115):
        history.commit(row(number))
    expected = {key for key, state in folded(history, _all(history)).items() if not state.gone}
    (table,) = history.plan().tables
    assert (table.from_manifest, table.from_seq, table.create, table.delete_before) == (
        12,
        low,
        True,
        low,
    )
    assert min(part.first_seq for part in table.parts) > low
    verified = folded(history, table)
    assert {key for key, state in verified.items() if not state.gone} == expected
    assert {key: state.values for key, state in verified.items()} == {
        key: state.values for key, state in folded(history, _all(history)).items()
    }


def test_a_dump_that_began_inside_a_manifest(tmp_path: Path) -> None:
    """What its manifest held before it began is not read into a table that is rebuilt."""
    history = History(tmp_path)
    history.commit(Shaped(PLAIN_SCHEMA))
    history.commit(row(1), row(2))
    low = history.last_seq - 1
    history.commit(Row(PLAIN, "r", {"id": 2, "v": "dumped"}), deletes_before=[(PLAIN, low)])
    (table,) = history.plan().tables
    assert (table.from_manifest, table.delete_before) == (1, low)
    assert [state.seq for state in folded(history, table).values()] == [low + 2]


def _all(history: History) -> TablePlan:
    """A plan of the whole history, as if no dump had ended: what the floor does, does the fold."""
    (table,) = history.plan().tables
    parts = [
        part
        for entry in history.chain.entries(1, history.last_number)
        for part in entry.manifest.parts
    ]
    from tideline.contract.planning.table_plans import planned_part

    return msgspec.structs.replace(table, parts=tuple(planned_part(part) for part in parts))


def test_the_plan_of_a_stored_id_names_its_files(tmp_path: Path) -> None:
    history = plain(tmp_path, 12)
    roll_up(history)
    plan: Plan = plan_merge(history.settings, plan_id="x")
    raw = store_of(history).get(layout.plan_key("shop", "x"))
    assert raw is not None
    assert decode_plan(raw) == plan
    for part in plan.tables[0].parts:
        data = store_of(history).get(part.key)
        assert data is not None
        assert pq.read_metadata(io.BytesIO(data)).num_rows == part.rows
