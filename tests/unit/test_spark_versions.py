"""Spark releases that jobs run on, those that are refused, and which one is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tideline import spark_versions
from tideline.contract.errors import Misconfigured
from tideline.spark_versions import FIRST, installed_spark, spark_line


@pytest.mark.parametrize(
    "release, line",
    [
        ("4.0.4", "4.0"),
        ("4.0.10", "4.0"),
        ("4.1.3", "4.1"),
        ("4.1.4", "4.1"),
        ("4.2.0", "4.2"),
        ("4.2.0-amzn-1", "4.2"),
        ("4.1.3-aarch64", "4.1"),
    ],
)
def test_a_release_from_the_first_of_its_line_on_is_taken(release: str, line: str) -> None:
    assert spark_line(release) == line


@pytest.mark.parametrize("release", ["4.0.0", "4.0.3", "4.1.0", "4.1.2"])
def test_an_earlier_release_of_a_line_is_refused_with_what_to_use(release: str) -> None:
    with pytest.raises(Misconfigured, match=f"Spark {release} is refused") as caught:
        spark_line(release)
    assert "use Spark 4.0.4 or a later 4.0, 4.1.3 or a later 4.1" in str(caught.value.hint)


@pytest.mark.parametrize(
    "release",
    ["4.2.0-preview2", "4.2.0.dev1", "4.2.0.dev0", "4.2.0-SNAPSHOT", "4.1.3-rc1", "4.1.4rc1"],
)
def test_what_comes_before_a_release_is_refused_with_what_to_use(release: str) -> None:
    with pytest.raises(Misconfigured, match=f"Spark {release} is refused: it comes bef") as caught:
        spark_line(release)
    assert "use Spark 4.0.4 or a later 4.0, 4.1.3 or a later 4.1" in str(caught.value.hint)


@pytest.mark.parametrize("release", ["3.5.9", "4.3.0", "4.10.1", "5.0.0", "", "master"])
def test_another_line_is_refused_with_what_to_use(release: str) -> None:
    with pytest.raises(Misconfigured, match="never run with this version") as caught:
        spark_line(release)
    assert FIRST["4.2"] in str(caught.value.hint)


def spark(folder: Path, release: str) -> Path:
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / "spark-core-other.jar").touch()
    (folder / "jars" / f"spark-core_2.13-{release}.jar").touch()
    return folder


def test_the_installed_spark_is_the_one_that_spark_submit_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark(tmp_path, "4.0.4")))
    assert installed_spark() == "4.0.4"


def test_a_spark_without_jars_is_what_its_package_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(spark_versions, "version", {"pyspark": "4.2.7"}.__getitem__)
    assert installed_spark() == "4.2.7"


def test_without_a_spark_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(spark_versions, "version", missing)
    with pytest.raises(Misconfigured, match="no Spark is installed") as caught:
        installed_spark()
    assert "tideline-cdc[spark]" in str(caught.value.hint)
