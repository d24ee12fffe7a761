"""The settings of Spark for a pipeline's catalog of Iceberg tables: only where its jars are."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tideline.settings import Settings, make_settings
from tideline.warehouse import job_jars
from tideline.warehouse.iceberg.names import CATALOG_SETTING
from tideline.warehouse.job_jars import FormatJars
from tideline.warehouse.spark_settings import access_settings

CATALOG = {"catalog": "jdbc", "url": "sqlite:////w/catalog.db"}


def of(tmp_path: Path, warehouse: dict[str, Any], **tables: dict[str, Any]) -> Settings:
    return make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://reader@db:5432/shop"},
            "store": {"url": tmp_path.as_uri()},
            "warehouse": {"url": tmp_path.as_uri(), **warehouse},
            "tables": {f"public.{name}": table for name, table in tables.items()},
        }
    )


@pytest.mark.parametrize(
    ("warehouse", "table", "wanted"),
    [
        ({}, "delta", False),
        ({"iceberg": CATALOG}, "delta", True),
        ({"iceberg": CATALOG}, "iceberg", True),
        ({"iceberg": CATALOG, "format": "iceberg"}, "delta", True),
    ],
    ids=["no catalog", "delta alone", "one table", "all but one"],
)
def test_the_catalog_comes_with_its_jars(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    warehouse: dict[str, Any],
    table: str,
    wanted: bool,
) -> None:
    """And neither without the other: a session with the catalog's class and without its jars ends
    with an error. Where there is a catalog, a table may have been moved to it."""
    jars = {name: FormatJars(partial(list, [Path(name)])) for name in job_jars.JARS}
    monkeypatch.setattr(job_jars, "JARS", jars)
    settings = of(tmp_path, warehouse, orders={"format": table})
    assert (Path("iceberg") in job_jars.job_jars(settings)) is wanted
    assert (CATALOG_SETTING in access_settings(settings)) is wanted
