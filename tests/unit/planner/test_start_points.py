"""Where plans start, as the tables' schemas and targets say: not as the settings do by now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.unit.planner.test_planning_modes import apply as stands
from tests.unit.planner.test_planning_modes import as_mode
from tests.unit.planner.test_policies import PLAIN, RENAME, RENAMED, react
from tideline.contract.manifest import Copied, DeleteBefore
from tideline.contract.modes import Mode
from tideline.planner import read_inputs
from tideline.planner.table_status import TableStage
from tideline_console.status import read_status

T = "public.t"
U = "public.u"


def copied(root: Path, key: list[str]) -> History:
    """Rows of a dump of the whole table in four manifests, behind which others follow; a plan takes
    a part or two."""
    history = History(root, merge={"parts_max": 1})
    history.commit(Shaped(schema_of(T, {"id": "int32"}, key)))
    low, first = history.last_seq, history.last_number
    for number in range(1, 5):
        history.commit(Row(T, "r", {"id": number}))
    copy = None if key else Copied(first, history.last_seq, 4)
    history.commit(deletes_before=[DeleteBefore(T, low, "dump", copy)])
    for number in range(5, 9):
        history.commit(Row(T, "c", {"id": number}))
    return history


@pytest.fixture
def read_version(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether all there is was to be looked through, of each table in turn."""
    found: list[bool] = []
    wanted = read_inputs.Needs

    def note(**given: Any) -> read_inputs.Needs:
        found.append(given["uncut"])
        return wanted(**given)

    monkeypatch.setattr("tideline.planner.start_points.Needs", note)
    return found


def test_a_copy_is_whole_whatever_the_settings_say_of_tables_without_a_key(
    tmp_path: Path, read_version: list[bool]
) -> None:
    history = copied(tmp_path, [])
    assert history.settings.tables == {}  # Not counted any more, by the settings.
    (table,) = history.plan().tables
    assert (table.to_manifest, len(table.parts), table.copied is not None) == (6, 4, True)
    assert read_version == [True]


@pytest.mark.parametrize(("key", "mode"), [(["id"], Mode.CURRENT), ([], Mode.APPEND)])
def test_what_is_not_counted_is_cut(
    tmp_path: Path, read_version: list[bool], key: list[str], mode: Mode
) -> None:
    history = copied(tmp_path, key)
    history.settings = as_mode(history.settings, mode)
    (table,) = history.plan().tables
    assert len(table.parts) == 1
    assert read_version == [False]


def test_a_table_with_a_trouble_of_its_own_hides_no_other(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(PLAIN), Shaped(schema_of(U, {"id": "int32"}, ["id"])))
    history.commit(Row(T, "c", {"id": 1}), Row(U, "c", {"id": 1}))
    history.commit(Shaped(RENAMED, (RENAME,)))
    history.commit(Row(U, "c", {"id": 2}), states={U: {"generation": 1, "generation_manifest": 3}})
    react(history, rename="park")
    stands(history, 2)
    stands(history, 3, mode=Mode.HISTORY, table=U)
    (t, u) = read_status(history.settings).tables
    assert (t.state, t.since_seq) == (TableStage.SCHEMA_BLOCKED, 5)
    assert "on_change.rename is park" in (t.reason or "")
    assert u.state is TableStage.TARGET_BLOCKED
    assert "drops the past" in (u.reason or "")
