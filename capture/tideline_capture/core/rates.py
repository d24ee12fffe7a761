"""How fast dumps get on, by the chunks of the last minutes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

CHUNKS_MAX = 20
WINDOW_S = 120.0


@dataclass(slots=True)
class _Recent:
    """(when, rows) of the last chunks."""

    chunks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=CHUNKS_MAX))


class Rates:
    """Rows per second of each dump, by request and table. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str], _Recent] = {}

    def note(self, request_id: str, table: str, rows: int, *, now: float) -> None:
        """A chunk of ``rows`` was emitted."""
        self._recent.setdefault((request_id, table), _Recent()).chunks.append((now, rows))

    def forget(self, request_id: str) -> None:
        """The request ended."""
        for key in [key for key in self._recent if key[0] == request_id]:
            del self._recent[key]

    def of(self, request_id: str, table: str, *, now: float) -> float | None:
        """The rate over the last chunks, None before there are two of them. A dump that stands
        still slows down in this figure too."""
        recent = self._recent.get((request_id, table))
        chunks = [one for one in recent.chunks if now - one[0] < WINDOW_S] if recent else []
        if len(chunks) < 2:
            return None
        span = max(now - chunks[0][0], 1e-3)
        # The first chunk's rows were read before the span began.
        return sum(rows for _, rows in chunks[1:]) / span
