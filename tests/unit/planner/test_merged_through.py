"""Tables that others have merged since a look: a real store, real Delta logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.unit.planner.test_planner import apply
from tideline.planner import MergedThrough, WarehouseTables, applied_state, merged_since
from tideline.settings import Settings

A, B = "public.a", "public.b"


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Tables a and b in manifest 1, a row of each in 2."""
    found = History(tmp_path)
    found.commit(*(Shaped(schema_of(name, {"id": "int32"}, ["id"])) for name in (A, B)))
    found.commit(Row(A, "c", {"id": 1}), Row(B, "c", {"id": 1}))
    return found


def look(
    history: History, *looks: MergedThrough, own: dict[str, int] | None = None
) -> tuple[MergedThrough, dict[str, int | None]]:
    """Return the new look, and the manifests of the tables that are further."""
    found, tables = merged_since(history.settings, looks, own or {})
    assert found is not None
    return found, {name: through.manifest_number for name, through in tables.items()}


def test_a_pipeline_without_a_manifest_has_merged_nothing(tmp_path: Path) -> None:
    assert merged_since(History(tmp_path).settings, [], {}) == (None, {})


def test_what_is_merged_is_found_once(history: History) -> None:
    apply(history, 2, A)
    first, found = look(history)
    assert found == {A: 2}, "nothing is known of it"
    assert look(history, first)[1] == {}
    apply(history, 2, B)
    second, found = look(history, first)
    assert found == {B: 2}, "it was captured before the look, and merged after it"
    assert look(history, second)[1] == {}
    history.commit(Row(A, "u", {"id": 1}))
    history.commit(Row(A, "u", {"id": 1}))
    apply(history, 3, A)
    third, found = look(history, second)
    assert found == {A: 3}, "it is further, though not at the end"
    assert look(history, third)[1] == {}
    apply(history, 4, A)
    assert look(history, third)[1] == {A: 4}


def test_what_the_caller_has_merged_itself_is_never_found(history: History) -> None:
    apply(history, 2, A)
    apply(history, 2, B)
    first, found = look(history, own={A: 2, B: 2})
    assert found == {}
    assert look(history, first)[1] == {}
    history.commit(Row(A, "u", {"id": 1}))
    history.commit(Row(A, "u", {"id": 1}))
    apply(history, 3, A)
    second, found = look(history, first, own={A: 3})
    assert found == {}
    apply(history, 4, A)
    assert look(history, second)[1] == {A: 4}


def test_the_last_look_at_this_chain_counts(history: History) -> None:
    apply(history, 2, A)
    apply(history, 2, B)
    other = MergedThrough("another", 900)
    assert look(history, other)[1] == {A: 2, B: 2}
    now, _ = look(history)
    assert look(history, MergedThrough(history.incarnation, 1), now, other)[1] == {}


def test_of_two_looks_at_one_manifest_the_further_counts(history: History) -> None:
    apply(history, 2, A)
    first, _ = look(history)
    apply(history, 2, B)
    second, _ = look(history, first)
    assert first.manifest_number == second.manifest_number
    assert look(history, first, second)[1] == {}


def test_a_table_without_news_is_not_read(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(history, 2, A)
    apply(history, 2, B)
    first, _ = look(history)
    history.commit(Row(B, "u", {"id": 1}))
    read: list[str] = []

    def asked(settings: Settings, names: list[str]) -> WarehouseTables:
        read.extend(names)
        return applied_state(settings, names)

    monkeypatch.setattr("tideline.planner.merged_through.applied_state", asked)
    assert look(history, first)[1] == {}
    assert read == [B]
