"""A publisher's run: when it settles, and that it stays the active worker meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from tideline.contract.publishing import ChainPosition, PublisherEntry
from tideline.settings import PublishSettings
from tideline.system import RealSystem
from tideline_publish.events import ChangeEvent, EventBatch
from tideline_publish.outputs.null import NullOutput
from tideline_publish.publisher import Publisher

BEGINNING = ChainPosition("one", 0, 0)
BATCH_S, BATCHES = 2.0, 50


class Clock(RealSystem):
    """A clock that moves when it is moved."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Feed:
    """A long way behind the chain's end: each batch takes seconds."""

    def __init__(self, clock: Clock, event: ChangeEvent | None = None) -> None:
        self._clock = clock
        self._events = () if event is None else (event,)
        self.position = BEGINNING
        self.state_manifest = None
        self._left = BATCHES

    def batches(self) -> Iterator[EventBatch]:
        while self._left:
            self._left -= 1
            self._clock.now += BATCH_S
            self.position = ChainPosition("one", 0, self.position.seq + 1)
            yield EventBatch(self._events, self.position, whole=False)

    def checkpoint(self, position: ChainPosition) -> Iterator[None]:
        yield from ()


class Lead:
    """Counts how long the worker was silent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.now
        self.entry = PublisherEntry("events", 1, "me", BEGINNING, 0)
        self.silences: list[float] = []
        self.reasons: list[str] = []
        self.reason = ""

    @property
    def silent_s(self) -> float:
        return self._clock.now - self._at

    def append(self, position: ChainPosition, *, events: int = 0, dead_letters: int = 0) -> None:
        self.silences.append(self.silent_s)
        self.reasons.append(self.reason)
        self._at = self._clock.now
        self.entry = PublisherEntry("events", self.entry.number + 1, "me", position, 0)


def test_one_that_catches_up_for_long_stays_the_active_one() -> None:
    """Also with an output that keeps the position, and settles at ends of transactions."""
    clock = Clock()
    lead = Lead(clock)
    output = NullOutput()
    output.keeps_position = output.whole_only = True
    settings = PublishSettings(output="null", heartbeat_s=5, takeover_after_s=15)
    feed = cast("Any", Feed(clock))
    publisher = Publisher(settings, feed, output, cast("Any", lead), clock.event(), clock)
    publisher.run(until_idle_s=0.0)
    assert max(lead.silences) <= settings.heartbeat_s + BATCH_S
    assert lead.entry.position.seq == BATCHES


def test_why_nothing_was_published_is_over_once_the_output_takes_events() -> None:
    """Long before all that waited meanwhile has come."""
    clock = Clock()
    lead = Lead(clock)
    lead.reason = "Kafka does not answer"
    event = ChangeEvent(1, 0, "public.a", "c", 7, 0, None, b"{}")
    feed = cast("Any", Feed(clock, event))
    settings = PublishSettings(output="null")
    publisher = Publisher(settings, feed, NullOutput(), cast("Any", lead), clock.event(), clock)
    publisher.run(until_idle_s=0.0)
    assert len(lead.reasons) >= BATCHES
    assert set(lead.reasons) == {""}
