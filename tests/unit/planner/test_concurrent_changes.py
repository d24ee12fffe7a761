"""What of a table's history makes a comparison worthless."""

from __future__ import annotations

import pytest

from tests.fixtures.core import TABLE, first_manifest
from tideline.contract.manifest import SchemaEvent
from tideline.contract.steps import ColumnStep, StepKind
from tideline.planner.concurrent_changes import ConcurrentChanges, NotComparable

REPLACED = (ColumnStep(StepKind.DROP, "v"), ColumnStep(StepKind.ADD, "v", type="string"))


def test_a_column_that_another_of_its_name_and_type_replaced() -> None:
    """The schema is the same, but what was read holds the values of the one that is gone."""
    event = SchemaEvent(5, TABLE, "f", "f", "neutral", steps=REPLACED)
    with pytest.raises(NotComparable, match="columns changed"):
        ConcurrentChanges(TABLE, 4).look(first_manifest(schema_events=(event,)))
    ConcurrentChanges(TABLE, 5).look(first_manifest(schema_events=(event,)))


def test_a_statement_that_does_nothing_to_columns() -> None:
    event = SchemaEvent(5, TABLE, "f", "f", "neutral", statement="ALTER TABLE t ADD INDEX (v)")
    ConcurrentChanges(TABLE, 4).look(first_manifest(schema_events=(event,)))
