"""Our watermarks in the log, as the readers of the source see them."""

from __future__ import annotations

from typing import Any, Protocol

from tideline_capture.core.events import WatermarkKind


class WatermarkWriter(Protocol):
    """Writes watermarks, each in its own transaction; thread-safe."""

    def write(self, kind: WatermarkKind, token: str) -> None:
        """Write a watermark for the log reader; everything committed by now is before it."""

    def begin(self, cursor: Any) -> None:
        """Start a read transaction on ``cursor`` after a low watermark was written: it sees
        everything that the log holds before that watermark."""

    def shown(self, cursor: Any, token: str) -> tuple[tuple[str, int], ...]:
        """Return the last probe of each writer, of those around the chunk of ``token``, that the
        transaction on ``cursor`` sees."""

    def check(self, cursor: Any) -> None:
        """Raise Misconfigured when watermarks that are written do not arrive as such in the log."""

    def close(self) -> None: ...
