"""Roll-ups and garbage over every store: what they ask of it holds in a directory and in S3."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.conformance.test_store import directory, memory, s3
from tests.fixtures.blocks import LIMITS, PLAIN, PLAIN_SCHEMA
from tests.fixtures.parts import History, Row, Shaped
from tests.fixtures.systems import REAL
from tests.unit.planner.test_planner import apply
from tideline.contract import layout
from tideline.planner.consumers import register_warehouse
from tideline.planner.garbage import Fate, Garbage
from tideline.settings import Settings, Store
from tideline.store import objects
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store
from tideline_capture.rollup import RollUps

pytestmark = pytest.mark.usefixtures("blocks_of_ten")
Make = Callable[[pytest.FixtureRequest], Store]


@pytest.fixture(params=[memory, directory, s3], ids=lambda make: make.__name__)
def store_settings(request: pytest.FixtureRequest) -> Store:
    make: Make = request.param
    return make(request)


def copied(history: History, store: ObjectStore) -> None:
    for key in open_store(history.settings.store).list("shop"):
        store.put(key, open_store(history.settings.store).get(key) or b"")


def test_blocks_are_written_read_and_cleaned_up(
    tmp_path: Path, store_settings: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path / "made")
    history.commit(Shaped(PLAIN_SCHEMA))
    for number in range(2, 16):
        history.commit(Row(PLAIN, "c", {"id": number, "v": "x"}))
    history.commit(deletes_before=[(PLAIN, history.last_seq)])
    while history.last_number < 25:
        history.commit()
    apply(history, 25, PLAIN)
    store = open_store(store_settings)
    copied(history, store)
    settings: Settings = history.settings.model_copy(update={"store": store_settings})
    register_warehouse(settings, store)

    expected = list(history.chain.entries(1, 25))
    rollups = RollUps(store, Chain(store, "shop"), LIMITS, REAL)
    assert [b.block_number for b in iter(lambda: rollups.advance(25), None)] == [1, 2]
    again = RollUps(open_store(store_settings), Chain(store, "shop"), LIMITS, REAL)
    assert again.advance(25) is None
    assert list(Chain(store, "shop").entries(1, 25)) == expected

    monkeypatch.setattr(objects, "LISTED_MAX", 4)
    listed = [entry for page in store.entries("shop/data") for entry in page]
    assert [entry.key for entry in listed] == sorted(store.list("shop/data"))
    assert all(datetime.now(UTC) - entry.modified < timedelta(minutes=5) for entry in listed)
    behind = [entry for page in store.entries("shop/data", listed[9].key) for entry in page]
    assert behind == listed[10:]
    # Some stores sort folders among files in a way of their own.
    assert {e.key for page in store.entries("shop") for e in page} == set(store.list("shop"))

    found = Garbage(settings, store).collect(datetime.now(UTC) + timedelta(days=8))
    assert found.objects == {Fate.UNNEEDED: 14 + 2}
    kept = store.list("shop")
    assert not [key for key in kept if key.endswith(".parquet")]
    assert store.exists(layout.block_key("shop", 2))
    assert list(Chain(store, "shop").entries(1, 25)) == expected


def test_two_workers_roll_up_at_once(tmp_path: Path, store_settings: Store) -> None:
    history = History(tmp_path / "made")
    history.commit(Shaped(PLAIN_SCHEMA))
    for number in range(2, 11):
        history.commit(Row(PLAIN, "c", {"id": number, "v": uuid.uuid4().hex}))
    copied(history, open_store(store_settings))
    rolling = [
        RollUps(store, Chain(store, "shop"), LIMITS, REAL)
        for store in (open_store(store_settings) for _ in range(4))
    ]
    with ThreadPoolExecutor(4) as pool:
        made = [block for block in pool.map(lambda one: one.advance(10), rolling) if block]
    assert made and all(block == made[0] for block in made)
    assert len(open_store(store_settings).list(layout.blocks_prefix("shop"))) == 2
