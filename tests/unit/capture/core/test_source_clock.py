"""Complete through: whose clock is believed, how far, and that it may be taken back."""

from __future__ import annotations

from tests.fixtures.core import (
    CLOCK_US,
    EVERYTHING,
    FACTS,
    Driver,
    first_manifest,
    make_core,
    started,
)
from tideline.contract.open_state import OpenState
from tideline_capture.core.events import Watermark, WatermarkKind
from tideline_capture.core.facts import CatalogRound

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000


class Clocks:
    """A driver whose source and worker have clocks of their own, in µs beyond `CLOCK_US`."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._number = 0

    def round(self, *, source: int, worker: int) -> Watermark:
        """A whole round; its heartbeat."""
        self._number += 1
        token = f"round-{source}-{worker}-{self._number}"
        self.driver.begin_round(token)
        observed = CatalogRound(token, (FACTS,), EVERYTHING, at_us=CLOCK_US + worker)
        self.driver.core.on_catalog(observed)
        heartbeat = Watermark(WatermarkKind.HEARTBEAT, token, CLOCK_US + source)
        self.driver.log(None, heartbeat)
        return heartbeat

    @property
    def through(self) -> int | None:
        found = self.driver.close_segment().source_time_us
        return None if found is None else found - CLOCK_US


def test_a_jump_forward_and_back_claims_nothing_of_the_time_to_come() -> None:
    """Without an attacker: the source's clock is a day ahead for one heartbeat."""
    clocks = Clocks(started())
    clocks.round(source=0, worker=1)
    clocks.round(source=3 * SECOND + DAY, worker=3 * SECOND)
    assert clocks.through == 3 * SECOND
    clocks.round(source=6 * SECOND, worker=7 * SECOND)
    assert clocks.through == 6 * SECOND


def test_a_worker_whose_clock_is_ahead_claims_no_more_than_the_source_says() -> None:
    clocks = Clocks(started())
    clocks.round(source=5 * SECOND, worker=5 * SECOND + HOUR)
    assert clocks.through == 5 * SECOND


def test_a_clock_may_step_back() -> None:
    clocks = Clocks(started())
    clocks.round(source=HOUR, worker=HOUR)
    clocks.round(source=10 * SECOND, worker=HOUR + 10 * SECOND)
    assert clocks.through == 10 * SECOND


def test_a_heartbeat_of_somebody_else_says_nothing() -> None:
    """With an attacker, who knows all but the tokens of this session."""
    clocks = Clocks(started())
    clocks.round(source=SECOND, worker=SECOND)
    for clock in (DAY, 1 << 62):
        clocks.driver.log(None, Watermark(WatermarkKind.HEARTBEAT, "forged", CLOCK_US + clock))
    assert clocks.through == SECOND


def test_a_copy_of_a_heartbeat_says_nothing() -> None:
    clocks = Clocks(started())
    early = clocks.round(source=SECOND, worker=SECOND)
    clocks.round(source=9 * SECOND, worker=9 * SECOND)
    clocks.driver.log(None, early)
    assert clocks.through == 9 * SECOND


def test_however_far_the_log_is_behind_each_heartbeat_counts() -> None:
    """More rounds than are kept of the catalog."""
    clocks = Clocks(started())
    core = clocks.driver.core
    for number in range(100):
        at_us = CLOCK_US + number * SECOND
        core.on_catalog(CatalogRound(f"far-{number}", (FACTS,), EVERYTHING, at_us=at_us))
    for number in (70, 40, 90):
        heartbeat = Watermark(WatermarkKind.HEARTBEAT, f"far-{number}", CLOCK_US + number * SECOND)
        clocks.driver.log(None, heartbeat)
    assert clocks.through == 90 * SECOND


def test_a_chain_that_believed_a_wrong_clock_starts_all_the_same() -> None:
    """Whatever is durable: a session begins with what its writer's clock allows."""
    for poison in (CLOCK_US + DAY, 9_000_000_000_000_000_000):
        tail = first_manifest(source_time_us=poison, written_at_us=CLOCK_US)
        driver = Driver(make_core(OpenState(), tail=tail))
        clocks = Clocks(driver)
        assert driver.core.state.clock.time_us == CLOCK_US
        clocks.round(source=2 * SECOND, worker=2 * SECOND)
        assert clocks.through == 2 * SECOND
