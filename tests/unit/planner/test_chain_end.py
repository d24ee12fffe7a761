"""The end of a chain, as a long-lived reader follows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.errors import CorruptData
from tideline.planner.chain_end import FollowedChain, RecentChain
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store

T = "public.t"


class CountingStore(ObjectStore):
    """The store, and how often each key was read."""

    def __init__(self, history: History) -> None:
        opened = open_store(history.settings.store)
        super().__init__(history.settings.store, opened._client, root=opened._root)
        self.reads: list[str] = []

    def get(self, key: str) -> bytes | None:
        self.reads.append(key)
        return super().get(key)


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    return made


def test_each_manifest_is_read_once_and_the_state_is_the_chain_s(history: History) -> None:
    store = CountingStore(history)
    end = FollowedChain(RecentChain(store, history.settings.pipeline))
    assert end.advance()
    for number in range(5):
        history.commit(Row(T, "c", {"id": number}))
    history.commit()
    store.reads.clear()
    assert end.advance()
    assert len(store.reads) == len(set(store.reads))
    tail = history.chain.tail()
    assert tail is not None and end.entry == tail
    assert end.state == history.chain.open_state(tail)


def test_nothing_new_is_one_request(history: History) -> None:
    store = CountingStore(history)
    end = FollowedChain(RecentChain(store, history.settings.pipeline))
    end.advance()
    store.reads.clear()
    assert not end.advance()
    assert len(store.reads) == 1


def test_an_empty_chain_has_no_end_yet(tmp_path: Path) -> None:
    history = History(tmp_path)
    end = FollowedChain(Chain(open_store(history.settings.store), history.settings.pipeline))
    assert not end.advance()
    assert end.entry is None
    history.commit()
    assert end.advance()


def test_a_chain_that_was_replaced_is_not_followed(history: History, tmp_path: Path) -> None:
    end = FollowedChain(Chain(open_store(history.settings.store), history.settings.pipeline))
    end.advance()
    other = History(tmp_path / "other")
    other.commit(Shaped(schema_of(T, {"id": "int64"}, ["id"])))
    other.commit(Row(T, "c", {"id": 1}))
    number = other.last_number
    assert end.entry is not None
    while (following := end.entry.manifest.manifest_number + 1) < number:
        history.commit()
        end.advance()
    entry = other.chain.read(following)
    assert entry is not None
    key = f"{history.settings.pipeline}/log/{following:020d}.json"
    open_store(history.settings.store).put(key, entry.raw)
    with pytest.raises(CorruptData):
        end.advance()


def test_what_is_kept_is_bounded(history: History) -> None:
    for number in range(20):
        history.commit(Row(T, "c", {"id": number}))
    chain = RecentChain(open_store(history.settings.store), history.settings.pipeline, 2_000)
    for number in range(1, 21):
        chain.read(number)
    kept = sum(len(entry.raw) for entry in chain._recent.values())
    assert kept == chain._bytes <= 2_000
    assert len(chain._recent) < 20
