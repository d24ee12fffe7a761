"""What a merger's rounds plan, with a real chain and runs that stand for those of Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.fixtures.capture import poll
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract import layout
from tideline.contract.errors import Unavailable
from tideline.contract.plan import Plan, PlannedChange
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.planner import read_receipt, runs
from tideline.planner.chain_end import RecentChain
from tideline.planner.registration import Registration
from tideline.settings import Settings
from tideline.store.objects import ObjectStore
from tideline_console.follow import entries, rounds
from tideline_console.follow.plan_runs import PlanRuns
from tideline_console.follow.rounds import Rounds

A, B = "public.a", "public.b"


class PlayedRuns(PlanRuns):
    """Plans merge nothing."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, cast(Any, None))
        self.ran: list[Plan] = []
        self.gates: dict[str, threading.Event] = {}

    def _merge(self, plan: Plan) -> Receipt:
        self.ran.append(plan)
        for planned in plan.tables:
            if planned.table in self.gates:
                assert self.gates[planned.table].wait(60)
        tables = tuple(
            TableReceipt(one.table, Outcome.APPLIED, one.to_manifest, one.to_seq)
            for one in plan.tables
        )
        for one in tables:
            self._table_ended(plan, one)
        return Receipt(plan.plan_id, plan.pipeline, plan.incarnation, tables)


class Played(Rounds):
    """Rounds of such plans."""

    def __init__(self, settings: Settings, **named: Any) -> None:
        self.runs = PlayedRuns(settings)
        super().__init__(settings, self.runs, **named)


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path, merge={"follow_interval_s": 0.02, "tables_at_once": 2})
    for table in (A, B):
        made.commit(Shaped(schema_of(table, {"id": "int32"}, ["id"])))
        made.commit(Row(table, "c", {"id": 0}))
    return made


@contextmanager
def following(history: History) -> Iterator[Played]:
    made = Played(history.settings)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(60)
    assert not thread.is_alive()


def test_what_is_new_is_planned_and_has_a_receipt(history: History) -> None:
    with following(history) as made:
        poll("both are merged", lambda: made.beat().tables_merged == 2)
        poll("nothing waits", lambda: made.beat().waiting == 0 and not made.beat().plans)
        history.commit(Row(A, "c", {"id": 1}))
        ended: list[str] = []

        def over() -> bool:
            ended.extend(made.beat().ended)
            return made._merged == 3 and bool(ended) and not made.runs.plan_ids

        poll("its plan is over", over)
    receipt = read_receipt(history.settings, ended[-1])
    assert receipt is not None
    assert layout.is_mergers(layout.plan_key("shop", receipt.plan_id)), "garbage knows it by that"
    assert [(t.table, t.applied_manifest) for t in receipt.tables] == [(A, history.last_number)]


def test_a_target_that_cannot_be_read_stops_no_other(history: History) -> None:
    log = Path(history.target(A).removeprefix("file://"), "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("no commit")
    with following(history) as made:
        poll("the other is merged", lambda: made.beat().tables_merged == 1)
        poll("it is named", lambda: list(made.beat().failing) == [A])
        (log / f"{0:020d}.json").unlink()
        log.rmdir()
        poll("it is merged", lambda: made.beat().tables_merged == 2)
        assert made.beat().failing == {}


def test_a_store_that_is_away_is_waited_for(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session stays; starting another one would not help."""
    read, away = RecentChain.read, threading.Event()

    def troubled(chain: RecentChain, number: int) -> Any:
        if away.is_set():
            raise Unavailable("the store does not answer")
        return read(chain, number)

    monkeypatch.setattr(rounds, "PAUSE_MAX_S", 0.1)
    monkeypatch.setattr(RecentChain, "read", troubled)
    with following(history) as made:
        poll("both are merged", lambda: made.beat().tables_merged == 2)
        away.set()
        history.commit(Row(A, "c", {"id": 1}))
        poll("it is noticed", lambda: made._failed_looks > 1)
        away.clear()
        poll("it is merged", lambda: made.beat().tables_merged >= 3)


def test_a_plan_that_was_asked_for_waits_for_its_slow_table_and_holds_up_no_other(
    history: History,
) -> None:
    """It was made while the slow table was being merged up to an earlier manifest, so that it would
    be refused at once: first the merger brings that table to the plan's end."""
    with following(history) as made:
        poll("both are merged", lambda: made.beat().tables_merged == 2)
        gate = made.runs.gates[A] = threading.Event()
        history.commit(Row(A, "c", {"id": 1}))
        poll("the slow one is being merged", lambda: A in made._backlog._held)
        first = history.last_number
        history.commit(Row(A, "c", {"id": 2}), Row(B, "c", {"id": 2}))
        asked = history.plan(plan_id="asked")
        assert {one.table for one in asked.tables} == {A, B}
        made.ask("asked")
        for number in (3, 4):
            history.commit(Row(B, "c", {"id": number}))
            poll("the other goes on", lambda: applied(made, B) == history.last_number)
        assert "asked" in made.beat().plans
        gate.set()
        poll("it is over", lambda: "asked" in made.beat().ended)
    mine = [p.plan_id for p in made.runs.ran if p.tables[0].table == A and p.plan_id != "asked"]
    ends = [p.tables[0].to_manifest for p in made.runs.ran if p.plan_id in mine]
    assert first in ends and ends[-1] >= asked.to_manifest, "the merger's own brought it there"
    assert made.runs.ran[-1].plan_id == "asked"
    receipt = read_receipt(history.settings, "asked")
    assert receipt is not None and len(receipt.tables) == 2


def applied(made: Played, table: str) -> int:
    return max(
        (p.tables[0].to_manifest for p in made.runs.ran if p.tables[0].table == table), default=0
    )


def test_entries_are_seen_to_where_they_may_have_changed(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To see to one reads its table's log and asks the catalog: no merge of rows alone does."""
    seen: list[Any] = []

    def register(settings: Any, tables: Any = None) -> Registration:
        seen.append(tables)
        return Registration()

    monkeypatch.setattr(entries, "register", register)
    plan = replace(history.plan(), descriptions=())
    rows = replace(plan, tables=tuple(replace(one, create=False) for one in plan.tables))
    change = PlannedChange(1, "after")
    columns = replace(rows, tables=(rows.tables[0], replace(rows.tables[1], changes=(change,))))
    now = [0.0]
    made = entries.CatalogEntries(history.settings, lambda: now[0])
    for each in (rows, rows, plan, columns):
        made.after(each)
    assert seen == [None, [A, B], [B]], "all at first"
    now[0] = entries.ALL_S
    made.after(rows)
    assert seen[3:] == [None], "and at times"
    monkeypatch.setattr(entries, "register", lambda *_: Registration(failed="it does not answer"))
    made.after(columns)
    monkeypatch.setattr(entries, "register", register)
    now[0] += entries.RETRY_S
    made.after(rows)
    assert seen[4:] == [None]


def test_a_merger_sees_to_entries(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Plan] = []

    def after(_: entries.CatalogEntries, plan: Plan) -> Registration:
        seen.append(plan)
        return Registration()

    monkeypatch.setattr(entries.CatalogEntries, "after", after)
    monkeypatch.setattr(runs, "register", lambda *_: pytest.fail("it sees to all entries"))
    with following(history) as made:
        poll("both are merged", lambda: made.beat().tables_merged == 2)
    assert sorted(one.table for plan in seen for one in plan.tables) == [A, B]


def test_a_plan_asks_the_store_about_its_tables_alone(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand, one has changes: nothing is read of the others."""
    asked: list[str] = []
    get = ObjectStore.get

    def counted(store: ObjectStore, key: str) -> bytes | None:
        asked.append(key)
        return get(store, key)

    with following(history) as made:
        poll("both are merged", lambda: made.beat().tables_merged == 2)
        monkeypatch.setattr(ObjectStore, "get", counted)
        history.commit(Row(A, "c", {"id": 1}))
        poll("it is merged", lambda: made.beat().tables_merged == 3)
    assert any("public.a" in key for key in asked), "whether it was verified: it is in doubt"
    assert not any("public.b" in key for key in asked)


def test_a_table_that_stays_delayed_stays_on_record(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """status reads the newest records alone, and a merger leaves thousands."""
    recorded: list[dict[str, str]] = []
    monkeypatch.setattr(rounds, "record_delayed", lambda _, plan: recorded.append(plan.delayed))
    now = [0.0]
    made = Played(history.settings, clock=lambda: now[0])
    plan = replace(history.plan(), tables=(), delayed={A: "it has no key"})
    for now[0] in (0.0, 60.0, rounds.DELAYED_AGAIN_S, rounds.DELAYED_AGAIN_S + 60):
        made._note_delayed(plan, [A, B])
    assert recorded == [plan.delayed] * 2
    made._note_delayed(replace(plan, delayed={A: "another reason"}), [A])
    made._note_delayed(replace(plan, delayed={}), [A])
    made._note_delayed(plan, [A])
    assert [one[A] for one in recorded[2:]] == ["another reason", "it has no key"]


def test_a_reserved_table_is_left_alone_once_its_merge_has_ended(history: History) -> None:
    """A rebuild swaps it, for which it has to stand still."""
    with following(history) as made:
        poll("both are merged", lambda: made.beat().tables_merged == 2)
        gate = made.runs.gates[A] = threading.Event()
        history.commit(Row(A, "c", {"id": 1}))
        poll("it is being merged", lambda: made._backlog.holder(A) is not None)
        made.reserve([A])
        assert made.beat().reserved == ()
        gate.set()
        poll("it is left alone", lambda: made.beat().reserved == (A,))
        merged = len([p for p in made.runs.ran if p.tables[0].table == A])
        history.commit(Row(A, "c", {"id": 2}), Row(B, "c", {"id": 2}))
        poll("the other goes on", lambda: applied(made, B) == history.last_number)
        poll("nothing is under way", lambda: not made.runs.plan_ids)
        assert len([p for p in made.runs.ran if p.tables[0].table == A]) == merged
        made.reserve([])
        poll("it is merged again", lambda: applied(made, A) == history.last_number)
