"""What ``doctor --airflow`` says of jars; the rest needs an Airflow (tests/airflow)."""

from __future__ import annotations

from pathlib import Path

from tideline_console.doctor_airflow import _check_jars


def test_jars_that_are_there_are_one_line(tmp_path: Path) -> None:
    jars = [tmp_path / f"{name}.jar" for name in "abc"]
    for jar in jars:
        jar.touch()
    (found,) = _check_jars([f"file://{jars[0]}", str(jars[1]), str(jars[2])])
    assert (found.level, found.message) == ("ok", f"file://{jars[0]}, and 2 more")
    (found,) = _check_jars(["https://repository.example/one.jar"])
    assert (found.level, found.message) == ("ok", "https://repository.example/one.jar")


def test_each_jar_that_is_absent_is_an_error(tmp_path: Path) -> None:
    jars = [tmp_path / f"{name}.jar" for name in "abc"]
    jars[1].touch()
    found = list(_check_jars([str(jar) for jar in jars]))
    assert [one.level for one in found] == ["error", "error"]
    assert [str(jars[0]) in found[0].message, str(jars[2]) in found[1].message] == [True, True]
