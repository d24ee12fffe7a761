"""Whose comment is whose, when columns are renamed."""

from __future__ import annotations

import pytest
from pyspark.sql import types

from tideline.contract.description import DESCRIPTION_PROPERTY, Described
from tideline_spark.formats.base import Shaped
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.target_columns import described_as

NEW = types.StructField("a", types.StringType())


def told(columns: list[Shaped], comments: tuple[str, ...]) -> tuple[str, ...] | None:
    described = Described("print/print", comments, ("id",))
    snapshot = TargetSnapshot(1, {}, {DESCRIPTION_PROPERTY: described.text()}, types.StructType())
    found = described_as(snapshot, columns).get(DESCRIPTION_PROPERTY)
    if found is None:
        return None
    after = Described.parse(found)
    assert (after.fingerprint, after.not_null) == ("print/print", ("id",))
    return after.comments


@pytest.mark.parametrize(
    ("columns", "comments", "after"),
    [
        ([("id", "id", None), ("b", "a", None)], ("", "a", "id"), ("", "b", "id")),
        ([("a", "b", None), ("b", "a", None)], ("a",), ("b",)),
        # The name of one that was renamed, taken by a new one: its comment is decided later.
        ([("b", "a", None), ("a", None, NEW)], ("a",), ("b",)),
        ([("id", "id", None), ("a", None, NEW)], ("id",), None),
    ],
)
def test_a_comment_of_the_sources_stays_one_by_the_new_name(
    columns: list[Shaped], comments: tuple[str, ...], after: tuple[str, ...] | None
) -> None:
    assert told(columns, comments) == after
