"""``tideline garbage``: what it removes is tested elsewhere; here, that it says what it does."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.fixtures.settings import as_toml
from tests.unit.planner.test_garbage import Case
from tests.unit.planner.test_planner import apply
from tideline.planner.consumers import register_warehouse
from tideline_console.app import app

GONE = "if it is gone for good, remove the object"

pytestmark = pytest.mark.usefixtures("blocks_of_ten")


def run(case: Case, *arguments: str) -> str:
    config = case.history.root / "tideline.toml"
    config.write_text(
        as_toml(
            {
                "pipeline": "shop",
                "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
                "store": {"url": case.history.settings.store.url},
                "warehouse": {"url": case.history.settings.warehouse.url},
                "retention": {"parts_days": 1 / 24, "orphans_days": 1 / 24},
            }
        )
    )
    done = CliRunner().invoke(app, ["garbage", "--config", str(config), *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_it_says_what_it_would_do_and_then_does_it(tmp_path: Path) -> None:
    case = Case(tmp_path)
    apply(case.history, 34, "public.plain")
    hours_ago = time.time() - 7200
    for key in case.store.list("shop"):
        os.utime(case.history.part_path(key), (hours_ago, hours_ago))
    before = case.objects()
    reported = run(case, "--dry-run")
    assert "removed: no one needs it" in reported and "dry run" in reported
    assert f"warehouse at {case.history.settings.warehouse.url}" in reported.replace("\n", "")
    assert case.objects() == before
    run(case)
    assert before - case.objects() == case.old


def test_without_a_consumer_it_says_so(tmp_path: Path) -> None:
    case = Case(tmp_path)
    for key in case.store.list("shop/consumers"):
        case.store.delete(key)
    assert "no one has planned a merge yet" in run(case)


def test_of_another_warehouse_it_names_the_record_to_remove(tmp_path: Path) -> None:
    case = Case(tmp_path)
    apply(case.history, 34, "public.plain")
    [own] = case.store.list("shop/consumers")
    warehouse = case.history.settings.warehouse.model_copy(update={"url": "file:///gone"})
    register_warehouse(
        case.history.settings.model_copy(update={"warehouse": warehouse}), case.store
    )
    [other] = set(case.store.list("shop/consumers")) - {own}
    reported = " ".join(run(case, "--dry-run").split())
    assert f"the warehouse at file:///gone must have applied what is removed; {GONE} {other} " in (
        reported
    )
    assert own not in reported
    case.store.delete(other)
    assert "file:///gone" not in run(case, "--dry-run")
