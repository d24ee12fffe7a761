"""What CONTRIBUTING says of a new target is how it is."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.code import code_tokens, nodes
from tests.unit.repository.pages import ROOT, page

NAMES_DELTA = re.compile(r"(?<!time)delta|_jvm\b", re.IGNORECASE)
"""Also as a part of a name: `DeltaTable.forPath`, `deltalake`, an error code."""
FOLDERS = {"bigquery", "delta", "iceberg"}
"""The formats' own folders."""
WHY_DELTA = {
    "tideline/contract/target_properties.py": (1, "the name of the default format, in one place"),
    "tideline/contract/readers.py": (16, "names of readers, and where each claim is from"),
    "tideline/warehouse/registry.py": (5, "the lines of the format"),
    "tideline/contract/target_url.py": (1, "the names of formats"),
    "tideline/settings/sections.py": (1, "the default format"),
    "tideline/contract/layout_rules.py": (1, "what partitions and clusters of each format can be"),
    "tideline/warehouse/job_jars.py": (3, "the line of the format"),
    "spark_jobs/tideline_spark/formats/registry.py": (4, "the line of the format"),
    "capture/tideline_capture/segments.py": (1, "an encoding of Parquet's"),
    "console/tideline_console/errors.py": (1, "packages, to name the extra that brings each"),
}
"""By module outside the format's folders: how often its code may name it, and why."""
PRODUCT = ("tideline", "spark_jobs", "capture", "publish", "console", "plugins", "dags")


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (ROOT / folder).rglob("*.py")


def names_in(path: str) -> set[str]:
    """What a module defines or assigns at its top, and its functions and classes below."""
    tree = nodes((ROOT / path).read_text())
    named = {node.name for node in tree if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    for node in tree:
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
    named += [("LOG_FOLDERS", "tideline/warehouse/registry.py")]
    named += [(name, "tideline/warehouse/job_jars.py") for name in ("JARS", "job_jars")]
    assert len(named) > 7
    for name, path in named:
        assert name in names_in(path), f"{name} is not in {path}"


REGISTRIES = {
    "spark_jobs/tideline_spark/formats/registry.py": 1,
    "tideline/warehouse/registry.py": 1,
    "tideline/warehouse/job_jars.py": 1,
}
"""By module: how many tables by format it has."""


def test_a_format_is_one_line_of_each_registry() -> None:
    for path, tables in REGISTRIES.items():
        lines = re.findall(r'^    "delta": ', (ROOT / path).read_text(), re.MULTILINE)
        assert len(lines) == tables, path


def naming(text: str) -> list[str]:
    """Where tokens name the format: neither comments nor docstrings."""
    return NAMES_DELTA.findall("\n".join(code_tokens(text)))


def test_nothing_outside_a_formats_folder_names_it() -> None:
    found = {
        str(path.relative_to(ROOT)): len(named)
        for path in modules(*PRODUCT)
        if not FOLDERS & set(path.relative_to(ROOT).parts) and (named := naming(path.read_text()))
    }
    assert found == {path: count for path, (count, _) in WHY_DELTA.items()}


@pytest.mark.parametrize(
    "code",
    [
        "DeltaTable.forPath(spark, path)",
        "rows.write.format('delta').save(path)",
        'spark.sql(f"SELECT * FROM delta.`{path}`")',
        "import deltalake",
        "from delta.tables import DeltaTable",
        "gateway.jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark, path)",
        "session._jvm.org",
        "spark.sql(\n    f'CREATE TABLE {name} '\n    'USING delta'\n)",
        'if "DELTA_CONCURRENT" in text: pass',
    ],
)
def test_each_way_to_name_it_is_found(code: str) -> None:
    assert naming(code)
    assert naming(f'"""Says of Delta: {code!r}."""\n# Delta\nfrom datetime import timedelta') == []


def test_import_rules_keep_the_border() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    protected = {
        module for contract in tool["contracts"] for module in contract.get("protected_modules", ())
    }
    assert {"tideline_spark.formats.delta", "tideline.warehouse.delta"} <= protected
    closed = [contract.get("forbidden_modules", ()) for contract in tool["contracts"]]
    assert any("deltalake" in one and "tideline.warehouse.delta" in one for one in closed)
