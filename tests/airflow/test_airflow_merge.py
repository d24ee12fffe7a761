"""Merges, with a spark-submit that writes the receipts it is told to."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn, cast

import pyspark
import pytest
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from airflow.sdk import AssetAlias
from msgspec.structs import replace

from tests.airflow.stub_worker import StubWorker
from tests.airflow.task_context import TaskContext
from tests.airflow.task_log import TaskLog
from tests.fixtures.capture import poll
from tests.fixtures.listener import listener
from tideline import planner
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.layout import encode_name
from tideline.contract.plan import Plan, TablePlan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.schema import Column, TableSchema
from tideline.java import java_home
from tideline.local_spark import archive_location, archive_option
from tideline.planner import registration
from tideline.planner.runs import recent_runs
from tideline.spark_versions import installed_spark
from tideline.warehouse.delta.log_store import jars_with_log_store
from tideline_airflow import spark_job
from tideline_airflow.assets import MERGED, table_asset
from tideline_airflow.compat import AirflowException, AirflowFailException, AirflowSkipException
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.merge import APPLICATION_VARIABLE, MergeOperator
from tideline_airflow.receipts import format_receipts
from tideline_airflow.spark_job import (
    CONNECTION,
    application,
    connection_absent,
    local_environment,
)
from tideline_console.merge import run_in
from tideline_spark import merge as job

SUBMIT = """#!{python}
import json, os, pathlib, sys
from tideline.contract.receipt import Outcome, Receipt, TableReceipt, encode_receipt
folder = pathlib.Path(__file__).parent
calls = json.loads((folder / "calls.json").read_text())
script = json.loads((folder / "script.json").read_text())
calls.append(sys.argv[1:])
(folder / "calls.json").write_text(json.dumps(calls))
names = ("JAVA_HOME", "PYSPARK_PYTHON", "TIDELINE_SPARK_SETTINGS")
seen = {name: os.environ.get(name) for name in names}
with (folder / "environments.jsonl").open("a") as file:
    print(json.dumps(seen), file=file)
step = script[len(calls) - 1]
if step["tables"] is not None:
    url = sys.argv[sys.argv.index("--receipt") + 1]
    path = pathlib.Path(url.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = tuple(
        TableReceipt(
            table, Outcome(outcome), 4, 40, 1_700_000_000_000_000, error=step["error"],
            error_kind=step["kind"], pending=len(step["pending"]),
            pending_keys=tuple(map(tuple, step["pending"])),
        )
        for table, outcome in step["tables"].items()
    )
    path.write_bytes(encode_receipt(Receipt("p", "shop", "i", tables)))
print(step["last_words"])
sys.exit(step.get("exit", 0))
"""


NAME = "tideline_repair/manual__1/merge@20261121T120000.000000"
"""Of the first plan of the task `merge` in `TaskContext`."""


class Submit:
    """The stand-in for spark-submit: what it shall do in each call, and how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        program = folder / "spark-submit"
        program.write_text(SUBMIT.replace("{python}", sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        (folder / "calls.json").write_text("[]")

    def shall(
        self,
        *steps: dict[str, str] | None,
        exit_code: int = 0,
        pending: Sequence[Sequence[str]] = (),
        kind: str = "InvariantBroken",
        last_words: str = "",
    ) -> None:
        """One step per call: the outcome of each table, None for no receipt at all.

        ``pending``: the keys of rows that each table is left with. ``kind``: of what fails.
        ``last_words``: what the job prints before it ends.
        """
        rest = {"exit": exit_code, "error": "lost a disk", "pending": pending, "kind": kind}
        rest["last_words"] = last_words
        script = [{"tables": step, **rest} for step in steps]
        (self.folder / "script.json").write_text(json.dumps(script))

    @property
    def calls(self) -> list[list[str]]:
        found: list[list[str]] = json.loads((self.folder / "calls.json").read_text())
        return found

    @property
    def environments(self) -> list[dict[str, str]]:
        lines = (self.folder / "environments.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def plans(self) -> list[str]:
        return [call[call.index("--plan") + 1].rpartition("/")[2] for call in self.calls]


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submit]:
    made = Submit(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
    local = json.dumps({"conn_type": "spark", "host": "local[2]"})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", local)
    monkeypatch.setenv("TIDELINE_MERGE_APPLICATION", "/jobs/merge.py")
    # No chain here: planning again finds the tables that were asked for.
    monkeypatch.setattr(
        planner, "plan_merge", lambda _, *, plan_id, tables=None: plan(plan_id, tables)
    )
    yield made


@pytest.fixture
def merge(config: Path) -> MergeOperator:
    return MergeOperator(
        task_id="merge", tables=["public.orders"], config=str(config), rounds_max=3
    )


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands for an archive of the classes of this machine's Spark."""
    monkeypatch.setenv("TIDELINE_CACHE", str(tmp_path / "cache"))
    place = archive_location()
    assert place is not None
    path = place.named(0)
    path.parent.mkdir(parents=True)
    path.touch()
    return path


LIMITS = {"retries_max": 3, "retry_s": 7.0, "tables_at_once": 2}


def test_each_limit_of_a_merge_reaches_the_job(
    merge: MergeOperator, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in LIMITS.items():
        monkeypatch.setenv(f"TIDELINE_MERGE__{name.upper()}", str(limit))
    submit.shall({"public.orders": "applied"})
    merge.execute(TaskContext(merge).values)
    [call] = submit.calls
    assert limits_of_job(monkeypatch, call[call.index("/jobs/merge.py") + 1 :]) == LIMITS


def test_each_limit_of_a_merge_is_kept_by_the_command_line(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And by rebuilds and repairs, which merge by the same function."""
    kept: dict[str, Any] = {}
    monkeypatch.setattr(job, "run_plan", lambda spark, plan, **limits: kept.update(limits))
    for name, limit in LIMITS.items():
        monkeypatch.setenv(f"TIDELINE_MERGE__{name.upper()}", str(limit))
    run_in(cast(Any, None), TidelineHook(str(config)).settings, cast(Any, None))
    assert kept == LIMITS


class Reached(Exception):
    """The job has come to where it runs its plan."""


def limits_of_job(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> dict[str, Any]:
    """The limits with which the job of ``arguments`` runs its plan."""
    kept: dict[str, Any] = {}

    def run_plan(spark: object, plan: object, **limits: Any) -> NoReturn:
        kept.update(limits)
        raise Reached

    monkeypatch.setattr(job, "read_document", lambda spark, url: b"")
    monkeypatch.setattr(job, "decode_plan", lambda raw, url: None)
    monkeypatch.setattr(job, "run_job", lambda work, **_: work(None))
    monkeypatch.setattr(job, "run_plan", run_plan)
    with pytest.raises(Reached):
        job.main(arguments)
    return kept


def test_one_run_of_the_plan(
    merge: MergeOperator,
    submit: Submit,
    config: Path,
    archive: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDELINE_SOURCE__PASSWORD", "hush-source")
    submit.shall({"public.orders": "applied", "public.items": "already_applied"})
    context = TaskContext(merge).values
    done = merge.execute(context)
    assert (done["plans"], done["held"]) == ([NAME], {"public.quarantined": "it has no key"})
    assert done["tables"]["public.orders"]["outcome"] == "applied"
    [call] = submit.calls
    assert call[call.index("--master") + 1] == "local[2]"
    assert call[call.index("--driver-memory") + 1] == "2g"
    assert call[-9] == "/jobs/merge.py"
    assert call[-8:-4] == ["--retries-max", "8", "--retry-s", "120.0"]
    assert call[-4] == "--plan"
    assert call[-3].startswith("file://") and call[-3].endswith(f"/plans/{encode_name(NAME)}.json")
    assert call[-1].endswith(f"/receipts/{encode_name(NAME)}.json")
    for setting in (
        "spark.driver.bindAddress=127.0.0.1",
        "spark.driver.extraJavaOptions="
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
        f" -XX:MetaspaceSize=400m {archive_option(archive)}",
    ):
        assert setting in call
    assert not any("hush-source" in word or "redis://" in word for word in call)
    events = {
        event.dest_asset_key.uri: event.extra
        for event in context["outlet_events"][MERGED].asset_alias_events
    }
    extra = {"max_seq": 40, "complete_through_us": 1_700_000_000_000_000}
    orders, items = (table_asset("shop", f"public.{name}").uri for name in ("orders", "items"))
    assert events == {orders: extra, items: extra}


def test_the_job_is_told_how_many_tables_to_merge_side_by_side(
    merge: MergeOperator, submit: Submit, config: Path
) -> None:
    config.write_text(config.read_text() + "\n[merge]\ntables_at_once = 3\n")
    submit.shall({"public.orders": "applied"})
    merge.execute(TaskContext(merge).values)
    [call] = submit.calls
    assert call[call.index("--tables-at-once") + 1] == "3"


def test_who_keeps_track_of_lineage_is_told(
    merge: MergeOperator,
    submit: Submit,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    submit.shall({"public.orders": "applied", "public.items": "failed"}, {})
    monkeypatch.setenv("TIDELINE_OPENLINEAGE__TIMEOUT_S", "60")
    with listener() as (url, heard):
        monkeypatch.setenv("TIDELINE_OPENLINEAGE__URL", url)
        monkeypatch.setenv("TIDELINE_OPENLINEAGE__API_KEY", "canary-key")
        with pytest.raises(AirflowFailException):
            merge.execute(TaskContext(merge).values)
    assert [body["eventType"] for _, _, body in heard] == ["START", "FAIL"]
    assert heard[0][1]["Authorization"] == "Bearer canary-key"
    # Nobody listens any more, where nobody else can: the merge is none the worse for it.
    (submit.folder / "calls.json").write_text("[]")
    submit.shall({"public.orders": "applied", "public.items": "applied"})
    with closing(socket.socket()) as mute:
        mute.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TIDELINE_OPENLINEAGE__URL", f"http://127.0.0.1:{mute.getsockname()[1]}")
        assert merge.execute(TaskContext(merge).values)["plans"] == [NAME]
    reported = capfd.readouterr().out
    lost = "2 of 2 OpenLineage events were not delivered: ConnectionError (2)"
    assert [level_of(line) for line in reported.splitlines() if lost in line] == ["warning"]
    assert "canary" not in reported


def test_airflow_s_own_lineage_has_the_tables(merge: MergeOperator, submit: Submit) -> None:
    """Its provider asks the operator once the task has ended, or failed."""
    submit.shall({"public.orders": "applied", "public.items": "failed"})
    with pytest.raises(AirflowFailException):
        merge.execute(TaskContext(merge).values)
    extracted = DefaultExtractor(merge).extract_on_failure(None)
    assert extracted is not None
    [origin], [output] = extracted.inputs, extracted.outputs
    assert origin.name.endswith(".public.orders")
    assert origin.namespace.startswith("postgres://") and "hush" not in str(extracted)
    assert (output.namespace, output.name) == ("file", "/w/public.orders")
    fields = output.facets["columnLineage"].fields
    assert fields["id"].inputFields[0].name == origin.name


def test_what_is_pending_is_asked_for(
    merge: MergeOperator, submit: Submit, worker: StubWorker, task_log: TaskLog
) -> None:
    submit.shall({"public.orders": "applied"}, pending=[["canary-7"], ["canary-8"]])
    assert merge.execute(TaskContext(merge).values)["plans"] == [NAME]
    poll("the worker is asked", lambda: len(worker.requests) == 1)
    [request] = worker.requests.values()
    assert (request.tables, request.keys) == (("public.orders",), (("canary-7",), ("canary-8",)))
    assert "Spark-Submit cmd: " in task_log.text and "canary" not in task_log.text


def level_of(line: str) -> str:
    """The level of a line of Airflow's log on a terminal, colours or not."""
    found = re.search(r"\[(?:\x1b\[[0-9;]*m)*(\w+)", line)
    return "" if found is None else found[1]


def test_a_merge_is_done_though_nobody_can_be_asked(
    merge: MergeOperator,
    submit: Submit,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TIDELINE_CONTROL__URL", "redis://127.0.0.1:1/0")
    submit.shall({"public.orders": "applied"}, pending=[["7"]])
    assert merge.execute(TaskContext(merge).values)["plans"] == [NAME]
    reported = capfd.readouterr().out.splitlines()
    lines = [
        line for line in reported if "the worker could not be asked to read them again" in line
    ]
    assert [level_of(line) for line in lines] == ["warning"]


def test_the_catalog_s_troubles_are_warnings_of_every_kind_of_run(
    submit: Submit, config: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a merge, of one that an earlier try has done, and of a task without a merge."""
    catalog = '[warehouse.catalog]\nkind = "unity"\nurl = "http://127.0.0.1:1"\nname = "main"\n'
    config.write_text(f"{config.read_text()}\n{catalog}token = 'canary-5e'\n")
    away = Unavailable("the catalog is away")
    monkeypatch.setattr(registration, "_tables", lambda _: (_ for _ in ()).throw(away))
    submit.shall({"public.orders": "applied"})
    merge = MergeOperator(task_id="merge", tables=["public.orders"], config=str(config))
    for number in (1, 2):
        merge.execute(TaskContext(merge, try_number=number).values)
    every = MergeOperator(task_id="merge", config=str(config))
    with pytest.raises(AirflowSkipException):
        every.execute(TaskContext(every).values)
    printed = capfd.readouterr().out
    assert "canary" not in printed
    lines = [line for line in printed.splitlines() if "the catalog is away" in line]
    assert [level_of(line) for line in lines] == ["warning"] * 3
    assert len(submit.calls) == 1


def test_what_is_done_is_not_run_again(merge: MergeOperator, submit: Submit) -> None:
    """A try that was killed after the job ended: the receipt is there, nothing else."""
    submit.shall({"public.orders": "applied"})
    merge.execute(TaskContext(merge).values)
    merge.execute(TaskContext(merge, try_number=2).values)
    assert len(submit.calls) == 1


def test_the_task_fails_where_a_table_did(
    merge: MergeOperator, submit: Submit, capfd: pytest.CaptureFixture[str]
) -> None:
    """With its reason in a line of its own, and what failed is run again by the next try."""
    submit.shall(
        {"public.orders": "failed", "public.items": "applied"}, {"public.orders": "applied"}
    )
    reason = "1 of 2 tables are not merged: public.orders (lost a disk)"
    with pytest.raises(AirflowFailException, match=re.escape(reason)):
        merge.execute(TaskContext(merge).values)
    assert reason in capfd.readouterr().out
    done = merge.execute(TaskContext(merge, try_number=2).values)
    assert submit.plans == [f"{encode_name(NAME)}.json"] * 2
    assert done["tables"]["public.orders"]["outcome"] == "applied"


def test_what_waiting_may_mend_is_tried_again(merge: MergeOperator, submit: Submit) -> None:
    submit.shall({"public.orders": "failed"}, kind="Unavailable")
    with pytest.raises(AirflowException) as caught:
        merge.execute(TaskContext(merge).values)
    assert not isinstance(caught.value, AirflowFailException)


def test_a_plan_that_grew_old_is_recreated(merge: MergeOperator, submit: Submit) -> None:
    submit.shall(
        {"public.orders": "refused", "public.items": "applied"}, {"public.orders": "applied"}
    )
    done = merge.execute(TaskContext(merge).values)
    assert done["plans"] == [NAME, f"{NAME}/2"]
    assert submit.plans == [f"{encode_name(name)}.json" for name in done["plans"]]
    assert {one["outcome"] for one in done["tables"].values()} == {"applied"}


def test_a_try_that_comes_after_a_killed_one_runs_no_plan_that_was_refused(
    merge: MergeOperator, submit: Submit
) -> None:
    submit.shall({"public.orders": "refused"}, None, {"public.orders": "applied"})
    with pytest.raises(AirflowException, match="no receipt"):
        merge.execute(TaskContext(merge).values)
    done = merge.execute(TaskContext(merge, try_number=2).values)
    assert done["plans"] == [NAME, f"{NAME}/2"]
    assert submit.plans == [f"{encode_name(name)}.json" for name in (NAME, *[f"{NAME}/2"] * 2)]


def test_what_another_run_has_done_meanwhile_is_no_failure(
    merge: MergeOperator, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, planned anew: nothing is left to do. The log, the result and the table's asset have
    what the other run brought."""

    def planned(_: object, *, plan_id: str, tables: Sequence[str] | None = None) -> Plan:
        return plan(plan_id, tables if plan_id == NAME else ())

    monkeypatch.setattr(planner, "plan_merge", planned)
    submit.shall({"public.orders": "refused"})
    context = TaskContext(merge).values
    done = merge.execute(context)
    assert done["plans"] == [NAME]
    assert {name: one["outcome"] for name, one in done["tables"].items()} == {
        "public.orders": "already_applied"
    }
    [event] = context["outlet_events"][MERGED].asset_alias_events
    assert event.dest_asset_key.uri == table_asset("shop", "public.orders").uri
    assert event.extra == {"max_seq": 40, "complete_through_us": None}


def test_a_capped_plan_is_followed_by_the_next(
    merge: MergeOperator, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(_: object, *, plan_id: str, tables: Sequence[str] | None = None) -> Plan:
        return replace(plan(plan_id, tables), tail=5 if plan_id == NAME else 4)

    monkeypatch.setattr(planner, "plan_merge", planned)
    submit.shall(*[{"public.orders": "applied"}] * 2)
    assert merge.execute(TaskContext(merge).values)["plans"] == [NAME, f"{NAME}/2"]


def test_planning_again_ends(merge: MergeOperator, submit: Submit) -> None:
    submit.shall(*[{"public.orders": "refused"}] * 10, kind="Unavailable")
    with pytest.raises(AirflowException, match=r"1 of 1 tables are not merged") as caught:
        merge.execute(TaskContext(merge).values)
    assert not isinstance(caught.value, AirflowFailException)
    assert len(submit.calls) == 3


def test_without_a_receipt_it_fails_and_may_be_tried_again(
    merge: MergeOperator, submit: Submit
) -> None:
    submit.shall(None)
    with pytest.raises(AirflowException, match=re.escape(f"no receipt of plan {NAME}")) as caught:
        merge.execute(TaskContext(merge).values)
    assert not isinstance(caught.value, AirflowFailException)


def test_a_crash_with_a_receipt_is_judged_by_the_receipt(
    merge: MergeOperator, submit: Submit
) -> None:
    submit.shall({"public.orders": "failed"}, exit_code=1)
    with pytest.raises(AirflowFailException, match="lost a disk"):
        merge.execute(TaskContext(merge).values)


@pytest.mark.parametrize(
    ("last_words", "kind", "match"),
    [
        ("", AirflowException, "spark-submit ended with exit code 2"),
        ("tideline: Misconfigured: no Delta; set merge.jars", Misconfigured, "^no Delta; set"),
        ("tideline: public.t failed: torn", AirflowException, "^public.t failed: torn"),
        ("noise\ntideline: Unavailable: away\nnoise", Unavailable, "^away$"),
    ],
)
def test_a_job_without_a_receipt_fails_with_its_last_words(
    merge: MergeOperator,
    submit: Submit,
    last_words: str,
    kind: type[Exception],
    match: str,
) -> None:
    submit.shall(None, exit_code=2, last_words=last_words)
    with pytest.raises(kind, match=match):
        merge.execute(TaskContext(merge).values)


def test_a_job_that_was_killed_names_the_signal(merge: MergeOperator, submit: Submit) -> None:
    """The driver's, as spark-submit passes it on;."""
    submit.shall(None, exit_code=137)
    with pytest.raises(AirflowException, match="was ended by SIGKILL before the job said why"):
        merge.execute(TaskContext(merge).values)


def test_nothing_to_merge_skips(submit: Submit, config: Path) -> None:
    one = MergeOperator(task_id="merge", tables=[], config=str(config))
    with pytest.raises(AirflowSkipException):
        one.execute(TaskContext(one).values)
    every = MergeOperator(task_id="merge", config=str(config))
    with pytest.raises(AirflowSkipException):
        every.execute(TaskContext(every).values)
    # Why it was delayed is on record: `tideline status` says why the table is late.
    settings = TidelineHook(str(config)).settings
    [run], _ = recent_runs(settings, 0, 10)
    assert (run.tables, run.delayed) == ((), {"public.quarantined": "it has no key"})


@pytest.mark.parametrize("tables", [None, ["public.items"]])
def test_a_target_of_another_chain_fails_the_task_behind_all_else(
    submit: Submit, config: Path, monkeypatch: pytest.MonkeyPatch, tables: list[str] | None
) -> None:
    """Held, it would be merged never again, in tasks that all are green."""
    cure = "the target has applied another manifest 4: `tideline rebuild public.astray`"

    def strayed(_: object, *, plan_id: str, tables: Sequence[str] | None = None) -> Plan:
        held = {"public.quarantined": "it has no key", "public.astray": cure}
        return replace(plan(plan_id, tables), delayed=held, strayed=("public.astray",), tail=4)

    monkeypatch.setattr(planner, "plan_merge", strayed)
    submit.shall({"public.items": "applied"})
    one = MergeOperator(task_id="merge", tables=tables, config=str(config))
    with pytest.raises(AirflowFailException, match=r"`tideline rebuild public\.astray`") as raised:
        one.execute(TaskContext(one).values)
    assert "public.quarantined" not in str(raised.value)
    assert len(submit.calls) == len(tables or ())


def test_a_strayed_table_is_told_in_one_line_whatever_its_name(
    submit: Submit, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "public.a\x1b[2J\n::group::"

    def strayed(_: object, *, plan_id: str, tables: Sequence[str] | None = None) -> Plan:
        return replace(plan(plan_id, tables), delayed={table: f"{table} strayed"}, strayed=(table,))

    monkeypatch.setattr(planner, "plan_merge", strayed)
    one = MergeOperator(task_id="merge", tables=None, config=str(config))
    with pytest.raises(AirflowFailException) as raised:
        one.execute(TaskContext(one).values)
    reported = str(raised.value)
    assert r"public.a\x1b[2J\n" in reported
    assert reported.isprintable()
    assert "::group::" not in reported


def test_what_was_dumped_is_merged(submit: Submit, config: Path) -> None:
    dumped = {"request_id": "r", "manifest_number": 4, "tables": {"public.items": 3}}
    one = MergeOperator(task_id="merge", tables=dumped, config=str(config))
    submit.shall({"public.items": "applied"})
    assert list(one.execute(TaskContext(one).values)["tables"]) == ["public.items"]


def test_a_task_that_is_cleared_plans_again(submit: Submit, config: Path) -> None:
    one = MergeOperator(task_id="merge", tables=["public.orders"], config=str(config), retries=1)
    submit.shall(*[{"public.orders": "applied"}] * 2)
    first = one.execute(TaskContext(one).values)
    assert one.execute(TaskContext(one, try_number=2).values) == first
    assert one.execute(TaskContext(one, clears=1).values)["plans"] != first["plans"]


class TestWithoutAConnection:
    def test_it_runs_here_and_says_so(
        self,
        merge: MergeOperator,
        submit: Submit,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
        submit.shall({"public.orders": "applied"})
        merge.execute(TaskContext(merge).values)
        [call] = submit.calls
        assert call[call.index("--master") + 1] == "local[2]"
        reported = "Airflow has no connection spark_default: the job runs on local[2]"
        unfolded = capfd.readouterr().out.partition("::group::what spark-submit printed")[0]
        assert reported in unfolded
        assert "yarn" not in unfolded, "the provider's guess, which is not taken"

    def test_one_that_is_named_must_be_there(
        self, submit: Submit, config: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TIDELINE_SPARK_CONN_ID", "our_cluster")
        merge = MergeOperator(task_id="merge", tables=["public.orders"], config=str(config))
        with pytest.raises(Misconfigured, match="no connection our_cluster; make it"):
            merge.execute(TaskContext(merge).values)

    def test_the_sample_that_airflow_makes_is_none(
        self, merge: MergeOperator, submit: Submit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sample = {"conn_type": "spark", "host": "yarn", "extra": {"queue": "root.default"}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(sample))
        monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
        monkeypatch.delenv("YARN_CONF_DIR", raising=False)
        submit.shall(*[{"public.orders": "applied"}] * 2)
        merge.execute(TaskContext(merge).values)
        monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
        merge.execute(TaskContext(merge, clears=1).values)
        assert [call[call.index("--master") + 1] for call in submit.calls] == ["local[2]", "yarn"]


def test_jars_and_java_are_found_on_this_machine(merge: MergeOperator, submit: Submit) -> None:
    submit.shall({"public.orders": "applied"})
    merge.execute(TaskContext(merge).values)
    [call] = submit.calls
    assert call[call.index("--jars") + 1] == ",".join(str(jar) for jar in jars_with_log_store())
    [seen] = submit.environments
    assert seen["JAVA_HOME"] == str(java_home())
    assert seen["PYSPARK_PYTHON"] == sys.executable


def test_a_cluster_has_its_own(
    merge: MergeOperator, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"conn_type": "spark", "host": "spark://10.0.0.7:7077"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(there))
    submit.shall({"public.orders": "applied"})
    merge.execute(TaskContext(merge).values)
    [call] = submit.calls
    assert "--jars" not in call
    assert not any("bindAddress" in word for word in call)


S3_KEYS = {
    "access_key_id": "AKIA",
    "secret_access_key": "canary-of-s3",
    "session_token": "canary-of-session",
    "region": "eu-1",
}
LOCAL_JOB = {"conn_type": "spark", "host": "local[2]"}


@pytest.fixture
def in_s3(merge: MergeOperator, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """A warehouse in S3, whose keys are in the settings; its jars are not fetched for this."""
    for name, value in {"url": "s3://lake/w", **S3_KEYS}.items():
        monkeypatch.setenv(f"TIDELINE_WAREHOUSE__{name.upper()}", value)
    monkeypatch.setattr(spark_job, "job_jars", lambda settings: [Path("/jars/s3a.jar")])
    submit.shall({"public.orders": "applied"})
    return submit


def test_settings_of_s3_reach_the_job_by_its_environment_alone(
    merge: MergeOperator, in_s3: Submit, tmp_path: Path, task_log: TaskLog
) -> None:
    """Neither key nor session token is in a log, a plan, an XCom or an argument."""
    context = TaskContext(merge)
    returned = merge.execute(context.values)
    [call], [seen] = in_s3.calls, in_s3.environments
    handed = json.loads(seen["TIDELINE_SPARK_SETTINGS"])
    assert handed["spark.hadoop.fs.s3a.bucket.lake.secret.key"] == "canary-of-s3"
    assert handed["spark.hadoop.fs.s3a.bucket.lake.session.token"] == "canary-of-session"
    assert call[call.index("--jars") + 1] == "/jars/s3a.jar"
    shown = {name: getattr(merge, name) for name in type(merge).template_fields}
    stored = [path.read_text() for path in (tmp_path / "store").rglob("*.json")]
    assert "Spark-Submit cmd: " in task_log.text and any("public.orders" in one for one in stored)
    for text in (call, task_log.text, shown, returned, context.xcoms, stored):
        assert "canary" not in str(text)
    assert "TIDELINE_SPARK_SETTINGS" not in os.environ


@pytest.mark.parametrize(
    ("connection", "handed"),
    [
        (LOCAL_JOB, True),
        ({"conn_type": "spark", "host": "spark://10.0.0.7:7077"}, True),
        ({"conn_type": "spark", "host": "yarn"}, False),
        # What the provider takes for YARN, and writes the environment into arguments for.
        ({"conn_type": "spark", "host": "spark://yarn-master:7077"}, False),
        ({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}, False),
    ],
)
def test_a_driver_elsewhere_is_handed_nothing(
    merge: MergeOperator,
    in_s3: Submit,
    monkeypatch: pytest.MonkeyPatch,
    connection: dict[str, Any],
    handed: bool,
) -> None:
    """The cluster itself has the access: there is no way to it that others could not read."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    settings = TidelineHook(merge.config).settings
    hook = merge._settled_hook(settings, here=False)
    hook._application_args = []
    command = hook._build_spark_submit_command("/jobs/merge.py")
    assert "canary" not in str(command)
    assert ("TIDELINE_SPARK_SETTINGS" in str(hook._env)) is handed
    assert "canary" not in str(merge.env_vars)


SIZES = {"executor_memory": "3g", "executor_cores": "2", "cores_max": "8"}
STANDALONE = {"conn_type": "spark", "host": "spark://10.0.0.7:7077"}
IN_CLUSTER = {"deploy-mode": "cluster"}


@pytest.fixture
def on_cluster(merge: MergeOperator, monkeypatch: pytest.MonkeyPatch) -> MergeOperator:
    """With settings for a cluster; its secret is a canary."""
    values = {
        **SIZES,
        "driver_host": "10.0.0.2",
        "authenticate_secret": "canary-of-spark",
        "py_files": "/dist/tideline.whl",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"TIDELINE_MERGE__{name.upper()}", value)
    return merge


def built(
    merge: MergeOperator, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """The command line of spark-submit, and what is handed on by the environment."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    hook = merge._settled_hook(TidelineHook(merge.config).settings, here=False)
    hook._application_args = []
    command = hook._build_spark_submit_command("/jobs/merge.py")
    return command, json.loads((hook._env or {}).get("TIDELINE_SPARK_SETTINGS", "{}"))


def test_a_cluster_gets_sizes_as_settings_and_its_secret_by_the_environment(
    on_cluster: MergeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, handed = built(on_cluster, monkeypatch, STANDALONE)
    assert {
        "spark.executor.memory=3g",
        "spark.executor.cores=2",
        "spark.cores.max=8",
        "spark.driver.host=10.0.0.2",
        "spark.driver.bindAddress=10.0.0.2",
        "spark.tideline.sharedFiles=false",
    } <= set(command)
    assert "canary" not in str(command) and "--py-files" not in command
    assert handed["spark.authenticate.secret"] == "canary-of-spark"
    assert handed["spark.network.crypto.enabled"] == "true"
    assert "canary" not in str({n: getattr(on_cluster, n) for n in on_cluster.template_fields})


def test_a_driver_in_the_cluster_gets_the_wheel_and_no_address(
    on_cluster: MergeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"conn_type": "spark", "host": "yarn", "extra": IN_CLUSTER}
    command, handed = built(on_cluster, monkeypatch, there)
    assert command[command.index("--py-files") + 1] == "/dist/tideline.whl"
    assert "spark.executor.memory=3g" in command
    assert not any("spark.driver.host" in word for word in command)
    assert handed == {} and "canary" not in str(command)


def test_a_local_master_gets_nothing_of_it(
    on_cluster: MergeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, handed = built(on_cluster, monkeypatch, LOCAL_JOB)
    assert not any("spark.executor." in word for word in command)
    assert handed == {}


def test_a_driver_in_a_standalone_cluster_is_refused(
    on_cluster: MergeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Misconfigured, match="cannot run in a standalone cluster") as refused:
        built(on_cluster, monkeypatch, {**STANDALONE, "extra": IN_CLUSTER})
    assert "deploy mode of the connection spark_default to client" in str(refused.value.hint)


def test_the_installed_spark_is_given_its_jars_on_a_cluster_too(
    on_cluster: MergeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver here has no jars but Spark's, whatever the cluster has. (Another Spark's
    spark-submit is first on PATH in the test above.)"""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    command, _ = built(on_cluster, monkeypatch, STANDALONE)
    assert command[command.index("--jars") + 1] == ",".join(
        str(jar) for jar in jars_with_log_store()
    )


def test_the_own_environment_of_a_task_stays(
    config: Path, in_s3: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"MINE": "1"}
    merge = MergeOperator(
        task_id="merge", tables=["public.orders"], config=str(config), env_vars=own
    )
    hook = merge._settled_hook(TidelineHook(str(config)).settings, here=True)
    assert {"MINE", "TIDELINE_SPARK_SETTINGS", "JAVA_HOME"} <= hook._env_vars.keys()


def test_without_a_connection_no_line_speaks_of_yarn(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The Spark provider takes YARN where it finds none, and logs that."""
    merge = MergeOperator(task_id="merge", tables=["public.orders"], config=str(config))
    assert connection_absent(CONNECTION) is not None
    hook = merge._settled_hook(TidelineHook(str(config)).settings, here=True)
    assert hook._connection["master"] == "local[2]"
    assert "yarn" not in "".join(capfd.readouterr())
    assert f"AIRFLOW_CONN_{CONNECTION.upper()}" not in os.environ


def test_files_need_no_settings(merge: MergeOperator, submit: Submit) -> None:
    submit.shall({"public.orders": "applied"})
    merge.execute(TaskContext(merge).values)
    [seen] = submit.environments
    assert seen["TIDELINE_SPARK_SETTINGS"] is None


def test_spark_is_found_beside_python(
    merge: MergeOperator, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts Airflow by its path has no folder of programs on PATH."""
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("PATH", "/nowhere")
    assert local_environment()["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Misconfigured, match="no Spark is installed where Airflow runs its tasks"):
        local_environment()


def test_the_spark_that_runs_is_the_one_that_jars_are_chosen_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Spark's spark-submit, first on PATH, starts that Spark unless it is given another."""
    package = Path(pyspark.__file__).parent
    other = tmp_path / "bin"
    other.mkdir()
    for name in ("spark-submit", "find-spark-home"):
        shutil.copy(package / "bin" / name, other)
    (other / "spark-class").write_text("#!/bin/sh\necho version another\n")
    (other / "spark-class").chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SPARK_HOME", raising=False)

    def started() -> str:
        done = subprocess.run(
            ["spark-submit", "--version"],
            env={**os.environ, **local_environment()},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout + done.stderr

    assert f"version {installed_spark()}" in started()
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert "version another" in started(), "whoever names a Spark gets that one"


def test_the_job_is_the_installed_one() -> None:
    assert (
        Path(application(APPLICATION_VARIABLE, "merge.py"))
        == Path(__file__).resolve().parents[2] / "spark_jobs" / "tideline_spark" / "merge.py"
    )


def test_receipts_as_a_table() -> None:
    one = TableReceipt("public.orders", Outcome.APPLIED, 4, 40, rows_read=12, inserted=3)
    title, head, line = format_receipts([one]).splitlines()
    assert title == "merged:"
    assert head.split()[:3] == ["table", "outcome", "read"]
    assert line.split() == ["public.orders", "applied", "12", "3", "0", "0", "40", "0.0"]


def test_assets_are_named_injectively() -> None:
    names = ["public.orders", '"public"."or.ders"', '"pub.lic".orders', "Public.orders"]
    assets = {(asset.name, asset.uri) for name in names if (asset := table_asset("shop", name))}
    assert len(assets) == len(names)
    assert isinstance(MERGED, AssetAlias)


def plan(plan_id: str, tables: Sequence[str] | None) -> Plan:
    schema = TableSchema("t", (Column("id", "int64", "bigint", nullable=False),), ("id",))
    planned: list[Any] = [
        TablePlan(
            table=table,
            target=f"file:///w/{table}",
            schema=schema,
            schemas={},
            parts=(),
            from_manifest=1,
            from_seq=10,
            to_manifest=4,
            to_seq=40,
            app_id="app",
        )
        for table in tables or ()
    ]
    held = {"public.quarantined": "it has no key"}
    return Plan(
        plan_id=plan_id,
        pipeline="shop",
        incarnation="i",
        store_url="file:///s",
        to_manifest=4,
        tables=tuple(planned),
        delayed=held,
    )
