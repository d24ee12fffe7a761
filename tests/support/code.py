"""Python as trees and tokens, each text read once by a process: many tests look at the whole tree.

Keyed by text, not by path, so that a snippet that a test makes up is read by the same functions.
What they return is shared: it is looked at and never changed.
"""

from __future__ import annotations

import ast
import io
import tokenize
from functools import cache


@cache
def parsed(text: str) -> ast.Module:
    """Parse a module's text."""
    return ast.parse(text)


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """Give every node of a module, in the order of ``ast.walk``."""
    return tuple(ast.walk(parsed(text)))


@cache
def tokens(text: str) -> tuple[tuple[int, str, int], ...]:
    """Give type, string and first line of each name, string and comment of a module.

    Plain tuples of what the garbage collector need not follow: there are a million.
    """
    wanted = (tokenize.NAME, tokenize.STRING, tokenize.COMMENT)
    return tuple(
        (token.type, token.string, token.start[0])
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type in wanted
    )


@cache
def code_tokens(text: str) -> tuple[str, ...]:
    """Give the names and strings of a module's code: neither comments nor docstrings."""
    documented = docstring_lines(text)
    return tuple(
        string
        for kind, string, line in tokens(text)
        if kind != tokenize.COMMENT and line not in documented
    )


def docstring_lines(text: str) -> set[int]:
    """Give the lines on which a string stands that is a statement: docstrings, those of names."""
    return {
        line
        for node in nodes(text)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
