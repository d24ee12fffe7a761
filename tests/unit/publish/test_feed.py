"""The order of events over tables, parts and manifests, and going on from any position."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.parts import Emptied, Event, History, Row, Shaped, schema_of
from tests.fixtures.publishing import BEGINNING, feed_of, orders, published
from tideline.contract.errors import CorruptData
from tideline.contract.publishing import ChainPosition
from tideline_publish import part_rows

TABLES = ("public.a", "public.b", "public.c")
KINDS = st.sampled_from(("c", "u", "d", "r", "move", "t"))
CHANGES = st.lists(st.tuples(st.sampled_from(TABLES), KINDS), min_size=1, max_size=20)


def change(table: str, kind: str, number: int) -> Event:
    if kind == "t":
        return Emptied(table)
    if kind == "move":
        return Row(table, "u", {"id": number}, before={"id": -number})
    return Row(table, kind, {"id": number})


def made(root: Path, manifests: list[list[tuple[str, str]]]) -> History:
    """A chain of ``manifests``, with their rows in several parts for each table."""
    history = History(root)
    schemas = (schema_of(table, {"id": "int32", "name": "string"}, ["id"]) for table in TABLES)
    history.commit(*map(Shaped, schemas))
    number = 0
    for changes in manifests:
        events = []
        for table, kind in changes:
            number += 1
            events.append(change(table, kind, number))
        history.commit(*events, parts_per_table=2)
    return history


@given(manifests=st.lists(CHANGES, max_size=4), batch_rows=st.integers(1, 5))
def test_every_change_is_there_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    manifests: list[list[tuple[str, str]]],
    batch_rows: int,
) -> None:
    history = made(tmp_path_factory.mktemp("chain"), manifests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_rows, "BATCH_ROWS", batch_rows)
        found = published(history)
    kinds = [kind for changes in manifests for _, kind in changes]
    wanted = [
        (seq, part)
        for seq, kind in enumerate(kinds, len(TABLES) + 1)
        for part in range(2 if kind == "move" else 1)
    ]
    assert orders(found) == wanted


@given(manifests=st.lists(CHANGES, min_size=1, max_size=3), batch_rows=st.integers(1, 3))
def test_from_each_position_on_it_is_the_rest(
    tmp_path_factory: pytest.TempPathFactory,
    manifests: list[list[tuple[str, str]]],
    batch_rows: int,
) -> None:
    history = made(tmp_path_factory.mktemp("chain"), manifests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_rows, "BATCH_ROWS", batch_rows)
        batches = list(feed_of(history).batches())
        whole = orders(published(history))
        for at, batch in enumerate(batches):
            behind = sum(len(one.events) for one in batches[: at + 1])
            assert orders(published(history, batch.position)) == whole[behind:]


def test_what_comes_later_is_read_by_the_same_feed(tmp_path: Path) -> None:
    history = made(tmp_path, [[(TABLES[0], "c")]])
    feed = feed_of(history)
    assert sum(len(one.events) for one in feed.batches()) == 1
    assert list(feed.batches()) == []
    for count in (1, 3):
        for _ in range(count):
            history.commit(Row(TABLES[0], "c", {"id": 5}))
        assert sum(len(one.events) for one in feed.batches()) == count


def test_only_what_is_chosen_is_published(tmp_path: Path) -> None:
    kinds = ("c", "u", "d", "r", "t")
    history = made(tmp_path, [[(table, kind) for table in TABLES for kind in kinds]])
    found = published(
        history,
        tables=("public.*",),
        exclude_tables=("public.c",),
        operations=("c", "t"),
        columns={"public.a": ("name",)},
    )
    assert [(one.value["table"], one.value["op"]) for one in found] == [
        ("public.a", "c"),
        ("public.a", "t"),
        ("public.b", "c"),
        ("public.b", "t"),
    ]
    # The key is always there.
    assert found[0].value["row"] == {"id": 1, "name": None}
    assert "name" in found[2].value["row"]


def test_a_column_that_is_not_chosen_is_left_out(tmp_path: Path) -> None:
    history = made(tmp_path, [[(TABLES[0], "c")]])
    (event,) = published(history, columns={TABLES[0]: ("id",)})
    assert event.value["row"] == {"id": 1}


def test_a_missing_part_is_an_error_that_names_its_changes(tmp_path: Path) -> None:
    history = made(tmp_path, [[(TABLES[0], "c")]])
    tail = history.chain.tail()
    assert tail is not None
    history.part_path(tail.manifest.parts[0].key).unlink()
    with pytest.raises(CorruptData, match=r"is missing: changes 4 to 4 of public\.a"):
        published(history)


def test_a_damaged_part_is_an_error(tmp_path: Path) -> None:
    history = made(tmp_path, [[(TABLES[0], "c")]])
    tail = history.chain.tail()
    assert tail is not None
    path = history.part_path(tail.manifest.parts[0].key)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CorruptData, match="another digest"):
        published(history)


def test_a_position_of_another_chain_is_refused(tmp_path: Path) -> None:
    history = made(tmp_path, [[(TABLES[0], "c")]])
    with pytest.raises(CorruptData, match="not the one of the position"):
        published(history, ChainPosition("another", 1, 3))


def test_nothing_is_read_of_tables_that_are_not_chosen(tmp_path: Path) -> None:
    history = made(tmp_path, [[(table, "c") for table in TABLES]])
    tail = history.chain.tail()
    assert tail is not None
    for part in tail.manifest.parts:
        if part.table != TABLES[0]:
            history.part_path(part.key).unlink()
    assert len(published(history, BEGINNING, tables=(TABLES[0],))) == 1
