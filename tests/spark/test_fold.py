"""The fold as DataFrames against the fold in plain Python, over random histories."""

from __future__ import annotations

import copy
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from devtools.simulation import fold_model
from devtools.simulation.fold_model import Change, Key, State
from tests.fixtures.parts import Row
from tests.spark.random_source import SCHEMA, VALUES, RandomSource, interleave, truth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARDS = 120
CHANGES = 1_000
NO_SHRINKING = settings(
    max_examples=3,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)


@NO_SHRINKING
@given(seed=st.integers(0, 2**32), truncated=st.booleans(), floored=st.booleans())
def test_frames_and_model_agree_and_rebuild_the_source(
    spark: SparkSession, seed: int, truncated: bool, floored: bool
) -> None:
    random = Random(seed)
    sources = [RandomSource(shard, random) for shard in range(SHARDS)]
    for source in sources:
        source.fill()
    target: dict[Key, Any] = dict(truth(sources).items())
    log: list[Row | None] = [*interleave(sources, random, CHANGES)]
    if truncated:
        log.append(None)
        for source in sources:
            source.rows.clear()
        target.clear()
        for source in sources:
            log += source.fill()
        log += interleave(sources, random, CHANGES)
    changes = [(seq, row) for seq, row in enumerate(log, 1) if row is not None]
    truncates = [seq for seq, row in enumerate(log, 1) if row is None]
    delete_before = random.randint(0, len(log)) if floored else None

    expected = fold_model.fold(
        [_change(seq, row) for seq, row in changes],
        VALUES,
        truncates=truncates,
        delete_before=delete_before,
    )
    found = _folded(spark, changes, truncates, delete_before)
    assert found == expected
    if delete_before is None:
        assert _applied(target, expected) == truth(sources)


def test_a_swap_through_a_spare_key_takes_each_value_from_its_own_row(
    spark: SparkSession,
) -> None:
    changes = [
        (1, _move(1, 5)),
        (2, _move(2, 1)),
        (3, _move(5, 2)),
    ]
    found = _folded(spark, changes, [], None)
    assert {key: state.origin for key, state in found.items() if not state.gone} == {
        (0, 1): (0, 2),
        (0, 2): (0, 1),
    }
    assert found[0, 5].gone


@pytest.mark.parametrize(("hops", "known"), [(1, False), (2, True)])
def test_a_chain_longer_than_the_hops_is_missing_not_null(
    spark: SparkSession, hops: int, known: bool
) -> None:
    changes = [(1, _move(1, 2)), (2, _move(2, 3)), (3, _move(3, 4))]
    found = _folded(spark, changes, [], None, hops=hops + 1 if known else hops)
    state = found[0, 4]
    assert state.absent == set(VALUES)
    assert (state.origin == (0, 1)) is known


def test_without_moves_and_gaps_the_newest_row_wins(spark: SparkSession) -> None:
    log = [_plain("c", 1, "x"), _plain("u", 1, "y"), _plain("c", 2, "z"), _plain("d", 2, None)]
    found = _folded(spark, list(enumerate(log, 1)), [], None)
    assert found[0, 1].values["a"] == ("y", None)
    assert (found[0, 2].gone, found[0, 2].seq) == (True, 4)


def test_a_new_table_lies_in_ranges_of_its_key(spark: SparkSession) -> None:
    """A file of it holds a range of keys, so that bounds of keys spare reading the others."""
    from pyspark.sql import functions as F

    from tideline_spark.fold import Shape, fold

    log = list(enumerate([_plain("c", key, "x") for key in range(1_000)], 1))
    joins = "spark.sql.adaptive.coalescePartitions.enabled"
    spark.conf.set(joins, "false")
    try:
        rows = fold(_frame(spark, log), Shape(SCHEMA, ranged=True))
        found = (
            rows.groupBy(F.spark_partition_id().alias("range"))
            .agg(F.min("id").alias("low"), F.max("id").alias("high"), F.count("*").alias("rows"))
            .orderBy("low")
            .collect()
        )
    finally:
        spark.conf.unset(joins)
    assert sum(row["rows"] for row in found) == 1_000
    assert len(found) > 1
    assert all(one["high"] < next_one["low"] for one, next_one in pairwise(found))


def _plain(op: str, key: int, a: str | None) -> Row:
    return Row("public.shards", op, {"shard": 0, "id": key, "a": a, "b": 1, "c": None})


def _move(before: int, key: int) -> Row:
    values = {"shard": 0, "id": key}
    return Row("public.shards", "u", values, before={"id": before}, unchanged=VALUES)


def _change(seq: int, row: Row) -> Change:
    carried = [name for name in VALUES if name not in row.unchanged and row.op != "d"]
    before = None if row.before is None else (row.values["shard"], row.before["id"])
    return Change(
        seq=seq,
        op=row.op,
        key=(row.values["shard"], row.values["id"]),
        values={name: (row.values.get(name), row.overflow.get(name)) for name in carried},
        before=before,
    )


def _folded(
    spark: SparkSession,
    changes: list[tuple[int, Row]],
    truncates: list[int],
    delete_before: int | None,
    *,
    hops: int = 64,
) -> dict[Key, State]:
    from tideline_spark.fold import Shape, fold

    lacking = {name for _, row in changes for name in row.unchanged}
    shape = Shape(
        schema=SCHEMA,
        moved=any(row.before for _, row in changes),
        fillable=tuple(name for name in VALUES if name in lacking),
        truncate=max(truncates, default=None),
        delete_before=delete_before,
        hops=min(hops, _longest_chain(changes)),
    )
    rows = fold(_frame(spark, changes), shape).collect()
    states: dict[Key, State] = {
        (row["shard"], row["id"]): _state(row.asDict(recursive=True)) for row in rows
    }
    assert len(states) == len(rows), "a key came out twice"
    return states


def _state(row: dict[str, Any]) -> State:
    key = (row["shard"], row["id"])
    if row["_tl_gone"]:
        return State(row["_tl_seq"], True, {}, None, frozenset())
    unknown, missing = row.get("_tl_unknown") or [], row.get("_tl_missing") or []
    absent = frozenset([*unknown, *missing])
    origin = row.get("_tl_from")
    source = key if origin is None else (origin["shard"], origin["id"])
    texts = row["_tl_overflow"] or {}
    return State(
        seq=row["_tl_seq"],
        gone=False,
        values={n: (row[n], texts.get(n)) for n in VALUES if n not in absent},
        origin=source if unknown else None,
        absent=absent,
    )


def _frame(spark: SparkSession, changes: list[tuple[int, Row]]) -> DataFrame:
    from pyspark.sql import types

    from tideline_spark.schemas import STRING_LIST, STRING_MAP, spark_type

    named = {column.name: spark_type(column.logical) for column in SCHEMA.columns}
    fields = {
        **named,
        "_tl_seq": types.LongType(),
        "_tl_op": types.StringType(),
        "_tl_ts": types.TimestampType(),
        "_tl_unchanged": STRING_LIST,
        "_tl_overflow": STRING_MAP,
        "_tl_before_shard": types.IntegerType(),
        "_tl_before_id": types.LongType(),
    }
    shape = types.StructType([types.StructField(name, kind) for name, kind in fields.items()])
    rows = []
    for seq, row in changes:
        before = row.before or {}
        own = [seq, row.op, None, list(row.unchanged) or None, dict(row.overflow) or None]
        values = [row.values.get(name) for name in named]
        rows.append((*values, *own, before.get("shard"), before.get("id")))
    return spark.createDataFrame(rows, shape).repartition(3)


def _longest_chain(changes: list[tuple[int, Row]]) -> int:
    """The most moves that one row made."""
    moves: dict[Key, int] = {}
    for _, row in changes:
        if row.before is not None:
            shard = row.values["shard"]
            moves[shard, row.values["id"]] = moves.pop((shard, row.before["id"]), 0) + 1
    return max(moves.values(), default=0)


def _applied(target: dict[Key, Any], states: dict[Key, State]) -> dict[Key, Any]:
    """What a MERGE of ``states`` makes of ``target``."""
    after = copy.deepcopy(target)
    for key, state in states.items():
        if state.gone:
            after.pop(key, None)
            continue
        row = dict(state.values)
        for name in state.absent:
            assert state.origin is not None
            row[name] = target[state.origin][name]
        after[key] = row
    return after
