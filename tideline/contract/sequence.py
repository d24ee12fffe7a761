"""The order of everything: sequence numbers.

A *sequence* is an int64, contiguous from 1 within an incarnation, in commit order and then in log
order within the transaction. Row changes, truncates and schema events each consume one. Only the
worker that owns the chain mints them.
"""

from __future__ import annotations

import msgspec

from tideline.contract.errors import InvariantBroken

SEQUENCE_MAX = 2**63 - 1


class SequenceRange(msgspec.Struct, frozen=True, order=True):
    """An inclusive range ``first..last``; the empty range has ``first == last + 1``."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first < 1 or self.last < self.first - 1 or self.last > SEQUENCE_MAX:
            raise InvariantBroken(f"sequence range is not valid: {self.first}..{self.last}")

    def __len__(self) -> int:
        return self.last - self.first + 1
