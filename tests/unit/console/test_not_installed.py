"""Commands of a bare install: each runs, or names the extra to install, without a traceback."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tideline_console.errors import EXTRAS, not_installed

ROOT = Path(__file__).parents[3]
SETTINGS = """
pipeline = "shop"
[source]
url = "SOURCE"
[store]
url = "file:///nowhere/store"
[warehouse]
url = "file:///nowhere/warehouse"
[control]
url = "redis://127.0.0.1:1/0"
"""
COMMANDS = (
    *("assess", "doctor", "capture", "plan", "merge", "maintain", "rebuild public.a"),
    "aggregate",
    *("garbage", "status", "status --metrics", "delete-pipeline", "verify public.a"),
    *("inspect manifests", "inspect manifest 1", "inspect parts", "inspect rows a"),
    *("inspect state", "pause r1", "resume r1", "cancel r1", "tune r1 --delay-ms 5"),
    *("dump public.a", "init --sql"),
    "init --url mysql://u@h/ --tables a.* --store file:///s --warehouse file:///w --force",
)
BARE = ("cost --tables 3 --changes-per-s 1", "--help", "--version")
RUN = """
import contextlib, io, json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked, lines, config = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
sys.meta_path.insert(0, Blocked())
from tideline_console.app import main
found = {}
for line in lines:
    sys.argv = ["tideline", *line.split(), *([] if line.startswith("--") else ["--config", config])]
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code
        except BaseException as error:
            code = repr(error)
    found[line] = [code, said.getvalue()]
print(json.dumps(found))
"""


def outcomes(
    folder: Path, source: str, lines: tuple[str, ...], blocked: tuple[str, ...]
) -> dict[str, tuple[object, str]]:
    """The exit and the errors of each command line, in a process without those packages."""
    config = folder / "tideline.toml"
    config.write_text(SETTINGS.replace("SOURCE", source))
    config.chmod(0o600)
    words = (json.dumps(blocked), json.dumps(lines), str(config))
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {line: tuple(found) for line, found in json.loads(done.stdout).items()}


@pytest.mark.parametrize("source", ["postgresql://u@127.0.0.1:1/d", "mariadb://u@127.0.0.1:1/"])
@pytest.mark.thorough
def test_each_command_names_an_extra(source: str, tmp_path: Path) -> None:
    for line, (code, reported) in outcomes(tmp_path, source, COMMANDS, tuple(EXTRAS)).items():
        assert code == 2, (line, code, reported)
        assert re.search(r"hint: pip install 'tideline-cdc\[[a-z]+\]'", reported), (line, reported)


def test_these_need_no_extra(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "postgresql://u@127.0.0.1:1/d", BARE, tuple(EXTRAS))
    assert {line: code for line, (code, _) in found.items()} == dict.fromkeys(BARE, 0), found


@pytest.mark.thorough
def test_the_planner_alone_names_the_other_extra(tmp_path: Path) -> None:
    others = tuple(name for name in EXTRAS if name not in ("obstore", "stamina", "deltalake"))
    lines = ("status --metrics", "inspect rows a")
    for line, (_, reported) in outcomes(tmp_path, "postgresql://u@h/d", lines, others).items():
        assert "pip install 'tideline-cdc[capture]'" in reported, (line, reported)


def test_every_package_of_an_extra_is_known() -> None:
    of_packages = importlib.metadata.packages_distributions()
    known = {dist.lower().replace("_", "-") for name in EXTRAS for dist in of_packages[name]}
    brought = set()
    for wanted in importlib.metadata.requires("tideline-cdc") or ():
        name = re.match(r"[A-Za-z0-9._-]+", wanted)
        if name is not None and "extra ==" in wanted and name[0] != "tideline-cdc":
            brought.add(name[0].lower())
    assert brought and brought <= known
    assert "tideline-cdc[lineage]" in str(not_installed("openlineage"))
    assert "planner,spark" in str(not_installed("another"))
