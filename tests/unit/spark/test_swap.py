"""What is asked of a live table that cannot go on before another one takes its place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from pyspark.sql import types

from tests.fixtures.parts import schema_of
from tideline.contract.evolution import COLUMNS_PROPERTY, RetainedColumn, TargetColumns
from tideline.contract.plan import PlannedSwap, app_id
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.swap import SwapRun

T = "public.t"
APP = app_id("shop", "one", T, 1, 2)
SWAP = PlannedSwap(T, "live", "beside", schema_of(T, {"id": "int32"}, ["id"]), 9, 20, APP, APP, 2)


def snapshot(kept: dict[str, RetainedColumn]) -> TargetSnapshot:
    columns = {COLUMNS_PROPERTY: TargetColumns(retained=kept).text()}
    return TargetSnapshot(3, {APP: 5}, columns, types.StructType([]))


@pytest.mark.parametrize(("generation", "lost"), [(1, ["note"]), (0, [])])
def test_columns_that_it_alone_keeps_are_not_dropped_behind_a_change(
    generation: int, lost: list[str]
) -> None:
    """A generation is another table: nothing of the one before it is kept."""
    run = SwapRun.__new__(SwapRun)
    run._swap = replace(SWAP, live_app_id=app_id("shop", "one", T, generation), live_to_manifest=5)
    found = run._compared(snapshot({"note": RetainedColumn(4, "note")}), snapshot({}))
    assert found == ({}, lost)
