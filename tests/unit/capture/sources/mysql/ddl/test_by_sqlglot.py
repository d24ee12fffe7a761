"""Our own readers of DDL stay as long as sqlglot reads what servers execute as something else."""

from __future__ import annotations

import logging
from importlib.metadata import version
from pathlib import Path

import pytest
import sqlglot

from tests.fixtures.ddl_by_sqlglot import PROMISED, made_of, table

PAGE = (Path(__file__).resolve().parents[6] / "docs" / "DDL.md").read_text()


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """Its parser warns of each statement that it leaves as text."""
    logging.getLogger("sqlglot").setLevel(logging.ERROR)


def test_the_page_has_what_it_makes_of_them() -> None:
    _, _, rest = PAGE.partition("| statement | sqlglot |\n|---|---|\n")
    printed, _, _ = rest.partition("\n\n")
    assert printed.splitlines() == list(table(sqlglot))
    assert version("sqlglot") in PAGE


@pytest.mark.parametrize("text", PROMISED["what is in a comment and was executed"])
def test_it_loses_what_servers_executed(text: str) -> None:
    """Once this fails, look at the page again: one reason for readers of our own is gone."""
    made = made_of(sqlglot, text)
    assert made == "nothing" or "/*" in made
