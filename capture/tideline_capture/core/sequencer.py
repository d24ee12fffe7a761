"""Mints sequence numbers; the only place that does."""

from __future__ import annotations

from tideline.contract.errors import InvariantBroken
from tideline.contract.sequence import SEQUENCE_MAX


class Sequencer:
    """Hands out contiguous sequences; ``last`` is the newest one handed out."""

    def __init__(self, last: int) -> None:
        self.last = last

    @property
    def next(self) -> int:
        return self.last + 1

    def take(self, count: int) -> int:
        """The first of ``count`` new sequences."""
        if count < 0 or self.last + count > SEQUENCE_MAX:
            raise InvariantBroken(f"cannot mint {count} sequences after {self.last}")
        first = self.last + 1
        self.last += count
        return first
