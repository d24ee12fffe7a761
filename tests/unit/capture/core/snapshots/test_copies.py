"""The place of a snapshot: each change is in the copy or behind it, never both, never neither."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.fixtures.core import SCHEMA as KEYED
from tests.fixtures.core import Driver, facts_with
from tideline.contract.schema import Column, TableSchema
from tideline_capture.core.chunks import Chunk, ChunkFailed
from tideline_capture.core.events import Rows, SchemaSeen, WatermarkKind
from tideline_capture.core.facts import Snapshot, TableFacts
from tideline_capture.core.snapshots.copies import (
    SEEN_MAX,
    Probe,
    SnapshotPosition,
    snapshot_position,
)

SCHEMA = TableSchema("public.bag", (Column("a", "int32", "int"),), ())
FACTS = TableFacts(SCHEMA.table, SCHEMA, 1, "1", (), "", "", "m")
BAG = facts_with(replace(KEYED, key=()))
LOW = 100


def rows(*changes: tuple[int, int]) -> Rows:
    """Changes by sequence and transaction."""
    seqs, transactions = ([change[at] for change in changes] for at in (0, 1))
    arrays = [pa.array(seqs, pa.int64()), pa.array(transactions, pa.int64())]
    return Rows(SCHEMA, pa.RecordBatch.from_arrays(arrays, names=["_tl_seq", "_tl_tx"]))


def chunk(snapshot: Snapshot, probes: tuple[tuple[str, int], ...] | None = None) -> Chunk:
    empty = pa.RecordBatch.from_arrays([], names=[])
    return Chunk("t", FACTS, empty, (), None, None, False, snapshot, probes=probes)


def counted(place: SnapshotPosition, seqs: list[int]) -> list[int]:
    """The changes that add to a copy at ``place``."""
    seen = {seq for first, last in place.seen for seq in range(first, last + 1)}
    return [seq for seq in seqs if seq > place.seq and seq not in seen]


@pytest.mark.parametrize("seed", range(50))
def test_by_transactions(seed: int) -> None:
    """Whatever the order in which transactions became visible was."""
    rng = Random(seed)
    changes, seq = [], LOW
    for _ in range(rng.randrange(40)):
        seq += rng.randint(1, 3)  # Other tables' changes lie between.
        changes.append((seq, rng.randint(1000, 1012)))
    hidden = {tx for _, tx in changes if rng.random() < rng.choice([0.0, 0.3, 1.0])}
    ids = np.array(sorted(hidden), np.int64) + (7 << 32)
    snapshot = Snapshot((7 << 32) + 1000, (7 << 32) + 1020, tuple(int(one) for one in ids))
    cut = rng.randrange(len(changes) + 1)
    events = [rows(*part) for part in (changes[:cut], changes[cut:]) if part]
    place = snapshot_position(events, chunk(snapshot), low_seq=LOW, high_seq=seq + 5, probes=[])
    assert place is not None
    seqs = [seq for seq, _ in changes]
    assert counted(place, seqs) == [seq for seq, tx in changes if tx in hidden]
    assert LOW <= place.seq <= seq


def test_too_many_exceptions_are_no_place() -> None:
    changes = [(LOW + n, n % 2) for n in range(1, 2 * SEEN_MAX + 4)]
    snapshot = Snapshot(1, 2, (1,))
    assert (
        snapshot_position([rows(*changes)], chunk(snapshot), low_seq=LOW, high_seq=999, probes=[])
        is None
    )


@pytest.mark.parametrize("seed", range(50))
def test_between_pulses(seed: int) -> None:
    """A place that is told is right; with changes between two pulses none is."""
    rng = Random(seed)
    log = [rng.choice(["change", "pulse 0", "pulse 1", "other"]) for _ in range(rng.randrange(30))]
    cut = rng.randrange(len(log) + 1)
    seq, numbers = LOW, {"0": 0, "1": 0}
    shown: dict[str, int] = {}
    changes, probes, hidden = [], [], []
    for at, what in enumerate(log):
        if what.startswith("pulse"):
            writer = what[-1]
            numbers[writer] += 1
            probes.append(Probe(writer, numbers[writer], seq))
            if at < cut:
                shown[writer] = numbers[writer]
            continue
        seq += 1
        if what == "change":
            changes.append((seq, 1))
            if at >= cut:
                hidden.append(seq)
    events = [rows(*changes)] if changes else []
    last = chunk(Snapshot(0, 0, ()), tuple(shown.items()))
    place = snapshot_position(events, last, low_seq=LOW, high_seq=seq, probes=probes)
    before = max((at for at, what in enumerate(log[:cut]) if what[:5] == "pulse"), default=-1)
    after = min((at for at in range(cut, len(log)) if log[at][:5] == "pulse"), default=len(log))
    if "change" in log[before + 1 : after]:
        assert place is None
    else:
        assert place is not None and counted(place, [s for s, _ in changes]) == hidden


def copying(**fields: Any) -> Driver:
    """A copy whose snapshot was taken, by the chunk ``token``."""
    driver = Driver()
    driver.catalog(BAG)
    driver.dump([], facts=BAG)
    driver.ask("copy", **fields)
    driver.dump([], facts=BAG, last_key=("token", "0", "0"), complete=False)
    return driver


def test_a_copy_that_fails_again_and_again_is_tried_less_and_less_often() -> None:
    driver = copying()
    waited = []
    for _ in range(9):
        driver.now += 1000
        order = driver.core.next_order(now=driver.now)
        assert order is not None and order.after_key is not None
        failed = ChunkFailed(order.token, "its snapshot is gone", None, retry=True, restart=True)
        driver.core.on_chunk(failed, now=driver.now)
        (reported,) = driver.core.answers(now=driver.now)
        assert "starts again" in str(reported.tables[0].waiting)
        failed_at = driver.now
        while (order := driver.core.next_order(now=driver.now)) is None:
            driver.now += 0.5
        assert order.after_key is None, "from the beginning"
        waited.append(driver.now - failed_at)
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [], facts=BAG, last_key=("token", "0", "0"), complete=False)
        driver.mark(WatermarkKind.HIGH, order.token)
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize("delay_ms", [0, 3_600_000])
def test_its_snapshot_is_wanted_however_long_the_next_chunk_is_in_coming(delay_ms: int) -> None:
    driver = copying(delay_ms=delay_ms)
    assert driver.core.dumps.copies == {"token"}
    driver.now += 4000
    order = driver.order()
    assert order.after_key == ("token", "0", "0")
    assert driver.core.dumps.copies == {"token"}
    driver.core.state.pause(None, paused=True)
    driver.answer(order, [], facts=BAG, last_key=("token", "1", "0"), complete=False)
    assert driver.core.dumps.copies == {"token"}, "a chunk is still under way"
    driver.mark(WatermarkKind.LOW, order.token)
    driver.mark(WatermarkKind.HIGH, order.token)
    assert driver.core.dumps.copies == frozenset(), "a pause may last for ever"
    driver.core.state.pause(None, paused=False)
    driver.now += 4000
    driver.dump([], facts=BAG, last_key=("token", "2", "0"))
    assert driver.core.dumps.copies == frozenset(), "the copy is whole"


def test_a_table_that_gets_a_key_is_read_from_its_beginning() -> None:
    """Where its copy stood is no key: a chunk behind that could never be read."""
    driver = copying()
    driver.log(None, SchemaSeen(KEYED))
    order = driver.order()
    assert (order.keyless, order.after_key) == (False, None)
