"""What requests may cost the thread that reads the log, and leave in the open state."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.fixtures.core import SCHEMA, TABLE, Driver, limits_with, make_core
from tideline.contract import patterns
from tideline.contract.open_state import (
    OpenState,
    TableCondition,
    TableDump,
    TableState,
)
from tideline.contract.reasons import SnapshotReason
from tideline.contract.request import (
    KEYS_MAX,
    TABLES_MAX,
    Action,
    Answer,
    Command,
    DumpRequest,
    RequestState,
)
from tideline.contract.schema import TableId
from tideline_capture.core import open_requests
from tideline_capture.core.answers import RECENT_BYTES_MAX, RecentAnswers
from tideline_capture.core.effects import RereadWanted, SnapshotWanted
from tideline_capture.core.events import CommandArrived, RequestArrived
from tideline_capture.core.open_requests import (
    DUMPS_MAX,
    REQUEST_BYTES_MAX,
    REREAD_BYTES_MAX,
    OpenRequests,
)
from tideline_capture.core.requests import table_selection
from tideline_capture.core.requests.intake import WORK_MAX
from tideline_capture.core.requests.table_selection import COMPARISONS_MAX, TableNames

TABLE_BYTES = 400
"""Of a dump of a table in the open state, besides its name and its last key."""
LIVE = TableState(TableCondition.ACTIVE, SCHEMA.fingerprint)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The patterns that were compared with a table, once for each comparison."""
    made, seen = patterns.matcher, list[str]()

    def counting(pattern: str) -> Callable[[TableId], bool]:
        fits = made(pattern)

        def matches(table: TableId) -> bool:
            seen.append(pattern)
            return fits(table)

        return matches

    monkeypatch.setattr(table_selection, "matcher", counting)
    yield seen


def driver(*tables: str, open_requests_max: int = 64) -> Driver:
    state = OpenState(tables=dict.fromkeys(tables, LIVE))
    core = make_core(state, limits_with(open_requests_max=open_requests_max))
    core.state.learn(SCHEMA)
    return Driver(core)


def captured(count: int) -> list[str]:
    return [f"public.t{number:05d}" for number in range(count)]


def overlapping(count: int) -> tuple[str, ...]:
    """Patterns that differ and all mean every table."""
    return tuple(f"public.[t{chr(0x4E00 + number)}]*" for number in range(count))


def refusals(driver: Driver) -> list[Answer]:
    return list(driver.core.state.segment.refused)


class TestPatterns:
    @pytest.mark.parametrize("tables", [1, 100, 1_000, 10_000])
    def test_comparisons_have_a_limit(self, tables: int, compared: list[str]) -> None:
        asked = driver(*captured(tables))
        asked.ask(tables=overlapping(TABLES_MAX))
        assert len(compared) <= COMPARISONS_MAX
        assert len(set(compared)) <= COMPARISONS_MAX / 200
        (refused,) = refusals(asked)
        assert "name the tables" in str(refused.error)
        assert not refused.again

    def test_names_are_not_compared(self, compared: list[str]) -> None:
        asked = driver(*captured(TABLES_MAX))
        asked.ask(tables=tuple(captured(TABLES_MAX)))
        assert not compared
        (item,) = asked.core.state.requests.open
        assert [dump.table for dump in item.dumps] == captured(TABLES_MAX)

    def test_one_pattern_may_mean_everything(self, compared: list[str]) -> None:
        """However many tables there are."""
        names = TableNames()
        names.update(captured(COMPARISONS_MAX + 1))
        assert len(names.choose(["*.*"]).hits[0]) == COMPARISONS_MAX + 1
        assert names.choose(["*.*", "public.*"]).error is not None

    def test_a_named_schema_is_looked_at_alone(self, compared: list[str]) -> None:
        names = TableNames()
        names.update([*captured(1_000), "a.x", "a.y", "b.x"])
        selection = names.choose(["a.*", "b.*", "a.x"])
        assert selection.hits == (("a.x", "a.y"), ("b.x",), ("a.x",))
        assert len(compared) == 3

    def test_tables_that_come_and_go(self) -> None:
        names = TableNames()
        names.update(["a.x"])
        assert names.choose(["a.x", "a.y"]).missing == "a.y"
        names.update(["a.y"])
        assert names.choose(["a.y"]).hits == (("a.y",),)
        assert names.choose(["a.[xy]"]).hits == (("a.y",),)

    @pytest.mark.parametrize("bad", ["nothing", "public.t\n", "a.b.c"])
    def test_no_pattern_is_refused_at_once(self, bad: str) -> None:
        asked = driver(TABLE)
        asked.ask(tables=("public.unknown", bad))
        assert "not a pattern" in str(refusals(asked)[0].error)

    def test_errors_are_short(self) -> None:
        asked = driver(TABLE)
        asked.ask(tables=tuple(f"{number}" * 300 for number in range(1_000)))
        (refused,) = refusals(asked)
        assert len(refused.error or "") < 1_100


class TestTurns:
    def test_one_that_is_heavy_is_enough(self) -> None:
        asked = driver(*captured(1_000))
        asked.ask("a")
        tired = [asked.core.intake.tired]
        asked.ask("b", tables=overlapping(TABLES_MAX))
        asked.ask("c", tables=overlapping(TABLES_MAX))
        tired.append(asked.core.intake.tired)
        asked.core.begin_turn()
        tired.append(asked.core.intake.tired)
        assert tired == [False, True, False]

    def test_those_that_wait_for_the_catalog_are_looked_at_in_turns(
        self, compared: list[str]
    ) -> None:
        asked = driver(*captured(1_000))
        patterns = (*overlapping(35), "public.unknown")
        for number in range(20):
            asked.core.begin_turn()
            asked.ask(f"r{number}", tables=patterns)
        for _ in range(2):
            asked.catalog()
        turns = 0
        while asked.core.intake.waits:
            compared.clear()
            asked.core.begin_turn()
            assert len(compared) <= WORK_MAX + COMPARISONS_MAX
            turns += 1
        assert turns > 3
        assert len(refusals(asked)) == 20

    def test_so_many_may_wait(self) -> None:
        asked = driver(TABLE, open_requests_max=4)
        for number in range(5):
            asked.ask(f"r{number}", tables=("public.unknown",))
        (refused,) = refusals(asked)
        assert refused.request_id == "r4"
        assert refused.again

    def test_cancelling_many_tables(self) -> None:
        """The work grows as their number does."""

        def cost(tables: int) -> float:
            asked = driver(*captured(tables))
            asked.ask(tables=("*.*",))
            best = float("inf")
            for number in range(3):
                asked.ask(f"r{number}", tables=("*.*",))
                command = Command(f"c{number}", Action.CANCEL, requests=(f"r{number}",))
                begun = time.thread_time()
                asked.core.on_arrival(CommandArrived(f"m{number}", command))
                best = min(best, time.thread_time() - begun)
            return best

        assert cost(8_000) < 40 * cost(400)


class TestState:
    def size(self, asked: Driver) -> int:
        state = asked.core.state.open_state()
        return len(msgspec.json.encode(msgspec.structs.replace(state, tables={})))

    def test_64_requests_of_100_000_keys(self) -> None:
        asked = driver(TABLE)
        keys = tuple((str(number),) for number in range(KEYS_MAX))
        for number in range(64):
            asked.core.begin_turn()
            asked.ask(f"r{number}", keys=keys)
        assert self.size(asked) <= REQUEST_BYTES_MAX + 64 * TABLE_BYTES
        accepted = len(asked.core.state.requests)
        assert accepted == REQUEST_BYTES_MAX // len(msgspec.json.encode(keys))
        refused = refusals(asked)
        assert len(refused) == 64 - accepted
        assert all(one.again and "once one of" in str(one.hint) for one in refused)
        assert f"at most {REQUEST_BYTES_MAX}" in str(refused[0].error)

    def test_there_is_room_again_once_one_has_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(open_requests, "REQUEST_BYTES_MAX", 1_000)
        asked = driver(TABLE)
        keys = tuple((str(number),) for number in range(100))
        asked.ask("a", keys=keys)
        asked.ask("b", keys=keys)
        assert [one.request_id for one in refusals(asked)] == ["b"]
        asked.core.state.requests.update("a", TableDump(TABLE, state="done"))
        asked.core.state.end()
        request = DumpRequest("b", (TABLE,), keys=keys)
        asked.core.on_arrival(RequestArrived("another message", request))
        assert [one.request.request_id for one in asked.core.state.requests.open] == ["b"]

    def test_one_alone_is_never_too_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(open_requests, "REQUEST_BYTES_MAX", 10)
        monkeypatch.setattr(open_requests, "DUMPS_MAX", -1_000)
        asked = driver(*captured(5))
        asked.ask("a", tables=("*.*",))
        asked.ask("b", tables=("*.*",))
        assert [one.request_id for one in refusals(asked)] == ["b"]

    def test_whole_dumps_of_many_tables(self) -> None:
        tables = captured(3_000)
        asked = driver(*tables)
        for number in range(64):
            asked.ask(f"r{number}", tables=("*.*",))
        dumps = sum(len(item.dumps) for item in asked.core.state.requests.open)
        assert 3_000 < dumps <= DUMPS_MAX + len(tables)
        assert self.size(asked) <= dumps * TABLE_BYTES
        assert refusals(asked)[0].again

    def test_what_the_worker_itself_asks_leaves_room(self) -> None:
        tables = captured(DUMPS_MAX)
        asked = driver(*tables)
        asked.core.intake.snapshot_wanted(SnapshotWanted(tuple(tables), SnapshotReason.INITIAL))
        asked.ask("a", tables=("*.*",))
        assert not refusals(asked)

    def test_keys_that_are_read_again(self) -> None:
        opened = OpenRequests(OpenState())
        keys = tuple(("x" * 3_000,) for _ in range(100))
        added = 0
        for number in range(100):
            table = f"public.t{number}"
            if opened.reread_is_full(table, keys, keys_max=10_000):
                break
            opened.reread(table, keys, f"reread:{number}")
            opened.reread(table, (("1",),), "never")
            added += 1
        assert added == REREAD_BYTES_MAX // (100 * 3_000)
        assert len(msgspec.json.encode(opened.open)) <= REREAD_BYTES_MAX + added * TABLE_BYTES

    def test_a_table_with_too_much_to_read_again_is_in_doubt(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(open_requests, "REREAD_BYTES_MAX", 100)
        asked = driver(TABLE)
        asked.core.run(asked.core.intake.reread_wanted(RereadWanted(TABLE, (("1" * 100,),))))
        assert asked.core.state.tables[TABLE].condition is TableCondition.NEEDS_RESNAPSHOT

    def test_answers_that_are_remembered(self) -> None:
        opened, recent = OpenRequests(OpenState()), RecentAnswers((), 256)
        for number in range(20):
            opened.accept(DumpRequest(f"r{number}", ("*.*",)), captured(2_000))
            opened.fail(f"r{number}", "it was cancelled by someone")
            for answer in opened.take_ended():
                recent.remember(answer)
        assert len(msgspec.json.encode(recent.all)) <= RECENT_BYTES_MAX
        assert recent.get("r19") is not None
        assert recent.get("r0") is None


@pytest.mark.parametrize("asked", [{"keys": (("1",),)}, {}])
def test_a_successor_knows_what_is_open(asked: dict[str, Any]) -> None:
    first = driver(TABLE)
    first.ask("a", **asked)
    later = OpenRequests(first.core.state.open_state())
    assert later.dump("a", TABLE) is not None
    assert later.fail_table(TABLE, "gone")
    assert [one.state for one in later.take_ended()] == [RequestState.FAILED]
    assert not later.full(1, 1, captured=1)
