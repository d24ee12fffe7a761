"""Every place that must know all logical types knows them, and the page of types names it."""

from __future__ import annotations

import re

import pytest

from tests.unit.repository.pages import ROOT, page
from tideline.contract.types import Kind, LogicalType, decimal, parse_type
from tideline_capture.arrow_types import arrow_type
from tideline_spark.schemas import logical_of, spark_type

KNOW_ALL = (arrow_type, spark_type)
FOLDERS = ("tideline", "capture", "spark_jobs", "console", "plugins", "dags")


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
