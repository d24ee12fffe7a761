"""Commands: requests that are paused, cancelled and tuned while they run."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from tests.fixtures.core import FACTS, OTHER, OTHER_FACTS, TABLE, Driver, make_core, started
from tideline.contract.request import (
    Action,
    Answer,
    Command,
    KeyRange,
    RequestState,
)
from tideline_capture.core.effects import RereadWanted
from tideline_capture.core.events import CommandArrived, WatermarkKind


def report(driver: Driver, action: Action, *requests: str, **fields: object) -> Answer | None:
    command = replace(Command("c1", action, requests=requests or None), **fields)
    arrived = CommandArrived(f"m-{command.command_id}", command)
    return driver.core.on_arrival(arrived)


def waits(driver: Driver) -> bool:
    return driver.core.next_order(now=driver.now + 100) is None


def resumed(driver: Driver) -> Driver:
    """Another worker, from what the segment holds."""
    return Driver.of(driver.close_segment().state)


@pytest.mark.parametrize("chosen", [("r1",), ()], ids=["one", "all"])
def test_a_paused_request_goes_on_from_its_last_chunk(chosen: tuple[str, ...]) -> None:
    driver = started()
    driver.ask()
    driver.dump([(1, "a")], complete=False)
    report(driver, Action.PAUSE, *chosen)
    assert waits(driver)
    driver = resumed(driver)
    assert waits(driver)
    report(driver, Action.RESUME, *chosen, command_id="c2")
    assert driver.order().after_key == ("1",)


def test_all_is_also_what_comes_later_and_one_stays_paused() -> None:
    driver = started()
    driver.ask("a")
    report(driver, Action.PAUSE, "a")
    report(driver, Action.PAUSE, command_id="c2")
    driver.ask("b")
    assert waits(driver)
    report(driver, Action.RESUME, command_id="c3")
    assert driver.order().request_id == "b"


def test_a_chunk_under_way_is_emitted() -> None:
    driver = started()
    driver.ask()
    order = driver.order()
    report(driver, Action.PAUSE, "r1")
    driver.mark(WatermarkKind.LOW, order.token)
    driver.answer(order, [(1, "a")])
    driver.mark(WatermarkKind.HIGH, order.token)
    assert driver.close_segment().finished[-1].state is RequestState.DONE


def test_a_cancelled_request_failed_and_nothing_of_it_comes() -> None:
    driver = started()
    driver.ask()
    order = driver.order()
    driver.mark(WatermarkKind.LOW, order.token)
    driver.answer(order, [(1, "a")], complete=False)
    report(driver, Action.CANCEL, "r1", requested_by="ann")
    driver.mark(WatermarkKind.HIGH, order.token)
    sealed = driver.close_segment()
    assert sealed.rows == () and sealed.deletes_before == ()
    reported = {answer.request_id: answer for answer in sealed.finished}
    assert reported["r1"].state is RequestState.FAILED
    assert "cancelled by ann" in str(reported["r1"].error)
    assert reported["c1"].state is RequestState.DONE
    assert waits(driver)


def test_a_cancelled_dump_that_was_to_prove_its_table_is_followed_by_another() -> None:
    driver = started()
    driver.ask("r1")
    driver.order()
    driver.catalog(dataclasses.replace(FACTS, membership="2"))
    assert [item.request.request_id for item in driver.core.state.requests.open] == ["r1"]
    report(driver, Action.CANCEL, "r1")
    (left,) = driver.core.state.requests.open
    assert left.request.request_id.startswith("unproven:")
    report(driver, Action.CANCEL, left.request.request_id, command_id="c2")
    assert "pause it instead" in str(driver.close_segment().refused[0].error)


def test_a_cancelled_dump_of_a_proven_table_is_followed_by_none() -> None:
    driver = started()
    driver.ask()
    report(driver, Action.CANCEL, "r1")
    assert driver.core.state.requests.open == ()


def test_throttle() -> None:
    """What is said of one counts more than what is said of all, and that more than the asker's."""
    driver = started()
    driver.ask("a", chunk_rows=3)
    report(driver, Action.TUNE, chunk_rows=5, delay_ms=1000)
    order = driver.order()
    assert order.rows_max == 5
    assert driver.core.dumps.scheduler.delay_s("a") == 1
    report(driver, Action.TUNE, "a", command_id="c2", chunk_rows=7, delay_ms=0)
    driver.mark(WatermarkKind.LOW, order.token)
    driver.answer(order, [(1, "a")], complete=False)
    driver.mark(WatermarkKind.HIGH, order.token)
    driver = resumed(driver)
    assert driver.order().rows_max == 7
    assert driver.core.dumps.scheduler.delay_s("a") == 0
    report(driver, Action.TUNE, "a", command_id="c3", chunk_rows="default", delay_ms="default")
    assert driver.core.dumps.scheduler.delay_s("a") == 1


def test_refused() -> None:
    driver = started()
    driver.core.run(driver.core.intake.reread_wanted(RereadWanted(TABLE, (("1",),))))
    reread = driver.core.state.requests.open[0].request.request_id
    report(driver, Action.CANCEL, reread)
    report(driver, Action.PAUSE, "nobody", command_id="c2")
    reported = {answer.request_id: answer.error for answer in driver.close_segment().refused}
    assert reread in str(reported["c1"])
    assert "nobody" in str(reported["c2"])
    assert not waits(driver)


def test_a_refused_one_that_comes_again_is_not_done_later() -> None:
    driver = started()
    report(driver, Action.PAUSE, "r1")
    driver.ask("r1")
    report(driver, Action.PAUSE, "r1")
    assert not waits(driver)
    assert [answer.request_id for answer in driver.close_segment().refused] == ["c1"]


def test_the_same_command_again_is_answered_once_it_is_durable() -> None:
    driver = started()
    driver.ask()
    report(driver, Action.PAUSE, "r1")
    report(driver, Action.RESUME, "r1", command_id="c2")
    assert report(driver, Action.PAUSE, "r1") is None
    assert not waits(driver)


def test_priority_counts_before_everything() -> None:
    driver = Driver(make_core())
    driver.catalog(OTHER_FACTS)
    driver.dump([], facts=OTHER_FACTS)
    driver.ask("old", tables=(OTHER,))
    driver.ask("keys", tables=(OTHER,), keys=(("1",),))
    driver.ask("urgent", tables=(OTHER,), priority=1)
    driver.ask("late", tables=(OTHER,), priority=-1)
    served = []
    for _ in range(4):
        order = driver.dump([(1, "a")], facts=OTHER_FACTS)
        served.append(order.request_id)
    assert served == ["urgent", "keys", "old", "late"]


def test_keys_beside_a_range_are_read_after_it() -> None:
    """Those of them that the source lacks become deletes; the range deletes nothing by itself."""
    driver = started()
    driver.ask(key_range=KeyRange(("1",), ("9",)), keys=(("3",), ("4",)))
    order = driver.dump([(1, "a")], complete=False)
    assert order.key_range == KeyRange(("1",), ("9",)) and order.keys is None
    order = driver.dump([(3, "c")])
    assert order.after_key == ("1",)
    driver = resumed(driver)
    order = driver.dump([(3, "c")], missing=[4])
    assert order.keys == (("3",), ("4",)) and order.key_range is None
    sealed = driver.close_segment()
    assert sealed.finished[0].state is RequestState.DONE and sealed.deletes_before == ()
    operations = [op for rows in sealed.rows for op in rows.batch.column("_tl_op").to_pylist()]
    assert sorted(operations) == ["d", "r"]


def test_states_rate_and_time_that_is_left() -> None:
    driver = started()
    driver.ask()
    driver.dump([(1, "a"), (2, "b")], complete=False, rows_estimate=100)
    driver.dump([(3, "c"), (4, "d")], complete=False)
    (answer,) = driver.core.answers(now=driver.now)
    table = answer.tables[0]
    assert (answer.state, table.state) == (RequestState.RUNNING, RequestState.RUNNING)
    assert table.rows_per_s == pytest.approx(2 / 10)
    assert table.remaining_s == pytest.approx(96 / (2 / 10))
    report(driver, Action.PAUSE)
    (answer,) = driver.core.answers(now=driver.now)
    assert (answer.state, answer.tables[0].state) == (RequestState.PAUSED, RequestState.PAUSED)


def test_another_delay_counts_at_once() -> None:
    """Also for the pause that has begun: an hour's is not waited out when nobody wants it now."""
    driver = started()
    driver.ask(delay_ms=3_600_000)
    driver.dump([(1, "a")], complete=False)
    assert waits(driver)
    report(driver, Action.TUNE, "r1", delay_ms=0)
    assert not waits(driver)
