# ruff: noqa: S608  statements are made of quoted names, literals and our own expressions
"""Counts the rows that a MERGE inserts, updates and deletes, by a query before it: its emulator
does not count them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zetasql.wasi._pb2.zetasql.parser import ast_enums_pb2 as enums

_MATCH = enums.ASTMergeWhenClauseEnums
_ACTION = enums.ASTMergeActionEnums
KINDS = {
    _ACTION.INSERT: "insertedRowCount",
    _ACTION.UPDATE: "updatedRowCount",
    _ACTION.DELETE: "deletedRowCount",
}


def counting(merge: Any, name: str, text: Callable[[Any], str]) -> str:
    """Return the query; ``name`` is the alias of the target, ``text`` returns a node's SQL. Its one
    row has the counts in the order of `KINDS`."""
    # No asterisk: of a table that was altered its emulator puts the former columns in its place.
    target = f"{text(merge.target_path)} AS `{name}`"
    source, condition = text(merge.table_expression), text(merge.merge_condition)
    rows = {
        _MATCH.MATCHED: f"{target} INNER JOIN {source} ON ({condition})",
        _MATCH.NOT_MATCHED_BY_TARGET: (
            f"{source} WHERE NOT EXISTS(SELECT 1 FROM {target} WHERE ({condition}))"
        ),
        _MATCH.NOT_MATCHED_BY_SOURCE: (
            f"{target} WHERE NOT EXISTS(SELECT 1 FROM {source} WHERE ({condition}))"
        ),
    }
    found = []
    for match, relation in rows.items():
        clauses = [one for one in merge.when_clauses.clause_list if one.match_type == match]
        if clauses:
            found.append(f"SELECT {_first(clauses, text)} AS kind FROM {relation}")
    counts = ", ".join(f"COUNTIF(kind = {kind})" for kind in KINDS)
    return f"SELECT {counts} FROM ({' UNION ALL '.join(found)})"


def _first(clauses: list[Any], text: Callable[[Any], str]) -> str:
    whens = " ".join(
        f"WHEN {text(one.search_condition) if one.HasField('search_condition') else 'TRUE'}"
        f" THEN {int(one.action.action_type)}"
        for one in clauses
    )
    return f"CASE {whens} ELSE -1 END"
