"""Merges, rebuilds, maintenance and verifications that die anywhere and are run again, that have no
room to write, lack a part, are raced. ``make faults`` plays the same for as long as it is told.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.deaths import Deaths
from tests.faults.every_mode import LOG, NOW, EveryMode
from tests.faults.races import Races
from tests.faults.troubles import Troubles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(900)
def test_merges_that_die_anywhere_end_as_undisturbed_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Tables in every mode: made, then changed with a step of their columns, with parts that were
    ruined in between."""
    tables = EveryMode(tmp_path / "root", seed=12)
    tables.fill()
    counts = Counter[str]()
    deaths = Deaths(spark, tables, tmp_path / "album", counts, seed=4, recoveries=1, moments=2)
    troubles = Troubles(spark, tables, counts, seed=9)
    deaths.merge("first")
    tables.more(16, step=True)
    plan = troubles.waiting(NOW, LOG)
    troubles.ruined_parts(plan, {NOW: "flipped", LOG: "gone"})
    assert counts["parts named"] == 2
    deaths.merge(plan.plan_id, NOW, LOG)
    deaths.replay()
    assert counts["images"] >= 8, counts
    assert counts["taken up"] == 2, counts


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_warehouse_lives_through_everything(spark: SparkSession, tmp_path: Path) -> None:
    """One life of tables in every mode. What a job leaves is whole at each of its deaths, and from
    one of them it goes on to the same end."""
    tables = EveryMode(tmp_path / "root", seed=11, laid_out=True)
    tables.fill()
    counts = Counter[str]()
    deaths = Deaths(spark, tables, tmp_path / "album", counts, seed=3, recoveries=1, moments=2)
    troubles, races = Troubles(spark, tables, counts, seed=9), Races(spark, tables, counts)
    troubles.created_before("first", half_made=NOW, taken=LOG)
    deaths.merge("first")
    tables.more(16, step=True)
    plan = troubles.waiting(NOW, LOG)
    troubles.full_disk(plan, 400)
    assert counts["full disk"] == 2
    troubles.ruined_parts(plan, {NOW: "flipped", LOG: "gone"})
    assert counts["parts named"] == 2
    deaths.merge(plan.plan_id, NOW, LOG)
    troubles.ruined_verification("torn")
    races.merges(NOW)
    deaths.verify()
    deaths.rebuild(twice=False)
    deaths.maintain(NOW)
    deaths.replay()
    assert counts["images"] >= 15, counts
    assert counts["taken up"] == 5, counts
    assert counts["merge applied"] >= 1, counts
