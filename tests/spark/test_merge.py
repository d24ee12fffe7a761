"""Merges, end to end: parts and manifests in a store, planned, run by Spark, read back."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.spark import random_source
from tests.spark.orders import (
    ORDERS,
    applied,
    content,
    merged_at_once,
    moved,
    only,
    order,
    pending,
    run,
    touched,
)
from tests.spark.random_source import RandomSource, interleave, truth
from tideline.contract.receipt import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_empty_table_of_the_source_exists_in_the_warehouse(
    history: History, spark: SparkSession
) -> None:
    assert applied(history, spark).applied_manifest == 1
    frame = spark.read.format("delta").load(history.target(ORDERS))
    names = ["id", "status", "note", "_tl_seq", "_tl_ts", "_tl_overflow", "_tl_pending"]
    assert frame.columns == names
    assert frame.count() == 0
    assert history.plan().tables == ()


def test_changes_are_merged_and_the_receipt_counts_them(
    history: History, spark: SparkSession
) -> None:
    history.commit(*(order("c", key, "new", f"n{key}") for key in range(1, 6)), parts_per_table=2)
    created = applied(history, spark)
    assert (created.inserted, created.rows_read) == (5, 5)
    history.commit(
        order("u", 1, "paid", "n1"),
        order("u", 1, "sent", "n1"),
        order("d", 2),
        order("c", 9, "new", "n9"),
        order("c", 10, "new", "n10"),
        order("d", 10),
        order("d", 3),
        order("c", 3, "again"),
    )
    merged = applied(history, spark)
    assert (merged.inserted, merged.updated, merged.deleted) == (1, 2, 1)
    assert (merged.applied_manifest, merged.applied_seq) == (3, history.last_seq)
    assert merged.rows_read == 8
    assert content(history, spark) == {
        1: ("sent", "n1"),
        3: ("again", None),
        4: ("new", "n4"),
        5: ("new", "n5"),
        9: ("new", "n9"),
    }


def test_nobody_asks_for_the_files_of_the_version_that_was_just_made(
    history: History, spark: SparkSession
) -> None:
    """Delta makes that list again from the whole log, as soon as someone does."""
    history.commit(order("c", 1, "new"))
    before = applied(history, spark).target_version
    history.commit(order("u", 1, "paid"))
    earlier = len(jobs(spark))
    after = applied(history, spark).target_version
    made = jobs(spark)[earlier:]
    assert any(f"Compute snapshot for version: {before})" in words for words in made), made
    assert not any(f"Compute snapshot for version: {after})" in words for words in made), made


def jobs(spark: SparkSession) -> list[str]:
    """What every job of the application said it was for."""
    assert spark._jsc is not None
    context = spark._jsc.sc()
    context.listenerBus().waitUntilEmpty(120_000)
    found = context.statusStore().jobsList(None)
    listed = [found.apply(number) for number in range(found.size())]
    words = {job.jobId(): str(job.description()) for job in listed}
    return [words.get(number, "forgotten") for number in range(max(words, default=-1) + 1)]


def test_the_same_plan_twice_applies_once(history: History, spark: SparkSession) -> None:
    history.commit(order("c", 1, "new"), order("c", 2, "new"))
    applied(history, spark)
    history.commit(order("d", 1), order("u", 2, "paid"))
    plan = history.plan()
    first, again = run(spark, plan), run(spark, plan)
    assert (first.outcome, again.outcome) == (Outcome.APPLIED, Outcome.ALREADY_APPLIED)
    assert again.target_version == first.target_version
    assert (again.applied_manifest, again.applied_seq) == (3, history.last_seq)
    assert content(history, spark) == {2: ("paid", None)}


def test_a_plan_that_does_not_begin_where_the_target_stands_is_refused(
    history: History, spark: SparkSession
) -> None:
    history.commit(order("c", 1, "new"))
    early = history.plan()
    applied(history, spark)
    history.commit(order("u", 1, "paid"))
    table = history.plan().tables[0]
    for wrong in (
        msgspec.structs.replace(table, from_manifest=1, from_seq=1),
        msgspec.structs.replace(
            early.tables[0], to_manifest=table.to_manifest, to_digest=table.to_digest
        ),
    ):
        refused = run(spark, msgspec.structs.replace(early, tables=(wrong,)))
        assert refused.outcome is Outcome.REFUSED
        assert "stands at manifest 2" in (refused.error or "")
    assert content(history, spark) == {1: ("new", None)}


@pytest.mark.timeout(1_200)
def test_two_merges_of_one_table_at_once(history: History, spark: SparkSession) -> None:
    for expected, row in (
        ({1: ("new", None)}, order("c", 1, "new")),
        ({1: ("paid", None)}, order("u", 1, "paid")),
    ):
        history.commit(row)
        found = merged_at_once(history, spark)
        assert sorted(receipt.outcome.value for receipt in found) == ["already_applied", "applied"]
        assert content(history, spark) == expected


def test_values_that_the_log_does_not_carry_come_from_the_target(
    history: History, spark: SparkSession
) -> None:
    history.commit(*(order("c", key, "new", f"long {key}") for key in range(1, 8)))
    applied(history, spark)
    history.commit(
        touched(1, "paid"),
        moved(2, 20, "moved"),
        # 3 and 4 swap, through 30.
        moved(3, 30, "s3"),
        moved(4, 3, "s4"),
        moved(30, 4, "s3"),
        # A value that came within the range goes along.
        order("u", 5, "x", "newer 5"),
        moved(5, 50, "y"),
        touched(50, "z"),
        # Deleted and inserted again: the old value must not come back.
        order("d", 6),
        order("c", 6, "again"),
        touched(6, "again, touched"),
    )
    receipt = applied(history, spark)
    assert receipt.pending == 0
    assert content(history, spark) == {
        1: ("paid", "long 1"),
        20: ("moved", "long 2"),
        3: ("s4", "long 4"),
        4: ("s3", "long 3"),
        50: ("z", "newer 5"),
        6: ("again, touched", None),
        7: ("new", "long 7"),
    }
    assert pending(history, spark) == {}


def test_what_stays_unknown_is_pending_until_a_dump_brings_it(
    history: History, spark: SparkSession
) -> None:
    history.commit(touched(1, "new"), moved(2, 3, "new"))
    assert applied(history, spark).pending == 2
    assert pending(history, spark) == {1: ["note"], 3: ["note"]}
    # A row that was touched again, or moved, stays pending.
    history.commit(touched(1, "paid"), moved(3, 4, "paid"), touched(9, "late"))
    assert applied(history, spark).pending == 3
    assert pending(history, spark) == {1: ["note"], 4: ["note"], 9: ["note"]}
    history.commit(
        order("r", 1, "paid", "from the dump"),
        order("r", 4, note="partial", unchanged=("status",)),
        order("u", 9, "late", "from the log"),
    )
    assert applied(history, spark).pending == 0
    assert content(history, spark) == {
        1: ("paid", "from the dump"),
        4: ("paid", "partial"),
        9: ("late", "from the log"),
    }
    assert pending(history, spark) == {}


def test_overflow_texts_follow_their_columns(history: History, spark: SparkSession) -> None:
    texts = {"note": "infinity", "status": "NaN"}
    history.commit(order("c", 1, overflow=texts), order("c", 2, overflow=texts))
    applied(history, spark)
    history.commit(touched(1, "paid"), moved(2, 3, "paid"))
    applied(history, spark)
    rows = {row["id"]: row["_tl_overflow"] for row in history.rows(spark, ORDERS)}
    assert rows == {1: {"note": "infinity"}, 3: {"note": "infinity"}}


def test_a_truncate_empties_and_nothing_is_filled_across_it(
    history: History, spark: SparkSession
) -> None:
    history.commit(*(order("c", key, "new", "old") for key in (1, 2, 3)))
    applied(history, spark)
    history.commit(order("u", 1, "paid", "old"), Emptied(ORDERS), order("c", 2, "new"))
    receipt = applied(history, spark)
    assert (receipt.deleted, receipt.updated) == (2, 1)
    assert content(history, spark) == {2: ("new", None)}
    history.commit(Emptied(ORDERS), touched(2, "odd"))
    applied(history, spark)
    assert content(history, spark) == {2: ("odd", None)}
    assert pending(history, spark) == {2: ["note"]}


def test_a_full_dump_deletes_what_the_source_no_longer_has(
    history: History, spark: SparkSession
) -> None:
    history.commit(*(order("c", key, "new") for key in range(1, 6)))
    applied(history, spark)
    low = history.last_seq
    history.commit(order("r", 1, "new"), order("r", 2, "changed"))
    applied(history, spark)
    # 3 was changed after the dump began, 4 and 5 are not in the source any more.
    history.commit(order("u", 3, "paid"), deletes_before=[(ORDERS, low)])
    receipt = applied(history, spark)
    assert (receipt.updated, receipt.deleted) == (1, 2)
    assert content(history, spark) == {1: ("new", None), 2: ("changed", None), 3: ("paid", None)}


def test_rows_of_the_range_below_the_floor_are_dropped(
    history: History, spark: SparkSession
) -> None:
    history.commit(order("c", 1, "new"), order("c", 2, "new"))
    low = history.last_seq
    history.commit(order("r", 1, "new"), deletes_before=[(ORDERS, low)])
    assert applied(history, spark).inserted == 1
    assert content(history, spark) == {1: ("new", None)}


def test_one_table_that_fails_stops_no_other(history: History, spark: SparkSession) -> None:
    other = "public.other"
    history.commit(Shaped(schema_of(other, {"id": "int64"}, ["id"])))
    manifest = history.commit(order("c", 1, "new"), Row(other, "c", {"id": 1}))
    torn = next(part for part in manifest.parts if part.table == ORDERS)
    whole = history.part_path(torn.key).read_bytes()
    history.part_path(torn.key).write_bytes(whole[: len(whole) // 2])
    receipts = {receipt.table: receipt for receipt in history.merge(spark).tables}
    assert receipts[other].outcome is Outcome.APPLIED
    failed = receipts[ORDERS]
    assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, "CorruptData")
    assert failed.hint is not None
    history.part_path(torn.key).unlink()
    missing = only(history.merge(spark))
    assert (missing.outcome, missing.error_kind) == (Outcome.FAILED, "CorruptData")
    history.part_path(torn.key).write_bytes(whole)
    assert applied(history, spark).inserted == 1


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 3, "operations": {"c": 3}},
        {"operations": {"u": 2}},
        {"last_seq": 4},
        {"unchanged_rows": 1},
        {"before_rows": 1},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_part_that_differs_from_its_manifest_is_not_merged(
    history: History, spark: SparkSession, change: dict[str, Any]
) -> None:
    history.commit(order("c", 1, "secret value"), order("c", 2, "secret value"))
    plan = history.plan()
    table = plan.tables[0]
    lying = msgspec.structs.replace(table.parts[0], **change)
    table = msgspec.structs.replace(table, parts=(lying,))
    receipt = run(spark, msgspec.structs.replace(plan, tables=(table,)))
    assert (receipt.outcome, receipt.error_kind) == (Outcome.FAILED, "CorruptData")
    assert lying.key in (receipt.error or "")
    assert "secret" not in (receipt.error or "")
    assert not Path(history.root / "warehouse" / "public" / "orders").exists()


@pytest.mark.timeout(1_200)
def test_random_sources_are_rebuilt(tmp_path: Path, spark: SparkSession) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    random = Random(seed)
    sources = [RandomSource(shard, random) for shard in range(100)]
    history = History(tmp_path)
    history.commit(Shaped(random_source.SCHEMA))
    history.commit(*(row for source in sources for row in source.fill()))
    for manifests in (0, 3, 2):
        for _ in range(manifests):
            history.commit(*interleave(sources, random, 300), parts_per_table=2)
        receipt = applied(history, spark)
        found = {
            (row["shard"], row["id"]): {
                name: (row[name], (row["_tl_overflow"] or {}).get(name))
                for name in random_source.VALUES
            }
            for row in history.rows(spark, random_source.TABLE)
            if row["_tl_pending"] is None
        }
        expected = truth(sources)
        late = expected.keys() - found.keys()
        assert receipt.pending == len(late)
        assert {key: expected[key] for key in found} == found
        # Only a row that moved more often within one plan than is followed may be pending.
        assert len(late) < len(expected) / 10
