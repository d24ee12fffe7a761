"""Roll-ups: the same rows in fewer files, the same bytes whoever writes them, nothing too early."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.fixtures.blocks import (
    LIMITS,
    PLAIN,
    PLAIN_SCHEMA,
    random_history,
    roll_up,
    rows_of,
    store_of,
)
from tests.fixtures.parts import History, Row, Shaped
from tests.fixtures.systems import REAL
from tests.fixtures.troubled_store import TroubledStore
from tests.unit.contract.documents import part as made_part
from tideline.contract import layout
from tideline.contract.block import (
    Block,
    check_files,
    decode_block,
    encode_block,
    make_block,
    raw_manifests,
)
from tideline.contract.errors import CorruptData, InvariantBroken, Unavailable
from tideline.contract.manifest import Manifest, Part
from tideline.store.chain import Chain
from tideline_capture.rollup import RollUpLimits, RollUps, grouped

pytestmark = pytest.mark.usefixtures("blocks_of_ten")


def row(key: int, **more: Any) -> Row:
    return Row(PLAIN, "c", {"id": key, "v": f"v{key}"}, **more)


def plain(root: Path, manifests: int) -> History:
    """A row in each manifest but the first, which tells of the table."""
    history = History(root)
    history.commit(Shaped(PLAIN_SCHEMA))
    for number in range(2, manifests + 1):
        history.commit(row(number))
    return history


def parts_in(history: History, block: Block) -> list[Part]:
    entries = history.chain.entries(block.first_manifest, block.last_manifest)
    return [part for entry in entries for part in entry.manifest.parts]


def rolled(block: Block) -> list[Part]:
    return [file for file in block.files if layout.parse_rollup_key(file.key) is not None]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 4))]
)
def test_a_block_holds_the_same_manifests_and_the_same_rows(tmp_path: Path, seed: int) -> None:
    history = random_history(tmp_path, seed, 34)
    raws = [entry.raw for entry in history.chain.entries(1, 30)]
    parts = [part for entry in history.chain.entries(1, 30) for part in entry.manifest.parts]
    blocks = roll_up(history)
    assert [(b.block_number, b.first_manifest, b.last_manifest) for b in blocks] == [
        (1, 1, 10),
        (2, 11, 20),
        (3, 21, 30),
    ]
    assert [raw for block in blocks for raw, _ in raw_manifests(block)] == raws
    files = [file for block in blocks for file in block.files]
    assert len(files) < len(parts) / 4
    for table in {part.table for part in parts}:
        loose = rows_of(history, [p for p in parts if p.table == table])
        together = rows_of(history, [f for f in files if f.table == table])
        assert together == sorted(loose, key=lambda row: row["_tl_seq"])
    for file in files:
        rows = rows_of(history, [file])
        assert (len(rows), rows[0]["_tl_seq"], rows[-1]["_tl_seq"]) == (
            file.rows,
            file.first_seq,
            file.last_seq,
        )
        assert sum("_tl_unchanged" in row for row in rows) == file.unchanged_rows
        assert sum("_tl_overflow" in row for row in rows) == file.overflow_rows


def test_bounds_of_keys_are_numbers(tmp_path: Path) -> None:
    history = plain(tmp_path, 10)
    (file,) = roll_up(history)[0].files
    assert (file.key_min, file.key_max) == ("2", "10")


def test_two_workers_write_the_same_bytes(tmp_path: Path) -> None:
    history = random_history(tmp_path / "one", 7, 20)
    shutil.copytree(tmp_path / "one" / "store", tmp_path / "two" / "store")
    other = History(tmp_path / "two")
    roll_up(history)
    rollups = RollUps(store_of(other), Chain(store_of(other), "shop"), LIMITS, REAL)
    for number in (1, 2):
        rollups.advance(20)
        key = layout.block_key("shop", number)
        assert store_of(history).get(key) == store_of(other).get(key)
    keys = store_of(history).list(layout.blocks_prefix("shop"))
    assert keys == store_of(other).list(layout.blocks_prefix("shop"))


def test_a_killed_one_is_gone_on_with(tmp_path: Path) -> None:
    """Killed at each request that writes, with and without its effect; then restarted."""
    expected = None
    for kill in range(1, 5):
        for effect in (False, True):
            history = random_history(tmp_path / f"{kill}{effect}", 3, 12)
            store = TroubledStore()
            for key in store_of(history).list("shop"):
                store.put(key, store_of(history).get(key) or b"")
            left = kill

            def die(kind: str, key: str) -> None:
                nonlocal left
                left -= kind == "create"
                if kind == "create" and left == 0:
                    raise Unavailable("killed")

            setattr(store, "after" if effect else "before", die)
            with pytest.raises(Unavailable):
                RollUps(store, Chain(store, "shop"), LIMITS, REAL).advance(12)
            assert RollUps(store, Chain(store, "shop"), LIMITS, REAL).advance(12) or kill == 4
            objects = {key: store.get(key) for key in store.list(layout.blocks_prefix("shop"))}
            assert len(objects) == 4
            expected = expected or objects
            assert objects == expected


def test_another_block_is_an_error(tmp_path: Path) -> None:
    history = plain(tmp_path, 10)
    (block,) = roll_up(history)
    store = store_of(history)
    key = layout.block_key("shop", 1)
    store.delete(key)
    loose = RollUpLimits(part_bytes_max=1, file_bytes_max=1)
    theirs = roll_up(history, loose)[0]
    assert theirs.files != block.files
    with pytest.raises(CorruptData, match=f"another block lies at {key}"):
        history.chain.write_block(block)
    history.chain.write_block(theirs)


def test_nothing_is_rolled_up_before_its_last_manifest_is_durable(tmp_path: Path) -> None:
    history = plain(tmp_path, 9)
    assert roll_up(history) == []
    history.commit(row(10))
    rollups = RollUps(store_of(history), history.chain, LIMITS, REAL)
    assert rollups.advance(9) is None
    assert store_of(history).list(layout.blocks_prefix("shop")) == []
    assert rollups.advance(10) is not None


def test_what_is_asked_while_there_is_nothing_to_do(tmp_path: Path) -> None:
    history = plain(tmp_path, 11)
    rollups = RollUps(store_of(history), history.chain, LIMITS, REAL)
    assert rollups.advance(11) is not None
    shutil.rmtree(tmp_path / "store")
    assert rollups.advance(19) is None


def test_large_parts_stay(tmp_path: Path) -> None:
    history = plain(tmp_path, 5)
    large = history.commit(*(row(key) for key in range(100, 900))).parts[0]
    for number in range(7, 11):
        history.commit(row(number))
    limits = RollUpLimits(part_bytes_max=large.bytes, file_bytes_max=1 << 20)
    (block,) = roll_up(history, limits)
    assert [file.rows for file in block.files] == [8, 800]
    assert block.files[1] == large


def test_a_roll_up_is_not_larger_than_it_may_be() -> None:
    parts = [made_part(seq, seq, key=f"k{seq}", bytes=400) for seq in range(1, 11)]
    groups = grouped(parts, RollUpLimits(part_bytes_max=500, file_bytes_max=1000))
    assert [len(group) for group in groups] == [2, 2, 2, 2, 2]
    mixed = [*parts[:3], made_part(4, 4, key="large", bytes=500), *parts[4:5]]
    groups = grouped(mixed, RollUpLimits(part_bytes_max=500, file_bytes_max=9000))
    assert [[p.key for p in group] for group in groups] == [["large"], ["k1", "k2", "k3", "k5"]]


def test_a_part_that_is_out_of_order_stays() -> None:
    parts = [made_part(1, 5, key="a"), made_part(3, 9, key="b"), made_part(10, 11, key="c")]
    groups = grouped(parts, LIMITS)
    assert [[p.key for p in group] for group in groups] == [["b"], ["a", "c"]]


class Late(History):
    """Uploads of parts began long before the manifest that names them, as of a huge transaction."""

    def _part(self, number: int, *arguments: Any) -> Part:
        return super()._part(max(1, number - 8), *arguments)


def test_parts_belong_to_the_manifest_that_names_them(tmp_path: Path) -> None:
    history = Late(tmp_path)
    history.commit(Shaped(PLAIN_SCHEMA))
    for _ in range(11):
        history.commit()
    history.commit(row(1), row(2), row(3), parts_per_table=3)
    for _ in range(7):
        history.commit()
    first, second = roll_up(history)
    assert {layout.parse_part_key(p.key) for p in parts_in(history, second)} == {5}
    assert (first.files, [file.rows for file in second.files]) == ((), [3])


def test_a_part_that_is_gone_stays_named(tmp_path: Path) -> None:
    history = plain(tmp_path, 10)
    parts = [part for entry in history.chain.entries(1, 10) for part in entry.manifest.parts]
    history.part_path(parts[3].key).unlink()
    (block,) = roll_up(history)
    assert [file.rows for file in block.files] in ([8, 1], [1, 8])
    assert parts[3] in block.files


@pytest.mark.parametrize("damage", ["digest", "rows"])
def test_a_damaged_part_is_a_named_error(tmp_path: Path, damage: str) -> None:
    history = plain(tmp_path, 10)
    parts = [part for entry in history.chain.entries(1, 10) for part in entry.manifest.parts]
    if damage == "digest":
        history.part_path(parts[3].key).write_bytes(b"PAR1")
    else:
        raw = history.part_path(parts[4].key).read_bytes()
        history.part_path(parts[3].key).write_bytes(raw)
    with pytest.raises(CorruptData, match=parts[3].key):
        roll_up(history)
    assert not store_of(history).exists(layout.block_key("shop", 1))


def test_files_that_hold_less_are_not_a_block(tmp_path: Path) -> None:
    history = plain(tmp_path, 10)
    (block,) = roll_up(history)
    manifests: Sequence[Manifest] = [entry.manifest for entry in history.chain.entries(1, 10)]
    check_files(block, manifests)
    less = replace(block.files[0], rows=8, operations={"c": 8})
    for files in ((), (less,), (*block.files, made_part(1, 2))):
        with pytest.raises(CorruptData, match="block 1 do not hold"):
            check_files(replace(block, files=files), manifests)
    entries = [(entry.manifest, entry.raw) for entry in history.chain.entries(1, 10)]
    with pytest.raises(InvariantBroken, match=PLAIN):
        make_block(entries, [less])
    assert encode_block(decode_block(encode_block(block))) == encode_block(block)


@pytest.mark.thorough
def test_memory_is_bounded_by_the_file_not_by_the_block(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(PLAIN_SCHEMA))
    random = np.random.default_rng(1)
    for number in range(2, 11):
        texts = random.integers(0, 1 << 60, (600, 400)).astype("S18")
        history.commit(
            *(
                Row(PLAIN, "c", {"id": number * 1000 + at, "v": b"".join(text).decode()})
                for at, text in enumerate(texts)
            )
        )
    sizes = [part.bytes for entry in history.chain.entries(1, 10) for part in entry.manifest.parts]
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    peak = 0
    store = store_of(history)
    create = store.create

    def spy(key: str, data: bytes) -> bool:
        nonlocal peak
        peak = max(peak, pool.bytes_allocated() - before)
        return create(key, data)

    store.create = spy  # type: ignore[method-assign]
    limits = RollUpLimits(part_bytes_max=max(sizes) + 1, file_bytes_max=max(sizes) * 2 + 1)
    block = RollUps(store, Chain(store, "shop"), limits, REAL).advance(10)
    assert block is not None
    assert len(rolled(block)) == 4
    assert sum(sizes) > 12_000_000
    assert peak < 2 * max(sizes)
