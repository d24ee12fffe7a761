"""What a target's log is taken to say, on real Delta logs without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.fixtures.commits import commit_of_ours
from tideline.contract.errors import CorruptData
from tideline.contract.external_commits import UNHEALED_PROPERTY, UnhealedCommits
from tideline.contract.plan import CommitMetadata, app_id
from tideline.settings import Warehouse
from tideline.warehouse.delta.log import parse_commit
from tideline.warehouse.state import TargetState, read_target

APP = app_id("shop", "one", "public.t", 0)
ROWS = pa.table({"id": pa.array([1], pa.int32())})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    noted = UnhealedCommits(("version 7: UPDATE",), 5).text()
    properties = {"tideline.table": "public.t", UNHEALED_PROPERTY: noted}
    folder = tmp_path / "t"
    DeltaTable.create(folder, ROWS.schema, configuration=properties, raise_if_key_not_exists=False)
    return folder


def ours(path: Path, number: int, *, read_version: int | None = None, says: bool = True) -> None:
    """A commit of a merge; one that does not say anything is as if the log had lost it."""
    unhealed = ("version 2: DELETE",)
    commit_metadata = CommitMetadata(
        APP, "shop", "one", "p", 0, number, number, None, unhealed, read_version=read_version
    )
    commit_of_ours(path, ROWS, APP, number, commit_metadata if says else None)


def theirs(path: Path) -> None:
    write_deltalake(path, ROWS, mode="append")


def read(path: Path) -> TargetState:
    return read_target(path.as_uri(), APP, Warehouse(url=path.parent.as_uri()))


def test_what_a_merge_did_not_look_at_is_told_as_what_came_behind_it(path: Path) -> None:
    theirs(path)
    ours(path, 1)
    theirs(path)
    ours(path, 2, read_version=2)
    found = read(path)
    assert (found.applied, found.external) == (2, ("version 3: WRITE",))
    assert found.unhealed == ("version 2: DELETE",), "the stamp's word, not the older property's"
    theirs(path)
    assert read(path).external == ("version 5: WRITE", "version 3: WRITE")
    ours(path, 3, read_version=5)
    assert read(path).external == ()


@pytest.mark.parametrize(
    ("operation", "data", "external"),
    [("RENAME COLUMN", None, True), ("a later writer's", False, False), ("OPTIMIZE", True, True)],
)
def test_the_planner_judges_a_commit_as_the_merge_does(
    path: Path, operation: str, data: bool | None, external: bool
) -> None:
    ours(path, 1)
    actions: list[dict[str, object]] = [{"commitInfo": {"operation": operation, "timestamp": 1}}]
    if data is not None:
        remove = {"path": "gone", "dataChange": data, "deletionTimestamp": 1}
        actions.append({"remove": remove})
    raw = "\n".join(json.dumps(action) for action in actions).encode()
    (path / "_delta_log" / f"{2:020d}.json").write_bytes(raw)
    assert parse_commit(2, raw).changes_data is external
    assert read(path).external == ((f"version 2: {operation}",) if external else ())


def test_what_the_log_has_lost_is_noted_in_the_tables_properties(path: Path) -> None:
    ours(path, 1, says=False)
    found = read(path)
    assert (found.applied, found.commit_metadata) == (1, None)
    assert found.unhealed == ("version 7: UPDATE",)


def test_a_note_that_somebody_changed_is_named() -> None:
    assert UnhealedCommits.parse(None) == UnhealedCommits()
    with pytest.raises(CorruptData, match="others have changed"):
        UnhealedCommits.parse("[]")
