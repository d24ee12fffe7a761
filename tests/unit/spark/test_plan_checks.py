"""What a job checks of a plan, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.errors import Misconfigured
from tideline.contract.modes import Mode
from tideline.contract.readers import Feature
from tideline.contract.table_layout import TableLayout
from tideline_spark.plan_checks import check_new

T = "public.t"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"layout": TableLayout(partition_by=("gone",))}, "there is no column 'gone'"),
        ({"without": (Feature.COLUMN_MAPPING.value,)}, "'a b' of public.t.*needs columnMapping"),
        ({"without": (Feature.TIMESTAMP_NTZ.value,), "mode": Mode.APPEND}, "needs timestampNtz"),
    ],
)
def test_a_new_target_is_checked_against_the_columns_of_the_plans_end(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    """Later ones, which the planner saw, may have them, or need nothing."""
    history = History(tmp_path)
    history.commit(
        Shaped(schema_of(T, {"id": "int32", "a b": "string", "at": "timestamp_ntz"}, ["id"]))
    )
    history.commit(Row(T, "c", {"id": 1}))
    (table,) = history.plan().tables
    check_new(table)
    with pytest.raises(Misconfigured, match=why):
        check_new(replace(table, **changes))
