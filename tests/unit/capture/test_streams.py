"""Snapshots that are kept open between chunks, and ended when nobody reads them."""

from __future__ import annotations

import threading

from capture.sources.streams import Streams


class Snapshot:
    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        assert not self.closed.is_set(), "closed twice"
        self.closed.set()


def test_one_for_each_table_and_only_by_its_token() -> None:
    streams: Streams[Snapshot] = Streams()
    first, second, other = Snapshot(), Snapshot(), Snapshot()
    streams.put("bag", "one", first)
    streams.put("other", "one", other)
    assert streams.take("bag", "two") is None
    assert streams.take("bag", "one") is first
    assert streams.take("bag", "one") is None, "somebody else reads it"
    streams.put("bag", "one", first)
    streams.put("bag", "two", second)
    assert first.closed.is_set() and not second.closed.is_set()
    streams.end("bag", "one")
    assert not second.closed.is_set()
    streams.close()
    assert second.closed.is_set() and other.closed.is_set()
    assert streams.take("bag", "two") is None


def test_one_that_nobody_reads_is_ended() -> None:
    streams: Streams[Snapshot] = Streams(idle_s=0.01)
    left = Snapshot()
    streams.put("bag", "one", left)
    assert left.closed.wait(30)
    assert streams.take("bag", "one") is None
