"""What doctor says of ``merge.jars``, with ``--airflow`` and without; nothing is started."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tideline.settings import make_settings
from tideline.warehouse.job_jars import classes_everywhere, classes_in_s3
from tideline_console import doctor_jars
from tideline_console.doctor_jars import check_jars, check_named_jars


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_jars, "spark_home", lambda: None)


def settings(jars: str | None, place: str = "s3://b") -> Any:
    return make_settings(
        {
            "pipeline": "p",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": f"{place}/store"},
            "warehouse": {"url": f"{place}/warehouse"},
            "merge": {} if jars is None else {"jars": jars},
        }
    )


def jar(path: Path, classes: Mapping[str, str] | Sequence[str]) -> str:
    with zipfile.ZipFile(path, "w") as file:
        for name in classes:
            file.writestr(f"{name.replace('.', '/')}.class", b"")
    return str(path)


def test_those_in_the_cache_are_not_looked_into() -> None:
    assert check_named_jars(settings(None)) == []


def test_a_jar_that_is_not_there(tmp_path: Path) -> None:
    there = jar(tmp_path / "a.jar", classes_everywhere())
    [found] = check_named_jars(settings(f"{there},{tmp_path}/b.jar"))
    assert (found.name, found.level) == ("jars", "warning")
    assert found.message == f"{tmp_path}/b.jar cannot be read here"


def test_each_jar_that_is_absent_is_an_error(tmp_path: Path) -> None:
    there = jar(tmp_path / "b.jar", classes_everywhere())
    absent = [f"{tmp_path}/a.jar", f"file://{tmp_path}/c.jar"]
    found = list(check_jars(settings(there), [absent[0], there, absent[1]]))
    assert [one.level for one in found] == ["error", "error"]
    assert [one.message.partition(" ")[0] for one in found] == absent


def test_jars_that_are_there_are_one_line(tmp_path: Path) -> None:
    first, *others = [jar(tmp_path / f"{name}.jar", classes_everywhere()) for name in "abc"]
    [found] = check_jars(settings(first, "file:///w"), [f"file://{first}", *others])
    assert (found.level, found.message) == ("ok", f"file://{first}, and 2 more")


def test_delta_without_the_jars_for_s3(tmp_path: Path) -> None:
    there = jar(tmp_path / "delta.jar", classes_everywhere())
    [found] = check_jars(settings(there), [there])
    assert found.level == "error" and "lacks what jobs need: hadoop-aws" in found.message
    assert "tideline-log-stores.jar" in found.message
    assert "docs/DEPLOYMENT.md" in str(found.fix)
    [in_files] = check_jars(settings(there, "file:///w"), [there])
    assert in_files.level == "ok"


def test_no_delta(tmp_path: Path) -> None:
    there = jar(tmp_path / "other.jar", ["a.B"])
    [found] = check_jars(settings(there, "file:///w"), [there])
    assert "lacks what jobs need: delta-spark" in found.message
    (tmp_path / "broken.jar").write_text("no archive")
    [found] = check_jars(settings(there, "file:///w"), [str(tmp_path / "broken.jar")])
    assert "lacks what jobs need: delta-spark" in found.message


def test_classes_may_be_in_any_of_them_or_in_sparks_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar(tmp_path / "a.jar", classes_everywhere())
    *some, last = classes_in_s3()
    jar(tmp_path / "b.jar", some)
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    jar(tmp_path / "spark" / "jars" / "c.jar", [last])
    pattern = f"file://{tmp_path}/*.jar"
    [without] = check_jars(settings(pattern), [pattern])
    assert without.level == "error"
    monkeypatch.setattr(doctor_jars, "spark_home", lambda: tmp_path / "spark")
    [found] = check_jars(settings(pattern), [pattern])
    assert found.level == "ok"


@pytest.mark.parametrize(
    "name", ["https://h/a.jar", "s3a://b/a.jar", "hdfs:/a.jar", "local:/a.jar"]
)
def test_jars_elsewhere_are_left_to_spark(name: str) -> None:
    [found] = check_named_jars(settings(name))
    assert (found.level, found.message) == ("ok", name)
