"""What the wheels install: names of ours, and nothing that only development needs."""

from __future__ import annotations

import json
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.installed import IMPORT_ALL, build, environment

pytestmark = pytest.mark.timeout(1_800)

PACKAGES = (
    "tideline",
    "tideline_capture",
    "tideline_console",
    "tideline_publish",
    "tideline_spark",
)
LISTED = """
from importlib.metadata import distributions
print(*(one.metadata["Name"].lower() for one in distributions()))
"""
OF_EXTRAS = {"obstore", "stamina", "structlog", "numpy", "pyarrow", "deltalake", "requests"}
BARE = "tideline.contract tideline.settings tideline_console.commands"


@dataclass(frozen=True, slots=True)
class Wheels:
    core: Path
    provider: Path
    folder: Path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    folder = tmp_path_factory.mktemp("wheels")
    core, provider = build(folder / "dist")
    return Wheels(core, provider, folder)


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *words], capture_output=True, text=True, check=False, timeout=600
    )


def modules(printed: str) -> int:
    return int(json.loads(printed)["modules"])


def settings(folder: Path) -> Path:
    """Settings whose source does not answer."""
    path = folder / "tideline.toml"
    path.write_text(
        'pipeline = "shop"\n[source]\nurl = "postgresql://a@127.0.0.1:1/b?sslmode=disable"\n'
        f'[store]\nurl = "file://{folder}/store"\n[warehouse]\nurl = "file://{folder}/w"\n'
    )
    return path


def test_a_wheel_installs_names_of_ours_alone(wheels: Wheels) -> None:
    tops = {
        path.name: {name.partition("/")[0] for name in zipfile.ZipFile(path).namelist()}
        for path in (wheels.core, wheels.provider)
    }
    versions = {name: "-".join(name.split("-")[:2]) for name in tops}
    assert tops == {
        wheels.core.name: {*PACKAGES, f"{versions[wheels.core.name]}.dist-info"},
        wheels.provider.name: {
            "tideline_airflow",
            "tideline_dags",
            f"{versions[wheels.provider.name]}.dist-info",
        },
    }


def test_the_bare_install_has_contract_settings_and_command(wheels: Wheels, tmp_path: Path) -> None:
    programs = environment(wheels.folder / "bare", str(wheels.core))
    installed = run(programs / "python", "-c", LISTED).stdout.split()
    assert set(installed).isdisjoint(OF_EXTRAS)
    shown = run(programs / "tideline", "--help")
    assert shown.returncode == 0 and "delete-pipeline" in shown.stdout, shown.stderr
    assert "demo" not in shown.stdout and "simulate" not in shown.stdout
    done = run(programs / "python", "-c", IMPORT_ALL, *BARE.split())
    assert done.returncode == 0 and modules(done.stdout) > 40, done.stderr
    config = settings(tmp_path)
    refused = run(programs / "tideline", "doctor", "--config", str(config))
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "which is not installed" in refused.stderr and "pip install" in refused.stderr


@pytest.mark.long
def test_every_module_imports_where_all_extras_are(wheels: Wheels, tmp_path: Path) -> None:
    programs = environment(
        wheels.folder / "full",
        f"{wheels.core}[postgres,mysql,planner,spark,lineage,aws,hive,bigquery,kafka]",
    )
    done = run(programs / "python", "-c", IMPORT_ALL, *PACKAGES)
    assert done.returncode == 0 and modules(done.stdout) > 300, done.stderr
    config = settings(tmp_path)
    looked = run(programs / "tideline", "doctor", "--config", str(config))
    assert looked.returncode == 2, looked.stdout + looked.stderr
    assert "ok      store" in looked.stdout and "source" in looked.stdout + looked.stderr
