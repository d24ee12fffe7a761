"""The names of fields in what 0.1.0 stored, sent and printed are those of today."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest

from tests.release_before.golden import BEFORE, RELEASES

NAMES = (RELEASES / f"{BEFORE}.names.txt").read_text().splitlines()
"""For each struct the name that it had, and those of its fields as documents have them, in order."""


def structs(kind: type[msgspec.Struct] = msgspec.Struct) -> Iterator[type[msgspec.Struct]]:
    for one in kind.__subclasses__():
        yield one
        yield from structs(one)


@pytest.fixture(scope="module")
def today() -> list[list[str]]:
    for root in ("tideline", "tideline_capture", "tideline_console"):
        package = importlib.import_module(root)
        for module in pkgutil.walk_packages(package.__path__, f"{root}."):
            importlib.import_module(module.name)
    return [list(one.__struct_encode_fields__) for one in structs()]


@pytest.mark.parametrize("struct", NAMES)
def test_no_field_has_another_name_or_place(today: list[list[str]], struct: str) -> None:
    """Fields may join; that a class has another name is its own affair."""
    names = struct.partition(": ")[2].split()
    assert [one for one in today if [name for name in one if name in names] == names]
