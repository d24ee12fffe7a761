"""The names that tables have at outputs: of topics, streams and folders."""

from __future__ import annotations

import re

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_OTHER_IN_LOWER = re.compile(r"[^a-z0-9_-]")
"""A dot is written as its code, too: one in a name must not look like one of the template."""


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


def _encoded(name: str, other: re.Pattern[str]) -> str:
    return other.sub(lambda found: f"_x{ord(found[0]):x}_", name)
