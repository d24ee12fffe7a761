"""The log of a publisher's positions: one writer, the newest found, old ones removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tideline.contract.errors import CorruptData, Fenced
from tideline.contract.layout import publisher_key, publisher_prefix
from tideline.contract.publishing import ChainPosition, PublisherEntry
from tideline.settings import Store
from tideline.store import publisher_log
from tideline.store.objects import ObjectStore, open_store
from tideline.store.publisher_log import PublisherLog

FIRST = PublisherEntry("events", 1, "a", ChainPosition("one", 3, 40), 5)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(Store(url=tmp_path.as_uri()))


def log_of(store: ObjectStore, publisher: str = "events") -> PublisherLog:
    return PublisherLog(store, "shop", publisher)


def test_one_that_never_ran_has_no_entry(store: ObjectStore) -> None:
    assert log_of(store).newest() is None


def test_the_newest_entry_is_found(store: ObjectStore) -> None:
    writer, reader = log_of(store), log_of(store)
    for number in (1, 2, 3):
        entry = replace(FIRST, number=number)
        writer.append(entry)
        assert reader.newest() == log_of(store).newest() == entry


def test_appending_the_same_again_is_no_conflict(store: ObjectStore) -> None:
    log_of(store).append(FIRST)
    log_of(store).append(FIRST)
    assert log_of(store).newest() == FIRST


def test_of_two_workers_the_second_is_fenced(store: ObjectStore) -> None:
    log_of(store).append(FIRST)
    with pytest.raises(Fenced, match="position 1 of publisher events"):
        log_of(store).append(replace(FIRST, writer="b"))


def test_old_entries_are_removed_and_the_newest_is_found_all_the_same(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_log, "KEPT", 4)
    writer, late = log_of(store), log_of(store)
    writer.append(FIRST)
    assert late.newest() == FIRST
    for number in range(2, 20):
        writer.append(replace(FIRST, number=number))
    assert len(store.list(publisher_prefix("shop", "events"))) == 4
    # One that knows an entry that is gone, and one that knows none.
    for reader in (late, log_of(store)):
        found = reader.newest()
        assert found is not None
        assert found.number == 19


def test_publishers_do_not_see_each_others_positions(store: ObjectStore) -> None:
    log_of(store).append(FIRST)
    assert log_of(store, "audit").newest() is None


def test_an_entry_of_another_publisher_is_refused(store: ObjectStore) -> None:
    log_of(store).append(FIRST)
    raw = store.get(publisher_key("shop", "events", 1))
    assert raw is not None
    store.create(publisher_key("shop", "audit", 1), raw)
    with pytest.raises(CorruptData, match="holds entry 1 of publisher events"):
        log_of(store, "audit").newest()


def test_a_flipped_byte_is_an_error(store: ObjectStore) -> None:
    log_of(store).append(FIRST)
    key = publisher_key("shop", "events", 1)
    raw = store.get(key)
    assert raw is not None
    store.put(key, raw.replace(b"40", b"41"))
    with pytest.raises(CorruptData, match="another checksum"):
        log_of(store).newest()
