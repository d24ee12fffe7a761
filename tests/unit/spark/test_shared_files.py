"""Which folders a job on a cluster must share with its executors, and where it is refused by the
settings alone. With real executors: `tests/faults/test_cluster.py`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.fixtures.settings import as_toml
from tideline.cluster_spark import SHARED_FILES, cluster_settings
from tideline.contract.errors import CorruptData, Misconfigured, Unavailable
from tideline.contract.verification import VerifyPlan
from tideline.planner.maintaining import order_maintenance
from tideline.settings import Merge
from tideline_console.app import app
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
    "command", ["merge", "rebuild public.t", "maintain", "verify public.t", "aggregate"]
)
def test_a_command_is_refused_before_it_plans(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stored plan names its warehouse, for which parts would then be kept."""
    config = tmp_path / "tideline.toml"
    config.write_text(
        as_toml(
            {
                "pipeline": "shop",
                "source": {"url": "postgresql://tide@127.0.0.1:1/shop"},
                "store": {"url": (tmp_path / "store").as_uri()},
                "warehouse": {"url": (tmp_path / "warehouse").as_uri()},
                "merge": {"master": "spark://h:7077"},
            }
        )
    )
    done = CliRunner().invoke(app, [*command.split(), "--config", str(config)])
    said = f"{done.output} {done.exception}" + "".join(capsys.readouterr())
    assert "may be other machines" in said and done.exit_code != 0
    assert not (tmp_path / "store").exists()


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


class Probed:
    """A cluster whose executors, by id, do tasks on this machine's files; those of ``failing`` fail
    theirs, which ``0`` then does; those of ``idle`` get none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: Collection[str] = ()) -> None:
        self.alive = {"0": "a", "1": "b"}
        self.idle: set[str] = set()
        self.failing = set(failing)
        self.descriptions: list[str] = []
        monkeypatch.setattr(shared_files, "executors", lambda *_, **__: dict(self.alive))
        monkeypatch.setattr(shared_files, "ended_tasks", self._tasks)
        java = SimpleNamespace(clearJobGroup=self.descriptions.clear)
        self.sparkContext = SimpleNamespace(
            master="spark://h:7077",
            applicationId=uuid.uuid4().hex,
            defaultParallelism=2,
            _jsc=java,
            setJobGroup=lambda _, text: self.descriptions.append(text),
        )
        known = {SHARED_FILES: "true"}
        self.conf = SimpleNamespace(get=known.get, set=lambda *_: None)
        self.read = SimpleNamespace(option=lambda *_: SimpleNamespace(text=self._text))

    def newSession(self) -> Probed:
        return self

    def _text(self, given: str) -> Any:
        return SimpleNamespace(write=SimpleNamespace(text=lambda to: copy(given, to)))

    def _tasks(self, *_: object) -> list[tuple[str, str]]:
        ran = [one for one in self.alive if one not in self.idle | self.failing]
        failed = [(one, "FAILED") for one in self.failing]
        return [(one, "SUCCESS") for one in (ran * 4)[:4]] + failed


def copy(given: str, to: str) -> None:
    there = Path(to.removeprefix("file:"))
    there.mkdir()
    for number, path in enumerate(Path(given.removeprefix("file:")).iterdir()):
        (there / f"part-{number}").write_text(path.read_text())


def test_an_executor_whose_task_another_one_repeats_does_not_see_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark: Any = Probed(monkeypatch, failing={"1"})
    with (
        pytest.raises(Misconfigured, match="do not see the same") as refused,
        files_seen_by_all(spark, None, [f"file://{tmp_path}/a"]),
    ):
        pytest.fail("it went on")
    assert "nothing was written" in str(refused.value.hint)
    assert list(tmp_path.iterdir()) == []


def test_an_executor_that_is_busy_with_another_job_has_passed_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark: Any = Probed(monkeypatch)
    urls = [f"file://{tmp_path}/a"]
    with files_seen_by_all(spark, None, urls):
        spark.idle = {"1"}
    with files_seen_by_all(spark, None, urls):
        spark.failing = {"1"}
    with pytest.raises(Misconfigured), files_seen_by_all(spark, None, urls):
        pytest.fail("it has lost the folder")
    spark.failing, spark.idle, spark.alive = set(), {"2"}, {**spark.alive, "2": "c"}
    with pytest.raises(Unavailable, match="1 executors"), files_seen_by_all(spark, None, urls):
        pytest.fail("it was never tried")


@pytest.mark.parametrize("how", ["sees it", "does not", "has no time", "is gone"])
def test_executors_that_join_while_the_job_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    """The tables are written by then, whatever keeps the executor from being tried."""
    spark: Any = Probed(monkeypatch)

    def joins() -> None:
        assert spark.descriptions == [], "the job's own are not called a trial"
        everyone = {**spark.alive, "2": "c"}
        if how != "is gone":
            spark.alive = everyone
        spark.idle = {"2"} if how == "has no time" else set()
        spark.failing = {"2"} if how == "does not" else set()
        monkeypatch.setattr(
            shared_files,
            "executors",
            lambda *_, active=False: dict(spark.alive if active else everyone),
        )

    def work() -> None:
        with files_seen_by_all(spark, None, [f"file://{tmp_path}/a"]):
            joins()

    if how == "sees it":
        work()
    else:
        with pytest.raises(CorruptData, match="an executor joined while the job ran") as found:
            work()
        assert "nothing was written" not in str(found.value)
        assert "tideline verify" in str(found.value.hint)


def test_settings_of_a_cluster_are_for_clusters() -> None:
    merge = Merge(executor_memory="1g", driver_host="h", authenticate_secret="canary")  # type: ignore[arg-type]
    assert cluster_settings(merge, "local[2]") == {}
    assert "spark.authenticate.secret" not in cluster_settings(merge, "yarn")
    there = cluster_settings(merge, "spark://h:7077")
    assert there["spark.driver.bindAddress"] == "h"
    assert there["spark.authenticate.secret"] == "canary"
    assert "canary" not in repr(merge)
