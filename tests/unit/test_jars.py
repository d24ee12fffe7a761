"""A set of jars: taken from the cache, fetched by what is there, never half there."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tideline import jars
from tideline.contract.errors import CorruptData, Misconfigured, Unavailable
from tideline.jars import JarSet, ensure_jars, find_jars

JAR = "jar\n"
NAMES = ("one-1.0.jar", "two-2.0.jar", "three-3.0.jar")
SHA256 = hashlib.sha256(JAR.encode()).hexdigest()
SET = JarSet(
    title="Some jars",
    name="some-1.0",
    roots=("org.one:one:1.0", "org.three:three:3.0"),
    excluded=("org.*:*", "com.heavy:*", "com.light:one"),
    digests=dict.fromkeys(NAMES, SHA256),
)
FETCHES = (
    'for word in "$@"; do case "$word" in -DoutputDirectory=*) out=${word#*=};; esac; done\n'
    'case " $* " in *" --strict-checksums "*) ;; *) echo "checksums only warn" >&2; exit 1;; esac\n'
)
"""The beginning of an `mvn` that fetches into ``$out``."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TIDELINE_CACHE", str(folder))
    return folder


def fetching(changed: str = "") -> str:
    """An `mvn` that brings all that is needed and more, with another file for ``changed``."""
    names = " ".join([*NAMES, "spark-core-4.1.jar"])
    return f'{FETCHES}for name in {names}; do echo jar > "$out/$name"; done\n' + (
        f'echo more >> "$out/{changed}"' if changed else ""
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


def filled(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_text(JAR)
    return folder


def test_what_the_cache_holds_is_not_fetched_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = filled(cache / "some-1.0")
    (folder / "another.jar").write_text("not of the set")
    monkeypatch.setenv("PATH", "/nowhere")
    assert ensure_jars(SET) == [folder / name for name in NAMES]
    assert SET.folder == folder


def test_maven_fetches_more_and_those_of_the_set_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn=fetching())
    found = ensure_jars(SET)
    assert [path.name for path in found] == list(NAMES)
    assert sorted(SET.folder.iterdir()) == sorted(found)


def test_maven_is_told_the_roots_and_what_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern of a group is no exclusion of Maven's, which fails on it."""
    kept = tmp_path / "kept.xml"
    saves = 'while [ "$1" != -f ]; do shift; done; cp "$2" ' + str(kept)
    programs(tmp_path / "bin", monkeypatch, mvn=f"{fetching()}\n{saves}")
    ensure_jars(SET)
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = ElementTree.parse(kept).getroot()
    wanted = found.findall("m:dependencies/m:dependency", space)
    parts = ("m:groupId", "m:artifactId", "m:version")
    assert [tuple(one.findtext(part, None, space) for part in parts) for one in wanted] == [
        ("org.one", "one", "1.0"),
        ("org.three", "three", "3.0"),
    ]
    for one in wanted:
        unwanted = one.findall("m:exclusions/m:exclusion", space)
        assert [
            tuple(each.findtext(part, None, space) for part in parts[:2]) for each in unwanted
        ] == [("com.heavy", "*"), ("com.light", "one")]


@pytest.mark.parametrize("name", NAMES)
def test_another_jar_than_the_one_looked_at_is_not_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn=fetching(changed=name))
    with pytest.raises(CorruptData, match=f"{name} is not the file"):
        ensure_jars(SET)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_jar_that_was_changed_in_the_cache_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn=fetching())
    ensure_jars(SET)
    (SET.folder / name).write_bytes(b"jaR\n")
    with pytest.raises(CorruptData, match=name) as caught:
        ensure_jars(SET)
    assert "remove its folder and run make setup" in str(caught.value.hint)


def test_a_jar_that_is_gone_from_the_cache_is_named(cache: Path) -> None:
    folder = filled(cache / "some-1.0")
    (folder / NAMES[1]).unlink()
    with pytest.raises(Unavailable, match=rf"Some jars are missing in \S+: {NAMES[1]};") as caught:
        ensure_jars(SET)
    assert "make setup" in str(caught.value.hint)


def test_a_failed_fetch_leaves_nothing_and_says_why(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn="echo 'unknown host' >&2; exit 1")
    with pytest.raises(Unavailable, match="Some jars could not be fetched with mvn: unknown host"):
        ensure_jars(SET)
    assert list(cache.iterdir()) == []


def test_an_incomplete_fetch_is_refused_by_name(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path / "bin", monkeypatch, mvn="exit 0")
    with pytest.raises(Unavailable, match=", ".join(NAMES)):
        ensure_jars(SET)
    assert list(cache.iterdir()) == []


def test_without_maven_spark_resolves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(
        wanted: JarSet, command: list[str], work: Path, java: Path, extra: Mapping[str, str]
    ) -> None:
        seen.append(command)
        (work / "ivy" / "jars").mkdir(parents=True)
        for name in NAMES:
            # Ivy's names begin with the group.
            (work / "ivy" / "jars" / f"org.one_{name}").write_text(JAR)

    programs(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(jars, "_run", run)
    assert [path.name for path in ensure_jars(SET)] == list(NAMES)
    [command] = seen
    assert command[command.index("--packages") + 1] == "org.one:one:1.0,org.three:three:3.0"
    assert command[command.index("--exclude-packages") + 1] == "org.*:*,com.heavy:*,com.light:one"


def test_a_folder_of_ivys_names_is_one_too(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"org.one_{name}").write_text(JAR)
    assert [path.name for path in find_jars(SET, tmp_path)] == [f"org.one_{one}" for one in NAMES]


def test_java_missing_is_said_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Misconfigured, match="no Java"):
        ensure_jars(SET)


def test_who_was_faster_is_taken(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes fetch at once: the folder of the first stays, and both find it whole."""
    other = filled(tmp_path / "other")
    programs(
        tmp_path / "bin",
        monkeypatch,
        mvn=f'{fetching()}cp -r "{other}" "{cache / "some-1.0"}"',
    )
    assert ensure_jars(SET) == [cache / "some-1.0" / name for name in NAMES]
    assert sorted(path.name for path in cache.iterdir()) == ["some-1.0"]
    shutil.rmtree(other)
