"""The log store's jar: made once, again when what it is made of changes, never half there."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.java import find_java
from tideline.warehouse.delta import log_store
from tideline.warehouse.delta.log_store import (
    CLASS,
    SOURCE,
    TAIL_CLASS,
    TAIL_SOURCE,
    compile_to,
    log_store_jar,
)

SOURCES = [SOURCE, TAIL_SOURCE]
DELTA = (Path("/jars/delta-storage-4.4.0.jar"), Path("/jars/delta-spark_4.1_2.13-4.4.0.jar"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TIDELINE_CACHE", str(folder))
    return folder


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, cache: Path) -> list[Path]:
    """A compiler that notes what it compiles, and makes a class of each."""
    seen: list[Path] = []

    def compile_it(classes: Path, sources: Sequence[Path], delta: Any) -> None:
        (classes / "tideline").mkdir()
        for source in sources:
            seen.append(source)
            (classes / "tideline" / f"{source.stem}.class").write_bytes(source.read_bytes())

    monkeypatch.setattr(log_store, "compile_to", compile_it)
    return seen


def test_it_is_made_once(compiled: list[Path], cache: Path) -> None:
    jars = {log_store_jar(DELTA) for _ in range(3)}
    assert compiled == SOURCES
    [jar] = jars
    assert [path.name for path in cache.iterdir()] == [jar.parent.name]
    with zipfile.ZipFile(jar) as found:
        assert found.namelist() == [
            "tideline/ConditionalLogStore.class",
            "tideline/TailLogStore.class",
        ]


def test_it_is_made_again_when_its_source_changes(
    compiled: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = log_store_jar(DELTA)
    changed = tmp_path / "ConditionalLogStore.java"
    changed.write_bytes(SOURCE.read_bytes() + b"\n")
    monkeypatch.setattr(log_store, "SOURCE", changed)
    second = log_store_jar(DELTA)
    assert compiled == [*SOURCES, changed, TAIL_SOURCE]
    assert first != second
    with zipfile.ZipFile(second) as jar:
        assert jar.read("tideline/ConditionalLogStore.class") == changed.read_bytes()


def test_it_is_made_again_for_another_release_of_delta(compiled: list[Path]) -> None:
    newer = (DELTA[0].with_name("delta-storage-4.5.0.jar"), DELTA[1])
    assert log_store_jar(DELTA) != log_store_jar(newer)
    moved = [Path("/elsewhere") / path.name for path in DELTA]
    assert log_store_jar(DELTA) == log_store_jar(moved), "wherever the jars are"
    assert len(compiled) == 2 * len(SOURCES)


def test_a_jar_that_is_gone_is_made_again(compiled: list[Path]) -> None:
    shutil.rmtree(log_store_jar(DELTA).parent)
    assert log_store_jar(DELTA).is_file()
    assert len(compiled) == 2 * len(SOURCES)


def test_who_was_faster_is_taken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs that start on a machine at once."""

    def compile_it(classes: Path, sources: Any, delta: Any) -> None:
        (classes / "Late.class").touch()
        other = cache / f"log-store-{log_store._state(delta)}"
        other.mkdir()
        (other / "tideline-log-stores.jar").write_text("of the other")

    monkeypatch.setattr(log_store, "compile_to", compile_it)
    assert log_store_jar(DELTA).read_text() == "of the other"
    assert len(list(cache.iterdir())) == 1


def test_a_failure_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(classes: Path, sources: Any, delta: Any) -> None:
        (classes / "Half.class").touch()
        raise Unavailable("the log store could not be made")

    monkeypatch.setattr(log_store, "compile_to", fail)
    with pytest.raises(Unavailable):
        log_store_jar(DELTA)
    assert list(cache.iterdir()) == []


# -- the compiler --------------------------------------------------------------------------------


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark with one jar, and a Java that is put together by the test in ``bin/java``."""
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "compiler.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    version = 'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi'
    program.write_text("\n".join(["#!/bin/sh", version, *lines, ""]))
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))


def test_the_compiler_knows_spark_and_delta(
    spark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own parts come from Spark, and what the class extends from Delta."""
    java(tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/words; touch "$5/A.class"')
    classes = tmp_path / "classes"
    classes.mkdir()
    compile_to(classes, SOURCES, DELTA)
    words = (tmp_path / "words").read_text().split()
    path = ":".join(str(one) for one in (spark / "jars" / "compiler.jar", *DELTA))
    assert [words[words.index(one) + 1] for one in ("-cp", "-classpath")] == [path, path]
    assert words[-2:] == [str(source) for source in SOURCES]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["echo 'Line 12: no such type' >&2; exit 1"], "Line 12: no such type"),
        (["echo 'on the other stream'; exit 1"], "on the other stream"),
        (["exit 0"], r"could not be made"),
    ],
)
def test_a_failure_to_compile_is_named(
    spark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], named: str
) -> None:
    java(tmp_path, monkeypatch, *lines)
    with pytest.raises(Unavailable, match=f"the log store could not be made: .*{named}|{named}"):
        compile_to(tmp_path, SOURCES, DELTA)


def test_a_compiler_that_does_not_end(
    spark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(log_store, "_TIMEOUT_S", 0.2)
    with pytest.raises(Unavailable, match="could not be made: TimeoutExpired"):
        compile_to(tmp_path, SOURCES, DELTA)


def test_a_spark_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(Misconfigured, match="no Spark is installed here"):
        compile_to(tmp_path, SOURCES, DELTA)


def test_no_java(spark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_store, "java_home", lambda: _none())
    with pytest.raises(Misconfigured, match="no Java"):
        compile_to(tmp_path, SOURCES, DELTA)


def _none() -> Path:
    raise Misconfigured("no Java 17 or newer was found")


@pytest.mark.parametrize(("source", "told"), [(SOURCE, CLASS), (TAIL_SOURCE, TAIL_CLASS)])
def test_the_class_that_delta_is_told_is_the_one_that_is_made(source: Path, told: str) -> None:
    text = source.read_text()
    package = re.search(r"^package (\w+);", text, re.MULTILINE)
    name = re.search(r"^public class (\w+) ", text, re.MULTILINE)
    assert package and name
    assert f"{package[1]}.{name[1]}" == told
    assert source.name == f"{name[1]}.java"


def test_sparks_own_compiler_names_what_is_wrong(tmp_path: Path) -> None:
    """With the real Java and the real Spark."""
    assert find_java() is not None
    wrong = tmp_path / "Wrong.java"
    wrong.write_text("package tideline;\npublic class Wrong { int x = missing; }\n")
    with pytest.raises(Unavailable, match=r"the log store could not be made: .*missing"):
        compile_to(tmp_path, [wrong], ())
    right = tmp_path / "Right.java"
    right.write_text("package tideline;\npublic class Right {}\n")
    compile_to(tmp_path, [right], ())
    assert [path.name for path in tmp_path.rglob("*.class")] == ["Right.class"]
