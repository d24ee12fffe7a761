"""Sections of docs/CONTRIBUTING.md, which tests compare with the tree."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = re.split(r"^## ", (ROOT / "docs" / "CONTRIBUTING.md").read_text(), flags=re.M)[1:]
"""The text of each, from its title on."""


def page(title: str) -> str:
    (found,) = [text for text in PAGES if text.startswith(f"{title}\n")]
    return found


def docstring_lines(text: str) -> set[int]:
    """The lines on which a string stands that is a statement: docstrings, and those of names."""
    return {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_tokens(text: str) -> Iterator[str]:
    """The names and strings of a module's code: neither comments nor docstrings."""
    reported = docstring_lines(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.STRING) and token.start[0] not in reported:
            yield token.string
