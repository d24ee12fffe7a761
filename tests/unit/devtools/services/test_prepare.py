"""Setup fetches what the installed Spark can use, and says so once."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.services import prepare
from tideline.jars import JarSet


def jar_set(name: str) -> JarSet:
    return JarSet(f"{name}'s jars", name, (), (), {})


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is fetched or made; nothing is."""
    seen: list[str] = []
    monkeypatch.setenv("TIDELINE_CACHE", str(tmp_path))
    monkeypatch.setattr(prepare, "find_java", lambda: tmp_path)
    monkeypatch.setattr(prepare, "delta_jar_set", lambda line: jar_set("Delta"))
    for name in ("ensure_java", "every_jar", "binaries", "ensure_archive"):
        monkeypatch.setattr(prepare, name, lambda *_, name=name: seen.append(name))
    return seen


@pytest.mark.parametrize("in_s3", [jar_set("S3"), None])
def test_jars_are_said_as_long_as_they_are_missing(
    done: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    in_s3: JarSet | None,
) -> None:
    """A Spark that cannot use S3 is set up without its jars."""
    monkeypatch.setattr(prepare, "find_s3_jar_set", lambda: in_s3)
    more = [] if in_s3 is None else ["setup: S3's jars"]
    prepare.prepare()
    assert capsys.readouterr().out.splitlines() == ["setup: Delta's jars", *more]
    (tmp_path / "Delta").mkdir()
    prepare.prepare()
    assert capsys.readouterr().out.splitlines() == more
    assert done.count("every_jar") == 2


def test_what_is_asked_for_is_fetched_once(
    done: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "find_s3_jar_set", lambda: None)
    monkeypatch.setattr(prepare, "delta_jar_set", lambda line: None)
    monkeypatch.setattr(prepare, "emulator_is_there", lambda: "emulator" in done)
    monkeypatch.setattr(prepare, "emulator_root", lambda: done.append("emulator"))
    prepare.prepare()
    assert "emulator" not in done
    prepare.prepare(["bigquery"])
    assert capsys.readouterr().out.splitlines() == ["setup: BigQuery's emulator"]
    prepare.prepare(["bigquery"])
    assert capsys.readouterr().out == ""
    assert done.count("emulator") == 2
