"""Watermarks that come twice, and what only looks like marks: nothing is made of either."""

from __future__ import annotations

import pytest

from tests.fixtures.core import (
    CLOCK_US,
    FACTS,
    TABLE,
    WIDER,
    Driver,
    emitted,
    facts_with,
    started,
)
from tideline_capture.core.chunks import ChunkOrder
from tideline_capture.core.events import SchemaSeen, UnknownWatermark, Watermark, WatermarkKind
from tideline_capture.core.snapshots.window import ChunkWindow


def ordered() -> tuple[Driver, ChunkOrder]:
    driver = started()
    driver.ask()
    order = driver.order()
    driver.mark(WatermarkKind.LOW, order.token)
    return driver, order


def test_a_copy_of_a_low_mark_does_not_open_the_window_again() -> None:
    """Else the chunk's older row would come after the log's newer one."""
    driver, order = ordered()
    driver.change(("u", 1, "new"))
    driver.mark(WatermarkKind.LOW, order.token)
    driver.answer(order, [(1, "old"), (2, "b")])
    driver.mark(WatermarkKind.HIGH, order.token)
    assert [(op, key, v) for _, op, key, v in emitted(driver.close_segment())] == [
        ("u", 1, "new"),
        ("r", 2, "b"),
    ]


def test_a_copy_of_a_high_mark_says_nothing() -> None:
    driver, order = ordered()
    driver.answer(order, [(1, "a")])
    for _ in range(3):
        driver.mark(WatermarkKind.HIGH, order.token)
    assert len(emitted(driver.close_segment())) == 1


def test_a_copy_of_a_round_s_first_mark_forgets_nothing() -> None:
    """What moved since the round began is left for the next one."""
    driver = started()
    driver.begin_round("r")
    driver.log(None, SchemaSeen(WIDER))
    driver.begin_round("r")
    driver.end_round("r", FACTS)
    assert driver.core.state.schema(TABLE) == WIDER
    driver.catalog(facts_with(WIDER, columns=("id", "v", "big")))
    assert driver.core.state.schema(TABLE) == WIDER


def test_a_copy_of_an_ended_round_s_first_mark_keeps_no_table_from_being_taken_up() -> None:
    """Written again and again, it would throw away every round that is under way."""
    driver = Driver()
    driver.begin_round("r1")
    driver.end_round("r1")
    driver.begin_round("r2")
    driver.mark(WatermarkKind.CATALOG_LOW, "r1")
    driver.end_round("r2", FACTS)
    assert driver.core.state.schema(TABLE) == FACTS.schema


def test_marks_of_sessions_before_are_not_counted_and_later_ones_are() -> None:
    driver = Driver()
    driver.log(None, UnknownWatermark())
    driver.catalog(FACTS)
    assert driver.core.unknown_watermarks == 0
    driver.log(None, UnknownWatermark())
    driver.log(None, UnknownWatermark())
    assert driver.core.unknown_watermarks == 2
    driver.dump([(1, "a")])
    assert len(emitted(driver.close_segment())) == 1


def test_a_flood_of_them_holds_up_no_dump() -> None:
    driver, order = ordered()
    for _ in range(100):
        driver.log(None, UnknownWatermark())
    driver.answer(order, [(1, "a")])
    driver.mark(WatermarkKind.HIGH, order.token)
    assert len(emitted(driver.close_segment())) == 1


class TestPulses:
    """A copy is taken again when someone else writes to the rows that tell of its place."""

    def window(self) -> tuple[Driver, ChunkOrder, ChunkWindow]:
        driver, order = ordered()
        for writer in "012":
            driver.mark(WatermarkKind.PROBE, f"{order.token}.{writer}.1")
        window = driver.core.dumps.scheduler.in_flight[0].window
        assert window is not None and len(window.probes) == 3 and window.disturbed is None
        return driver, order, window

    @pytest.mark.parametrize("number", [1, 0])
    def test_a_pulse_that_comes_again(self, number: int) -> None:
        driver, order, window = self.window()
        driver.log(None, Watermark(WatermarkKind.PROBE, f"{order.token}.0.{number}", CLOCK_US))
        assert len(window.probes) == 3
        assert window.disturbed == "someone else writes to the table of watermarks"

    def test_what_is_no_pulse(self) -> None:
        driver, _, window = self.window()
        driver.log(None, UnknownWatermark())
        assert window.disturbed == "someone else writes to the table of watermarks"
