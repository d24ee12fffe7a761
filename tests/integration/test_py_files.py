"""A job in a Python that has what Tideline is built on, and not Tideline: its code comes as a
wheel, as `merge.py_files` brings it to a driver in a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pyspark
import pytest

from tests.fixtures.installed import ROOT, build_core
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract import layout
from tideline.contract.receipt import Outcome
from tideline.java import java_home
from tideline.local_spark import LOCAL, QUICK_LAUNCH, short_lived
from tideline.planner import read_receipt
from tideline.warehouse.delta.jars import delta_jars

T = "public.t"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of a node: packages are found in this one's folder, whose lines for what lies
    elsewhere, as Tideline does, count only here."""
    venv.create(tmp_path / "node", with_pip=False, symlinks=True)
    [packages] = (tmp_path / "node").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return tmp_path / "node" / "bin" / "python"


def submit(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run spark-submit in ``folder``; the program is copied there, as a cluster does."""
    program = folder / "job" / "merge.py"
    program.parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / "spark_jobs" / "tideline_spark" / "merge.py", program)
    home = Path(pyspark.__file__).parent
    options = [arg for arg in words if arg.endswith(".whl")]
    local = {**LOCAL, "spark.driver.extraJavaOptions": short_lived()}
    return subprocess.run(
        [
            str(home / "bin" / "spark-submit"),
            *("--master", "local[1]", "--driver-memory", "1g"),
            *(word for one in local.items() for word in ("--conf", "=".join(one))),
            *("--jars", ",".join(str(jar) for jar in delta_jars())),
            *(["--py-files", *options] if options else []),
            str(program),
            *(arg for arg in words if arg not in options),
        ],
        env={
            "HOME": str(folder),
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": str(python),
            "SPARK_HOME": str(home),
            "SPARK_LAUNCHER_OPTS": QUICK_LAUNCH,
            "PATH": f"{python.parent}{os.pathsep}{os.defpath}",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_a_merge_by_the_wheel_alone(tmp_path: Path, python: Path) -> None:
    look = "import msgspec, pyarrow, pyspark, importlib.util as u; print(u.find_spec('tideline'))"
    found = subprocess.run(
        [str(python), "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout == "None\n", "Tideline is installed here: the wheel is not needed"
    history = History(tmp_path / "shop")
    history.commit(Shaped(schema_of(T, {"id": "int32", "a": "string"}, ["id"])))
    history.commit(Row(T, "c", {"id": 1, "a": "one"}), Row(T, "c", {"id": 2, "a": "two"}))
    plan = history.plan()
    url, pipeline = history.settings.store.url, history.settings.pipeline
    places = (
        *("--plan", layout.object_url(url, layout.plan_key(pipeline, plan.plan_id))),
        *("--receipt", layout.object_url(url, layout.receipt_key(pipeline, plan.plan_id))),
    )
    wheel = build_core(tmp_path / "dist")
    run = submit(python, tmp_path, str(wheel), *places)
    assert run.returncode == 0, run.stdout + run.stderr
    receipt = read_receipt(history.settings, plan.plan_id)
    assert receipt is not None
    assert [(one.table, one.outcome) for one in receipt.tables] == [(T, Outcome.APPLIED)]
