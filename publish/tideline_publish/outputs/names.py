"""The names that tables have at outputs: of topics, streams, indexes and folders."""

from __future__ import annotations

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId
from tideline.settings.outputs.templates import separator_of
from tideline_publish.names import coded

_WORD, _WORD_IN_LOWER = "A-Za-z0-9_", "a-z0-9_"
"""A dot is written as its code, too: one in a name must not look like one of the template."""
_TOPIC_CHARS_MAX = 249


def name_of(
    template: str,
    pipeline: str,
    table: TableId,
    *,
    setting: str,
    chars_max: int,
    lower: bool = False,
) -> str:
    """Return the name that ``template``, of a ``setting``, gives ``table``; with ``lower``, one
    without upper-case letters. No other table has it, if the template has schema and table. Raises
    Misconfigured for one of more than ``chars_max`` characters."""
    word = _WORD_IN_LOWER if lower else _WORD
    # Where it tells schema and table apart, it must not be in them.
    kept = word if separator_of(template) == "-" else f"{word}-"
    name = template.format(
        pipeline=coded(pipeline, f"{word}-"),
        schema=coded(table.schema, kept),
        table=coded(table.name, kept),
    )
    if len(name) > chars_max:
        raise Misconfigured(
            f"the name for {table} would have {len(name)} characters; {chars_max} may be",
            hint=f"shorten {setting}, or leave the table out (publish.….exclude_tables)",
        )
    return name


def topic_of(template: str, pipeline: str, table: TableId) -> str:
    """Return the topic of Kafka's that the setting ``kafka.topic`` gives ``table``. Raises
    Misconfigured for a name that is too long."""
    return name_of(template, pipeline, table, setting="kafka.topic", chars_max=_TOPIC_CHARS_MAX)


def encoded_name(name: str) -> str:
    """Return ``name`` in letters, digits, ``_`` and ``-``, with the codes of all others."""
    return coded(name, f"{_WORD}-")
