"""Deciders yield effects: a call whose effects are dropped would do nothing, without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.core import TABLE, make_core
from tideline_capture import core
from tideline_capture.core.effects import Disturbed, Effects, Joined
from tideline_capture.core.worker import Worker

SOURCES = sorted(Path(core.__file__).parent.rglob("*.py"))
TREES = {path.name: ast.parse(path.read_text()) for path in SOURCES}


def _deciders() -> set[str]:
    """The names of functions that are annotated to return effects."""
    return {
        node.name
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.returns is not None
        and ast.unparse(node.returns).startswith(("Effects", "Deciding["))
    }


def _dropped(tree: ast.Module, names: set[str]) -> Iterator[str]:
    """The calls of deciders whose effects go nowhere."""
    handed_on = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.YieldFrom | ast.Return) and node.value is not None:
            handed_on.add(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "self.run":
            handed_on.update(node.args)
    for node in ast.walk(tree):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        owner, _, name = called.rpartition(".")
        decides = name in names and owner.startswith("self") and owner not in PLAIN_OWNERS
        if decides and called not in PLAIN and node not in handed_on:
            yield ast.unparse(node)


PLAIN_OWNERS = {
    "self._notes",
    "self._tables",
    "self._verification",
}
PLAIN = {"self._beginnings.on_statement", "self._blocks.cancelled"}
"""These are no deciders, though some have methods of the same names."""


def test_no_effect_is_dropped() -> None:
    names = _deciders()
    assert {"adopt", "doubt", "settle", "on_request"} <= names
    dropped = {name: list(_dropped(tree, names)) for name, tree in TREES.items()}
    assert {name: calls for name, calls in dropped.items() if calls} == {}


@pytest.fixture
def worker() -> Worker:
    return make_core()


def test_an_effect_is_carried_out_before_its_decider_goes_on(worker: Worker) -> None:
    seen: list[bool] = []

    def deciding() -> Effects:
        seen.append(worker.dumps.scheduler.unfenced(TABLE))
        yield Joined(TABLE)
        seen.append(worker.dumps.scheduler.unfenced(TABLE))
        yield Disturbed(TABLE, "a test")

    worker.run(deciding())
    assert seen == [False, True]
