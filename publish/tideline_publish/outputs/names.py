"""The names that tables have at outputs: of topics, streams and folders."""

from __future__ import annotations

import re

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
"""A dot is written as its code, too: one in a name must not look like one of the template."""
_OTHER_IN_LOWER = re.compile(r"[^a-z0-9_-]")
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
    without upper-case letters. Raises Misconfigured for one of more than ``chars_max``
    characters."""
    other = _OTHER_IN_LOWER if lower else _OTHER
    name = template.format(
        pipeline=_encoded(pipeline, other),
        schema=_encoded(table.schema, other),
        table=_encoded(table.name, other),
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
    return _encoded(name, _OTHER)


def _encoded(name: str, other: re.Pattern[str]) -> str:
    return other.sub(lambda found: f"_x{ord(found[0]):x}_", name)
