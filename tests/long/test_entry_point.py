"""``spark-submit merge.py``: a plan's address in, a receipt beside it, an exit status.

`make test` starts it in `tests/airflow` and in the demo.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract import layout
from tideline.contract.receipt import Outcome
from tideline.java import java_home
from tideline.planner import read_receipt
from tideline.warehouse.delta.jars import delta_jars

T = "public.t"
U = "public.u"
CANARY = "canary-5f2c"


def submit(plan_url: str, receipt_url: str) -> subprocess.CompletedProcess[str]:
    import tideline_spark.merge

    jars = ",".join(str(jar) for jar in delta_jars())
    scripts = Path(sys.executable).parent
    return subprocess.run(
        [
            str(scripts / "spark-submit"),
            *("--master", "local[2]", "--driver-memory", "1g", "--jars", jars),
            str(tideline_spark.merge.__file__),
            *("--plan", plan_url, "--receipt", receipt_url),
        ],
        env={
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
        },
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )


@pytest.mark.timeout(1_200)
def test_one_bad_table_fails_the_job_but_not_the_others(tmp_path: Path) -> None:
    """The address holds a space: it arrives percent-encoded, and is one path all the same."""
    history = History(tmp_path / "with space")
    history.commit(
        Shaped(schema_of(T, {"id": "int32", "a": "string"}, ["id"])),
        Shaped(schema_of(U, {"id": "int32"}, ["id"])),
    )
    manifest = history.commit(
        Row(T, "c", {"id": 1, "a": CANARY}), Row(T, "c", {"id": 2}), Row(U, "c", {"id": 1})
    )
    torn = next(part for part in manifest.parts if part.table == T)
    history.part_path(torn.key).write_bytes(history.part_path(torn.key).read_bytes()[:-40])
    plan = history.plan()
    url, pipeline = history.settings.store.url, history.settings.pipeline
    run = submit(
        layout.object_url(url, layout.plan_key(pipeline, plan.plan_id)),
        layout.object_url(url, layout.receipt_key(pipeline, plan.plan_id)),
    )
    assert run.returncode == 1, run.stderr
    # spark-submit prints what the job prints, errors too, on its standard output.
    assert f"{T} failed" in run.stdout
    receipt = read_receipt(history.settings, plan.plan_id)
    assert receipt is not None
    outcomes = {table.table: table.outcome for table in receipt.tables}
    assert outcomes == {T: Outcome.FAILED, U: Outcome.APPLIED}
    receipts = history.root / "store" / pipeline / "receipts"
    assert [path.name for path in receipts.iterdir()] == [f"{plan.plan_id}.json"]
    assert CANARY not in run.stdout + run.stderr


@pytest.mark.timeout(1_200)
def test_a_missing_plan_leaves_no_receipt(tmp_path: Path) -> None:
    receipt = tmp_path / "receipt.json"
    run = submit((tmp_path / "plan.json").as_uri(), receipt.as_uri())
    assert run.returncode == 2, run.stderr
    assert "CorruptData" in run.stdout and "plan.json" in run.stdout
    assert not receipt.exists()
