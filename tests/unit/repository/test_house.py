"""The house rules that no tool checks by itself: no room outside the rules, no silent skip."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.code import code_tokens, nodes
from tests.unit.repository.pages import ROOT

NOT_ROOMS = {"tests"}


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def rooms() -> set[str]:
    """Every folder of ours that holds Python, by the name that it is imported under."""
    folders = {
        path.parent.name
        for pattern in ("*/__init__.py", "*/tideline_*/__init__.py")
        for path in ROOT.glob(pattern)
        if not path.parent.name.startswith(".")
    }
    return folders - NOT_ROOMS


def test_every_room_is_under_the_import_rules() -> None:
    tool = project()["tool"]
    assert isinstance(tool, dict)
    assert rooms() == set(tool["importlinter"]["root_packages"])


OPENS = re.compile(r"\b(psycopg2\.connect|pymysql\.connect|Redis\.from_url|Redis\(|S3Store\()")


def test_one_place_opens_each_kind_of_connection() -> None:
    """There TLS is verified. The demo's and the tests' servers are on loopback, and their own."""
    folders = ("tideline", "capture", "publish", "console", "plugins", "spark_jobs", "dags")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    found = {
        (str(file.relative_to(ROOT)), name)
        for file in files
        for name in OPENS.findall(file.read_text())
    }
    assert found == {
        ("capture/tideline_capture/sources/postgres/connect.py", "psycopg2.connect"),
        ("capture/tideline_capture/sources/mysql/connect.py", "pymysql.connect"),
        ("tideline/redis_client.py", "Redis.from_url"),
        ("tideline/store/s3.py", "S3Store("),
    }


def test_the_worker_makes_one_system_and_the_simulator_exchanges_nothing() -> None:
    """import-linter keeps clocks and threads out of the worker's modules: they are handed a
    system. The simulator hands in its own; only its mutants replace a name of the product."""
    makers = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "capture").rglob("*.py")
        if "RealSystem()" in file.read_text()
    ]
    assert makers == ["capture/tideline_capture/app.py"]
    files = (ROOT / "devtools" / "simulation").glob("*.py")
    patching = re.compile(r"unittest\.mock|setattr\(|vars\(\w+\)\[")
    found = sorted(file.name for file in files if patching.search(file.read_text()))
    assert found == ["mutants.py"]


def test_every_package_is_in_the_wheel() -> None:
    tool = project()["tool"]
    assert isinstance(tool, dict)
    packages = tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    installed = {Path(package).name for package in packages}
    assert installed == rooms() - {"tideline_dags", "tideline_airflow", "devtools", "examples"}
    provider = tomllib.loads((ROOT / "plugins" / "pyproject.toml").read_text())
    wheel = provider["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["tideline_airflow"]
    assert list(wheel["force-include"].values()) == ["tideline_dags"]
    version = project()["project"]["version"]  # type: ignore[index]
    assert provider["project"]["version"] == version
    assert f"tideline-cdc[planner,spark]=={version}" in provider["project"]["dependencies"]


SKIPPING = """
import pytest

def test_skipped():
    pytest.skip("no reason")

def test_known_to_fail():
    pytest.xfail("a known bug")

def test_good():
    pass
"""


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_an_unexpected_skip_fails_in_ci(tmp_path: Path, ci: str, code: int) -> None:
    (tmp_path / "test_one.py").write_text(SKIPPING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.skips", "test_one.py"]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("unexpected skip")]
    assert lines == ["unexpected skip: test_one.py::test_skipped: no reason"][:code]


OWN_WORDS = {"app", "errors", "init", "output"}
"""Modules of `console` that print what is ours alone, or through whom the others print."""

_PRINTS = r"print|typer\.s?echo|sys\.std(out|err)\.write|.*\.print"


def test_commands_print_through_one_place() -> None:
    """Else a name could begin a line of its own on a screen (docs/ARCHITECTURE.md, Names)."""
    package = ROOT / "console" / "tideline_console"
    folders = (package, package / "commands")
    modules = [p for folder in folders for p in folder.glob("*.py") if p.stem not in OWN_WORDS]
    assert len(modules) > 30
    around = {
        (path.name, ast.unparse(call.func))
        for path in modules
        for call in nodes(path.read_text())
        if isinstance(call, ast.Call) and re.fullmatch(_PRINTS, ast.unparse(call.func))
    }
    # A table's cells are made printable where they come from; costs are figures.
    assert around == {("tables.py", "make_console().print"), ("cost.py", "make_console().print")}


def test_make_lists_its_targets() -> None:
    done = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for target in ("setup", "demo", "test", "check", "bench"):
        assert f"make {target} " in done.stdout


def test_a_column_of_the_jobs_has_one_definition() -> None:
    """What a merge adds to rows while it works: a name in two modules could get two meanings."""
    places: dict[str, set[str]] = {}
    for file in (ROOT / "spark_jobs").rglob("*.py"):
        for token in code_tokens(file.read_text()):
            for name in re.findall(r"\b_tl_\w+", token):
                places.setdefault(name, set()).add(file.name)
    assert len(places) > 30
    assert {name: sorted(files) for name, files in places.items() if len(files) > 1} == {}


def test_what_the_quick_tests_leave_out_is_run_by_make_test() -> None:
    """And by CI, which runs it: thorough tests are unit and property tests of the same folders."""
    makefile = (ROOT / "Makefile").read_text()
    chosen = dict(re.findall(r'^([a-z-]+):\n\t.*? -m "([^"]+)"', makefile, re.MULTILINE))
    assert chosen["quick-tests"] == f"{chosen['tests']} and not thorough"
    assert chosen["tests"] == "not long"
    assert re.search(r"^test: .*\n.* lint tests$", makefile, re.MULTILINE)
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("exec make test </dev/null")
