"""Names in the characters that another system's names may have."""

from __future__ import annotations

import re
from functools import cache


def coded(name: str, kept: str) -> str:
    """Return ``name`` with each character but ``kept``, a set as regular expressions have it, as
    `code`; so is an underscore that would be read as the beginning of a code. ``kept`` has
    letters, digits and ``_``. So no two names become one."""
    return _to_code(kept).sub(lambda found: code(found[0]), name)


def code(character: str) -> str:
    """Return ``_x``, the character's number in hex, and ``_``."""
    return f"_x{ord(character):x}_"


@cache
def _to_code(kept: str) -> re.Pattern[str]:
    # What stands behind an underscore counts as it will be written: a code begins with one.
    return re.compile(rf"[^{kept}]|_(?=x[0-9a-f]+(?:_|[^{kept}]))")
