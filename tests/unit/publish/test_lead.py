"""Active and passive: the log of positions alone decides, by this worker's own clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tideline.contract.errors import Fenced
from tideline.contract.publishing import ChainPosition
from tideline.settings import Store
from tideline.store.objects import open_store
from tideline.store.publisher_log import PublisherLog
from tideline.system import RealSystem
from tideline_publish.lead import PublisherLead

BEGINNING = ChainPosition("one", 0, 0)
LATER = ChainPosition("one", 5, 50)
AFTER_S = 15.0


class Clock(RealSystem):
    """Time that passes only where something waits: ``on_wait`` is called each time."""

    def __init__(self, on_wait: Callable[[], None] = lambda: None) -> None:
        self.now = 1000.0
        self.on_wait = on_wait
        self.stopped = False

    def monotonic(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return self.stopped

    def set(self) -> None:
        self.stopped = True

    def clear(self) -> None:
        raise AssertionError("not asked for")

    def wait(self, timeout: float) -> bool:
        self.now += timeout
        self.on_wait()
        return self.stopped


@pytest.fixture
def lead_of(tmp_path: Path) -> Callable[[str, Clock], PublisherLead]:
    def make(writer: str, clock: Clock) -> PublisherLead:
        positions = PublisherLog(open_store(Store(url=tmp_path.as_uri())), "shop", "events")
        return PublisherLead(positions, writer, AFTER_S, clock, clock)

    return make


Leads = Callable[[str, Clock], PublisherLead]


def test_the_first_one_begins_where_it_is_to_begin(lead_of: Leads) -> None:
    lead = lead_of("a", Clock())
    assert lead.acquire(lambda: BEGINNING) == BEGINNING
    assert lead.entry is not None
    assert lead.entry.number == 1


def test_it_waits_for_a_chain(lead_of: Leads) -> None:
    begins = iter([None, None, BEGINNING])
    assert lead_of("a", Clock()).acquire(lambda: next(begins)) == BEGINNING


def test_one_that_was_released_is_taken_at_once(lead_of: Leads) -> None:
    first, clock = lead_of("a", Clock()), Clock()
    first.acquire(lambda: BEGINNING)
    first.append(LATER, released=True)
    assert lead_of("b", clock).acquire(lambda: BEGINNING) == LATER
    assert clock.now == 1000.0


def test_a_silent_one_is_taken_over_after_the_time_and_is_fenced(lead_of: Leads) -> None:
    first, clock = lead_of("a", Clock()), Clock()
    first.acquire(lambda: BEGINNING)
    assert lead_of("b", clock).acquire(lambda: BEGINNING) == BEGINNING
    assert AFTER_S <= clock.now - 1000.0 <= AFTER_S + 2
    with pytest.raises(Fenced):
        first.append(LATER)


def test_one_that_goes_on_is_never_taken_over(lead_of: Leads) -> None:
    first = lead_of("a", Clock())
    first.acquire(lambda: BEGINNING)
    clock = Clock()

    def beat() -> None:
        first.append(LATER)
        clock.stopped = clock.now > 1000.0 + 10 * AFTER_S

    clock.on_wait = beat
    assert lead_of("b", clock).acquire(lambda: BEGINNING) is None


def test_of_two_that_wait_one_takes_it(lead_of: Leads) -> None:
    lead_of("a", Clock()).acquire(lambda: BEGINNING)
    clock = Clock()
    third = lead_of("c", Clock())
    taken: list[ChainPosition | None] = []

    def other() -> None:
        if clock.now > 1000.0 + AFTER_S - 1 and not taken:
            taken.append(third.acquire(lambda: BEGINNING))
        clock.stopped = clock.now > 1000.0 + AFTER_S + 5

    clock.on_wait = other
    assert lead_of("b", clock).acquire(lambda: BEGINNING) is None
    assert taken == [BEGINNING]


def test_a_worker_that_is_stopped_takes_nothing(lead_of: Leads) -> None:
    clock = Clock()
    clock.stopped = True
    assert lead_of("a", clock).acquire(lambda: BEGINNING) is None
