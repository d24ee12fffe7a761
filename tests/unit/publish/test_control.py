"""Commands to a publisher, and what status says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fixtures.parts import HEARTBEAT_US, History, Shaped, schema_of
from tests.fixtures.publishing import NAME, history_of_pairs
from tideline.contract.errors import Fenced, Misconfigured
from tideline.contract.open_state import TableCondition
from tideline.contract.publishing import ChainPosition, PublisherEntry
from tideline.planner.publisher_status import PublisherState, PublisherStatus, publisher_statuses
from tideline.settings import PublishSettings, Settings
from tideline.store.publisher_log import PublisherLog
from tideline_publish import control
from tideline_publish.selection import uncaptured

T = "public.t"


@pytest.fixture
def history(tmp_path: Path) -> History:
    return history_of_pairs(tmp_path)


@pytest.fixture
def settings(history: History) -> Settings:
    publisher = PublishSettings(output="null", takeover_after_s=10)
    return history.settings.model_copy(update={"publish": {NAME: publisher}})


@pytest.fixture
def log(history: History) -> PublisherLog:
    return PublisherLog(history.store, history.settings.pipeline, NAME)


def entry(number: int = 1, **more: Any) -> PublisherEntry:
    return PublisherEntry(NAME, number, "a", ChainPosition("one", 3, 5), HEARTBEAT_US, **more)


def test_a_pause_is_an_entry_that_fences_the_worker(settings: Settings, log: PublisherLog) -> None:
    log.append(entry(events=7))
    paused = control.pause(settings, NAME, paused=True)
    assert (paused.paused, paused.by_operator, paused.released) == (True, True, True)
    assert (paused.position, paused.events) == (entry().position, 7)
    with pytest.raises(Fenced):
        log.append(entry(2))
    assert not control.pause(settings, NAME, paused=False).paused


def test_a_move_is_of_another_epoch(settings: Settings, log: PublisherLog) -> None:
    log.append(entry())
    assert control.move(settings, NAME, "manifest:2").position == ChainPosition("one", 2, 3, 1)
    assert control.move(settings, NAME, "beginning").position == ChainPosition("one", 0, 0, 2)


def test_a_move_leaves_a_pause(settings: Settings) -> None:
    control.pause(settings, NAME, paused=True)
    assert control.move(settings, NAME, "now").paused


def test_one_that_never_ran_can_be_moved(settings: Settings, log: PublisherLog) -> None:
    moved = control.move(settings, NAME, "sequence:4")
    assert (moved.number, moved.position.seq) == (1, 4)
    assert log.newest() == moved


def test_a_publisher_that_is_not_in_the_settings_is_refused(settings: Settings) -> None:
    with pytest.raises(Misconfigured, match="there are: events"):
        control.move(settings, "other", "now")


def test_a_preview_counts_and_publishes_nothing(settings: Settings, log: PublisherLog) -> None:
    found = control.preview(settings, NAME)
    assert (found.from_seq, found.to_seq) == (1, 9)
    assert found.events == {(T, "c"): 8}
    assert log.newest() is None
    log.append(entry())
    assert control.preview(settings, NAME).events == {(T, "c"): 4}
    control.move(settings, NAME, "now")
    assert control.preview(settings, NAME).events == {}


def status_of(history: History, settings: Settings, seconds: float) -> PublisherStatus:
    """The status ``seconds`` after the first heartbeat."""
    tail = history.chain.tail()
    assert tail is not None
    now_us = HEARTBEAT_US + round(seconds * 1_000_000)
    (found,) = publisher_statuses(settings, history.store, tail.manifest, now_us)
    return found


def test_status_of_one_that_never_ran(history: History, settings: Settings) -> None:
    assert status_of(history, settings, 5) == PublisherStatus(NAME, "null", PublisherState.NEW)


def test_status_has_position_lag_and_rate(
    history: History, settings: Settings, log: PublisherLog
) -> None:
    log.append(entry(events=10))
    position, at_us = ChainPosition("one", 4, 7), HEARTBEAT_US + 4_000_000
    log.append(replace(entry(2, events=18), position=position, written_at_us=at_us))
    found = status_of(history, settings, 6)
    assert found.state is PublisherState.PUBLISHING
    # Manifest 4 lacks nothing up to 4 s after the first heartbeat.
    assert (found.seq, found.waiting, found.lag_s) == (7, 2, 2.0)
    assert (found.events, found.per_s) == (18, 2.0)


def test_one_that_has_published_all_is_as_old_as_the_chain(
    history: History, settings: Settings
) -> None:
    control.move(settings, NAME, "now")
    found = status_of(history, settings, 6)
    assert (found.waiting, found.lag_s) == (0, 1.0)


def test_states_follow_from_the_newest_entry(
    history: History, settings: Settings, log: PublisherLog
) -> None:
    log.append(entry())
    assert status_of(history, settings, 9).state is PublisherState.PUBLISHING
    assert status_of(history, settings, 11).state is PublisherState.SILENT
    log.append(entry(2, released=True))
    assert status_of(history, settings, 11).state is PublisherState.STOPPED
    control.pause(settings, NAME, paused=True)
    assert status_of(history, settings, 11).state is PublisherState.PAUSED


def test_tables_of_which_none_is_captured_are_named(history: History) -> None:
    outbox = "public.outbox"
    quarantined = {"condition": TableCondition.QUARANTINED, "since_seq": 1, "reason": "no key"}
    history.commit(Shaped(schema_of(outbox, {"id": "int32"}, ["id"])), states={outbox: quarantined})
    chosen = PublishSettings.model_validate(
        {
            "output": "null",
            "tables": [T, "public.*", "public.orders"],
            "outbox": {"table": outbox},
        }
    )
    assert uncaptured(chosen, history.chain) == ("public.orders", outbox)
