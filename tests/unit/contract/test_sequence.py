"""Sequence ranges: inclusive, possibly empty, never out of bounds."""

from __future__ import annotations

import pytest

from tideline.contract.errors import InvariantBroken
from tideline.contract.sequence import SEQUENCE_MAX, SequenceRange


def test_lengths() -> None:
    assert len(SequenceRange(1, 1)) == 1
    assert len(SequenceRange(5, 14)) == 10
    assert len(SequenceRange(1, 0)) == 0


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0), (0, 5), (3, 1), (-1, -1), (1, SEQUENCE_MAX + 1)]
)
def test_what_is_no_range(first: int, last: int) -> None:
    with pytest.raises(InvariantBroken, match=f"{first}..{last}"):
        SequenceRange(first, last)


def test_the_last_sequence_there_can_be() -> None:
    assert SequenceRange(SEQUENCE_MAX, SEQUENCE_MAX).last == 2**63 - 1
