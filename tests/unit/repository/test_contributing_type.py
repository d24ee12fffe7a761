"""Every place that must know all logical types knows them, and the page of types names it."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.code import nodes
from tests.unit.repository.pages import ROOT, page
from tideline.contract.part import DUMPED, LOGGED
from tideline.contract.types import Kind, LogicalType, decimal, parse_type
from tideline_capture.arrow_types import arrow_type
from tideline_spark.schemas import logical_of, spark_type
from tideline_spark.working_columns import MOVED_AWAY

OPERATIONS = {*LOGGED, DUMPED, MOVED_AWAY}
NAMING = {"tideline/contract/part.py", "spark_jobs/tideline_spark/working_columns.py"}
KNOW_ALL = (arrow_type, spark_type)
FOLDERS = ("tideline", "capture", "publish", "spark_jobs", "console", "plugins", "dags")


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_place_from_end_to_end(kind: Kind) -> None:
    logical = decimal(12, 2) if kind is Kind.DECIMAL else LogicalType(kind)
    assert parse_type(str(logical)) == logical
    for knows in KNOW_ALL:
        assert knows(logical) is not None
    assert logical_of(spark_type(logical)) == logical


def test_the_page_names_the_functions_that_know_all() -> None:
    for knows in KNOW_ALL:
        [path] = re.findall(rf"\| `([\w/]+\.py)` \| `{knows.__name__}`", page("Adding a type"))
        assert path.removesuffix(".py").replace("/", ".").endswith(knows.__module__)


def test_own_columns_are_named_in_the_contract_alone() -> None:
    """In code; docstrings may name them."""
    own = "seq|op|tx|ts|unchanged|overflow|image|image_overflow|low|pending"
    names = re.compile(rf"""["']_tl_({own})["'{{]|["']_tl_before_""")
    found = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if names.search(path.read_text())
    ]
    assert found == []


IN_SQL = re.compile(rf"""\bop\b.*'[{"".join(sorted(OPERATIONS))}]'""")
OF_OPERATIONS = re.compile(r"\bop\b|operation", re.IGNORECASE)


def _spelt(node: ast.AST) -> list[str]:
    """The operations that one piece of code spells; other letters stand in other pieces."""
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bytes) and len(value) > 1:
            letters = value.decode("latin1")
            return [letters] if {*letters} < OPERATIONS else []
        return [value] if isinstance(value, str) and IN_SQL.search(value) else []
    candidates: list[ast.expr | None] = []
    if isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) > 1:
        candidates = [*node.elts]
    elif isinstance(node, ast.Dict):
        candidates = [*node.keys]
    elif isinstance(node, ast.Compare):
        spelt = [one for part in (node.left, *node.comparators) for one in _operation(part)]
        return spelt if spelt and OF_OPERATIONS.search(ast.unparse(node)) else []
    elif isinstance(node, ast.Call) and _called(node.func).endswith(("ord", "isin", "lit")):
        return [one for part in node.args for one in _operation(part)]
    elif isinstance(node, ast.Assign):
        candidates = [node.value]
    found = [one for part in candidates for one in _operation(part)]
    return found if len(found) == len(candidates) else []


def _called(node: ast.expr) -> str:
    """The last word of what is called."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _operation(node: ast.expr | None) -> list[str]:
    value = node.value if isinstance(node, ast.Constant) else None
    return [value] if isinstance(value, str) and value in OPERATIONS else []


def _letters(text: str) -> list[str]:
    return [letters for node in nodes(text) for letters in _spelt(node)]


def test_operations_are_named_in_the_contract_alone() -> None:
    found = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if name not in NAMING:
                found[name] = _letters(path.read_text())
    assert {name: letters for name, letters in found.items() if letters} == {}


def test_an_operation_that_is_spelt_is_found() -> None:
    for line, letters in {
        'x = list(b"cud")': ["cud"],
        'x = ("c", "d", "u")': ["c", "d", "u"],
        'x = codes == ord("u")': ["u"],
        'x = col(OP).isin("d", GONE)': ["d"],
        'x = col(OP) == "m"': ["m"],
        '_DUMPED = "r"': ["r"],
        "found(operations={'c': 50, 'u': 50})": ["c", "u"],
        "x = \"op = 'd'\"": ["op = 'd'"],
        'open(path, "r")': [],
        'x = kind == "d"': [],
        'x = name, "d", 3': [],
    }.items():
        assert _letters(line) == letters, line
