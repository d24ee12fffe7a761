"""Merges register their tables in the catalog, and never fail because of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tideline_console.merge
from devtools.services.hive import HiveServer
from tests.conformance.test_catalog import Shop
from tests.fixtures.catalogs import CatalogPlace, hive_entry
from tests.fixtures.parts import Row, Shaped, schema_of
from tests.spark.test_descriptions import say
from tests.spark.test_rebuild import Rebuilder
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.planner import read_receipt
from tideline.planner.registration import register, unregistered
from tideline.planner.runs import run_merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "public.orders"


@pytest.fixture
def shop(tmp_path: Path, hive_server: HiveServer) -> Shop:
    return Shop(tmp_path, CatalogPlace("hive", {"kind": "hive", "url": hive_server.url}))


def columns(shop: Shop) -> dict[str, tuple[bool, str]]:
    """What the entry has of each of the source's columns: whether it may be NULL, its comment."""
    text = hive_entry(shop.settings, shop.name()).parameters["spark.sql.sources.schema"]
    return {
        one["name"]: (one["nullable"], one["metadata"].get("comment", ""))
        for one in json.loads(text)["fields"]
        if not one["name"].startswith("_tl_")
    }


def test_a_catalog_that_is_away_costs_a_warning_and_the_next_merge_registers(
    shop: Shop,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tideline_spark.merge import run_plan

    names = {"schema_name": f"{shop.schema}_{{schema}}"}
    shop.use({**names, "url": "thrift://127.0.0.1:1"})
    plan = shop.history.plan()
    receipt = run_merge(shop.settings, plan, lambda: run_plan(spark, plan), print)
    (one,) = receipt.tables
    assert one.outcome is Outcome.APPLIED
    assert "the Hive metastore at thrift://127.0.0.1:1 does not answer" in one.warnings[0]
    assert read_receipt(shop.settings, plan.plan_id) == receipt
    assert len(shop.history.rows(spark, ORDERS)) == 1

    shop.use(names)
    assert tideline_console.merge.run(shop.settings, []) == 0
    printed = capsys.readouterr().out
    assert "nothing to merge" in printed
    assert f"{ORDERS} is registered in the catalog as {shop.name()}" in printed
    assert shop.entry() is not None
    assert tideline_console.merge.run(shop.settings, []) == 0
    assert "registered" not in capsys.readouterr().out


def test_what_the_source_changes_is_in_the_entry_after_the_next_merge(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = shop.history

    def merge() -> None:
        monkeypatch.setattr(
            tideline_console.merge,
            "_run_plan",
            lambda settings, plan: tideline_console.merge.run_in(spark, settings, plan),
        )
        assert tideline_console.merge.run(shop.settings, []) == 0

    history.merge(spark)  # Killed behind its commit, before it came to the catalog.
    assert list(unregistered(shop.settings).made) == [ORDERS]
    history.commit(Row(ORDERS, "c", {"id": 2}), states=say(history, "ours", {"id": "the key"}))
    merge()
    assert columns(shop) == {"id": (False, "the key")}
    assert hive_entry(shop.settings, shop.name()).parameters["comment"] == "ours"

    wider = schema_of(ORDERS, {"number": "int64", "status": "string"}, ["number"])
    steps = (
        ColumnStep(StepKind.RENAME, "number", was="id"),
        ColumnStep(StepKind.ADD, "status"),
    )
    history.commit(Shaped(wider, steps))
    history.commit(
        Row(ORDERS, "c", {"number": 3, "status": "new"}), states=say(history, None, {"number": "n"})
    )
    merge()
    assert columns(shop) == {"number": (False, "n"), "status": (True, "")}
    assert "comment" not in hive_entry(shop.settings, shop.name()).parameters
    assert not unregistered(shop.settings).made


@pytest.mark.long
def test_a_rebuild_in_another_mode_is_in_the_entry(shop: Shop, spark: SparkSession) -> None:
    shop.history.merge(spark)
    register(shop.settings)
    _, steps = Rebuilder(shop.history, spark).all(Mode.HISTORY)
    assert steps[-1] == "applied"
    assert list(register(shop.settings, [ORDERS]).made) == [ORDERS]
    text = hive_entry(shop.settings, shop.name()).parameters["spark.sql.sources.schema"]
    assert "_tl_valid_from" in text, "a column of the new mode"
    assert not unregistered(shop.settings).made
