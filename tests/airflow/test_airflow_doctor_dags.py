"""Doctor's checks where Airflow runs: of the DAGs, whichever bundle makes them, and of the catalog,
in which the tasks register tables."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from airflow.dag_processing.bundles.local import LocalDagBundle

from tests.conformance.test_catalog import Shop
from tests.fixtures.catalogs import CatalogPlace
from tests.support.unity_server import UnityServer
from tideline_console.doctor_airflow import NAMES, check_dags, examine

DAGS = Path(__file__).resolve().parents[2] / "dags"
OURS: dict[str, object] = {
    "name": "tideline",
    "classpath": "tideline_dags.bundle.TidelineDagBundle",
    "kwargs": {},
}


@pytest.fixture(autouse=True)
def settings_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELINE_CONFIG", str(config))


def found(monkeypatch: pytest.MonkeyPatch, *bundles: dict[str, object]) -> list[str]:
    """What doctor says of DAGs, where Airflow's settings have ``bundles``."""
    value = json.dumps(bundles)
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", value)
    return [f"{one.level} {one.message} {one.fix}" for one in check_dags()]


def folder(path: Path, name: str = "dags-folder") -> dict[str, object]:
    classpath = "airflow.dag_processing.bundles.local.LocalDagBundle"
    return {"name": name, "classpath": classpath, "kwargs": {"path": str(path)}}


def test_the_bundle_alone_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = [f"ok tideline_… : {', '.join(NAMES)} None"]
    assert found(monkeypatch, OURS) == complete
    assert found(monkeypatch, folder(tmp_path), OURS) == complete


def test_so_is_a_file_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(DAGS / "tideline_dags" / "pipeline.py", tmp_path / "shop.py")
    (tmp_path / "other").mkdir()
    complete = [f"ok tideline_… : {', '.join(NAMES)} None"]
    assert found(monkeypatch, folder(tmp_path / "other"), folder(tmp_path, "shop")) == complete


def test_without_either_both_ways_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = found(monkeypatch, folder(tmp_path))
    assert one.startswith(f"error no DAG of Tideline is in {tmp_path} (dags-folder) put ")
    assert "pipeline.py" in one and "TidelineDagBundle" in one


def test_a_file_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("from airflow.sdk import DAG\nimport tideline.nothing\n")
    lines = found(monkeypatch, folder(tmp_path), OURS)
    assert any("broken.py cannot be imported" in line for line in lines), lines
    assert any(line.startswith("ok tideline_") for line in lines)


class Unreachable(LocalDagBundle):
    """A bundle that cannot be fetched from here."""

    def initialize(self) -> None:
        raise OSError("no route to https://token@git.example")


def test_a_bundle_that_cannot_be_fetched_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("unreachable_bundle")
    module.__dict__["Unreachable"] = Unreachable
    monkeypatch.setitem(sys.modules, module.__name__, module)
    away = {**folder(tmp_path, "away"), "classpath": "unreachable_bundle.Unreachable"}
    assert found(monkeypatch, away, OURS) == [
        "warning the bundle away cannot be read here: OSError;"
        " the DAG processor's log says more None",
        f"ok tideline_… : {', '.join(NAMES)} None",
    ]


def test_the_catalog_is_asked(tmp_path: Path, unity_server: UnityServer) -> None:
    keys = {"kind": "unity", "url": unity_server.url, "name": unity_server.name, "token": "wrong"}
    settings = Shop(tmp_path, CatalogPlace("unity", keys)).settings
    said = next(one for one in examine(settings) if one.name == "catalog")
    assert said.level == "warning" and "refuses the token" in said.message
