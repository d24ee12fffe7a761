"""The archive of Spark's classes: named to Java when it is whole and made of what is there."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tideline import local_spark
from tideline.local_spark import SHORT_LIVED, archive_location, class_archive, short_lived

AGAIN_S = 2_000_000_000


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, a Spark and a cache, none of them more than files."""
    library = tmp_path / "java" / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.write_text("java")
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("TIDELINE_CACHE", str(tmp_path / "the cache"))
    return tmp_path


def put(content: str = "classes", size: int | None = None) -> Path:
    place = archive_location()
    assert place is not None
    path = place.named(len(content) if size is None else size)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_without_an_archive_none_is_named() -> None:
    assert class_archive() is None
    assert short_lived() == SHORT_LIVED


def test_an_archive_is_named_and_java_says_nothing_of_it() -> None:
    path = put()
    assert " " in str(path)
    options = shlex.split(short_lived())
    assert options[: len(SHORT_LIVED.split())] == SHORT_LIVED.split()
    assert options[-1] == f"-XX:SharedArchiveFile={path}"
    assert "-Xlog:cds*=off" in options


def test_one_that_was_cut_short_is_not_named() -> None:
    put("class", size=7)
    assert class_archive() is None


def test_one_of_the_same_spark_in_another_state_is_not_named(machine: Path) -> None:
    put()
    assert class_archive() is not None
    os.utime(machine / "spark" / "jars", (AGAIN_S, AGAIN_S))
    assert class_archive() is None


@pytest.mark.parametrize("newer", ["java, longer", None])
def test_one_of_another_java_is_not_named(machine: Path, newer: str | None) -> None:
    path = put()
    library = machine / "java" / "lib" / "server" / "libjvm.so"
    library.write_text(newer or library.read_text())
    os.utime(library, (AGAIN_S, AGAIN_S))
    assert class_archive() is None
    place = archive_location()
    assert place is not None and place.folder == path.parent


def test_each_spark_has_a_folder(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = archive_location()
    (machine / "other" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(machine / "other"))
    second = archive_location()
    assert first is not None and second is not None
    assert first.folder != second.folder


@pytest.mark.parametrize("gone", ["java", "spark"])
def test_nothing_is_asked_of_a_machine_without(
    machine: Path, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / gone).rename(machine / "away")
    assert archive_location() is None
    assert short_lived() == SHORT_LIVED


def test_a_path_that_options_cannot_hold_is_none(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELINE_CACHE", str(machine / 'a "cache"'))
    assert archive_location() is None


def test_a_user_without_a_home_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(local_spark, "cache_location", no_home)
    assert short_lived() == SHORT_LIVED


def test_without_a_java_home_the_one_on_path_is_taken(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = machine / "java" / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    (machine / "bin").mkdir()
    (machine / "bin" / "java").symlink_to(program)
    before = archive_location()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(machine / "bin"))
    assert before is not None and archive_location() == before
