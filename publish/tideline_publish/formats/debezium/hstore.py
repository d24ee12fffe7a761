"""PostgreSQL's hstore, as text."""

from __future__ import annotations

import re

_PAIR = re.compile(
    r'"(?P<key>(?:[^"\\]|\\.)*)"=>(?:(?P<null>NULL)|"(?P<value>(?:[^"\\]|\\.)*)")(?:, |$)',
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def hstore_pairs(text: str) -> dict[str, str | None] | None:
    """Return the pairs of an hstore; None for a text that is none."""
    found: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None:
            return None
        value = None if match["null"] else _ESCAPED.sub(r"\1", match["value"])
        found[_ESCAPED.sub(r"\1", match["key"])] = value
        at = match.end()
    return found
