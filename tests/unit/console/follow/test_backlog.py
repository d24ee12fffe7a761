"""Which tables a merger plans next."""

from __future__ import annotations

import pytest

from tideline.contract.open_state import OpenState, TableState
from tideline.contract.plan import Plan, TablePlan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.schema import Column, TableSchema
from tideline_console.follow.backlog import (
    RETRY_ALL_S,
    RETRY_DELAYED_S,
    RETRY_MAX_S,
    SLOW_S,
    Backlog,
    parts_of,
)

SCHEMA = TableSchema("public.a", (Column("id", "integer", "int32"),), ("id",))


def state(**last: int) -> OpenState:
    """Tables that last had data in these manifests."""
    tables = {n: TableState(schema="s", last_data_manifest=number) for n, number in last.items()}
    return OpenState(tables=tables)


def plan(*tables: str, to: int = 10, tail: int = 10, delayed: str = "") -> Plan:
    return Plan(
        "p",
        "shop",
        "i",
        "file:///s",
        to_manifest=to,
        tail=tail,
        tables=tuple(
            TablePlan(name, f"/w/{name}", SCHEMA, {}, (), 0, 0, to, 0, "app") for name in tables
        ),
        delayed={delayed: "it has no key"} if delayed else {},
    )


def receipt(table: str, outcome: Outcome, seconds: float = 1.0, *, to: int = 10) -> TableReceipt:
    return TableReceipt(table, outcome, to, 100, error="lost a disk", seconds=seconds)


def test_a_table_is_due_when_it_has_something_new() -> None:
    backlog = Backlog()
    assert backlog.due(state(a=3, b=0), 0.0) == ["a", "b"]
    backlog.planned(["a", "b"], plan("a"), 0.0)
    assert backlog.due(state(a=3, b=0), 1.0) == []
    assert backlog.due(state(a=3, b=11), 1.0) == ["b"]


def test_a_table_that_a_plan_holds_counts_as_unmerged() -> None:
    """What status says to wait is what is not merged yet, be it planned or not."""
    backlog = Backlog()
    backlog.planned(["a", "b"], plan("a"), 0.0)
    backlog.hold(["a"], "p")
    assert backlog.unmerged(state(a=3, b=0)) == 1
    assert backlog.unmerged(state(a=3, b=11)) == 2
    backlog.ended(receipt("a", Outcome.APPLIED), "p", 1.0)
    assert backlog.unmerged(state(a=3, b=0)) == 0


def test_a_table_is_never_in_two_plans() -> None:
    backlog = Backlog()
    backlog.hold(["a"], "p")
    assert backlog.due(state(a=11, b=11), 0.0) == ["b"]
    assert not backlog.ready(plan("b", "a"), ["b"])
    with pytest.raises(AssertionError):
        backlog.hold(["a"], "q")
    backlog.ended(receipt("a", Outcome.APPLIED), "p", 0.0)
    assert backlog.due(state(a=11, b=11), 0.0) == ["a", "b"]


def test_tables_of_plans_that_were_asked_for_are_kept_for_them() -> None:
    backlog = Backlog()
    backlog.want(["a"])
    assert backlog.due(state(a=11, b=11), 0.0) == ["b"]
    backlog.want([])
    assert backlog.due(state(a=11, b=11), 0.0) == ["a", "b"]


def test_what_a_plan_was_cut_before_is_due_at_once() -> None:
    backlog = Backlog()
    backlog.planned(["a"], plan("a", to=5, tail=10), 0.0)
    assert backlog.due(state(a=10), 0.0) == ["a"]


def test_a_table_that_fails_is_named_and_waits_longer_each_time() -> None:
    backlog, now_s, waits = Backlog(), 0.0, []
    for _ in range(10):
        backlog.planned(["a", "b"], plan("a"), now_s)
        backlog.hold(["a"], "p")
        backlog.ended(receipt("a", Outcome.FAILED), "p", now_s)
        assert backlog.failing == {"a": "lost a disk"}
        assert backlog.due(state(a=10, b=11), now_s) == ["b"], "it holds up no other"
        begun_s = now_s
        while "a" not in backlog.due(state(a=10, b=0), now_s):
            now_s += 0.5
        waits.append(now_s - begun_s)
    assert waits[:3] == [1.0, 2.0, 4.0]
    assert max(waits) == RETRY_MAX_S
    backlog.hold(["a"], "p")
    backlog.ended(receipt("a", Outcome.APPLIED), "p", now_s)
    assert backlog.failing == {}


def test_delayed_tables_are_planned_again_after_a_while_and_all_at_times() -> None:
    backlog = Backlog()
    backlog.planned(["a", "b"], plan(delayed="a"), 0.0)
    waiting = state(a=10, b=10)
    assert backlog.due(waiting, RETRY_DELAYED_S - 1) == []
    assert backlog.due(waiting, RETRY_DELAYED_S) == ["a"]
    assert backlog.due(waiting, RETRY_ALL_S) == ["a", "b"]


def test_a_plan_that_was_broken_off_frees_its_tables() -> None:
    backlog = Backlog()
    backlog.planned(["a"], plan("a"), 0.0)
    backlog.hold(["a"], "p")
    backlog.broken_off(["a"], "the store is away", 0.0)
    assert backlog.due(state(a=10), 0.0) == []
    assert backlog.due(state(a=10), 1.0) == ["a"]


def test_slow_tables_have_plans_of_their_own() -> None:
    backlog = Backlog()
    backlog.hold(["a", "b"], "p")
    backlog.ended(receipt("a", Outcome.APPLIED, SLOW_S + 1), "p", 0.0)
    backlog.ended(receipt("b", Outcome.APPLIED), "p", 0.0)
    whole = plan("a", "b", "c", delayed="d")
    parts = parts_of(whole, backlog.split(whole))
    assert [[t.table for t in part.tables] for part in parts] == [["b", "c"], ["a"]]
    assert [part.plan_id for part in parts] == ["p/1", "p/2"]
    assert [list(part.delayed) for part in parts] == [["d"], []]


def test_a_plan_that_was_asked_for_is_run_where_it_is_not_refused() -> None:
    """Its tables may be merged past its beginning since it was made."""
    backlog, asked = Backlog(), plan("a", "b", to=10)
    assert backlog.ready(asked, ["a", "b"])
    backlog.hold(["a"], "own")
    assert not backlog.ready(asked, ["b"])
    backlog.ended(receipt("a", Outcome.APPLIED, to=5), "own", 0.0)
    assert not backlog.ready(asked, ["a", "b"]), "first a plan of our own brings it there"
    assert backlog.ready(asked, ["b"]), "which does not come: the plan's receipt says so"
    backlog.hold(["a"], "own")
    backlog.ended(receipt("a", Outcome.APPLIED, to=10), "own", 0.0)
    backlog.hold(["a"], "next")
    assert backlog.ready(asked, []) and backlog.unreached(asked) == ["b"], "it only looks at a"
    backlog.hold(["b"], "p")
    assert not backlog.ended(receipt("a", Outcome.ALREADY_APPLIED), "p", 0.0)
    assert backlog.holder("a") == "next"


def test_a_plan_that_failed_behind_its_commit_is_run_again_for_its_receipt() -> None:
    """Nothing is left to be planned then, and nothing else would say what is pending."""
    backlog = Backlog()
    assert backlog.planned(["a"], plan("a"), 0.0) == []
    backlog.hold(["a"], "p/1")
    backlog.ended(receipt("a", Outcome.FAILED), "p/1", 0.0)
    assert backlog.planned(["a"], plan("a"), 1.0) == [], "its commit did not come"
    backlog.hold(["a"], "p/2")
    backlog.broken_off(["a"], "the store is away", 1.0)
    assert backlog.planned(["a"], plan(to=5), 3.0) == [], "nothing up to there"
    assert list(backlog.failing) == ["a"]
    assert backlog.planned(["a"], plan(), 3.0) == ["p/2"]
    assert backlog.failing == {}
    assert backlog.planned(["a"], plan(), 4.0) == []
