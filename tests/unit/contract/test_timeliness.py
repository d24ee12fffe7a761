"""The objective over a window of runs: each change once, and no budget that is not there."""

from __future__ import annotations

import pytest

from tideline.contract import layout
from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.receipt import Outcome, Receipt, TableReceipt, run_of
from tideline.contract.timeliness import (
    MergeRun,
    Objective,
    Timeliness,
    compliance,
    decode_run,
    encode_run,
    in_window,
)

SECOND = 1_000_000
TARGET = Objective(99.0, 300 * SECOND)


def figures(changes: int, late: int, *, at: int = 50, slowest_s: int = 10) -> Timeliness:
    return Timeliness(changes, late, 300 * SECOND, slowest_s * SECOND, at)


def run(plan: str, *found: tuple[str, Timeliness | None], at: int = 60) -> MergeRun:
    tables = tuple(TableReceipt(name, Outcome.APPLIED, 1, 1, timeliness=one) for name, one in found)
    return run_of(Receipt(plan, "shop", "i", tables), at)


def test_the_burn_is_one_when_the_budget_is_used_up() -> None:
    found = compliance(TARGET, [figures(900, 10), figures(100, 0, slowest_s=400)], 0)
    assert (found.changes, found.late, found.percent, found.burn) == (1000, 10, 99.0, 1.0)
    assert found.slowest_s == 400
    assert compliance(TARGET, [figures(1000, 8)], 0).burn == 0.8
    assert compliance(TARGET, [figures(10, 10)], 0).burn == 100.0


def test_without_changes_nothing_is_claimed() -> None:
    for nothing in ([], [figures(0, 0)], [figures(5, 5, at=49)]):
        found = compliance(TARGET, nothing, 50)
        assert (found.changes, found.percent, found.burn, found.slowest_s) == (0, None, 0.0, None)


def test_a_plan_that_was_run_twice_counts_once() -> None:
    """Whichever record knows: the second run of a plan may have found its parts gone."""
    one, other = figures(5, 1), figures(7, 0)
    runs = [
        run("p1", ("a", one), ("b", other)),
        run("p1", ("a", one), ("b", None)),
        run("p2", ("a", other)),
    ]
    assert in_window(runs) == {"a": [one, other], "b": [other]}


def test_more_late_changes_than_changes_are_refused() -> None:
    with pytest.raises(InvariantBroken):
        compliance(TARGET, [figures(1, 2)], 0)


def test_a_record_survives_its_document() -> None:
    found = run("p1", ("a", figures(5, 1)), ("b", None))
    assert decode_run(encode_run(found)) == found
    with pytest.raises(CorruptData, match="merge run"):
        decode_run(b'{"version": 2}')


def test_names_sort_by_time() -> None:
    keys = [layout.run_key("shop", at, "p") for at in (9, 10, 1_700_000_000_000_000)]
    assert keys == sorted(keys)
    since = layout.runs_since("shop", 10)
    assert [key > since for key in keys] == [False, True, True]
    assert layout.runs_since("shop", 0) < keys[0]
