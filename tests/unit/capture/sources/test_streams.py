"""Snapshots that are kept open between chunks, and ended when nobody reads them."""

from __future__ import annotations

import threading

from tideline_capture.sources.streams import Streams


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
    assert streams.take("bag", "one") is None, "someone else reads it"
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


def test_one_that_is_wanted_outlives_any_pause() -> None:
    """Its dump waits for longer than nobody reading from it is borne, by its delay or its turn."""
    clock = [100.0]
    streams: Streams[Snapshot] = Streams(idle_s=0.01, clock=lambda: clock[0])
    wanted = Snapshot()
    streams.keep(["one"])
    streams.put("bag", "one", wanted)
    for number in range(20):
        left = Snapshot()
        streams.put("other", f"left {number}", left)
        assert left.closed.wait(30)
    assert not wanted.closed.is_set()
    assert streams.take("bag", "one") is wanted
    streams.put("bag", "one", wanted)
    clock[0] += 1
    assert wanted.closed.wait(30), "nobody has said for long that it is"
