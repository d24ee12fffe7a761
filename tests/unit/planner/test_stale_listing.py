"""Listings that miss objects, or show some that are gone: only garbage is looked for in them, and
it is judged by the blocks, so they cost time and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.fixtures.blocks import PLAIN
from tests.unit.planner.test_garbage import LATER, Case
from tests.unit.planner.test_planner import apply
from tideline.planner.garbage import Garbage
from tideline.store.objects import Entry, ObjectStore

pytestmark = pytest.mark.usefixtures("blocks_of_ten")


class Stale:
    """``store`` whose listings were made before ``shown`` went, and before ``hidden`` came."""

    def __init__(self, store: ObjectStore) -> None:
        self.shown: list[Entry] = []
        self.hidden: set[str] = set()
        self._entries = store.entries
        store.entries = self.entries  # type: ignore[method-assign]

    def entries(self, prefix: str, after: str = "") -> Iterator[Sequence[Entry]]:
        gone = [one for one in self.shown if one.key.startswith(prefix) and one.key > after]
        found = [entry for page in self._entries(prefix, after) for entry in page]
        known = {entry.key for entry in found}
        found += [one for one in gone if one.key not in known]
        page = sorted((e for e in found if e.key not in self.hidden), key=lambda entry: entry.key)
        if page:
            yield page


@pytest.fixture
def case(tmp_path: Path) -> Case:
    made = Case(tmp_path)
    apply(made.history, 34, PLAIN)
    return made


def collected(case: Case, store: ObjectStore) -> set[str]:
    before = case.objects()
    Garbage(case.history.settings, store).collect(LATER)
    return before - case.objects()


def test_what_a_listing_misses_is_removed_another_time(case: Case) -> None:
    store = case.store
    stale = Stale(store)
    stale.hidden = set(sorted(case.old)[::2]) | {key for key in case.objects() if "/blocks/" in key}
    assert collected(case, store) == case.old - stale.hidden
    assert case.missing(case.history.plan()) == []
    stale.hidden = set()
    assert collected(case, store) == case.old & set(sorted(case.old)[::2])
    assert case.missing(case.history.plan()) == []


def test_what_is_gone_and_still_listed_is_gone(case: Case) -> None:
    store = case.store
    stale = Stale(store)
    everything = [entry for page in stale.entries("shop/data") for entry in page]
    assert collected(case, store) == case.old
    stale.shown = everything
    assert collected(case, store) == set()
    assert case.missing(case.history.plan()) == []
