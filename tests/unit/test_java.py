"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline import java
from tideline.contract.errors import Misconfigured


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TIDELINE_CACHE", str(folder))
    return folder


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -X\nopenjdk version "17.0.1"', 17),
        ("bash: java: not found", None),
    ],
)
def test_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert java.parse_version(text) == version


def test_java_home_wins(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "given", "17.0.1")
    other = fake_java(tmp_path / "path", "21")
    environment = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert java.java_home(environment) == home


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    new = fake_java(tmp_path / "new", "17.0.1")
    assert java.java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_the_link_on_path_is_followed_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.java_home({"PATH": str(tmp_path / "bin")}) == home


def test_the_unpacked_one_is_the_last_resort(cache: Path) -> None:
    home = fake_java(cache / "java-17/usr/lib/jvm/java-17-openjdk-amd64", "17.0.15")
    assert java.java_home({"PATH": "/nowhere"}) == home


def test_java_missing_says_how_to_get_it() -> None:
    with pytest.raises(Misconfigured, match="no Java 17 or newer") as caught:
        java.java_home({"PATH": "/nowhere"})
    assert "openjdk-17-jre-headless" in (caught.value.hint or "")
    assert "JAVA_HOME" in (caught.value.hint or "")
