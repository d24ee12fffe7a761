"""Rounds over a source's catalog, each between two of our watermarks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import structlog

from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.facts import CatalogRound, Snapshot, TableFacts
from tideline_capture.sources.finding import nothing_chosen
from tideline_capture.sources.watermark_key import round_token

log = structlog.get_logger("tideline.source")


class CatalogRounds(ABC):
    """The rounds of a `SourceWatch`, whose steps a source fills in. ``include``: the patterns of
    tables that the settings name."""

    def __init__(self, include: Sequence[str]) -> None:
        self._include = include
        self._reported_empty = False

    @abstractmethod
    def write_watermark(self, kind: WatermarkKind, token: str) -> None:
        """Write a watermark, in its own transaction. Raises as the others do."""

    @abstractmethod
    def look(self) -> tuple[Snapshot, Sequence[TableFacts]]:
        """Return a snapshot, and the catalog's description, read after it, of all tables that the
        settings name. Raises Unavailable, and Misconfigured where watermarks do not arrive in the
        log."""

    def round(self, register: Callable[[CatalogRound], None]) -> None:
        """See `SourceWatch.round`."""
        token = round_token()
        self.write_watermark(WatermarkKind.CATALOG_LOW, token)
        snapshot, found = self.look()
        if not found and not self._reported_empty:
            log.warning(nothing_chosen().message, tables=list(self._include))
        self._reported_empty = not found
        register(CatalogRound(token, tuple(found), snapshot))
        self.write_watermark(WatermarkKind.HEARTBEAT, token)
