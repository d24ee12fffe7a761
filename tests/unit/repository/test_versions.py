"""A range is what was run: the packages' ranges end where the matrix' locks are, and the page has
the result of just these versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from devtools.matrix import BEGIN, COLUMNS, END, NAMES, RUNS, TESTS, lock_of
from tideline.spark_versions import FIRST, spark_line
from tideline.warehouse.delta.jars import VERSION

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "VERSIONS.md").read_text()
_PINNED = re.compile(r"^([a-z0-9-]+)==([^\s;\\]+)", re.MULTILINE)
SPARK_PROVIDER = "apache-airflow-providers-apache-spark"


def locked(name: str) -> dict[str, str]:
    return dict(_PINNED.findall(lock_of(name).read_text()))


def dependency(project: Path, name: str) -> str:
    """The range of ``name`` in the project's dependencies and extras."""
    found = tomllib.loads(project.read_text())["project"]
    wanted = [*found["dependencies"]]
    for extra in found.get("optional-dependencies", {}).values():
        wanted += extra
    [one] = [text for text in wanted if re.split(r"[<>=!]", text)[0] == name]
    return str(one).removeprefix(name)


def test_the_range_of_spark_ends_where_it_was_run() -> None:
    oldest, newest = (locked(name)["pyspark"] for name in NAMES)
    given = dependency(ROOT / "pyproject.toml", "pyspark").split(",")
    assert {given[0], given[-1]} == {f">={oldest}", f"<={newest}"}
    assert (oldest, newest) == (FIRST["4.0"], FIRST["4.2"])
    left_out = {one.removeprefix("!=") for one in given[1:-1]}
    assert left_out == {f"4.1.{patch}" for patch in range(int(FIRST["4.1"].rpartition(".")[2]))}


@pytest.mark.parametrize("name", ["apache-airflow", SPARK_PROVIDER])
def test_the_ranges_of_airflow_begin_where_they_were_run(name: str) -> None:
    project = ROOT / "plugins" / "pyproject.toml"
    assert dependency(project, name).split(",")[0] == f">={locked('oldest')[name]}"


def test_airflow_ends_with_the_line_that_was_run() -> None:
    line, _, _ = locked("newest")["apache-airflow"].rpartition(".")
    major, minor = line.split(".")
    given = dependency(ROOT / "plugins" / "pyproject.toml", "apache-airflow")
    assert given.endswith(f",<{major}.{int(minor) + 1}")


@pytest.mark.parametrize("name", NAMES)
def test_pyspark_and_its_client_are_one_version(name: str) -> None:
    found = locked(name)
    assert found["pyspark"] == found["pyspark-client"]
    assert spark_line(found["pyspark"])


@pytest.mark.parametrize("run", RUNS)
def test_the_page_has_a_green_result_of_these_versions(run: str) -> None:
    table = PAGE.partition(BEGIN)[2].partition(END)[0].splitlines()[2:]
    lines = [[word.strip() for word in line.strip("|").split("|")] for line in table]
    [result] = [dict(zip(COLUMNS, line, strict=True)) for line in lines if line[0] == run]
    found = locked(run.partition("/")[0])
    assert result["Spark"] == found["pyspark"]
    assert result["Delta"] == VERSION
    assert result["Airflow"] == found["apache-airflow"]
    assert result["Spark provider"] == found[SPARK_PROVIDER]
    assert int(result["passed"]) > 150 and result["failed"] == "0"


def test_the_page_names_the_default() -> None:
    default = dict(_PINNED.findall((ROOT / "constraints.txt").read_text()))
    [spark] = re.findall(r"^\| Spark \| \S+ \| (\S+) \|", PAGE, re.MULTILINE)
    [airflow] = re.findall(r"^\| Airflow \| \S+ \| (\S+) \|", PAGE, re.MULTILINE)
    assert (spark, airflow) == (default["pyspark"], default["apache-airflow"])


def test_every_folder_of_tests_that_it_runs_exists() -> None:
    wanted = [one for tests in TESTS.values() for one in tests]
    assert [one for one in wanted if not (ROOT / one).exists()] == []
