"""What a commit of a Delta table's log is taken to say: no Spark is started here."""

from __future__ import annotations

import json

import pytest

from tideline.warehouse.delta.log import parse_commit


@pytest.mark.parametrize(
    ("operation", "data", "changes"),
    [
        ("WRITE", True, True),
        ("OPTIMIZE", False, False),
        ("a later writer's name", True, True),
        ("a later writer's name", False, False),
        ("SET TBLPROPERTIES", None, False),
        # No file is touched, and rows have another value under the name, or none.
        ("RENAME COLUMN", None, True),
        ("DROP COLUMNS", None, True),
        ("REPLACE COLUMNS", None, True),
    ],
)
def test_what_counts_as_a_change(operation: str, data: bool | None, changes: bool) -> None:
    actions: list[dict[str, object]] = [{"commitInfo": {"operation": operation}}]
    if data is not None:
        actions.append({"add": {"path": "p", "dataChange": data}})
    raw = "\n".join(json.dumps(action) for action in actions).encode()
    assert parse_commit(3, raw).changes_data is changes
