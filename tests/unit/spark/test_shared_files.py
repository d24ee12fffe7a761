"""Which folders a job on a cluster must share with its executors, and where it is refused by the
settings alone. With real executors: `tests/faults/test_cluster.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.cluster_spark import SHARED_FILES, cluster_settings
from tideline.contract.errors import Misconfigured
from tideline.contract.verification import VerifyPlan
from tideline.planner.maintaining import order_maintenance
from tideline.settings import Merge
from tideline_spark import shared_files
from tideline_spark.maintain import maintain
from tideline_spark.merge import run_plan
from tideline_spark.shared_files import files_seen_by_all
from tideline_spark.verify import run_verification

T = "public.t"


def spark_on(master: str, **settings: str) -> Any:
    """A session that only knows its master and settings: nothing else may be asked of it."""
    conf = SimpleNamespace(get=lambda name, default=None: settings.get(name, default))
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master), conf=conf)


@pytest.mark.parametrize(
    ("master", "urls"),
    [("local[2]", ["file:///w/a/t"]), ("spark://h:7077", ["s3://b/a/t"]), ("yarn", [])],
)
def test_nothing_is_tried_without_files_or_without_executors(master: str, urls: list[str]) -> None:
    with files_seen_by_all(spark_on(master), None, urls):
        pass


@pytest.mark.parametrize(
    "master", ["spark://h:7077", "yarn", "k8s://https://h", "local-cluster[2,1,1024]"]
)
@pytest.mark.parametrize("settings", [{}, {SHARED_FILES: "false"}])
def test_files_are_refused_on_any_cluster(master: str, settings: dict[str, str]) -> None:
    """Also where no settings reached the job."""
    with (
        pytest.raises(
            Misconfigured, match=r"/w/a is a folder, .* may be other machines"
        ) as refused,
        files_seen_by_all(spark_on(master, **settings), "s3://b/store", ["file:///w/a/t"]),
    ):
        pytest.fail("it went on")
    assert "merge.shared_files = true" in str(refused.value.hint)


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    made.commit(Row(T, "c", {"id": 1}))
    return made


def test_every_job_tries_it_first(history: History) -> None:
    spark = spark_on("spark://h:7077")
    order = order_maintenance(history.settings, maintenance_id="m")
    verification = VerifyPlan("v.1", "shop", "one", history.settings.store.url, "r", ())
    jobs: list[Callable[[], object]] = [
        lambda: run_plan(spark, history.plan(), tables_at_once=1),
        lambda: maintain(spark, order),
        lambda: run_verification(spark, verification),
    ]
    for job in jobs:
        with pytest.raises(Misconfigured, match="may be other machines"):
            job()
    assert not (history.root / "warehouse").exists()


def test_folders_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of tables of one schema, and none inside another; percent-encoded in urls."""
    urls = ["file:///w/a%20b/t", "file:///w/a%20b/u", "file:///w/s/store/c/t", "s3://b/c/t"]
    found = shared_files._folders("file:///w/s/store", urls)
    assert [str(one) for one in found] == ["/w/a b", "/w/s/store"]


def test_settings_of_a_cluster_are_for_clusters() -> None:
    merge = Merge(executor_memory="1g", driver_host="h", authenticate_secret="canary")  # type: ignore[arg-type]
    assert cluster_settings(merge, "local[2]") == {}
    assert "spark.authenticate.secret" not in cluster_settings(merge, "yarn")
    there = cluster_settings(merge, "spark://h:7077")
    assert there["spark.driver.bindAddress"] == "h"
    assert there["spark.authenticate.secret"] == "canary"
    assert "canary" not in repr(merge)
