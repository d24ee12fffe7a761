"""Our marks in the log, as those who read the source see them."""

from __future__ import annotations

from typing import Any, Protocol

from tideline_capture.core.events import MarkKind


class Marks(Protocol):
    """Writes marks, each in a transaction of its own; thread-safe."""

    def write(self, kind: MarkKind, token: str) -> None:
        """Let the log reader meet a mark; what is committed now is before it."""

    def begin(self, cursor: Any) -> None:
        """Start a read transaction on ``cursor`` after a low mark was written: it sees everything
        that the log holds before that mark."""

    def shown(self, cursor: Any, token: str) -> tuple[tuple[str, int], ...]:
        """The last pulse of each lane, of those around the chunk of ``token``, that the transaction
        on ``cursor`` sees."""

    def check(self, cursor: Any) -> None:
        """Raise Misconfigured when marks that are written do not come as such in the log."""

    def close(self) -> None: ...
