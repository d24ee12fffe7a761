"""A test of many cases reports every one that fails."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tests.support.each import each


def test_every_case_that_fails_is_reported(tmp_path: Path) -> None:
    seen: list[tuple[int, Path]] = []

    @each("number", range(6), ids=lambda number: f"the {number}")
    def check(number: int, tmp_path: Path) -> None:
        seen.append((number, tmp_path))
        assert number % 2
        if number == 3:
            raise ValueError("three")

    assert list(inspect.signature(check).parameters) == ["tmp_path"]
    with pytest.raises(ExceptionGroup) as failed:
        check(tmp_path=tmp_path)
    assert seen == [(number, tmp_path) for number in range(6)]
    notes = [(type(one), *one.__notes__) for one in failed.value.exceptions]
    assert [(kind, note) for kind, *_, note in notes] == [
        (AssertionError, "number: the 0"),
        (AssertionError, "number: the 2"),
        (ValueError, "number: the 3"),
        (AssertionError, "number: the 4"),
    ]


def test_all_that_pass_pass_and_none_is_a_mistake() -> None:
    each("number", range(3))(lambda number: None)()
    with pytest.raises(AssertionError, match="number has no cases"):
        each("number", [])
