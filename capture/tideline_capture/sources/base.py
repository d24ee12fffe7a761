"""The interface between the runtime and a source: one Protocol per role.

All methods may raise `Unavailable` (the runtime restarts the session from what is durable) and
`SourceLost`. Each object is used by one thread only, unless its method says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from tideline.contract.manifest import Manifest
from tideline.contract.position import SourceIdentity, SourcePosition
from tideline_capture.core.chunks import Chunk, ChunkFailed, ChunkOrder, ChunkRead
from tideline_capture.core.events import LogBatch
from tideline_capture.core.facts import CatalogRound, Snapshot, SourceLoad
from tideline_capture.sources.finding import Finding
from tideline_capture.sources.watermark_key import WatermarkKey


class LogReader(Protocol):
    """Reads the log in order. Messages are buffered by `poll` and decoded by `take`."""

    @property
    def buffered_bytes(self) -> int: ...

    @property
    def must_take(self) -> bool:
        """Return whether what was read last has to be taken before more is read."""

    @property
    def at_commit(self) -> bool:
        """Return whether what was read last ended a transaction."""

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        """Buffer what has arrived, without waiting, and return the number of messages (0: none).

        ``until_commit``: stop at the next transaction's end.
        """

    def take(self, next_seq: int) -> LogBatch:
        """Decode everything buffered; rows are numbered from ``next_seq``."""

    def confirm(self, position: SourcePosition) -> None:
        """Confirm that everything up to ``position`` is durable: the source may forget it."""

    def wait(self, timeout_s: float) -> None:
        """Return when something arrives, or after ``timeout_s``."""

    def close(self) -> None: ...


class FetchedChunk(Protocol):
    """A chunk as the source sent it."""

    @property
    def read(self) -> ChunkRead: ...

    def decode(self) -> Chunk:
        """Decode the chunk; needs no connection, and may run in any thread."""


class ChunkReader(Protocol):
    """Writes watermarks and reads chunks, on its own connections."""

    def fetch(
        self, order: ChunkOrder, on_waiting: Callable[[str | None], None]
    ) -> FetchedChunk | ChunkFailed:
        """Write the low watermark, then read the chunk. ``on_waiting`` is called with what delays
        it."""

    def write_high(self, order: ChunkOrder) -> None:
        """Write the high watermark; the decoded chunk must have reached the core before. Called in
        another thread than `fetch`, perhaps at the same time."""

    def close(self) -> None: ...


class SourceWatch(Protocol):
    """Looks at the catalog between two watermarks, and writes the heartbeat that ends each
    round."""

    def round(self, register: Callable[[CatalogRound], None]) -> None:
        """Run one round; ``register`` is called before its last watermark is written."""

    def snapshot(self) -> Snapshot: ...

    def load(self, position: SourcePosition, source_time_us: int | None) -> SourceLoad:
        """Return how busy the source is. Its log is needed from ``position`` on, of about that time
        (µs since 1970, the source's clock)."""

    def close(self) -> None: ...


class ChainTail(NamedTuple):
    """The end of the pipeline's chain, None for an empty one. Not ``known`` where the store does
    not answer."""

    known: bool
    manifest: Manifest | None


class Preflight(Protocol):
    """Checks a source before capture, and prepares it."""

    def check(self, chain_end: Callable[[], ChainTail]) -> list[Finding]:
        """Return everything about the source, its log and its tables that capture needs or lacks,
        each with its fix.

        Changes nothing. ``chain_end`` may be read at any moment, as a worker may run concurrently.
        Raises Unavailable and Misconfigured where no session can be opened, or where it ends.
        """

    def check_url(self) -> list[Finding]:
        """Return warnings about the url alone, for when no session could be opened."""

    def resume(self, tail: Manifest, on_waiting: Callable[[str], None]) -> SourcePosition:
        """Return the position from which capture continues after ``tail``. Raises SourceLost naming
        the gap, Misconfigured with the fixing statement.

        At the first start it creates what the log needs, in steps: as long as the answer differs
        from the tail's position, that answer is made durable and passed in again. ``on_waiting`` is
        called with what delays a step, and ends the step by raising.
        """


class Source(Preflight, Protocol):
    """One database, as the runtime sees it. ``key`` makes the session's watermarks and
    distinguishes them from all others; each session has its own key."""

    def identity(self) -> SourceIdentity: ...

    def begin(self) -> SourcePosition:
        """Return a position before everything; `resume` finds the real start."""

    def log_reader(
        self,
        position: SourcePosition,
        key: WatermarkKey,
        captures: Callable[[str], bool],
        prepared: Mapping[str, SourcePosition],
    ) -> LogReader:
        """Read from ``position`` on. ``prepared``: prepared transactions, by where the log has them
        (see `PreparedSeen`)."""

    def chunk_reader(self, key: WatermarkKey) -> ChunkReader: ...

    def watch(self, key: WatermarkKey) -> SourceWatch: ...

    def keep_copies(self, tokens: Collection[str]) -> None:
        """Keep the snapshots that chunks with ``tokens`` took (`ChunkOrder.keyless`): they are
        still to be read from. A snapshot not named here for `streams.IDLE_S` may be ended."""
