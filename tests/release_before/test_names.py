"""The names of fields in what the release before stored, sent and printed are those of today."""

from __future__ import annotations

import pytest

from tests.release_before.golden import BEFORE, RELEASES
from tests.release_before.names import names_today

NAMES = (RELEASES / f"{BEFORE}.names.txt").read_text().splitlines()


def fields(line: str) -> list[str]:
    return line.partition(": ")[2].split()


@pytest.fixture(scope="module")
def today() -> list[list[str]]:
    return [fields(line) for line in names_today()]


@pytest.mark.parametrize("line", NAMES)
def test_no_field_has_another_name_or_place(today: list[list[str]], line: str) -> None:
    """Fields may join; that a class has another name is its own affair."""
    names = fields(line)
    assert [one for one in today if [name for name in one if name in names] == names]
