"""Names of fields in documents: `python -m tests.release_before.names` prints today's.

A line for each struct: its name, and its fields' as documents have them, in order.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec

PACKAGES = ("tideline", "tideline_capture", "tideline_console")


def names_today() -> list[str]:
    """Return the lines of every struct of the product that has fields."""
    for root in PACKAGES:
        package = importlib.import_module(root)
        for module in pkgutil.walk_packages(package.__path__, f"{root}."):
            importlib.import_module(module.name)
    ours = (one for one in _structs() if one.__module__.partition(".")[0] in PACKAGES)
    lines = {f"{one.__name__}: {' '.join(one.__struct_encode_fields__)}" for one in ours}
    return sorted(line for line in lines if not line.endswith(" "))


def _structs(kind: type[msgspec.Struct] = msgspec.Struct) -> Iterator[type[msgspec.Struct]]:
    for one in kind.__subclasses__():
        yield one
        yield from _structs(one)


if __name__ == "__main__":
    print("\n".join(names_today()))
