"""Tables without a key: n equal rows stay n, against a Counter, through copies and kills."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.parts import Emptied, Event, History, Row, Shaped, schema_of
from tideline.contract.manifest import Copied, DeleteBefore
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.steps import ColumnStep, StepKind
from tideline.planner import plan_merge
from tideline.settings.tables import OnChange, TableSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "public.bag"
COLUMNS = {
    "a": "int32",
    "f": "float64",
    "d": "decimal(9,2)",
    "t": "string",
    "at": "timestamp_ntz",
    "b": "binary",
}
SCHEMA = schema_of(TABLE, COLUMNS, ())
VALUES: Mapping[str, Sequence[Any]] = {
    "a": (1, None),
    "f": (0.0, -0.0, math.nan, None),
    "d": (Decimal("1.50"), None, "NaN"),
    "t": ("", "1:2", None),
    "b": (b"", b"\0", None),
}
"""Values that are easily taken for one another; a text for ``d`` is one that does not fit."""
Held = tuple[str, ...]


class Bag:
    """A history of one table without a key, with what the source holds."""

    def __init__(self, root: Path, seed: int, **on_change: Any) -> None:
        self.rng = Random(seed)
        self.history = History(root)
        counted = TableSettings(keyless="counted", on_change=OnChange(**on_change))
        self.settings = self.history.settings.model_copy(update={"tables": {"*.*": counted}})
        self.rows: list[dict[str, Any]] = []
        self._plans = 0
        self.history.commit(Shaped(SCHEMA))

    def changes(self, count: int) -> list[Event]:
        """Random changes, which the source has taken."""
        return [self._change() for _ in range(count)]

    def dumped(self, rows: Sequence[dict[str, Any]]) -> list[Event]:
        return [_plain("r", row) for row in rows]

    def copy(self, *, behind: int = 2) -> None:
        """A copy, in two manifests, with changes before, in and after its window; the snapshot
        shows every other change of the window."""
        h = self.history
        first_manifest, low = h.last_number, h.last_seq
        seen = []
        snapshot = list(self.rows)
        window: list[Event] = []
        for number in range(4):
            change = self._change(shared=snapshot)
            window.append(change)
            if number % 2:
                _apply(change, snapshot)
                seen.append(low + number + 1)
        copied = self.dumped(snapshot)
        half = len(copied) // 2
        h.commit(*window, *copied[:half], *self.changes(2))
        h.commit(*copied[half:], *self.changes(behind))
        last = h.last_seq
        ranges = tuple((seq, seq) for seq in seen)
        done = Copied(first_manifest, last, len(copied), ranges)
        h.commit(*self.changes(1), deletes_before=[DeleteBefore(TABLE, low, "dump", done)])

    def plan(self) -> Plan:
        self._plans += 1
        return plan_merge(self.settings, plan_id=f"p{self._plans}")

    def merge(self, spark: SparkSession) -> TableReceipt:
        from tideline_spark.merge import run_plan

        (receipt,) = run_plan(spark, self.plan()).tables
        return receipt

    def check(self, spark: SparkSession) -> None:
        """The target holds what the source holds, as often."""
        frame = spark.newSession().read.format("delta").load(self.history.target(TABLE))
        found = [row.asDict(recursive=True) for row in frame.collect()]
        assert Counter(map(_held, found)) == Counter(map(_model, self.rows))
        seqs = [row["_tl_seq"] for row in found]
        assert len(set(seqs)) == len(seqs)

    def _change(self, shared: Sequence[dict[str, Any]] | None = None) -> Event:
        """``shared``: an update or delete hits only what is among these rows as well."""
        candidates = [row for row in self.rows if shared is None or row in shared]
        op = self.rng.choice("ccud") if candidates else "c"
        row = {name: self.rng.choice(values) for name, values in VALUES.items()}
        row["at"] = None
        before = None if op == "c" else self.rng.choice(candidates)
        if before is not None:
            del self.rows[next(n for n, one in enumerate(self.rows) if one is before)]
        if op != "d":
            self.rows.append(row)
        values, overflow = ({}, {}) if op == "d" else _split(row)
        image, image_overflow = (None, {}) if before is None else _split(before)
        return Row(TABLE, op, values, None, (), overflow, image, image_overflow)


def _plain(op: str, row: Mapping[str, Any]) -> Row:
    values, overflow = _split(row)
    return Row(TABLE, op, values, overflow=overflow)


def _split(row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    overflow = {"d": row["d"]} if isinstance(row["d"], str) else {}
    return {**row, "d": None if overflow else row["d"]}, overflow


def _apply(change: Event, snapshot: list[dict[str, Any]]) -> None:
    assert isinstance(change, Row)
    if change.image is not None:
        gone = _model(_joined(change.image, change.image_overflow))
        del snapshot[next(n for n, row in enumerate(snapshot) if _model(row) == gone)]
    if change.op != "d":
        snapshot.append(_joined(change.values, change.overflow))


def _joined(values: Mapping[str, Any], overflow: Mapping[str, str]) -> dict[str, Any]:
    return {**values, **overflow}


def _model(row: Mapping[str, Any]) -> Held:
    return tuple(f"{type(row[name]).__name__}:{row[name]!r}" for name in COLUMNS)


def _held(row: Mapping[str, Any]) -> Held:
    binary = None if row["b"] is None else bytes(row["b"])
    return _model({**row, "b": binary, **dict(row["_tl_overflow"] or {})})


def test_random_bags(spark: SparkSession, tmp_path: Path) -> None:
    from tideline_spark.merge import run_plan

    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    bag = Bag(tmp_path, seed)
    h = bag.history
    h.commit(*bag.changes(30))
    held = bag.plan()
    assert held.tables == () and "no copy" in held.delayed[TABLE]
    bag.copy()
    assert bag.merge(spark).outcome is Outcome.APPLIED
    bag.check(spark)
    # Changes alone; the same plan killed before its commit, run, run again.
    h.commit(*bag.changes(25))
    h.commit(*bag.changes(5))
    plan = bag.plan()

    def kill(point: str) -> None:
        if point == "before-commit":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_plan(spark, plan, on_point=kill)
    for expected in (Outcome.APPLIED, Outcome.ALREADY_APPLIED):
        assert run_plan(spark, plan).tables[0].outcome is expected
    bag.check(spark)
    # An unfinished copy counts for nothing; a plan of before does not begin here any more.
    h.commit(*bag.dumped(bag.rows[:7]), *bag.changes(6))
    older = moved_on(plan)
    assert run_plan(spark, older).tables[0].outcome in (Outcome.REFUSED, Outcome.ALREADY_APPLIED)
    assert bag.merge(spark).outcome is Outcome.APPLIED
    bag.check(spark)
    # Another copy in the same range as an unfinished one, then emptied, and filled again.
    h.commit(*bag.dumped(bag.rows[:3]), *bag.changes(3))
    bag.copy(behind=3)
    assert bag.merge(spark).outcome is Outcome.APPLIED
    bag.check(spark)
    bag.rows.clear()
    h.commit(Emptied(TABLE), *bag.changes(4))
    assert bag.merge(spark).outcome is Outcome.APPLIED
    bag.check(spark)


def moved_on(plan: Plan) -> Plan:
    """The plan as if it began where it ended before, and went further."""
    import msgspec

    (table,) = plan.tables
    moved = msgspec.structs.replace(table, to_manifest=table.to_manifest + 1)
    return msgspec.structs.replace(plan, tables=(moved,))


def test_what_does_not_add_up_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A delete of a row that the target lacks, and a plan that holds a part of a copy only."""
    import msgspec

    from tideline_spark.merge import run_plan

    bag = Bag(tmp_path, 7)
    bag.history.commit(*bag.changes(12))
    bag.copy()
    plan = bag.plan()
    (table,) = plan.tables
    assert table.copied is not None
    fewer = msgspec.structs.replace(table.copied, rows=table.copied.rows + 1)
    broken = msgspec.structs.replace(plan, tables=(msgspec.structs.replace(table, copied=fewer),))
    receipt = run_plan(spark, broken).tables[0]
    assert (receipt.outcome, "of a copy" in str(receipt.error)) == (Outcome.FAILED, True)
    assert run_plan(spark, plan).tables[0].outcome is Outcome.APPLIED
    strange = {**bag.rows[0], "t": "never there"}
    values, overflow = _split(strange)
    bag.history.commit(
        Row(TABLE, "d", {}, None, (), {}, values, overflow),
        _plain("c", bag.rows[0]),
    )
    receipt = bag.merge(spark)
    assert (receipt.outcome, "does not have" in str(receipt.error)) == (Outcome.FAILED, True)
    assert "never there" not in str(receipt)
    bag.check(spark)


def test_a_rebuilt_table_is_compared_as_a_bag(spark: SparkSession, tmp_path: Path) -> None:
    from tideline.contract.modes import Mode
    from tideline_spark.schemas import STRING_MAP, part_schema
    from tideline_spark.verification.comparable import NOT_COMPARABLE, Side, differences

    fields = part_schema(SCHEMA, moved=False)
    row = dict.fromkeys(fields.names) | {"a": 1, "f": 0.0}
    other = row | {"f": -0.0}
    assert fields["_tl_overflow"].dataType == STRING_MAP

    def side(*rows: dict[str, Any], mode: Mode = Mode.CURRENT) -> Side:
        return Side(
            spark.createDataFrame([tuple(r[n] for n in fields.names) for r in rows], fields), mode
        )

    assert differences(side(row, row, other), side(other, row, row), SCHEMA, None) == {}
    found = differences(side(row, row, other), side(row, other, other), SCHEMA, None)
    assert found == {"missing": 1, "extra": 1}
    log = side(row, mode=Mode.APPEND)
    assert differences(log, side(row), SCHEMA, None) == {NOT_COMPARABLE: 1}


def test_a_column_that_only_the_target_has_tells_no_rows_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    bag = Bag(tmp_path, 3, drop="ignore")
    bag.history.commit(*bag.changes(30))
    bag.copy()
    assert bag.merge(spark).outcome is Outcome.APPLIED
    bag.check(spark)
    rest = {name: kind for name, kind in COLUMNS.items() if name != "t"}
    gone, *left = bag.rows
    image, texts = _split({**gone, "t": None})
    del image["t"]
    bag.history.commit(
        Shaped(schema_of(TABLE, rest, ()), (ColumnStep(StepKind.DROP, "t"),)),
        Row(TABLE, "d", {}, None, (), {}, image, texts),
    )
    receipt = bag.merge(spark)
    assert (receipt.outcome, receipt.deleted) == (Outcome.APPLIED, 1), receipt
    frame = spark.newSession().read.format("delta").load(bag.history.target(TABLE))
    found = [row.asDict(recursive=True) for row in frame.collect()]
    without = [{**row, "t": None} for row in found]
    assert Counter(map(_held, without)) == Counter(_model({**row, "t": None}) for row in left)
    assert any(row["t"] for row in found), "its values stay"
