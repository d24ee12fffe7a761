"""What jobs may expect of every table format. One more joins with a line in `targets.MORE`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types

from tests.conformance.targets import (
    APP,
    MORE,
    OTHER,
    REWRITE,
    ROWS,
    THRESHOLDS,
    Case,
    T,
    commit_metadata,
    upsert,
)
from tests.fixtures.bigquery_place import with_bigquery
from tests.fixtures.iceberg import use_catalog, with_iceberg
from tests.fixtures.iceberg_catalogs import at_rest, in_postgres
from tests.fixtures.object_storage import place_in
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.description import Described
from tideline.contract.errors import Unavailable
from tideline.contract.evolution import COLUMNS_PROPERTY
from tideline.contract.external_commits import external_since
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome
from tideline.contract.table_layout import NO_LAYOUT
from tideline.settings import Warehouse
from tideline.warehouse import registry as readers
from tideline.warehouse.base import TableColumn
from tideline.warehouse.registry import open_reader
from tideline.warehouse.state import read_target
from tideline_spark.failures import SparkFailure, explain, is_conflict
from tideline_spark.formats import registry
from tideline_spark.formats.state import RowCounts, TableWords
from tideline_spark.formats.statements import RowClause, RowMerge, RowUpdate, of_source, of_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTINGS = [
    *((name, where) for name in ("delta", "iceberg") for where in ("files", "s3")),
    ("bigquery", "emulator"),
    *((name, "files") for name in MORE),
    ("iceberg", "postgresql"),
    ("iceberg", "rest"),
]
"""The formats, each with the places that its tables can be in."""


@pytest.fixture(params=SETTINGS, ids="-".join)
def place(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Warehouse:
    """A warehouse of one format, and of Iceberg's catalogs."""
    name, where = request.param
    if name in MORE:
        written, read = MORE[name]
        monkeypatch.setitem(registry.FORMATS, "delta", written)
        monkeypatch.setitem(readers.READERS, "delta", read)
    if where == "postgresql":
        return of_server(request, in_postgres(tmp_path, request.getfixturevalue("database")))
    if where == "rest":
        return of_server(request, at_rest(tmp_path, request.getfixturevalue("iceberg_rest")))
    if where != "s3":
        made = Warehouse(url=tmp_path.as_uri())
    else:
        request.getfixturevalue("spark_on_s3")
        made = place_in(request.getfixturevalue("s3"))
    if name == "iceberg":
        return with_iceberg(request, made, tmp_path / "catalog.db")
    return with_bigquery(request, made) if name == "bigquery" else made


def of_server(request: pytest.FixtureRequest, place: Warehouse) -> Warehouse:
    """``place``, which the run's Spark reaches from now on."""
    use_catalog(request.getfixturevalue("spark"), place)
    return place


@pytest.fixture
def case(spark: SparkSession, place: Warehouse) -> Case:
    return Case(spark, place)


def test_no_table_is_a_version_of_its_own(case: Case) -> None:
    seen = case.target.look()
    assert (seen.number, seen.stored_bytes(), list(seen.commits())) == (-1, 0, [])
    assert not seen.snapshot().exists
    assert open_reader(case.url, case.place) is None


def test_what_is_written_is_read_back(case: Case) -> None:
    seen = case.made().look()
    snapshot = seen.snapshot()
    assert case.rows() == sorted(ROWS)
    assert snapshot.schema.names == ["id", "a b", "n"]
    assert [one.dataType.simpleString() for one in snapshot.schema] == ["int", "string", "int"]
    assert (snapshot.version, snapshot.mode, snapshot.build) == (0, Mode.CURRENT, 0)
    assert snapshot.applied == {APP: 1}
    assert seen.committed_number(APP) == 1
    (commit,) = seen.commits()
    assert (commit.commit_metadata, commit.numbers, commit.rows_written) == (
        commit_metadata(1),
        {APP: 1},
        3,
    )
    assert commit == seen.commit_of(APP, 1)
    assert seen.commit_of(APP, 0) is None


def test_a_few_rows_are_read_of_many(case: Case) -> None:
    """Values that need quotes, a NULL, keys that are not there, and none."""
    target = case.made()
    target.merge(upsert(case.view([(4, "it's \\ a `q`", None)])), commit_metadata(2))
    rows = {key: (text, number) for key, text, number in case.rows()}

    def read(where: Sequence[str], keys: Sequence[Any] | None = None) -> dict[int, Any]:
        among = None if keys is None else case.keys(keys)
        found = target.rows_of(["n", "id"], where, among)
        assert found.columns == ["n", "id"]
        return {row["id"]: row["n"] for row in found.collect()}

    numbers = {key: number for key, (_, number) in rows.items()}
    assert read([]) == numbers
    assert read(["`id` >= 2", "(`n` IS NOT NULL OR `id` > 3)"]) == {
        key: number
        for key, number in numbers.items()
        if key >= 2 and (number is not None or key > 3)
    }
    wanted = [(1, rows[1][0]), (3, "another"), (4, rows[4][0]), (77, "away"), (None, None)]
    assert read([], wanted) == {1: numbers[1], 4: None}
    assert read(["`n` IS NULL"], wanted) == {4: None}
    assert read([], []) == {}


def test_a_merge_is_applied_once(case: Case) -> None:
    target = case.made()
    view = case.view([(1, "y", 11), (2, "gone", None), (4, "new", 40), (9, "away", 1)])
    assert target.merge(upsert(view), commit_metadata(2, read=0), still=True) == RowCounts(1, 2, 1)
    merged = [(1, "y", 11), (3, "z", 4), (4, "new", 40)]
    assert case.rows() == merged
    assert target.merge(upsert(case.view([(4, "twice", 41)])), commit_metadata(2, read=0)) is None
    assert case.open().merge(upsert(case.view([(5, "older", 50)])), commit_metadata(1)) is None
    assert (case.rows(), target.newest()) == (merged, 1)
    if case.place.format != "bigquery":  # Its emulator keeps no states before scripts.
        assert case.rows(0) == sorted(ROWS), "an older version"
    assert target.snapshot().applied == {APP: 2}


def test_a_repair_moves_no_number(case: Case) -> None:
    target = case.made()
    same = f"{of_target('id')} = {of_source('id')}"
    target.repair(RowMerge(case.view([(1, "", 0)]), same, (RowClause(),)), commit_metadata(2))
    assert case.rows() == sorted(ROWS[1:])
    assert target.snapshot().applied == {APP: 1}
    assert target.since_ours(target.commits(1), APP).external == ()


def test_a_range_is_overwritten_once(case: Case) -> None:
    target = case.made()
    rows = case.session.table(case.view([(3, "w", 30), (4, "v", 40)]))
    counts = target.overwrite(rows, "`id` > 2 AND `id` <= 4", commit_metadata(2))
    assert counts is not None and 2 <= counts.inserted <= 4
    written = [(1, "x", 10), (2, None, 20), (3, "w", 30), (4, "v", 40)]
    assert case.rows() == written
    assert target.overwrite(rows, "`id` > 0", commit_metadata(2)) is None
    assert case.rows() == written


def test_all_of_a_table_is_replaced_once(case: Case) -> None:
    target = case.made()
    target.set_property("team", "theirs")
    properties = target.properties_after_swap(target.look().properties, {})
    assert properties["team"] == "theirs"
    assert not any(name.startswith("tideline.") for name in properties)
    view = case.view([(7, "b", 1)], "id int, later string, m int")
    rebuilt = f"{APP}~1"
    changed = properties | {"tideline.build": "1"}
    version = target.replace(view, changed, commit_metadata(5, rebuilt), NO_LAYOUT)
    assert version == target.newest()
    snapshot = target.snapshot()
    assert (case.rows(), snapshot.schema.names) == ([(7, "b", 1)], ["id", "later", "m"])
    assert (snapshot.build, snapshot.applied) == (1, {APP: 1, rebuilt: 5})
    assert snapshot.properties["team"] == "theirs"
    assert target.replace(view, properties, commit_metadata(5, rebuilt), NO_LAYOUT) is None


def test_columns_are_added_renamed_and_dropped_in_one_commit(case: Case) -> None:
    target = case.made()
    new = types.StructField("new col", types.LongType())
    target.schema.prepare(target.snapshot(), mapping=True, widening=False, added=[new])
    before = target.newest()
    columns = [("id", "id", None), ("n", "a b", None), ("a b", "n", None), ("new col", None, new)]
    target.schema.reshape(columns, {COLUMNS_PROPERTY: "at 20"}, commit_metadata(2))
    assert target.newest() == before + 1
    snapshot = target.snapshot()
    assert snapshot.schema.names == ["id", "n", "a b", "new col"]
    assert snapshot.properties[COLUMNS_PROPERTY] == "at 20"
    assert snapshot.applied == {APP: 1}
    assert case.rows() == [(1, "x", 10, None), (2, None, 20, None), (3, "z", None, None)]
    left = [("id", "id", None), ("a b", "a b", None), ("new col", "new col", None)]
    target.schema.reshape(left, {}, commit_metadata(2))
    assert case.rows() == [(1, 10, None), (2, 20, None), (3, None, None)]
    # A column of a dropped one's name is another column.
    again = types.StructField("n", types.StringType())
    target.schema.reshape([*left, ("n", None, again)], {}, commit_metadata(2))
    assert [row[-1] for row in case.rows()] == [None, None, None]
    found = target.since_ours(target.commits(target.newest()), APP)
    assert found.external == (), "they are commits of ours"


def test_a_column_is_widened_and_keeps_its_values(case: Case) -> None:
    target = case.made()
    target.schema.prepare(target.snapshot(), mapping=False, widening=True, added=[])
    for _ in range(2):
        target.schema.widen({"n": types.LongType()}, commit_metadata(1))
    assert target.snapshot().schema["n"].dataType == types.LongType()
    target.merge(
        upsert(case.view([(1, "x", 2**40)], "id int, `a b` string, n bigint")), commit_metadata(2)
    )
    assert case.rows() == [(1, "x", 2**40), (2, None, 20), (3, "z", 4)]


def test_rows_are_refilled_once(case: Case) -> None:
    target = case.made()
    for value in ("7", "8"):
        update = RowUpdate({"n": value}, "`id` > 1")
        target.schema.refill(update, commit_metadata(2), f"{APP}/columns", 20)
    assert case.rows() == [(1, "x", 10), (2, None, 7), (3, "z", 7)]
    assert target.snapshot().applied == {APP: 1, f"{APP}/columns": 20}


def test_a_property_is_set_and_removed(case: Case) -> None:
    target = case.made()
    target.set_property("tideline.note", "it's \\ one")
    assert target.look().properties["tideline.note"] == "it's \\ one"
    target.set_property("tideline.note", None)
    assert "tideline.note" not in target.look().properties
    assert target.snapshot().applied == {APP: 1}


def test_a_table_says_of_itself_what_it_is_to_say(case: Case) -> None:
    target = case.made()
    assert target.description.words().columns == {"id", "a b", "n"}
    clean = target.description.without_null(["id", "a b", "n"])
    firm = registry.FORMATS[case.place.format].firm
    assert clean == ({"id"} if firm else set())
    reported = TableWords({"": "all", "a b": "it's"}, clean, Described("f", ("a b",), ("id",)))
    assert target.description.rewrite(lambda now: reported)
    assert target.description.words() == reported
    assert not target.description.rewrite(lambda now: now)
    reader = open_reader(case.url, case.place)
    assert reader is not None and reader.comment == "all"
    assert list(reader.columns()) == [
        TableColumn("id", "integer", nullable=not firm),
        TableColumn("a b", "string", comment="it's"),
        TableColumn("n", "integer"),
    ]
    assert case.rows() == sorted(ROWS)


def test_external_commits_are_noticed_and_nothing_else_is(case: Case) -> None:
    target = case.made()
    theirs = case.open()
    theirs.set_property("team", "theirs")
    case.apart().files.rewrite(THRESHOLDS, REWRITE)
    read = target.newest()
    assert target.since_ours(target.commits(read), APP).external == ()
    theirs.merge(upsert(case.view([(1, "theirs", 1)])), commit_metadata(1, OTHER))
    found = target.since_ours(target.commits(target.newest()), APP)
    (named,) = found.external
    assert named.startswith(f"version {target.newest()}: ")
    assert (found.commit_metadata, found.went_back) == (commit_metadata(1), False)
    assert external_since(target.commits(target.newest()), read, APP) == (named,)
    # The planner reads the same.
    state = read_target(case.url, APP, case.place)
    assert (state.exists, state.version, state.applied) == (True, target.newest(), 1)
    assert (state.owner, state.mode) == (("shop", "one", T), Mode.CURRENT)
    assert (state.external, state.commit_metadata, state.standing) == (
        (named,),
        commit_metadata(1),
        commit_metadata(1),
    )
    reader = open_reader(case.url, case.place)
    assert reader is not None
    assert [one.version for one in reader.commits(2)] == [state.version, state.version - 1]
    digests = {reader.commit_digest(version) for version in range(state.version + 1)}
    assert len(digests) == state.version + 1 and "" not in digests
    assert reader.commit_digest(state.version + 1) == ""


def test_of_two_commits_one_is_refused_by_name(case: Case) -> None:
    target = case.made()
    other = case.open()

    def overtaken(now: TableWords) -> TableWords:
        assert other.description.rewrite(lambda seen: described(seen, "faster"))
        return described(now, "slower")

    def described(now: TableWords, comment: str) -> TableWords:
        return TableWords({"n": comment}, now.firm, now.described, now.columns)

    with pytest.raises(SparkFailure) as raced:
        target.description.rewrite(overtaken)
    assert target.description.words().comments == {"n": "faster"}
    with pytest.raises(SparkFailure) as made:
        case.made()
    for failure in (raced.value, made.value):
        assert is_conflict(failure)
        named = explain(failure, "merging")
        assert isinstance(named, Unavailable)
        assert "other writers of the table were faster" in named.message


def test_files_are_measured_and_rewritten(case: Case) -> None:
    target = case.made()
    target.merge(upsert(case.view([(4, "new", 40)])), commit_metadata(2))
    rows = case.rows()
    before = case.open().files.measure(THRESHOLDS)
    assert before.files > 0 and before.rows - before.deleted == len(rows)
    files = case.apart().files
    files.rewrite(THRESHOLDS, REWRITE)
    assert (case.rows(), files.vacuum(168.0) >= 0) == (rows, True)
    assert files.measure(THRESHOLDS).deleted == 0
    assert target.snapshot().applied == {APP: 2}


@pytest.mark.parametrize("mode", [mode.value for mode in Mode])
def test_whole_merges_run_on_it(
    place: Warehouse, mode: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The jobs and the planner, from a chain to rows, in every mode; the chain is where the tables
    are."""
    from tideline_spark.merge import run_plan

    history = History(tmp_path, tables={T: {"mode": mode}}, place=place)
    history.commit(Shaped(schema_of(T, {"id": "int32", "v": "string"}, ["id"])))
    history.commit(*(Row(T, "c", {"id": key, "v": "one"}) for key in (1, 2, 3)))
    first = history.plan()
    (receipt,) = run_plan(spark, first).tables
    assert receipt.outcome is Outcome.APPLIED, receipt.error
    history.commit(Row(T, "u", {"id": 1, "v": "two"}), Row(T, "d", {"id": 2}))
    second = history.plan()
    assert not second.tables[0].create
    assert [one.outcome for one in run_plan(spark, second).tables] == [Outcome.APPLIED]
    target = registry.open_target(spark.newSession(), history.target(T))
    rows, version = target.rows().collect(), target.newest()
    assert [one.outcome for one in run_plan(spark, second).tables] == [Outcome.ALREADY_APPLIED]
    assert (target.newest(), sorted(target.rows().collect())) == (version, sorted(rows))
    assert history.plan().nothing_to_do
    found = {
        "current": 2,
        "soft_deletes": 3,
        "history": 4,
        "append": 5,
    }[mode]
    assert len(rows) == found


def test_a_key_that_changed_brings_its_values(
    place: Warehouse, spark: SparkSession, tmp_path: Path
) -> None:
    """What the log does not carry is in the target, under the old key."""
    history = History(tmp_path, place=place)
    history.commit(Shaped(schema_of(T, {"id": "int32", "v": "string", "w": "string"}, ["id"])))
    history.commit(*(Row(T, "c", {"id": key, "v": f"v{key}", "w": "w"}) for key in (1, 2, 3)))
    history.merge(spark)
    moved = {"id": 7, "v": None, "w": "new"}
    history.commit(
        Row(T, "u", moved, before={"id": 1}, unchanged=("v",)),
        Row(T, "u", {"id": 2, "v": None, "w": "x"}, unchanged=("v",)),
        Row(T, "d", {"id": 3}),
    )
    assert [one.outcome for one in history.merge(spark).tables] == [Outcome.APPLIED]
    target = registry.open_target(spark.newSession(), history.target(T))
    rows = sorted((row["id"], row["v"], row["w"]) for row in target.rows().collect())
    assert rows == [(2, "v2", "x"), (7, "v1", "new")]
    assert history.plan().nothing_to_do
