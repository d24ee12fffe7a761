"""The thread that rolls up and removes: it works by itself, and nothing that goes wrong ends it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import structlog
from structlog.testing import capture_logs

from tests.fixtures.blocks import store_of
from tests.fixtures.systems import REAL
from tests.unit.planner.test_garbage import Case
from tests.unit.planner.test_planner import apply
from tideline.contract import layout
from tideline.settings import Settings
from tideline_capture import store_maintenance
from tideline_capture.rollup import RollUps
from tideline_capture.store_maintenance import StoreMaintenance

pytestmark = pytest.mark.usefixtures("blocks_of_ten")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_maintenance, "_LOOK_S", 0.02)
    monkeypatch.setattr(store_maintenance, "_FIRST_GARBAGE_S", 0.0)
    monkeypatch.setattr(store_maintenance, "_AFTER_TROUBLE_S", 0.05)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Two hours old, applied, and its blocks are not written yet."""
    made = Case(tmp_path)
    apply(made.history, 34, "public.plain")
    for key in made.store.list(layout.blocks_prefix("shop")):
        made.store.delete(key)
    hours_ago = time.time() - 7200
    for key in made.store.list("shop"):
        os.utime(made.history.part_path(key), (hours_ago, hours_ago))
    return made


def settings_of(case: Case, **retention: Any) -> Settings:
    changed = {"parts_days": 1 / 24, "orphans_days": 1 / 24, **retention}
    settings = case.history.settings
    return settings.model_copy(update={"retention": settings.retention.model_copy(update=changed)})


@pytest.fixture
def running() -> Iterator[Callable[..., StoreMaintenance]]:
    threads: list[StoreMaintenance] = []

    def start(case: Case, tail: Callable[[], int], **retention: Any) -> StoreMaintenance:
        settings = settings_of(case, **retention)
        threads.append(
            StoreMaintenance(
                lambda: settings, store_of(case.history), case.history.chain, tail, REAL
            )
        )
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.stop()
        thread._thread.join(60)  # `stop` waits a little only
        assert not thread._thread.is_alive()


def test_it_rolls_up_what_is_durable_and_removes_what_nobody_needs(
    case: Case, running: Callable[..., StoreMaintenance]
) -> None:
    tail = 19
    running(case, lambda: tail, interval_s=0.05)
    until(lambda: case.store.exists(layout.block_key("shop", 1)))
    assert not case.store.exists(layout.block_key("shop", 2))
    tail = 34
    until(lambda: case.store.exists(layout.block_key("shop", 3)))
    until(lambda: not case.old & case.objects())


def test_where_settings_say_so_nothing_is_removed(
    case: Case, running: Callable[..., StoreMaintenance]
) -> None:
    looked: list[int] = []

    def tail() -> int:
        looked.append(34)
        return 34

    thread = running(case, tail, interval_s=0.05, remove=False)
    until(lambda: case.store.exists(layout.block_key("shop", 3)))
    seen = len(looked)
    until(lambda: len(looked) > seen + 5)
    assert thread._thread.is_alive()
    assert case.old <= case.objects()


def test_trouble_is_told_and_tried_again(
    case: Case, running: Callable[..., StoreMaintenance]
) -> None:
    path = case.history.part_path(case.parts[0].key)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    structlog.reset_defaults()
    with capture_logs() as reported:
        thread = running(case, lambda: 34, remove=False)
        until(lambda: bool(reported))
        assert thread._thread.is_alive()
        path.write_bytes(whole)
        until(lambda: case.store.exists(layout.block_key("shop", 3)))
    assert reported[0]["log_level"] == "error"
    assert case.parts[0].key in reported[0]["reason"]


def test_so_is_a_librarys_trouble_without_its_words(
    case: Case, running: Callable[..., StoreMaintenance], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise pa.ArrowInvalid("the value 4711 of a row")

    monkeypatch.setattr(RollUps, "advance", fail)
    structlog.reset_defaults()
    with capture_logs() as reported:
        thread = running(case, lambda: 34, remove=False)
        until(lambda: len(reported) > 1)
        assert thread._thread.is_alive()
    assert {one["reason"] for one in reported} == {"ArrowInvalid"}
