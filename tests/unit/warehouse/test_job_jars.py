"""The jars that a pipeline's Spark gets, by where its places are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tideline.contract.errors import Misconfigured
from tideline.jars import JarSet
from tideline.settings import Settings, make_settings
from tideline.warehouse import job_jars
from tideline.warehouse.job_jars import FormatJars, every_jar


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is fetched or made, with two formats; nothing is."""
    seen: list[str] = []

    def jars_of(name: str) -> FormatJars:
        def jars() -> list[Path]:
            seen.append(name)
            return [Path(f"{name}.jar")]

        return FormatJars(jars)

    def ensure(wanted: JarSet) -> list[Path]:
        seen.append(wanted.name)
        return [Path("s3a.jar")]

    monkeypatch.setattr(job_jars, "JARS", {"delta": jars_of("one"), "iceberg": jars_of("two")})
    monkeypatch.setattr(job_jars, "ensure_jars", ensure)
    yield seen


def settings(store: str, warehouse: str, table_format: str = "iceberg") -> Settings:
    values: dict[str, Any] = {"pipeline": "p", "source": {"url": "postgresql://u@h/d"}}
    catalog = {"catalog": "jdbc", "url": "sqlite:////w/catalog.db"}
    place: dict[str, Any] = {"url": warehouse, "format": table_format}
    if table_format == "iceberg":
        place["iceberg"] = catalog
    return make_settings({**values, "store": {"url": store}, "warehouse": place})


FILES = settings("file:///s", "file:///w")
IN_S3 = [
    settings("s3://b/s", "file:///w"),
    settings("file:///s", "s3://b/w"),
    settings("s3://b/s", "s3://b/w"),
]
ALL = ["one.jar", "two.jar", "s3a.jar"]


def names(jars: list[Path]) -> list[str]:
    return [path.name for path in jars]


def test_files_need_the_formats_jars_alone(asked: list[str], spark: Path) -> None:
    for pipeline in (None, settings("file:///s", "file:///w", "delta")):
        assert names(job_jars.job_jars(pipeline)) == ["one.jar"]
    assert names(job_jars.job_jars(FILES)) == ["one.jar", "two.jar"]
    assert asked == ["one", "one", "one", "two"]


@pytest.mark.parametrize("pipeline", IN_S3)
def test_one_place_in_s3_needs_them_all(asked: list[str], spark: Path, pipeline: Settings) -> None:
    (spark / "hadoop-client-api-3.4.2.jar").touch()
    assert names(job_jars.job_jars(pipeline)) == names(every_jar()) == ALL


def test_a_spark_that_cannot_use_s3(asked: list[str], spark: Path) -> None:
    """Nothing is fetched for a pipeline that needs it; setup fetches the rest."""
    (spark / "hadoop-client-api-3.4.1.jar").touch()
    with pytest.raises(Misconfigured, match="S3 cannot be written safely"):
        job_jars.job_jars(IN_S3[0])
    assert asked == []
    assert names(every_jar()) == ["one.jar", "two.jar"]


@pytest.mark.parametrize("place", ["gs://b/x", "abfss://c@a.dfs.core.windows.net/x"])
def test_a_place_whose_connector_is_not_fetched(asked: list[str], spark: Path, place: str) -> None:
    for pipeline in (settings(place, "file:///w"), settings("file:///s", place)):
        with pytest.raises(Misconfigured, match="needs a connector") as caught:
            job_jars.job_jars(pipeline)
        assert "merge.jars" in str(caught.value.hint)
    assert asked == []
