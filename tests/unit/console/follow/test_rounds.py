"""What a merger's rounds plan, with a real chain and runs that stand for those of Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.fixtures.capture import poll
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.errors import Unavailable
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.planner import read_receipt
from tideline.planner.chain_end import RecentChain
from tideline_console.follow import rounds
from tideline_console.follow.rounds import Rounds

A, B = "public.a", "public.b"


class Played(Rounds):
    """Rounds whose plans are run at once, and merge nothing."""

    def _merge(self, plan: Plan) -> Receipt:
        tables = tuple(
            TableReceipt(one.table, Outcome.APPLIED, one.to_manifest, one.to_seq)
            for one in plan.tables
        )
        for one in tables:
            self._events.put(rounds._TableEnded(plan.plan_id, one))
        return Receipt(plan.plan_id, plan.pipeline, plan.incarnation, tables)


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path, merge={"follow_interval_s": 0.02, "tables_at_once": 2})
    for table in (A, B):
        made.commit(Shaped(schema_of(table, {"id": "int32"}, ["id"])))
        made.commit(Row(table, "c", {"id": 0}))
    return made


@contextmanager
def following(history: History) -> Iterator[Played]:
    made = Played(history.settings, cast(Any, None))
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
            return made._merged == 3 and bool(ended) and not made._open

        poll("its plan is over", over)
    receipt = read_receipt(history.settings, ended[-1])
    assert receipt is not None
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
