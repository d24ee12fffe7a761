"""What every output promises, whoever is killed: nothing lost, in order, and once where it says so.

The publisher is a process of its own; the chain is in a folder, without a database.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.fixtures.capture import poll
from tests.fixtures.parts import Row
from tests.fixtures.publishing import NAME
from tests.publish.outputs import OutputCase, PairsCase
from tests.publish.rig import FENCED, TABLES, Rig, by_row
from tideline.settings import load_settings
from tideline_publish import control

SHOW_PAIRS = ("files", "kafka", "kafka without transactions")


@pytest.fixture
def rig(tmp_path: Path, output: OutputCase) -> Rig:
    return Rig(tmp_path, output)


def test_every_change_arrives_and_a_later_run_goes_on(rig: Rig) -> None:
    rig.commit(6)
    rig.publish()
    rig.check()
    entry = rig.entry()
    assert entry.released
    assert entry.position.seq == rig.history.last_seq
    rig.commit(3)
    rig.publish()
    rig.check()
    assert len(rig.output.events()) == len(rig.wanted())


def test_an_empty_chain_is_waited_for_and_followed(rig: Rig) -> None:
    worker = rig.worker()
    worker.wait_output("publishing")
    rig.commit(2)
    poll("it is published", rig.is_published)
    worker.terminate()
    assert rig.entry().released
    rig.check()


@pytest.mark.parametrize("point", ["after_write", "after_settle", "after_log"])
def test_one_that_is_killed_loses_nothing(rig: Rig, point: str) -> None:
    for count in (1, 2):
        rig.publish_until_killed(point, count)
    rig.publish()
    rig.check()


def test_one_that_hangs_is_taken_over_and_changes_nothing_when_it_comes_back(rig: Rig) -> None:
    first = rig.worker()
    rig.commit(1)
    first.wait_point("after-settle")
    rig.commit(1)
    first.wait_point("after-write", 2)
    first.signal(signal.SIGSTOP)
    first.wait_stopped()
    second = rig.worker()
    second.wait_output("another worker publishes")
    rig.commit(3)
    second.wait_output("publishing")
    poll("it is published", rig.is_published)
    first.signal(signal.SIGCONT)
    rig.commit(2)
    assert first.wait() == FENCED, first.output()
    poll("it is published", rig.is_published)
    second.terminate()
    rig.check()


@pytest.mark.parametrize("output", SHOW_PAIRS, indirect=True)
def test_tombstones_arrive_behind_their_deletes(tmp_path: Path, output: PairsCase) -> None:
    rig = Rig(tmp_path, output, format="debezium", tables=(TABLES[0],))
    table = TABLES[0]
    rig.history.commit(
        Row(table, "c", {"id": 1, "note": "a"}),
        Row(table, "d", {"id": 1}),
        Row(table, "c", {"id": 2, "note": "b"}),
        Row(table, "u", {"id": 3, "note": "b"}, before={"id": 2}),
    )
    worker = rig.worker(after_write=1)
    assert worker.wait() == -signal.SIGKILL, worker.output()
    rig.publish()
    rig.history.commit(Row(table, "d", {"id": 3}))
    rig.publish()
    found: dict[int, list[str | None]] = {}
    for key, value in output.pairs():
        found.setdefault(key["id"], []).append(None if value is None else value["op"])
    # Where some come again, the last of them are as they happened.
    last = found if output.once else {at: ops[-3:] for at, ops in found.items()}
    assert last == {at: ["c", "d", None] for at in (1, 2, 3)}


def test_a_passive_worker_goes_on_where_the_active_one_died(rig: Rig) -> None:
    first = rig.worker(after_write=3)
    first.wait_output("publishing")
    second = rig.worker()
    second.wait_output("another worker publishes")
    rig.commit(5)
    assert first.wait() == -signal.SIGKILL, first.output()
    rig.commit(5)
    poll("it is published", rig.is_published)
    second.terminate()
    rig.check()


def test_a_paused_one_waits_and_a_moved_one_goes_on_from_there(rig: Rig) -> None:
    settings = load_settings(rig.config)
    worker = rig.worker()
    rig.commit(2)
    poll("it is published", rig.is_published)
    control.pause(settings, NAME, paused=True)
    worker.wait_output("a command has moved or paused the publisher")
    published_before = by_row(rig.output.events())
    rig.commit(2)
    worker.wait_output("is paused")
    assert by_row(rig.output.events()) == published_before
    control.pause(settings, NAME, paused=False)
    poll("it is published", rig.is_published)
    rig.check()
    again = len(rig.wanted()) + (0 if rig.output.cuts else len(rig.wanted()))
    control.move(settings, NAME, "beginning")
    poll("it is all there again", lambda: len(rig.output.events()) == again)
    worker.terminate()
