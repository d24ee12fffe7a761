"""Checks docs/CONTRIBUTING.md, "Adding a status field": the files that it names are all."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.unit.repository.pages import ROOT, page
from tideline.planner.table_status import TableStatus

PAGE = page("Adding a status field")
NOT_PRODUCT = {"tests", "devtools"}
TOUCHED_MAX = 4


def steps() -> list[Path]:
    """The file that each numbered step is about."""
    return [ROOT / path for path in re.findall(r"^\d\. `([^`]+)`", PAGE, re.M)]


def example() -> str:
    """The field that the section shows the way of."""
    [name] = re.findall(r"know it by name, as they do `(\w+)`", PAGE)
    return str(name)


def test_every_path_that_is_named_exists() -> None:
    named = re.findall(r"`([\w/.]+/[\w.]+)`", PAGE)
    assert len(named) >= TOUCHED_MAX
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_product_knows_a_field_in_these_files_alone() -> None:
    product = (
        path
        for path in ROOT.rglob("*.py")
        if not NOT_PRODUCT & set(path.relative_to(ROOT).parts)
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    )
    knows = {path for path in product if re.search(rf"\b{example()}\b", path.read_text())}
    assert knows == set(steps())
    assert len(steps()) <= TOUCHED_MAX


def test_the_field_is_declared_where_the_first_step_says() -> None:
    assert example() in {field.name for field in msgspec.structs.fields(TableStatus)}
    module = sys.modules[TableStatus.__module__].__file__
    assert module is not None and Path(module) == steps()[0]


def test_the_command_prints_the_schema() -> None:
    [command] = re.findall(r"^```\n(.*?) \\\n +> (?:\S+)\n```", PAGE, re.M | re.S)
    [target] = re.findall(r"> (docs/\S+)", PAGE)
    words = shlex.split(command)
    done = subprocess.run([sys.executable, *words[1:]], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == (ROOT / target).read_bytes()
