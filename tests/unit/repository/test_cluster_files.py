"""What the files for Kubernetes name is in the code: they cannot be run here."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.code import nodes
from tideline.cluster_spark import executor_settings
from tideline.contract.layout import encode_name, plan_key, receipt_key
from tideline.settings import Merge, Warehouse
from tideline.spark_versions import spark_line
from tideline.warehouse.hadoop import place_settings
from tideline_spark.formats.delta.format import DELTA

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "docs" / "cluster"
JOBS = ROOT / "spark_jobs" / "tideline_spark"


@pytest.fixture(scope="module")
def application() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FILES / "spark-application.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (FILES / "Dockerfile").read_text()


def test_it_is_a_spark_application(application: dict[str, Any]) -> None:
    assert application["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert application["kind"] == "SparkApplication"
    assert (application["spec"]["type"], application["spec"]["mode"]) == ("Python", "cluster")


def test_jobs_run_on_the_spark_that_it_names(application: dict[str, Any]) -> None:
    assert spark_line(application["spec"]["sparkVersion"])


def test_the_program_is_a_job_that_the_image_has(
    application: dict[str, Any], dockerfile: str
) -> None:
    program = Path(application["spec"]["mainApplicationFile"].removeprefix("local://"))
    assert (JOBS / program.name).is_file()
    copied = re.sub(r"\\\n", "", dockerfile)
    assert re.search(rf"^COPY .*tideline_spark/{program.name}.* {program.parent}/$", copied, re.M)
    assert all((ROOT / one).is_file() for one in re.findall(r"spark_jobs/\S+\.py", dockerfile))


def test_the_job_takes_its_arguments(
    application: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsed by the job itself, with a plan's name for PLAN; the addresses are those that the
    planner stores that plan under."""
    from tideline_spark import merge

    plan = "tideline_merge/manual__1/merge@20261121T120000.000000"
    monkeypatch.setattr(merge, "run_job", lambda *given, **named: 0)
    monkeypatch.setattr(argparse.ArgumentParser, "error", lambda _, text: pytest.fail(text))
    given = application["spec"]["arguments"]
    assert sum("PLAN" in word for word in given) == 2
    words = [word.replace("PLAN", encode_name(plan)) for word in given]
    assert merge.main(words) == 0
    options = dict(word.removeprefix("--").split("=", 1) for word in words)
    assert options["plan"].endswith(f"/{plan_key('shop', plan)}")
    assert options["receipt"].endswith(f"/{receipt_key('shop', plan)}")


def test_its_settings_are_ours(
    application: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/token")
    known = {
        **place_settings([Warehouse(url="s3://b/w", region="eu-1")]),
        **executor_settings(Merge(), "k8s://https://kubernetes"),
    }
    known["spark.hadoop.fs.s3a.endpoint.region"] = "eu-central-1"
    given = application["spec"]["sparkConf"]
    provider = "aws.credentials.provider"
    chain = known[f"spark.hadoop.fs.s3a.bucket.b.{provider}"].split(",")
    known[f"spark.hadoop.fs.s3a.{provider}"] = next(one for one in chain if "WebIdentity" in one)
    assert given == {name: known.get(name) for name in given}


def test_a_cluster_s_own_configuration_makes_what_a_job_s_settings_would() -> None:
    """DEPLOYMENT's two lines, which YARN and EMR need, and the settings that its text names."""
    page = (ROOT / "docs" / "DEPLOYMENT.md").read_text()
    place = Warehouse(url="s3://b/w", encryption="sse-kms", kms_key="k")
    ours = {
        name.replace(".bucket.b.", "."): value for name, value in place_settings([place]).items()
    }
    [block] = re.findall(r"^```\n((?:spark\.hadoop\.\S+ +\S+\n)+)```$", page, re.M)
    lines = dict(line.split() for line in block.splitlines())
    assert lines == {name: value for name, value in ours.items() if name.endswith(".impl")}
    assert len(lines) == 2 and "the two lines" in (ROOT / "docs" / "CLUSTER.md").read_text()
    named = re.search(r"`(fs\.s3a\.encryption\.algorithm)` and `(\.key)`", page)
    assert named is not None
    stem = f"spark.hadoop.{named[1].rpartition('.')[0]}"
    assert {f"spark.hadoop.{named[1]}", f"{stem}{named[2]}"} <= ours.keys()
    [provider] = re.findall(r"`(spark\.hadoop\.\S+\.provider)`", page)
    assert provider in ours
    [(name, value)] = re.findall(r"`(spark\.delta\.logStore\.\S+)=(\S+)`", page)
    assert DELTA.settings[name] == DELTA.settings[name.replace(".s3.", ".s3a.")] == value


def test_what_the_image_runs_exists(dockerfile: str) -> None:
    [(module, name)] = re.findall(r"from ([\w.]+) import (\w+)", dockerfile)
    assert hasattr(importlib.import_module(module), name)
    wheel = "tideline_cdc-*.whl"
    assert wheel in dockerfile and "dist/" + wheel in (ROOT / "Makefile").read_text()
    assert (ROOT / "constraints.txt").is_file()


def test_the_image_has_what_jobs_import(dockerfile: str) -> None:
    """Besides Spark's own Python, and what the wheel brings without an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = {re.split(r"\W", one.replace("-", "_"))[0] for one in project["dependencies"]}
    found = set[str]()
    for path in JOBS.rglob("*.py"):
        for node in nodes(path.read_text()):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Import):
                found.update(one.name.partition(".")[0] for one in node.names)
    others = found - set(sys.stdlib_module_names) - brought
    others -= {"tideline", "tideline_spark", "pyspark", "py4j"}
    # For BigQuery: docs/BIGQUERY.md says that the image lacks them.
    others -= {"google", "grpc", "sqlglot"}
    [installed] = re.findall(r"^ +/opt/cdc/tideline_cdc-\*\.whl(.*)$", dockerfile, re.M)
    assert others == set(installed.split())
    assert all(f"`{one}`" in (ROOT / "docs" / "CLUSTER.md").read_text() for one in others)


def test_classes_and_settings_that_the_page_names_exist() -> None:
    page = (ROOT / "docs" / "CLUSTER.md").read_text()
    fields = set(Merge.model_fields)
    named = set(re.findall(r"`merge\.(\w+)( = [^`]*)?`", page))
    assert {name for name, _ in named} <= fields
    [rows] = re.findall(r"\| setting of `\[merge\]`.*\n\|---.*\n((?:\|.*\n)+)", page)
    first = {
        name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert first <= fields and len(first) >= 8
