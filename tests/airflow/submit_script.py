"""A stand-in for spark-submit that plays a script: what each call of it leaves."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

_BEGINNING = """#!{python}
import json, pathlib, sys, msgspec
folder = pathlib.Path(__file__).parent
calls = json.loads((folder / "calls.json").read_text())
step = json.loads((folder / "script.json").read_text())[len(calls)]
calls.append(sys.argv[1:])
(folder / "calls.json").write_text(json.dumps(calls))
if step is None:
    sys.exit(1)
path = pathlib.Path(sys.argv[sys.argv.index("--receipt") + 1].removeprefix("file://"))
path.parent.mkdir(parents=True, exist_ok=True)
"""


def put_script(folder: Path, monkeypatch: pytest.MonkeyPatch, receipt: str) -> None:
    """Put the stand-in into ``folder``, which is made, and on PATH. ``receipt`` is a program that
    makes ``receipt`` of a ``step`` of the script; a step of None leaves none, and fails."""
    folder.mkdir()
    program = folder / "spark-submit"
    end = "path.write_bytes(msgspec.json.encode(receipt))\n"
    program.write_text(_BEGINNING.format(python=sys.executable) + receipt + end)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (folder / "calls.json").write_text("[]")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    local = json.dumps({"conn_type": "spark", "host": "local[2]"})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", local)


def shall(folder: Path, *steps: Any) -> None:
    """Have the next calls leave what ``steps`` say, one after the other."""
    (folder / "script.json").write_text(json.dumps(steps))


def calls(folder: Path) -> list[list[str]]:
    """The arguments of each call."""
    found: list[list[str]] = json.loads((folder / "calls.json").read_text())
    return found
