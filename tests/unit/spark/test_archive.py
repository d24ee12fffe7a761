"""Making the archive of Spark's classes: once, never half, and others' are left alone."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devtools.services import prepare
from tideline.contract.errors import Unavailable
from tideline.local_spark import ArchiveLocation, archive_location, class_archive
from tideline_spark import class_archive as archive

AGAIN_S = 2_000_000_000


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java and a Spark that are no more than files, and an empty cache."""
    library = tmp_path / "java" / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.write_text("java")
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setattr(archive, "java_home", lambda: tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("TIDELINE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were trained in; training writes a few bytes."""
    found: list[Path] = []

    def train(work: Path) -> None:
        found.append(work)
        (work / "classes.jsa").write_text("classes")

    monkeypatch.setattr(archive, "train", train)
    return found


def place() -> ArchiveLocation:
    found = archive_location()
    assert found is not None
    return found


def test_it_is_made_once(trained: list[Path], machine: Path) -> None:
    assert not archive.archive_is_there()
    archive.make_archive()
    assert archive.archive_is_there()
    archive.make_archive()
    assert len(trained) == 1
    assert class_archive() == place().named(len("classes"))
    assert [path.name for path in (machine / "cache").iterdir()] == ["classes"]


def test_two_makers_at_once_leave_one_that_is_whole(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=30)

    def train(work: Path) -> None:
        both.wait()  # Neither has seen the other's.
        (work / "classes.jsa").write_text("cla")
        assert class_archive() is None or class_archive() == place().named(len("classes"))
        (work / "classes.jsa").write_text("classes")

    monkeypatch.setattr(archive, "train", train)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(archive.make_archive) for _ in range(2)]:
            done.result()
    made = class_archive()
    assert made is not None and made.read_text() == "classes"
    assert list(made.parent.glob("*.jsa")) == [made]
    assert [path.name for path in (machine / "cache").iterdir()] == ["classes"]


def test_what_an_older_state_left_goes_and_another_sparks_stays(
    trained: list[Path], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.make_archive()
    older = class_archive()
    (machine / "other" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(machine / "other"))
    archive.make_archive()
    others = class_archive()
    monkeypatch.setenv("SPARK_HOME", str(machine / "spark"))
    os.utime(machine / "spark" / "jars", (AGAIN_S, AGAIN_S))
    archive.make_archive()
    assert older is not None and not older.exists()
    assert others is not None and others.exists()
    assert class_archive() not in (None, older, others)


def test_those_of_a_spark_that_is_gone_go(
    trained: list[Path], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.make_archive()
    gone = place().folder
    (machine / "spark").rename(machine / "moved")
    monkeypatch.setenv("SPARK_HOME", str(machine / "moved"))
    archive.make_archive()
    assert not gone.exists()
    assert class_archive() is not None


def test_a_failed_training_leaves_nothing_and_setup_goes_on(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(work: Path) -> None:
        (work / "classes.jsa").write_text("cla")
        raise Unavailable("no luck")

    monkeypatch.setattr(archive, "train", train)
    with pytest.raises(Unavailable, match="no luck"):
        archive.make_archive()
    assert list((machine / "cache").iterdir()) == []
    prepare.ensure_archive()
    assert "setup: Spark starts as slowly as before: no luck" in capsys.readouterr().out


def test_a_cache_that_cannot_be_written_is_told(
    trained: list[Path], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "cache").mkdir()
    (machine / "cache" / "classes").write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match="could not be kept"):
        archive.make_archive()
    assert [path.name for path in (machine / "cache").iterdir()] == ["classes"]


@pytest.mark.parametrize(("words", "made"), [([], 1), (["--no-archive"], 0)])
def test_whoever_starts_spark_seldom_makes_none(
    monkeypatch: pytest.MonkeyPatch, words: list[str], made: int
) -> None:
    done: list[str] = []
    for name in ("ensure_java", "every_jar", "binaries", "ensure_archive"):
        monkeypatch.setattr(prepare, name, lambda *_, name=name: done.append(name))
    assert prepare.main(words) == 0
    assert done.count("ensure_archive") == made
    assert {"ensure_java", "every_jar", "binaries"} <= set(done)
