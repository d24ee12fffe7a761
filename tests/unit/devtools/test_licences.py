"""No dependency's licence comes in unseen."""

from __future__ import annotations

from email.message import Message
from importlib.metadata import Distribution, distributions
from typing import Any

import pytest

from devtools.supply.licences import KNOWN, licence_of, permissive, rows, unlooked_at


class Package(Distribution):
    """A package that says this of itself."""

    def __init__(self, *fields: tuple[str, str]) -> None:
        self._message = Message()
        for name, value in (("Name", "thing"), ("Version", "1"), *fields):
            self._message[name] = value

    @property
    def metadata(self) -> Any:
        return self._message

    def read_text(self, filename: str) -> str | None:
        return None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError


def test_every_licence_here_is_permissive_or_was_looked_at() -> None:
    assert list(unlooked_at(distributions())) == []
    other = {name for name, _, licence in rows(distributions()) if not permissive(licence)}
    assert other == KNOWN.keys(), "a package that is no longer here needs no exception"


@pytest.mark.parametrize(
    ("fields", "licence", "free"),
    [
        ([("License-Expression", "MIT")], "MIT", True),
        ([("License-Expression", "Apache-2.0 AND (MIT OR GPL-2.0)")], None, True),
        ([("License-Expression", "MIT AND GPL-3.0-only")], None, False),
        ([("License", "LGPL-3.0-only")], "LGPL-3.0-only", False),
        ([("License", "Apache License, Version 2.0, as text")], "unknown", False),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT", True),
        ([("License", "UNKNOWN")], "unknown", False),
        ([], "unknown", False),
    ],
)
def test_a_package_is_taken_at_its_word(
    fields: list[tuple[str, str]], licence: str | None, free: bool
) -> None:
    package = Package(*fields)
    found = licence_of(package)
    assert licence is None or found == licence
    assert permissive(found) == free
    assert bool(list(unlooked_at([package]))) == (not free)
