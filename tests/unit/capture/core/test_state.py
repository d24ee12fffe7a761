"""Whether the state changed is derived: from what was closed, not from who changed it."""

from __future__ import annotations

import ast
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import MappingProxyType

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
from tideline_capture import core
from tideline_capture.core.events import CommandArrived, PreparedSeen
from tideline_capture.core.open_requests import OpenRequests
from tideline_capture.core.segment import OpenSegment
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
    "paused": (lambda state: state.pause(None, paused=True),),
    "chunk_rows": (lambda state: state.tune(None, 7, None),),
    "delay_ms": (lambda state: state.tune(None, None, 7),),
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


def test_what_is_undone_before_it_is_closed_changed_nothing(state: CoreState) -> None:
    state.change_table(TABLE, doubts=1)
    state.pause(None, paused=True)
    state.hold("xid", PostgresPosition(1))
    assert state.has_content()
    state.change_table(TABLE, doubts=0)
    state.pause(None, paused=False)
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


OWN = {"state.py", "open_requests.py", "segment.py"}
"""What changes the state, its requests and its open segment is in these alone."""
CORE = Path(core.__file__).parent
TREES = {
    str(path.relative_to(CORE.parent)): ast.parse(path.read_text())
    for path in (*CORE.rglob("*.py"), *CORE.parent.glob("*.py"))
    if path.name not in OWN
}
IN_PLACE = {*dir(list), *dir(dict), *dir(set), *dir(deque)} - {
    *dir(tuple),
    *dir(frozenset),
    *dir(MappingProxyType),
}
"""The methods of containers that change them."""


def _path(node: ast.AST) -> list[str]:
    """The names of ``a.b.c[d]``, from the left."""
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    if isinstance(node, ast.Subscript):
        return [*_path(node.value), "[]"]
    return [node.id] if isinstance(node, ast.Name) else [""]


def _targets(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns or deletes."""
    if isinstance(node, ast.Assign | ast.Delete):
        found = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    else:
        return []
    return [
        one
        for target in found
        for one in (target.elts if isinstance(target, ast.Tuple | ast.List) else [target])
    ]


def _changes(node: ast.AST, methods: set[str]) -> Iterator[list[str]]:
    """The paths that a statement or call changes, the last name left out; ``methods`` change their
    owner."""
    for target in _targets(node):
        if isinstance(target, ast.Attribute | ast.Subscript):
            yield _path(target.value)
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr in methods:
        yield _path(called.value)


@cache
def _changing(kind: type[object]) -> set[str]:
    """The methods of ``kind`` that change it, themselves or by others of its methods."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    bodies = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    known: set[str] = set()
    while True:
        found = {
            name
            for name, body in bodies.items()
            for node in ast.walk(body)
            for path in _changes(node, IN_PLACE | known)
            if path[0] == "self"
        }
        if found == known:
            return known - {"__init__"}
        known = found


def _from_outside(tree: ast.Module) -> list[str]:
    """Where a module changes the state, its requests or its open segment past their verbs."""
    methods = _changing(OpenRequests) | _changing(OpenSegment) | IN_PLACE
    found = []
    for node in ast.walk(tree):
        for path in _changes(node, methods):
            of_state = path[-1] in ("state", "_state") and not isinstance(node, ast.Call)
            if of_state or {"requests", "segment"} & set(path):
                found.append(ast.unparse(node))
    return found


def test_what_changes_is_known() -> None:
    requests, segment = _changing(OpenRequests), _changing(OpenSegment)
    assert {"accept", "took", "pause", "tune", "fail", "update", "restart", "reread"} <= requests
    assert {"fail_table", "take_ended"} <= requests
    assert {"due", "dump", "full", "rows_max", "delay_s", "reread_keys"}.isdisjoint(requests)
    assert segment == {"add", "add_verification", "flush_partial"}


@pytest.mark.parametrize(
    "line",
    [
        "state.segment.opened_at = now",
        "self._state.position = position",
        "state.segment.urgent |= True",
        "self.state.segment.rows.append(rows)",
        "requests.restart(table)",
        "found = self._state.requests.fail(one, error)",
        "state.identity, other = both",
        "del self._state.requests.paused",
    ],
)
def test_a_change_from_outside_is_found(line: str) -> None:
    assert _from_outside(ast.parse(line)) == [line.removeprefix("found = ")]


def test_the_state_alone_changes_itself() -> None:
    assert len(TREES) > 30
    found = {name: _from_outside(tree) for name, tree in TREES.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}
