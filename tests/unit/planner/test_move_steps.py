"""Which of a table's two tables is in use, and what a move refuses and keeps; without Spark.

What jobs would have made is made by the tests: Delta tables, and Iceberg tables in SQLite.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.fixtures.iceberg import with_catalog
from tests.fixtures.parts import History, Shaped, schema_of
from tests.unit.planner.test_planning_modes import apply as stands
from tests.unit.planner.test_rebuild_parts import consumers
from tests.unit.planner.test_rebuild_steps import T, row, taken
from tideline.contract.errors import Fenced, Misconfigured
from tideline.contract.modes import Mode
from tideline.contract.plan import CommitMetadata, app_id, decode_plan, encode_plan
from tideline.contract.rebuild import RebuildRecord, decode_rebuild, encode_rebuild
from tideline.contract.schema import parse_table
from tideline.contract.target_properties import lasting_properties, owner_properties
from tideline.planner import applied_state, begin_rebuild, next_step
from tideline.planner.consumers import known_consumers
from tideline.planner.table_status import TableStage
from tideline.planner.targets import live_url
from tideline.settings import Settings, TableSettings, Warehouse
from tideline.warehouse.iceberg.client import open_catalog
from tideline.warehouse.iceberg.metadata import APPLIED_KEY, COMMIT_KEY, NUMBERS_KEY, format_numbers
from tideline.warehouse.iceberg.names import identifier_of
from tideline_console.delete_former import run as delete_former


@pytest.fixture
def history(tmp_path: Path) -> History:
    """1: the schema, 2 to 6: a row each; a Delta table has applied all. There is a catalog of
    Iceberg tables, too."""
    place = with_catalog(Warehouse(url=(tmp_path / "warehouse").as_uri()), tmp_path / "catalog.db")
    made = History(tmp_path, place=place.model_copy(update={"format": "delta"}))
    made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    for key in range(1, 6):
        made.commit(row(key))
    stands(made, 6)
    return made


def wants(history: History, table_format: str) -> Settings:
    """The pipeline's settings with another format for new tables."""
    place = history.settings.warehouse.model_copy(update={"format": table_format})
    return history.settings.model_copy(update={"warehouse": place})


def url(history: History, table_format: str) -> str:
    return history.settings.target_url(parse_table(T), table_format)


def says(history: History, **properties: str) -> None:
    """Have the Delta table say it, as a job would."""
    path = url(history, "delta").removeprefix("file://")
    given = {f"tideline.{name}": text for name, text in properties.items()}
    DeltaTable(path).alter.set_table_properties(given, raise_if_not_exists=False)


def in_iceberg(history: History, number: int, build: int, **properties: str) -> None:
    """Make an Iceberg table that has applied ``number``, as a job would."""
    place = history.settings.warehouse
    catalog, name = open_catalog(place), identifier_of(url(history, "iceberg"))
    app = app_id("shop", history.incarnation, T, 0, build)
    entry = history.chain.read(number)
    assert entry is not None
    seq, digest = entry.manifest.last_seq, entry.digest
    made = CommitMetadata(app, "shop", history.incarnation, "copy", number, number, seq)
    numbers = format_numbers({app: number})
    rows = pa.table({"id": pa.array([number], pa.int32())})
    owner = owner_properties(("shop", history.incarnation, T))
    given = {f"tideline.{name}": text for name, text in properties.items()}
    catalog.create_namespace_if_not_exists(name[0])
    table = catalog.create_table(
        name,
        rows.schema,
        properties={**owner, **lasting_properties(Mode.CURRENT, build), **given},
    )
    text = CommitMetadata.parse(made.text())
    assert text is not None and digest
    summary = {COMMIT_KEY: made.text(), NUMBERS_KEY: numbers, APPLIED_KEY: numbers}
    table.append(rows, snapshot_properties=summary)


class TestWhichOneIsInUse:
    """Settings that want the one format, and the other."""

    @pytest.fixture(params=["delta", "iceberg"])
    def settings(self, request: pytest.FixtureRequest, history: History) -> Settings:
        return wants(history, request.param)

    def test_the_one_that_there_is(self, history: History, settings: Settings) -> None:
        assert live_url(settings, T) == url(history, "delta")
        status = applied_state(settings).tables[T]
        wanted = settings.warehouse.format
        assert (status.format, status.format_wanted, status.up_to_date) == (
            "delta", None if wanted == "delta" else wanted, True
        )  # fmt: skip

    def test_not_a_copy_that_is_being_made(self, history: History, settings: Settings) -> None:
        in_iceberg(history, 5, 1, moving=url(history, "delta"))
        assert live_url(settings, T) == url(history, "delta")

    def test_a_copy_that_the_old_one_names(self, history: History, settings: Settings) -> None:
        """The last step, which takes the mark away, is still to come."""
        in_iceberg(history, 6, 1, moving=url(history, "delta"))
        says(history, moved_to=url(history, "iceberg"))
        assert live_url(settings, T) == url(history, "iceberg")
        assert applied_state(settings).tables[T].state is TableStage.ACTIVE

    def test_the_new_one(self, history: History, settings: Settings) -> None:
        in_iceberg(history, 6, 1, moved_from=url(history, "delta"))
        says(history, moved_to=url(history, "iceberg"))
        history.commit(row(6))
        history.settings = settings
        status = applied_state(settings).tables[T]
        assert (status.target, status.former) == (url(history, "iceberg"), url(history, "delta"))
        (table,) = history.plan().tables
        assert (table.target, table.from_manifest, table.build, table.create) == (
            url(history, "iceberg"), 6, 1, False
        )  # fmt: skip

    def test_nothing_is_made_where_the_new_one_is_gone(self, history: History) -> None:
        says(history, moved_to="iceberg://tideline/elsewhere/t")
        history.commit(row(6))
        plan = history.plan()
        assert plan.tables == ()
        assert "was moved to iceberg://tideline/elsewhere/t" in plan.delayed[T]
        status = applied_state(history.settings).tables[T]
        assert status.state is TableStage.TARGET_BLOCKED
        with pytest.raises(Misconfigured, match="was moved to"):
            begin_rebuild(history.settings, T)
        with pytest.raises(Misconfigured, match="no table of"):
            delete_former(history.settings, T, yes=True)

    def test_not_the_table_of_someone_else(self, history: History, settings: Settings) -> None:
        in_iceberg(history, 6, 0, pipeline="other")
        assert live_url(settings, T) == url(history, "delta")
        with pytest.raises(Misconfigured, match="of pipeline other"):
            begin_rebuild(settings, T, to="iceberg")


class TestSteps:
    def test_a_copy_comes_first_and_keeps_the_parts_from_there_on(self, history: History) -> None:
        record = begin_rebuild(history.settings, T, to="iceberg")
        assert (record.to, record.target, record.build) == ("iceberg", url(history, "iceberg"), 1)
        plan = taken(history, record)
        (move,) = plan.moves
        assert (plan.tables, plan.swaps, plan.takes_over) == ((), (), False)
        assert (move.copy, move.source, move.target, move.to_manifest, move.mode) == (
            True, url(history, "delta"), url(history, "iceberg"), 6, Mode.CURRENT
        )  # fmt: skip
        in_iceberg(history, 6, 1, moving=url(history, "delta"))
        for key in (6, 7):
            history.commit(row(key))
        stands(history, 8)
        (table,) = taken(history, record).tables
        assert (table.target, table.from_manifest, table.to_manifest, table.build) == (
            url(history, "iceberg"), 6, 8, 1
        )  # fmt: skip
        (name,) = consumers(history)
        assert name.endswith(url(history, "iceberg"))
        entry = history.chain.tail()
        assert entry is not None
        state = history.chain.open_state(entry)
        (own,) = known_consumers(history.settings, history.store)
        assert own.applied(entry.manifest, state)[T] == 6

    def test_both_stand_at_the_same_manifest_when_one_takes_over(self, history: History) -> None:
        record = begin_rebuild(history.settings, T, to="iceberg")
        taken(history, record)
        in_iceberg(history, 6, 1, moving=url(history, "delta"))
        plan = taken(history, record)
        (move,) = plan.moves
        assert (move.copy, move.to_manifest, plan.takes_over) == (False, 6, True)
        accepted = next_step(history.settings, record, accept_differences=True)
        assert accepted is not None and accepted.moves[0].accept_differences
        says(history, moved_to=url(history, "iceberg"))
        (last,) = taken(history, record).moves
        assert (last.source, last.target) == (url(history, "delta"), url(history, "iceberg"))
        assert begin_rebuild(history.settings, T, to="iceberg") == record
        with pytest.raises(Misconfigured, match="lacks its last step"):
            delete_former(history.settings, T, yes=True)

    def test_readers_of_older_versions_refuse_the_documents(self, history: History) -> None:
        record = begin_rebuild(history.settings, T, to="iceberg")
        plan = taken(history, record)
        assert (plan.requires, record.requires) == (("moves",), ("moves",))
        assert decode_plan(encode_plan(plan)) == plan
        assert decode_rebuild(encode_rebuild(record)) == record
        assert begin_rebuild(history.settings, T, restart=True).requires == ()

    def test_a_rebuild_in_place_keeps_the_format(self, history: History) -> None:
        record = begin_rebuild(wants(history, "iceberg"), T)
        assert "~rebuild" in record.target
        assert record.target.startswith("file://")


class TestRefused:
    def move(self, history: History, **options: Any) -> RebuildRecord:
        return begin_rebuild(history.settings, T, to="iceberg", **options)

    def test_another_mode_at_once(self, history: History) -> None:
        with pytest.raises(Misconfigured, match="moved as it is kept, as current"):
            self.move(history, mode=Mode.HISTORY)
        with pytest.raises(Misconfigured, match="moved as it is kept"):
            self.move(history, since_dump=True)
        tables = {T: TableSettings(mode=Mode.HISTORY)}
        history.settings = history.settings.model_copy(update={"tables": tables})
        assert self.move(history).mode is Mode.CURRENT

    def test_where_there_is_no_place(self, history: History) -> None:
        with pytest.raises(Misconfigured, match="no place for a table of the format bigquery"):
            begin_rebuild(history.settings, T, to="bigquery")

    def test_to_what_it_is(self, history: History) -> None:
        with pytest.raises(Misconfigured, match="has the format delta already"):
            begin_rebuild(history.settings, T, to="delta")

    def test_while_another_one_is_under_way(self, history: History) -> None:
        begin_rebuild(history.settings, T)
        with pytest.raises(Fenced, match="is under way"):
            self.move(history)
        moved = self.move(history, restart=True)
        with pytest.raises(Fenced, match="to iceberg") as raised:
            begin_rebuild(history.settings, T)
        assert "--to iceberg" in (raised.value.hint or "")
        assert self.move(history) == moved

    def test_what_lies_in_the_way(self, history: History) -> None:
        """Nothing is replaced: what it is, and what to do."""
        record = self.move(history)
        in_iceberg(history, 6, record.build, moving=url(history, "delta"))
        assert self.move(history) == record
        with pytest.raises(Misconfigured, match="a move given up has left") as raised:
            self.move(history, restart=True)
        assert "delete-former" in (raised.value.hint or "")
        assert delete_former(history.settings, T, yes=False) == 0
        with pytest.raises(Misconfigured, match="a move given up has left"):
            self.move(history, restart=True)
        assert delete_former(history.settings, T, yes=True) == 0
        assert self.move(history, restart=True).build == record.build + 1

    def test_a_removal_that_a_run_was_faster_than(self, history: History) -> None:
        """It takes over between the list and the removal."""
        record = self.move(history)
        in_iceberg(history, 6, 1, moving=url(history, "delta"))

        def takes_over(where: str) -> None:
            assert where == record.target
            says(history, moved_to=where)

        with pytest.raises(Misconfigured, match="lacks its last step"):
            delete_former(history.settings, T, yes=True, before_removal=takes_over)
        assert live_url(history.settings, T) == record.target
