"""What the documents point to is there."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from configparser import ConfigParser
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from devtools.simulation.mutants import MUTANTS
from tests.lengths import in_long_folder
from tests.support.code import nodes, parsed
from tideline.contract.layout import table_path
from tideline.contract.schema import parse_table
from tideline.redis_client import COMMANDS
from tideline.settings import make_settings

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*DOCUMENTS, *sorted(ROOT.glob("*.md"))]
_TEST = re.compile(r"`((?:tests/[\w/]+/)?test_\w+\.py)((?:::\w+)*)`")
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
_ANCHOR = re.compile(r"\]\((?!https?:)([^)#]*)#([^)]+)\)")
_ANCHOR_IN_CODE = re.compile(r"\b((?:docs/)[\w/]+\.md|README\.md)#([\w-]+)")


def _definitions(path: Path) -> set[str]:
    """``name`` and ``Class::name`` of all that a test file defines."""
    names = set()
    for node in parsed(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            names.update(
                f"{node.name}::{inner.name}"
                for inner in getattr(node, "body", ())
                if isinstance(inner, ast.FunctionDef)
            )
    return names


def _missing(file: str, names: str) -> bool:
    found = [ROOT / file] if "/" in file else list((ROOT / "tests").rglob(file))
    wanted = names.removeprefix("::")
    return not any(path.exists() and (not wanted or wanted in _definitions(path)) for path in found)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_documents_name_exist(document: Path) -> None:
    named = _TEST.findall(document.read_text())
    assert [file + names for file, names in named if _missing(file, names)] == []


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    entries = _LINK.findall(document.read_text())
    assert [entry for entry in entries if not (document.parent / entry).exists()] == []


def _anchors(page: Path) -> set[str]:
    """The anchors that the headings of a page get on GitHub."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_links_to_headings_lead_to_one(document: Path) -> None:
    links = [
        ((document.parent / page).resolve() if page else document, anchor)
        for page, anchor in _ANCHOR.findall(document.read_text())
    ]
    assert [
        link for link in links if link[0].suffix == ".md" and link[1] not in _anchors(link[0])
    ] == []


def test_headings_that_code_names_exist() -> None:
    named = {
        (name, page, anchor)
        for name, text in _texts().items()
        if name.endswith((".py", ".toml", ".yml"))
        for page, anchor in _ANCHOR_IN_CODE.findall(text)
    }
    assert {one for one in named if one[2] not in _anchors(ROOT / one[1])} == set()


@pytest.mark.parametrize("document", ["README.md", "docs/AIRFLOW.md"])
def test_the_list_of_bundles_keeps_airflows_own(document: str) -> None:
    [snippet] = re.findall(
        r"```ini\n(\[dag_processor\].*?)```", (ROOT / document).read_text(), re.S
    )
    parser = ConfigParser(interpolation=None)
    parser.read_string(snippet)
    bundles = json.loads(parser["dag_processor"]["dag_bundle_config_list"])
    assert {one["name"]: one["classpath"] for one in bundles} == {
        "dags-folder": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "tideline": "tideline_dags.bundle.TidelineDagBundle",
    }


_SETTINGS = [
    (page.name, text)
    for page in PAGES
    for text in re.findall(r"```toml\n(.*?)```", page.read_text(), re.S)
]


@pytest.mark.parametrize(("page", "text"), _SETTINGS, ids=lambda one: one.partition("\n")[0])
def test_settings_in_documents_are_valid(page: str, text: str) -> None:
    """Together with the few that every pipeline must have."""
    given = tomllib.loads(text)
    least: dict[str, Any] = {
        "source": {"url": "postgresql://u@h/d"},
        "store": {"url": "s3://store/x"},
        "warehouse": {"url": "s3://warehouse/y"},
    }
    given.pop("pipeline", None)
    sections = {name: {**least.get(name, {}), **given.get(name, {})} for name in {**least, **given}}
    make_settings({**sections, "pipeline": "p"})


def test_the_protocol_names_a_test_for_every_invariant() -> None:
    rows = re.findall(r"^\| ([A-Z]\d) \|(.*)\|$", (ROOT / "docs/PROTOCOL.md").read_text(), re.M)
    assert len(rows) > 20
    assert [name for name, row in rows if not _TEST.search(row)] == []


def _short_tests(path: Path) -> list[str]:
    """The tests of a file that `make test` runs."""
    if in_long_folder(str(path.relative_to(ROOT))):
        return []
    return [
        node.name
        for node in nodes(path.read_text())
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and "pytest.mark.long" not in map(ast.unparse, node.decorator_list)
    ]


def test_no_guarantee_is_left_to_the_long_tests_alone() -> None:
    """Every line that says what tests a promise is tested in `make test`, unless the promise's
    other lines are."""
    text = (ROOT / "docs/GUARANTEES.md").read_text()
    tables = re.findall(r"\| test \| tries \|\n\|---\|---\|\n((?:\|.*\n)+)", text)
    assert len(tables) >= 12
    for table in tables:
        lines = [_files(line.split("|")[1]) for line in table.splitlines()]
        assert all(lines)
        untested = [one for one in lines if not any(map(_short_tests, one))]
        assert len(untested) < len(lines)
        assert [path.parent.name for one in untested for path in one] == ["long"] * len(untested)


def test_each_line_of_the_security_model_has_tests_that_exist() -> None:
    text = (ROOT / "docs/SECURITY_MODEL.md").read_text()
    [table] = re.findall(r"\| line \| tests \|\n\|---\|---\|\n((?:\|.*\n)+)", text)
    held = [_files(line.split("|")[2]) for line in table.splitlines()]
    assert len(held) >= 15
    assert all(held)
    assert all(path.is_file() for paths in held for path in paths)


def _files(cell: str) -> list[Path]:
    """The test files that a cell names; one without a folder is in that of the one before it."""
    found: list[Path] = []
    names = re.findall(r"`([\w/]+\.py)`", cell)
    for name in names:
        found.append(ROOT / name if "/" in name else found[-1].parent / name)
    return found


def test_mutants_that_the_protocol_names_exist() -> None:
    text = (ROOT / "docs/PROTOCOL.md").read_text()
    named = {
        name
        for names in re.findall(r"mutants? ((?:`[a-z-]+`(?:, )?)+)", text)
        for name in re.findall(r"`([a-z-]+)`", names)
    }
    assert len(named) > 10
    assert named <= {mutant.name for mutant in MUTANTS}


def test_the_folders_that_are_explained_are_those_of_the_tables() -> None:
    text = (ROOT / "docs" / "READING.md").read_text()
    rows = re.findall(r"^\| `(\S+\..+)` \| `(\S+/\S+)` \|$", text, re.M)
    assert 'public."Order Details"' in dict(rows)
    assert rows == [(name, table_path("", parse_table(name))[1:]) for name, _ in rows]


_STRANGERS = re.compile(
    r"pip3? install\b[^;&|`]*?(?<![\w-])tideline(?![\w-])|\btideline\[|\btideline package\b"
)
"""`tideline` as the name of a distribution: on PyPI that one is someone else's."""


@cache
def _texts() -> dict[str, str]:
    """What users read and what is installed, by path; literals that go on in the next line are one
    line here."""
    names = ("*.py", "*.md", "*.toml", "*.yml", "*.sh", "*.txt", "*.in", "Dockerfile", "Makefile")
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."]
    found = [path for name in names for path in ROOT.glob(name)]
    found += [path for one in folders for name in names for path in one.rglob(name)]
    found += [ROOT / "scripts" / "setup"]
    return {
        name: re.sub(r"[\"']\s*\n\s*[rf]*[\"']", "", path.read_text())
        for path in found
        if (name := str(path.relative_to(ROOT))) != "tests/unit/repository/test_docs.py"
    }


def test_nobody_is_told_to_install_a_strangers_distribution() -> None:
    texts = _texts()
    assert {
        "README.md",
        "console/tideline_console/errors.py",
        "plugins/pyproject.toml",
    } <= texts.keys()
    reported = {
        name: _STRANGERS.findall(line)
        for name, text in texts.items()
        for line in text.splitlines()
        if "tideline" in line and _STRANGERS.search(line)
    }
    assert reported == {}


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("pip install tideline", True),
        ("pip install --upgrade 'tideline[spark]'", True),
        ("tideline[demo]", True),
        ("install the tideline package", True),
        ("pip install 'tideline-cdc[spark]'", False),
        ("pip install dist/tideline_cdc-*.whl dist/airflow_provider_tideline-*.whl", False),
        ("pip install x; tideline doctor", False),
    ],
)
def test_what_counts_as_a_strangers(text: str, is_told: bool) -> None:
    assert bool(_STRANGERS.search(text)) == is_told


def test_the_queues_grants_are_the_ones_that_the_program_names() -> None:
    assert f" ~tideline:* {COMMANDS}\n" in (ROOT / "docs" / "GRANTS.md").read_text()
