"""What CONTRIBUTING says of a new target is how it is."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.unit.repository.pages import ROOT, page

NAMES_DELTA = re.compile(r"\bDelta(?:Table|Target|Log)?\b\(|_jvm\b|DELTA_[A-Z]")
PRODUCT = ("tideline", "spark_jobs", "capture", "console", "plugins", "dags")


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (ROOT / folder).rglob("*.py")


def names_in(path: str) -> set[str]:
    """What a module defines or assigns at its top, and its functions and classes below."""
    tree = ast.parse((ROOT / path).read_text())
    named = {
        node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            named.add(node.target.id)
        if isinstance(node, ast.Assign):
            named |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return named


def test_every_path_of_the_page_exists() -> None:
    paths = re.findall(r"`([\w]+/[\w/<>]+(?:\.py|/))`", page("Adding a target"))
    assert len(paths) > 8
    for path in paths:
        example = path.replace("<format>", "delta")
        assert (ROOT / example).exists(), path


def test_every_name_of_the_page_is_where_it_says() -> None:
    named = re.findall(r"`(\w+)(?:\.\w+)?`\s+\(`([\w/]+\.py)`", page("Adding a target"))
    named += [("FORMATS", "spark_jobs/tideline_spark/formats/registry.py")]
    named += [("READERS", "tideline/warehouse/registry.py")]
    named += [("storage_options", "tideline/warehouse/registry.py")]
    assert len(named) > 7
    for name, path in named:
        assert name in names_in(path), f"{name} is not in {path}"


def test_a_format_is_one_line_of_each_registry() -> None:
    for path in ("spark_jobs/tideline_spark/formats/registry.py", "tideline/warehouse/registry.py"):
        assert len(re.findall(r'^    "delta": ', (ROOT / path).read_text(), re.MULTILINE)) == 1


def test_nothing_outside_a_formats_folder_names_it() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in modules(*PRODUCT)
        if "delta" not in str(path.relative_to(ROOT)) and NAMES_DELTA.search(path.read_text())
    ]
    assert found == []


def test_import_rules_keep_the_border() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    protected = {
        module for contract in tool["contracts"] for module in contract.get("protected_modules", ())
    }
    assert {"tideline_spark.formats.delta", "tideline.warehouse.delta"} <= protected
    closed = [contract.get("forbidden_modules", ()) for contract in tool["contracts"]]
    assert any("deltalake" in one and "tideline.warehouse.delta" in one for one in closed)
