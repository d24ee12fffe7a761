"""Rebuilds of live tables that cannot go on, and what a rebuild keeps of the parts, without Spark.

What is built beside is said by the tests, as a merge's commit would say it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.unit.planner.test_planning_modes import apply as stands
from tests.unit.planner.test_planning_modes import as_mode
from tests.unit.planner.test_policies import PLAIN, RENAME, RENAMED, react
from tideline.contract.errors import Unavailable
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan, PlannedSwap, app_id
from tideline.contract.rebuild import RebuildRecord
from tideline.planner import applied_state, begin_rebuild, next_step
from tideline.planner.rebuild_steps import shadow_settings

T = "public.t"


def row(key: int, op: str = "c") -> Row:
    return Row(T, op, {"id": key})


def taken(history: History, record: RebuildRecord) -> Plan:
    plan = next_step(history.settings, record)
    assert plan is not None
    assert plan.delayed == {}
    return plan


def swapped(history: History, record: RebuildRecord) -> PlannedSwap:
    (swap,) = taken(history, record).swaps
    return swap


class TestBehindAChangeThatTheLiveTableDoesNotTake:
    @pytest.fixture
    def history(self, tmp_path: Path) -> History:
        """1: the schema, 2: a row, 3: a rename that stops the table; 4 and 5: a full dump of it as
        it is since, 6: a row. The live table stands at 2."""
        made = History(tmp_path)
        made.commit(Shaped(PLAIN))
        made.commit(row(1))
        made.commit(Shaped(RENAMED, (RENAME,)), row(2))
        low = made.last_seq
        made.commit(row(1, "r"))
        made.commit(row(2, "r"), deletes_before=[(T, low)])
        made.commit(row(3))
        react(made, rename="park")
        stands(made, 2)
        return made

    def test_it_begins_with_the_dump_and_takes_the_live_ones_place(self, history: History) -> None:
        assert "was renamed" in history.plan().delayed[T]
        record = begin_rebuild(history.settings, T)
        (table,) = taken(history, record).tables
        assert (table.start_seq, table.to_manifest, table.schema, table.create) == (
            4,
            5,
            RENAMED,
            True,
        )
        shadow = shadow_settings(history.settings, record)
        # Killed, and the chain has grown: it is swapped where the dump was whole.
        stands(history, 5, settings=shadow, build=1)
        history.commit(row(4))
        swap = swapped(history, record)
        assert (swap.to_manifest, swap.live_to_manifest, swap.schema) == (5, 2, RENAMED)
        assert swap.live_app_id == app_id("shop", "one", T, 0)
        stands(history, 5, build=1)
        assert next_step(history.settings, record) is None
        plan = history.plan()
        assert plan.delayed == {}
        assert [(one.from_manifest, one.to_manifest, one.build) for one in plan.tables] == [
            (5, 7, 1)
        ]

    def test_not_while_the_dump_has_not_ended(self, tmp_path: Path) -> None:
        made = History(tmp_path)
        made.commit(Shaped(PLAIN))
        made.commit(row(1))
        made.commit(Shaped(RENAMED, (RENAME,)), row(2))
        made.commit(row(1, "r"))
        react(made, rename="park")
        stands(made, 2)
        record = begin_rebuild(made.settings, T)
        (table,) = taken(made, record).tables
        assert (table.to_manifest, table.schema) == (2, PLAIN)
        stands(made, 2, settings=shadow_settings(made.settings, record), build=1)
        assert (swapped(made, record).to_manifest, swapped(made, record).live_to_manifest) == (
            2,
            None,
        )

    def test_one_that_began_before_the_change_leads_nowhere(self, tmp_path: Path) -> None:
        made = History(tmp_path)
        made.commit(Shaped(PLAIN))
        made.commit(row(1))
        low = made.last_seq
        made.commit(Shaped(RENAMED, (RENAME,)), row(1, "r"))
        made.commit(deletes_before=[(T, low)])
        react(made, rename="park")
        stands(made, 2)
        (table,) = taken(made, begin_rebuild(made.settings, T)).tables
        assert table.to_manifest == 2

    def test_another_change_behind_the_dumps_beginning_holds_it(self, tmp_path: Path) -> None:
        """Up to there it holds only some of the dump's rows."""
        made = History(tmp_path)
        made.commit(Shaped(PLAIN))
        made.commit(row(1))
        made.commit(Shaped(RENAMED, (RENAME,)), row(2))
        low = made.last_seq
        made.commit(row(1, "r"))
        made.commit(Shaped(PLAIN, (RENAME,)), row(2, "r"), deletes_before=[(T, low)])
        react(made, rename="park")
        stands(made, 2)
        record = begin_rebuild(made.settings, T)
        for built in (False, True):
            if built:  # Before the change came.
                stands(made, 4, settings=shadow_settings(made.settings, record), build=1)
            plan = next_step(made.settings, record)
            assert plan is not None
            assert "blocked before sequence 6" in plan.delayed[T]
            assert plan.swaps == ()

    def test_a_past_is_left_behind_only_where_that_is_said(self, history: History) -> None:
        stands(history, 2, mode=Mode.HISTORY)
        record = begin_rebuild(history.settings, T, mode=Mode.HISTORY)
        (table,) = taken(history, record).tables
        assert (table.from_manifest, table.to_manifest) == (0, 2)
        record = begin_rebuild(
            history.settings, T, mode=Mode.HISTORY, since_dump=True, restart=True
        )
        (table,) = taken(history, record).tables
        assert (table.start_seq, table.to_manifest, table.mode) == (4, 5, Mode.HISTORY)

    def test_a_live_table_that_may_go_on_again_is_waited_for(self, history: History) -> None:
        record = begin_rebuild(history.settings, T)
        taken(history, record)
        stands(history, 5, settings=shadow_settings(history.settings, record), build=1)
        react(history, rename="apply")
        with pytest.raises(Unavailable, match="can go on by now") as raised:
            next_step(history.settings, record)
        assert f"tideline merge {T}" in (raised.value.hint or "")
        stands(history, 6)
        assert [(one.from_manifest, one.to_manifest) for one in taken(history, record).tables] == [
            (5, 6)
        ]


class TestAnotherGenerationOfATableThatKeepsAPast:
    """4: the block, at which a table stands that is kept with its past; 5 and 6: the dump that was
    asked for then, which begins a generation."""

    @pytest.fixture
    def history(self, tmp_path: Path) -> History:
        made = History(tmp_path)
        made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
        made.commit(row(1))
        made.commit(row(2))
        made.commit(Shaped(schema_of(T, {"id": "string"}, ["id"])))
        low, number = made.last_seq, made.last_number
        made.commit(Row(T, "r", {"id": "1"}))
        begun = {"generation": 1, "generation_seq": low, "generation_manifest": number}
        made.commit(Row(T, "r", {"id": "2"}), deletes_before=[(T, low)], states={T: begun})
        made.settings = as_mode(made.settings, Mode.HISTORY)
        return made

    @pytest.mark.parametrize("mode", [Mode.HISTORY, Mode.APPEND, Mode.SOFT_DELETES])
    def test_no_merge_drops_it(self, history: History, mode: Mode) -> None:
        stands(history, 3, mode=mode)
        for _ in range(2):
            plan = history.plan()
            assert plan.tables == ()
            assert f"the past that this keeps as {mode.value}" in plan.delayed[T]
            switch = "" if mode is Mode.HISTORY else f" --mode {mode.value}"
            assert f"`tideline rebuild {T}{switch}`" in plan.delayed[T]
            history.commit(Row(T, "c", {"id": "3"}))
        progress = applied_state(history.settings).tables[T]
        assert progress.reason == plan.delayed[T]
        assert (progress.mode, progress.complete_through_us) == (mode, None)

    def test_a_table_as_it_is_now_starts_again_by_itself_and_as_it_was_kept(
        self, history: History
    ) -> None:
        stands(history, 3)
        (table,) = history.plan().tables
        assert (table.replace, table.generation, table.mode) == (True, 1, Mode.CURRENT)
        assert applied_state(history.settings).tables[T].mode_wanted is Mode.HISTORY

    def test_one_that_somebody_removed_is_made_as_the_settings_say(self, history: History) -> None:
        (table,) = history.plan().tables
        assert (table.create, table.replace, table.mode) == (True, False, Mode.HISTORY)

    def test_a_full_dump_alone_begins_no_generation(self, tmp_path: Path) -> None:
        made = History(tmp_path)
        made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
        made.commit(row(1))
        stands(made, 2, mode=Mode.HISTORY)
        low = made.last_seq
        made.commit(row(1, "r"), deletes_before=[(T, low)])
        plan = made.plan()
        assert plan.delayed == {}
        assert [(one.from_manifest, one.mode, one.replace) for one in plan.tables] == [
            (2, Mode.HISTORY, False)
        ]

    @pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.APPEND])
    def test_a_rebuild_puts_it_in_the_place_of_the_old(self, history: History, mode: Mode) -> None:
        stands(history, 3, mode=mode, build=4)
        record = begin_rebuild(history.settings, T)
        assert (record.build, record.generation, record.mode) == (5, 1, Mode.HISTORY)
        (table,) = taken(history, record).tables
        assert (table.from_manifest, table.to_manifest, table.generation, table.build) == (
            4,
            6,
            1,
            5,
        )
        shadow = shadow_settings(history.settings, record)
        stands(history, 6, settings=shadow, mode=Mode.HISTORY, build=5, generation=1)
        history.commit(Row(T, "c", {"id": "3"}))
        swap = swapped(history, record)
        assert (swap.to_manifest, swap.live_to_manifest, swap.live_mode, swap.mode) == (
            6,
            3,
            mode,
            Mode.HISTORY,
        )
        assert swap.live_app_id == app_id("shop", "one", T, 0, 4)
        assert swap.app_id == app_id("shop", "one", T, 1, 5)
        stands(history, 6, mode=Mode.HISTORY, build=5, generation=1)
        assert next_step(history.settings, record) is None
        plan = history.plan()
        assert plan.delayed == {}
        assert [(one.from_manifest, one.to_manifest, one.create) for one in plan.tables] == [
            (6, 7, False)
        ]
