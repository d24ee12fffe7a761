"""Whether the state changed is derived: from what was closed, not from who changed it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
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
from tideline.contract.request import Action, Answer, Command, DumpRequest, RequestState
from tideline_capture.core.events import CommandArrived, PreparedSeen
from tideline_capture.core.state import CoreState


@pytest.fixture
def state() -> CoreState:
    before = OpenState(tables={TABLE: TableState()})
    return CoreState(first_manifest(), before, {}, LIMITS, POLICY)


CHANGES: dict[str, tuple[Callable[[CoreState], object], ...]] = {
    "requests": (
        lambda state: state.accept(DumpRequest("r", (TABLE,)), [TABLE]),
        lambda state: state.update_dump("r", TableDump(TABLE, state="running")),
        lambda state: state.fail_table(TABLE, "gone"),
    ),
    "tables": (lambda state: state.change_table(TABLE, doubts=1),),
    "recent": (lambda state: state.finish(Answer("c", RequestState.DONE)),),
    "prepared": (lambda state: state.hold("xid", PostgresPosition(1)),),
    "paused": (lambda state: state.requests.pause(None, paused=True),),
    "chunk_rows": (lambda state: state.requests.tune(None, 7, None),),
    "delay_ms": (lambda state: state.requests.tune(None, None, 7),),
    "begun": (lambda state: state.begin(TABLE, CapturedFrom(1)),),
}
"""Changes of each field of the open state, to be made one after the other."""


@pytest.mark.parametrize("field", OpenState.__struct_fields__)
def test_every_field_of_the_open_state_counts(field: str, state: CoreState) -> None:
    """A new field has no change here: add one, and it is seen or this fails."""
    for change in CHANGES[field]:
        before = state.close_segment().state
        assert not state.close_segment().state_changed
        change(state)
        assert state.changed
        assert getattr(state.open_state(), field) != getattr(before, field)
        assert state.close_segment().state_changed


def test_another_start_in_the_log_counts(state: CoreState) -> None:
    assert not state.changed
    state.resume(PostgresPosition(9))
    assert state.has_content()
    assert state.close_segment().state_changed


@pytest.mark.parametrize("field", OpenState.__struct_fields__)
def test_an_open_state_that_was_handed_out_stays(field: str, state: CoreState) -> None:
    given = state.open_state()
    before = msgspec.json.encode(given)
    for change in CHANGES[field]:
        change(state)
    assert msgspec.json.encode(given) == before


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
