"""Names by the rules of Avro: letters, digits and underscores, and no digit at the front."""

from __future__ import annotations

from tideline_publish.names import code, coded


def avro_name(name: str) -> str:
    """Return ``name`` with each character that Avro's names lack as ``_x``, its code in hex, and
    ``_``. No two names become one."""
    found = coded(name, "A-Za-z0-9_")
    return f"{code(found[0])}{found[1:]}" if found[:1].isdigit() else found
