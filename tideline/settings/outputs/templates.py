"""The templates of the names that tables have at outputs: of topics, streams and indexes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import AfterValidator

from tideline.contract.patterns import PatternPart, split_pattern

_HALVES = ("{schema}", "{table}")
_BETWEEN = re.compile(
    r"\{(schema|table)\}(?P<text>(?:[^{]|\{pipeline\})*)\{(?!\1\})(?:schema|table)\}"
)
_SEPARATORS = ".:/-"
"""What may tell a schema and a table apart; the first three are in no name as it is written."""


def separator_of(template: str) -> str | None:
    """Return the character by which a name shows where its schema ends and its table begins, or
    the other way round; ``""`` for a template that has not both, None where nothing shows it."""
    found = _BETWEEN.search(template)
    if found is None:
        return ""
    text = found["text"].replace("{pipeline}", "")
    return next((one for one in _SEPARATORS if one in text), None)


def check_one_each(template: str, patterns: Sequence[str], aggregates: Sequence[str]) -> None:
    """Raise ValueError where ``template`` may give one name to two tables of ``patterns``, or to
    two of ``aggregates`` if there are any: it lacks a half by which they may differ."""
    halves = [split_pattern(one) for one in patterns]
    if aggregates:
        halves = [(PatternPart("", plain=True), PatternPart(one, plain=True)) for one in aggregates]
    for at, half in enumerate(_HALVES):
        names = {one[at] for one in halves}
        if half not in template and (len(names) > 1 or not all(one.plain for one in names)):
            raise ValueError(
                f"would give one index to several tables, whose documents it would mix: have"
                f" opensearch.index contain {half}, or name a single one in tables"
            )


def _unambiguous(template: str) -> str:
    if separator_of(template) is None:
        raise ValueError(
            "must have a . or - between {schema} and {table}: a.b_c and a_b.c would have one name"
        )
    return template


Unambiguous = AfterValidator(_unambiguous)
"""A template by which no two tables have one name, if it has both schema and table."""
