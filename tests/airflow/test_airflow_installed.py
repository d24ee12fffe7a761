"""The provider's wheel in an Airflow, which finds it, its plugin and its DAGs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.installed import IMPORT_ALL, build, environment

pytestmark = pytest.mark.timeout(1_800)

LOOK = """
import json
from importlib.metadata import entry_points
from pathlib import Path
import jsonschema
import airflow
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.plugins_manager import get_plugin_info
from airflow.providers_manager import ProvidersManager

schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
ours = entry_points(group="apache_airflow_provider")
[entry] = [one for one in ours if one.value.startswith("tideline")]
jsonschema.validate(entry.load()(), schema)
manager = DagBundlesManager()
bundles = {one.name: str(one.path) for one in manager.get_all_dag_bundles()}
provider = ProvidersManager().providers["airflow-provider-tideline"]
plugins = [one["name"] for one in get_plugin_info()]
print(json.dumps({"version": provider.version, "plugins": plugins, "bundles": bundles}))
"""
PARSE = """
import json, sys
from tideline_airflow.compat import dag_bag
bag = dag_bag(sys.argv[1])
print(json.dumps({"dags": sorted(bag.dags), "errors": bag.import_errors}))
"""
BUNDLE = {
    "name": "tideline",
    "classpath": "tideline_dags.bundle.TidelineDagBundle",
    "kwargs": {},
}


def test_airflow_finds_provider_plugin_and_dags(tmp_path: Path) -> None:
    core, provider = build(tmp_path / "dist")
    programs = environment(tmp_path / "airflow", str(core), str(provider))
    variables = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "PYTHONPATH"))},
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([BUNDLE]),
        "TIDELINE_CONFIG": str(tmp_path / "tideline.toml"),
    }

    def run(*words: str) -> dict[str, object]:
        done = subprocess.run(
            [str(programs / "python"), "-c", *words],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout.strip().splitlines()[-1])
        assert isinstance(found, dict)
        return found

    found = run(LOOK)
    assert found["version"] == provider.name.split("-")[1]
    assert "tideline" in found["plugins"]  # type: ignore[operator]
    bundles = found["bundles"]
    assert isinstance(bundles, dict)
    folder = bundles["tideline"]
    assert Path(folder).is_relative_to(tmp_path / "airflow")
    parsed = run(PARSE, folder)
    assert parsed["errors"] == {}
    assert len(parsed["dags"]) == 8  # type: ignore[arg-type]
    imported = run(IMPORT_ALL, "tideline_airflow", "tideline_dags")
    assert imported["modules"] > 25, imported  # type: ignore[operator]
