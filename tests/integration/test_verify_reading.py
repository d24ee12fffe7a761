"""What a verification reads, from real sources: every row once, in order, whatever is killed."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from tests.fixtures.capture import PipelineFactory
from tests.fixtures.sources import ConformingSource
from tideline.contract.manifest import VerificationChunk, digest
from tideline.contract.request import DumpRequest, KeyRange, RequestState
from tideline.settings import Store
from tideline.store.objects import open_store

ROWS = 60


@pytest.mark.timeout(240)
def test_killed_readings_go_on(conforming: ConformingSource, pipeline_of: PipelineFactory) -> None:
    conforming.make("t")
    conforming.fill("t", 1, ROWS)
    table = conforming.full_name("t")
    pipeline = pipeline_of(conforming, capture={"chunk_rows": 20})
    pipeline.drain()
    before = pipeline.manifest().last_seq
    state = pipeline.table(table)
    control_client = pipeline.control_client()
    control_client.ask(DumpRequest("whole", (table,), purpose="verify"))
    for point in ("before-verification-put:1", "after-verification-put:1", "between-chunks:2"):
        worker = pipeline.start(kill=point)
        assert worker.wait() == -9, worker.output()[-2000:]
    worker = pipeline.start()
    whole = DumpRequest("whole", (table,), purpose="verify")
    answer = pipeline.ask(whole)
    assert (answer.state, answer.tables[0].rows) == (RequestState.DONE, ROWS)
    some = pipeline.ask(
        DumpRequest(
            "some", (table,), purpose="verify", keys=(("7",), ("1000",), ("9",)), priority=5
        )
    )
    part = pipeline.ask(
        DumpRequest("part", (table,), purpose="verify", key_range=KeyRange(("10",), ("40",)))
    )
    sample = pipeline.ask(DumpRequest("sample", (table,), purpose="verify", sample_percent=1))
    states = {one.state for one in (some, part, sample)}
    worker.terminate()
    assert states == {RequestState.DONE}

    manifests = pipeline.manifests()
    chunks = [one for manifest in manifests for one in manifest.verification_chunks]
    read = {name: [one for one in chunks if one.request_id == name] for name in ("whole", "part")}
    for name, first, last in (("whole", 1, ROWS), ("part", 10, 39)):
        assert [chunk.chunk for chunk in read[name]] == list(range(len(read[name])))
        assert [chunk.complete for chunk in read[name]][-1]
        keys = [key for chunk in read[name] for key, _ in rows_of(pipeline.settings.store, chunk)]
        assert keys == list(range(first, last + 1))
        for earlier, later in zip(read[name], read[name][1:], strict=False):
            assert later.after_key == earlier.last_key
    [keyed] = [one for one in chunks if one.request_id == "some"]
    assert sorted(rows_of(pipeline.settings.store, keyed)) == [(7, "r"), (9, "r"), (1000, "d")]
    skipped = [one for one in chunks if one.request_id == "sample"]
    assert [chunk.last_key for chunk in skipped if chunk.skipped and chunk.last_key] == [
        ("20",),
        ("40",),
        ("60",),
    ]
    # Nothing of the table, its rows or its numbers has changed by that.
    assert pipeline.table(table) == state
    assert manifests[-1].last_seq == before
    assert not any(
        manifest.deletes_before for manifest in manifests if manifest.verification_chunks
    )


def rows_of(settings: Store, chunk: VerificationChunk) -> list[tuple[int, str]]:
    """Key and operation of every row of a verification part; it is what its manifest says."""
    if chunk.key is None:
        return []
    data = open_store(settings).get(chunk.key)
    assert data is not None
    assert (len(data), digest(data)) == (chunk.bytes, chunk.digest)
    table = pq.read_table(io.BytesIO(data), use_threads=False)
    assert table.num_rows == chunk.rows
    assert set(table.column("_tl_low").to_pylist()) == {chunk.low_seq}
    return list(
        zip(table.column("id").to_pylist(), table.column("_tl_op").to_pylist(), strict=True)
    )
