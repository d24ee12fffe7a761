"""Whether the state changed is derived: from what was sealed, not from who changed it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.fixtures.core import (
    FACTS,
    IDENTITY,
    LIMITS,
    POLICY,
    TABLE,
    Driver,
    first_manifest,
    started,
)
from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.open_state import (
    CapturedFrom,
    OpenState,
    TableDump,
    TableState,
)
from tideline.contract.position import PostgresPosition
from tideline.contract.request import Action, Command, DumpRequest
from tideline_capture.core.events import CommandArrived, PreparedSeen
from tideline_capture.core.state import CoreState


@pytest.fixture
def state() -> CoreState:
    before = OpenState(tables={TABLE: TableState()})
    return CoreState(first_manifest(), before, {}, LIMITS, POLICY)


def test_every_part_of_the_open_state_counts(state: CoreState) -> None:
    changes: tuple[Callable[[], None], ...] = (
        lambda: state.change_table(TABLE, doubts=1),
        lambda: state.accept(DumpRequest("r", (TABLE,)), [TABLE]),
        lambda: state.update_dump("r", TableDump(TABLE, state="running")),
        lambda: state.fail_table(TABLE, "gone"),
        lambda: state.requests.pause(None, paused=True),
        lambda: state.requests.tune(None, 7, None),
        lambda: state.requests.tune(None, None, 7),
        lambda: state.hold("xid", PostgresPosition(1)),
        lambda: state.begin(TABLE, CapturedFrom(1)),
        lambda: state.resume(PostgresPosition(9)),
    )
    for change in changes:
        assert not state.close_segment().state_changed
        change()
        assert state.has_content()
        assert state.close_segment().state_changed


def test_what_is_undone_before_it_is_sealed_changed_nothing(state: CoreState) -> None:
    state.change_table(TABLE, doubts=1)
    state.requests.pause(None, paused=True)
    state.hold("xid", PostgresPosition(1))
    assert state.has_content()
    state.change_table(TABLE, doubts=0)
    state.requests.pause(None, paused=False)
    state.hold("xid", None)
    assert not state.changed


def test_the_end_of_what_was_never_held_changes_nothing() -> None:
    driver = started()
    driver.log(None, PreparedSeen("unknown", None))
    assert not driver.core.state.changed


def test_an_answer_that_became_durable_is_no_change() -> None:
    """The manifest that ended the request has its number already."""
    driver = started()
    driver.core.on_arrival(CommandArrived("m", Command("c", Action.PAUSE)))
    sealed = driver.close_segment()
    ended = tuple(replace(one, manifest_number=2) for one in sealed.finished)
    driver.core.state.durable(_manifest(ended=ended))
    assert driver.core.state.recent.get("c") == ended[0]
    assert not driver.core.state.changed


def _manifest(ended: tuple[object, ...]) -> Manifest:
    return first_manifest(
        manifest_number=2, kind=ManifestKind.SEGMENT, identity=IDENTITY, finished=ended
    )


def test_a_look_that_shows_nothing_new_is_no_change() -> None:
    driver = started()
    driver.catalog(FACTS)
    assert not driver.core.state.changed


def test_a_successor_begins_without_a_change() -> None:
    before = started().core.state.open_state()
    assert not Driver.of(before, FACTS).core.state.changed


def test_sequences_are_contiguous_and_never_taken_back(state: CoreState) -> None:
    assert (state.mint(3), state.mint(), state.last_seq) == (1, 4, 4)
    with pytest.raises(InvariantBroken, match="cannot mint -1"):
        state.mint(-1)
    with pytest.raises(InvariantBroken, match="after 4"):
        state.mint(1 << 63)
