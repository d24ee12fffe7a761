"""Names by the rules of Avro: letters, digits and underscores, and no digit at the front."""

from __future__ import annotations

import re

_OTHER = re.compile(r"[^A-Za-z0-9_]|^[0-9]|_(?=x[0-9a-f]+_)")
"""What is written as its code: what Avro has not, and an underscore that would be read as the
beginning of a code. So no two names become one."""


def avro_name(name: str) -> str:
    """Return ``name`` with each character that Avro's names lack as ``_x``, its code in hex, and
    ``_``."""
    return _OTHER.sub(lambda found: f"_x{ord(found[0]):x}_", name)
