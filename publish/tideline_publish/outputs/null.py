"""Keeps no event, which the log of positions counts: for measuring, and for trying out a
selection."""

from __future__ import annotations

from collections.abc import Sequence

from tideline.contract.publishing import ChainPosition
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OrderScope


class NullOutput:
    """See `Output`."""

    def __init__(self) -> None:
        self.order = OrderScope.ALL
        self.record_bytes_max: int | None = None
        self.keeps_position = False
        self.whole_only = False
        self.gathers_s = 0.0
        self.dead_letters = 0

    def open(self, logged: ChainPosition) -> ChainPosition:
        """See `Output`."""
        return logged

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""

    def settle(self, position: ChainPosition) -> None:
        """See `Output`."""

    def close(self) -> None:
        """See `Output`."""
