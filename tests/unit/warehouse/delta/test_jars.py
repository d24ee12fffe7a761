"""Delta's four jars: taken from the cache, fetched by what is there, never half there."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tideline.contract.errors import CorruptData, Misconfigured, Unavailable
from tideline.spark_versions import FIRST
from tideline.warehouse.delta import jars as delta_jars

JAR = "jar\n"
LINE = "4.1"
NAMES = delta_jars.jar_names(LINE)
FETCHES = (
    'for word in "$@"; do case "$word" in -DoutputDirectory=*) out=${word#*=};; esac; done\n'
    'case " $* " in *" --strict-checksums "*) ;; *) echo "checksums only warn" >&2; exit 1;; esac\n'
)
"""The beginning of an `mvn` that fetches into ``$out``."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TIDELINE_CACHE", str(folder))
    right = hashlib.sha256(JAR.encode()).hexdigest()
    for name in ("BUILDS", "SHARED"):
        monkeypatch.setattr(delta_jars, name, dict.fromkeys(getattr(delta_jars, name), right))
    monkeypatch.setattr(delta_jars, "installed_spark", lambda: FIRST[LINE])
    return folder


def fetching(changed: str = "") -> str:
    """An `mvn` that brings all that Delta needs and more, with another file for ``changed``."""
    names = " ".join([*NAMES, "spark-core"])
    return (
        f'{FETCHES}for name in {names}; do echo jar > "$out/$name-{delta_jars.VERSION}.jar"; done\n'
        + (f'echo more >> "$out/{changed}-{delta_jars.VERSION}.jar"' if changed else "")
    )


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """A PATH that holds just these programs, and a Java."""
    folder.mkdir()
    scripts["java"] = "echo 'openjdk version \"17.0.1\"' >&2"
    for name, body in scripts.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin" if "mvn" in scripts else str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_what_the_cache_holds_is_not_fetched_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache / f"delta-{delta_jars.VERSION}-spark-{LINE}"
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / f"{name}-{delta_jars.VERSION}.jar").write_text(JAR)
    monkeypatch.setenv("PATH", "/nowhere")
    assert [
        path.name.removesuffix(f"-{delta_jars.VERSION}.jar") for path in delta_jars.delta_jars()
    ] == NAMES


def test_maven_fetches_more_and_four_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn=fetching())
    found = delta_jars.delta_jars()
    assert len(found) == 4
    assert sorted(path.name for path in delta_jars.jars_folder(LINE).iterdir()) == sorted(
        path.name for path in found
    )


@pytest.mark.parametrize("name", NAMES)
def test_another_jar_than_the_one_looked_at_is_not_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn=fetching(changed=name))
    with pytest.raises(CorruptData, match=f"{name}-{delta_jars.VERSION}.jar is not the file"):
        delta_jars.delta_jars()
    assert list(cache.iterdir()) == []


def test_a_jar_that_was_changed_in_the_cache_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn=fetching())
    jar = delta_jars.delta_jars()[0]
    jar.write_bytes(b"jaR\n")
    with pytest.raises(CorruptData, match=jar.name) as caught:
        delta_jars.delta_jars()
    assert "remove its folder and run make setup" in str(caught.value.hint)


def test_a_failed_fetch_leaves_nothing_and_says_why(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn="echo 'unknown host' >&2; exit 1")
    with pytest.raises(Unavailable, match="mvn: unknown host"):
        delta_jars.delta_jars()
    assert list(cache.iterdir()) == []


def test_an_incomplete_fetch_is_refused_by_name(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn="exit 0")
    with pytest.raises(Unavailable, match="delta-storage"):
        delta_jars.delta_jars()
    assert list(cache.iterdir()) == []


def test_without_maven_spark_resolves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(command: list[str], work: Path, java: Path, extra: dict[str, str]) -> None:
        seen.append(command)
        (work / "ivy" / "jars").mkdir(parents=True)
        for name in NAMES:
            jar = work / "ivy" / "jars" / f"io.delta_{name}-{delta_jars.VERSION}.jar"
            jar.write_text(JAR)

    programs(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(delta_jars, "_run", run)
    assert len(delta_jars.delta_jars()) == 4
    assert f"io.delta:delta-spark_{LINE}_2.13:{delta_jars.VERSION}" in seen[0]


def test_java_missing_is_said_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Misconfigured, match="no Java"):
        delta_jars.delta_jars()


@pytest.mark.parametrize("line", FIRST)
def test_each_spark_has_the_jars_that_are_built_for_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    for one in FIRST:
        folder = cache / f"delta-{delta_jars.VERSION}-spark-{one}"
        folder.mkdir(parents=True)
        for name in delta_jars.jar_names(one):
            (folder / f"{name}-{delta_jars.VERSION}.jar").write_text(JAR)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(delta_jars, "installed_spark", lambda: FIRST[line])
    found = delta_jars.delta_jars()
    assert found[0].name == f"delta-spark_{line}_2.13-{delta_jars.VERSION}.jar"
    assert {path.parent.name for path in found} == {f"delta-{delta_jars.VERSION}-spark-{line}"}


def test_every_line_of_spark_has_a_build() -> None:
    assert FIRST.keys() == delta_jars.BUILDS.keys()


def test_no_jar_is_fetched_for_a_spark_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_jars, "installed_spark", lambda: "4.0.0")
    monkeypatch.setattr(delta_jars, "_fetch", lambda *_: pytest.fail("fetched"))
    with pytest.raises(Misconfigured, match=r"Spark 4\.0\.0 is refused"):
        delta_jars.delta_jars()
