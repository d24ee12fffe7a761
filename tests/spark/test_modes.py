"""Every mode against a model in plain Python, over random histories, however plans cut them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.fixtures.parts import HEARTBEAT_US, Emptied, Event, History, Row, Shaped
from tests.fixtures.progress import external_of
from tests.spark import random_source
from tests.spark.random_source import SCHEMA, TABLE, VALUES, RandomSource, interleave
from tests.spark.version_model import Model, Value, Version
from tideline.contract.layout import table_path
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.schema import parse_table
from tideline.contract.steps import ColumnStep, StepKind
from tideline.planner import applied_state, plan_merge
from tideline.settings import Settings
from tideline.settings.tables import OnChange, TableSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Warehouse:
    """One target of a history, kept in a mode of its own, merged when asked."""

    def __init__(self, history: History, mode: Mode, name: str, **more: Any) -> None:
        warehouse = history.settings.warehouse.model_copy(
            update={"url": (history.root / name).as_uri()}
        )
        self.settings: Settings = history.settings.model_copy(
            update={"warehouse": warehouse, "tables": {"*.*": TableSettings(mode=mode, **more)}}
        )
        self._name = name
        self._plans = 0

    def plan(self) -> Plan:
        self._plans += 1
        return plan_merge(self.settings, plan_id=f"{self._name}-{self._plans}")

    def merge(
        self, spark: SparkSession, *, twice: bool = False, overtaken_by: Plan | None = None
    ) -> TableReceipt:
        """Merge all; ``overtaken_by`` is run as a whole right before the commit."""
        from tideline_spark.merge import run_plan

        def on_point(point: str) -> None:
            if overtaken_by is not None and point == "before-commit":
                (receipt,) = run_plan(spark, overtaken_by).tables
                assert receipt.outcome is Outcome.APPLIED, receipt

        plan = self.plan()
        (receipt,) = run_plan(spark, plan, on_point=on_point).tables
        if overtaken_by is not None:
            assert (receipt.outcome, receipt.rows_read) == (Outcome.REFUSED, 0), receipt
            return self.merge(spark, twice=twice)
        assert receipt.outcome is Outcome.APPLIED, receipt
        if twice:
            (again,) = run_plan(spark, plan).tables
            assert again.outcome is Outcome.ALREADY_APPLIED, again
        return receipt

    @property
    def path(self) -> str:
        return table_path(self.settings.warehouse.url, parse_table(TABLE))

    def rows(self, spark: SparkSession) -> list[dict[str, Any]]:
        frame = spark.newSession().read.format("delta").load(self.path)
        return [row.asDict(recursive=True) for row in frame.collect()]


class ChunkEvent:
    """A chain that is written and told to a model at the same time."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.model = Model(VALUES)
        self.log: list[tuple[int, Event]] = []
        self._spans: list[tuple[int, int, int]] = []

    def commit(self, *events: Event, delete_before: int | None = None) -> None:
        first = self.history.last_seq + 1
        deletes_before = [] if delete_before is None else [(TABLE, delete_before)]
        self.history.commit(*events, deletes_before=deletes_before, parts_per_table=2)
        self._spans.append((first, self.history.last_seq, self.history.last_number))
        for seq, event in enumerate(events, first):
            self.log.append((seq, event))
            if isinstance(event, Emptied):
                self.model.end(seq, seq - 1)
            elif isinstance(event, Row):
                self._row(seq, event)
        if delete_before is not None:
            self.model.end(self.history.last_seq, delete_before)

    def manifest_of(self, seq: int) -> int:
        return next(number for first, last, number in self._spans if first <= seq <= last)

    def time_of(self, seq: int, *, ended: bool = False) -> datetime:
        """When a change was made; of what is no row's, the source's clock in its manifest."""
        if not ended:
            return datetime(2024, 1, 1, 0, 0, seq % 60)
        time = datetime.fromtimestamp(HEARTBEAT_US // 1_000_000 + self.manifest_of(seq), UTC)
        return time.replace(tzinfo=None)

    def end_of(self, version: Version) -> datetime | None:
        if version.to_seq is None:
            return None
        return self.time_of(version.to_seq, ended=version.ended)

    def _row(self, seq: int, row: Row) -> None:
        shard = row.values["shard"]
        carried = {} if row.op == "d" else {
            n: (row.values.get(n), row.overflow.get(n)) for n in VALUES if n not in row.unchanged
        }  # fmt: skip
        before = None if row.before is None else (shard, row.before["id"])
        self.model.change(seq, row.op, (shard, row.values["id"]), carried, before)


def tell(reported: ChunkEvent, random: Random) -> Iterator[str]:
    """A random history, step by step: changes, a truncate, and two dumps that find rows gone or
    changed without a word in the log. Says when to merge, and when only to plan."""
    sources = [RandomSource(shard, random) for shard in range(40)]
    reported.commit(*(row for source in sources for row in source.fill()))
    reported.commit(*interleave(sources, random, 150))
    yield "merge"
    _dump(reported, sources, random)
    reported.commit(*interleave(sources, random, 60))
    yield "merge"
    before = interleave(sources, random, 40)
    for source in sources:
        source.rows.clear()
    reported.commit(*before, Emptied(TABLE), *(row for source in sources for row in source.fill()))
    reported.commit(*interleave(sources, random, 100))
    _dump(reported, sources, random)
    yield "plan"
    reported.commit(*interleave(sources, random, 100))
    yield "merge"


def _dump(reported: ChunkEvent, sources: list[RandomSource], random: Random) -> None:
    """A full dump amid changes, of sources in which rows went and changed silently before."""
    for source in sources:
        for key in sorted(source.rows):
            if random.random() < 0.1:
                del source.rows[key]
            elif random.random() < 0.1:
                source.rows[key]["a"] = ("changed silently", None)
    low = reported.history.last_seq
    reported.commit(*interleave(sources, random, 20))
    dumped = [source.whole(key) for source in sources for key in sorted(source.rows)]
    reported.commit(*dumped, *interleave(sources, random, 20))
    reported.commit(*interleave(sources, random, 10), delete_before=low)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    "mode",
    [
        # `test_parity` draws histories for it as well.
        pytest.param(Mode.SOFT_DELETES, marks=pytest.mark.long),
        Mode.HISTORY,
        Mode.APPEND,
    ],
)
def test_whatever_plans_cut_the_rows_are_the_models(
    tmp_path: Path, spark: SparkSession, mode: Mode
) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    random = Random(seed)
    history = History(tmp_path)
    history.commit(Shaped(random_source.SCHEMA))
    reported = ChunkEvent(history)
    often, once = Warehouse(history, mode, "often"), Warehouse(history, mode, "once")
    compare = {Mode.SOFT_DELETES: _soft_deletes, Mode.HISTORY: _history, Mode.APPEND: _append}[mode]
    overtaking: Plan | None = None
    for at, what in enumerate(tell(reported, random)):
        if what == "plan":
            overtaking = often.plan()
            continue
        often.merge(spark, twice=at == 1, overtaken_by=overtaking)
        compare(often.rows(spark), reported)
    once.merge(spark)
    compare(once.rows(spark), reported)


def _history(rows: list[dict[str, Any]], reported: ChunkEvent) -> None:
    found = {(row["shard"], row["id"], row["_tl_valid_from_seq"]): row for row in rows}
    assert len(found) == len(rows), "a version is there twice"
    expected = {(*k, v.from_seq): v for k, found in reported.model.versions.items() for v in found}
    assert found.keys() == expected.keys()
    for key, version in expected.items():
        row = found[key]
        assert _values(row) == _known(version.values, version.absent), key
        sequences = (row["_tl_seq"], row["_tl_valid_to_seq"], row["_tl_current"])
        assert sequences == (version.seq, version.to_seq, version.to_seq is None), key
        assert row["_tl_valid_from"] == reported.time_of(version.from_seq)
        assert row["_tl_valid_to"] == reported.end_of(version)


def _soft_deletes(rows: list[dict[str, Any]], reported: ChunkEvent) -> None:
    found = {(row["shard"], row["id"]): row for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    assert found.keys() == reported.model.versions.keys()
    for key, versions in reported.model.versions.items():
        row, version = found[key], versions[-1]
        assert _values(row) == _known(version.values, version.absent), key
        deleted = (row["_tl_deleted"], row["_tl_deleted_seq"])
        assert deleted == (version.to_seq is not None, version.to_seq), key
        assert row["_tl_deleted_at"] == reported.end_of(version)


def _append(rows: list[dict[str, Any]], reported: ChunkEvent) -> None:
    words = {"c": "insert", "u": "update", "d": "delete", "r": "dump"}
    found = {row["_sequence_num"]: row for row in rows}
    assert len(found) == len(rows), "a change is there twice"
    assert found.keys() == {seq for seq, _ in reported.log}
    for seq, event in reported.log:
        row = found[seq]
        assert row["_batch_id"] >= reported.manifest_of(seq)
        assert row["_tl_ts"] == reported.time_of(seq, ended=isinstance(event, Emptied))
        if not isinstance(event, Row):
            assert (row["_operation"], row["id"], row["_before_id"]) == ("truncate", None, None)
            continue
        assert (row["_operation"], row["_tl_tx"]) == (words[event.op], 7)
        assert {name: row[name] for name in event.values} == dict(event.values)
        assert row["_tl_unchanged"] == (list(event.unchanged) or None)
        assert row["_tl_overflow"] == (dict(event.overflow) or None)
        before = (event.before or {}).get("id", event.values["id"])
        assert row["_before_id"] == (before if event.op in "ud" else None)


def _values(row: dict[str, Any]) -> dict[str, Any]:
    texts = row["_tl_overflow"] or {}
    absent = row["_tl_pending"] or []
    return {n: "pending" if n in absent else (row[n], texts.get(n)) for n in VALUES}


def _known(values: Mapping[str, Value], absent: frozenset[str]) -> dict[str, Any]:
    return {n: "pending" if n in absent else values[n] for n in VALUES}


@pytest.mark.timeout(1_200)
def test_a_change_log_has_the_row_before_and_goes_on_as_one(
    tmp_path: Path, spark: SparkSession
) -> None:
    from tideline_spark.merge import run_plan

    history = History(tmp_path)
    history.commit(Shaped(random_source.SCHEMA))
    log = Warehouse(history, Mode.APPEND, "log", on_change=OnChange(widen="ignore"))
    key = {"shard": 1, "id": 2}
    history.commit(Row(TABLE, "c", {**key, "a": "x", "b": 1}))
    log.merge(spark)
    moved = {"shard": 1, "id": 3, "a": "y", "b": 1}
    was = {"a": "x", "b": 1, "c": None}
    history.commit(
        Row(TABLE, "u", moved, before={"id": 2}, image=was, image_overflow={"c": "infinity"}),
        Row(TABLE, "d", {"shard": 1, "id": 3}, image={"a": "y", "b": 1, "c": None}),
    )
    other = log.plan()
    changed = replace(other.tables[0], mode=Mode.CURRENT)
    (refused,) = run_plan(spark, replace(other, tables=(changed,))).tables
    assert (refused.outcome, refused.error_kind) == (Outcome.FAILED, "Misconfigured")
    assert "tideline rebuild" in (refused.hint or "")
    # Nor does a plan throw away what was, whoever made it.
    app = f"{changed.app_id.rpartition('/')[0]}/1"
    restart = replace(other.tables[0], create=True, replace=True, generation=1, app_id=app)
    (refused,) = run_plan(spark, replace(other, tables=(restart,))).tables
    assert (refused.outcome, refused.error_kind) == (Outcome.FAILED, "Misconfigured")
    assert "of the past" in (refused.error or "") and "tideline rebuild" in (refused.hint or "")
    log.merge(spark)
    inserted, updated, deleted = sorted(log.rows(spark), key=lambda row: row["_sequence_num"])
    names = ("_batch_id", "_before_shard", "_before_id", "_before_a", "_before_b", "_tl_image")
    assert [inserted[name] for name in names] == [2, None, None, None, None, None]
    assert [updated[name] for name in names] == [3, 1, 2, "x", 1, True]
    assert updated["_tl_image_overflow"] == {"c": "infinity"}
    assert [deleted[name] for name in names] == [3, 1, 3, "y", 1, True]
    assert (deleted["id"], deleted["a"]) == (3, None)

    # What does not fit a type that stays is a text, before and after.
    wide = tuple(replace(c, type="int64") if c.name == "b" else c for c in SCHEMA.columns)
    large = {"a": "x", "b": 2**40, "c": None}
    history.commit(
        Shaped(replace(SCHEMA, columns=wide), (ColumnStep(StepKind.WIDEN, "b", type="int64"),)),
        Row(TABLE, "c", {**key, **large}),
        Row(TABLE, "d", key, image=large),
    )
    log.merge(spark)
    *_, inserted, deleted = sorted(log.rows(spark), key=lambda row: row["_sequence_num"])
    assert (inserted["b"], inserted["_tl_overflow"]) == (None, {"b": str(2**40)})
    assert (deleted["_before_b"], deleted["_tl_image_overflow"]) == (None, {"b": str(2**40)})


def test_a_damaged_sequence_shields_no_row_and_a_lost_past_is_not_healed(
    tmp_path: Path, spark: SparkSession
) -> None:
    history = History(tmp_path)
    history.commit(Shaped(random_source.SCHEMA))
    softly = Warehouse(history, Mode.SOFT_DELETES, "softly")
    key = {"shard": 1, "id": 2}
    history.commit(Row(TABLE, "c", {**key, "a": "x", "b": 1}))
    softly.merge(spark)
    target = f"delta.`{softly.path.removeprefix('file://')}`"
    spark.newSession().sql(f"UPDATE {target} SET _tl_seq = 9000000000000000000")  # noqa: S608
    low = history.last_seq
    history.commit(Row(TABLE, "r", {**key, "a": "y", "b": 2}), deletes_before=[(TABLE, low)])
    assert len(softly.merge(spark).external_changes) == 1
    (row,) = softly.rows(spark)
    assert (row["a"], row["_tl_deleted"]) == ("y", False)
    # No dump tells what others have done to rows that the source has no more.
    assert external_of(applied_state(softly.settings).tables[TABLE]) == ("version 1: UPDATE",)
    history.commit(Row(TABLE, "d", key))
    softly.merge(spark)
    spark.newSession().sql(f"RESTORE TABLE {target} TO VERSION AS OF 2")
    low = history.last_seq
    history.commit(Row(TABLE, "r", {**key, "a": "z", "b": 3}), deletes_before=[(TABLE, low)])
    waiting = softly.plan()
    assert waiting.tables == ()
    assert "tideline rebuild" in waiting.delayed[TABLE]
