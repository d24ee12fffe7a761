"""Delta's four jars, for each Spark its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tideline.contract.errors import Misconfigured
from tideline.spark_versions import FIRST
from tideline.warehouse.delta import jars as delta_jars
from tideline.warehouse.delta.jars import VERSION, delta_jar_set

JAR = "jar\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with jars for every Spark, each of them as it should be."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TIDELINE_CACHE", str(folder))
    right = hashlib.sha256(JAR.encode()).hexdigest()
    for name in ("BUILDS", "SHARED"):
        monkeypatch.setattr(delta_jars, name, dict.fromkeys(getattr(delta_jars, name), right))
    for line in FIRST:
        place = folder / f"delta-{VERSION}-spark-{line}"
        place.mkdir(parents=True)
        for name in delta_jars.jar_names(line):
            (place / f"{name}-{VERSION}.jar").write_text(JAR)
    monkeypatch.setenv("PATH", "/nowhere")
    return folder


@pytest.mark.parametrize("line", FIRST)
def test_each_spark_has_the_jars_that_are_built_for_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(delta_jars, "installed_spark", lambda: FIRST[line])
    found = delta_jars.delta_jars()
    folder = cache / f"delta-{VERSION}-spark-{line}"
    assert found == [folder / f"{name}-{VERSION}.jar" for name in delta_jars.jar_names(line)]
    assert found[0].name == f"delta-spark_{line}_2.13-{VERSION}.jar"


@pytest.mark.parametrize("line", FIRST)
def test_a_set_names_its_root_and_a_digest_of_each_jar(line: str) -> None:
    found = delta_jar_set(line)
    assert found.roots == (f"io.delta:delta-spark_{line}_2.13:{VERSION}",)
    assert list(found.digests) == [f"{name}-{VERSION}.jar" for name in delta_jars.jar_names(line)]
    assert len(set(found.digests.values())) == 4
    assert {len(bytes.fromhex(digest)) for digest in found.digests.values()} == {32}


def test_every_line_of_spark_has_a_build() -> None:
    assert FIRST.keys() == delta_jars.BUILDS.keys()


def test_no_jar_is_fetched_for_a_spark_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_jars, "installed_spark", lambda: "4.0.0")
    monkeypatch.setattr(delta_jars, "ensure_jars", lambda _: pytest.fail("fetched"))
    with pytest.raises(Misconfigured, match=r"Spark 4\.0\.0 is refused"):
        delta_jars.delta_jars()
