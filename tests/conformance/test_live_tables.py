# ruff: noqa: S608  statements are made of constants
"""What the settings say of a table counts while the worker runs, on every source; and a setting
that needs a restart is named."""

from __future__ import annotations

import io
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.fixtures.capture import QUICK, Pipeline, PipelineFactory, poll
from tests.fixtures.sources import EVERY_SOURCE, ConformingSource
from tideline.contract.manifest import ManifestKind
from tideline.contract.open_state import OpenState, TableCondition
from tideline.store.objects import open_store
from tideline_console.status import read_status
from tideline_console.status.text import print_status

CHOSEN = {
    "*.bag": {"keyless": "counted"},
    "*.named": {"key": ["b"]},
    "*.logged": {"mode": "append"},
    "*.items": {"before_image": "full"},
}
KEYLESS = ("bag", "named", "logged")


def rows_of(pipeline: Pipeline[Any], table: str) -> list[dict[str, Any]]:
    """The changes of a table, as the parts hold them."""
    store = open_store(pipeline.settings.store)
    keys = [part.key for m in pipeline.manifests() for part in m.parts if part.table == table]
    return [row for k in keys for row in pq.read_table(io.BytesIO(store.get(k) or b"")).to_pylist()]


def test_all_settings_of_tables_take_effect_live(
    conforming: ConformingSource, pipeline_of: PipelineFactory
) -> None:
    """Tables that were quarantined are captured, and dumped, and one that was captured has more."""
    is_postgres = "postgres" in conforming.source["url"]
    for name in KEYLESS:
        conforming.run(f"CREATE TABLE {name} (a INT, b INT NOT NULL)")
        conforming.run(f"INSERT INTO {name} VALUES (1, 1), (1, 2)")
    conforming.run("CREATE UNIQUE INDEX named_key ON named (b)")
    conforming.make("items")
    conforming.fill("items", 1, 3)
    if is_postgres:
        for name in (*KEYLESS, "items"):
            conforming.run(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    tables = {name: conforming.full_name(name) for name in (*KEYLESS, "items")}

    def settled(state: OpenState, condition: TableCondition) -> bool:
        known = [state.tables[tables[name]] for name in KEYLESS if tables[name] in state.tables]
        found = {one.condition for one in known}
        return len(known) == len(KEYLESS) and found == {condition} and not state.requests

    pipeline = pipeline_of(conforming)
    worker = pipeline.start()
    pipeline.wait_state("they are quarantined", lambda s: settled(s, TableCondition.QUARANTINED))
    conforming.run("UPDATE items SET ver = 5 WHERE id = 1")
    pipeline_of(conforming, tables=CHOSEN)
    pipeline.wait_state("they are captured", lambda s: settled(s, TableCondition.ACTIVE))
    for name in KEYLESS:
        conforming.run(f"UPDATE {name} SET a = 7 WHERE b = 2")
    conforming.run("UPDATE items SET ver = 6 WHERE id = 1")
    pipeline.finish(worker)

    assert pipeline.chain.read_schema(str(pipeline.table(tables["named"]).schema)).key == ("b",)
    for name in KEYLESS:
        rows = rows_of(pipeline, tables[name])
        assert [row["_tl_op"] for row in rows] == ["r", "r", "u"], name
        assert (rows[-1]["a"], rows[-1]["b"]) == (7, 2)
    bag = rows_of(pipeline, tables["bag"])[-1]
    assert (bag["_tl_image"], bag["_tl_before_a"], bag["_tl_before_b"]) == (True, 1, 2)
    before, after = (row for row in rows_of(pipeline, tables["items"]) if row["_tl_op"] == "u")
    assert "_tl_image" not in before
    assert (after["_tl_image"], after["_tl_before_ver"]) == (True, 5)
    kinds = {manifest.kind for manifest in pipeline.manifests()}
    assert ManifestKind.TAKEOVER not in kinds, "another worker has begun"


@pytest.mark.parametrize("conforming", EVERY_SOURCE, indirect=True)
def test_a_setting_that_needs_a_restart_is_named(
    conforming: ConformingSource, pipeline_of: PipelineFactory, capsys: Any
) -> None:
    """By key, never by value; and no more once the file says what it said before."""
    conforming.make("items")
    pipeline = pipeline_of(conforming)
    worker = pipeline.start()
    waiting = pipeline.start()

    def named() -> set[tuple[int, tuple[str, ...]]]:
        found = read_status(pipeline.settings).workers
        return {(one.pid, one.restart_for) for one in found}

    both = {worker.pid, waiting.pid}
    poll("both are there", lambda: {pid for pid, _ in named()} == both)
    changed = {**QUICK, "heartbeat_s": 0.77123, "chunk_rows": 17}
    pipeline_of(conforming, capture=changed, control={"answer_ttl_s": 4321.5})
    keys = ("control.answer_ttl_s", "capture.heartbeat_s")
    poll("they are named", lambda: named() == {(pid, keys) for pid in both})
    print_status(read_status(pipeline.settings))
    shown = capsys.readouterr().out
    assert "restart it, for control.answer_ttl_s, capture.heartbeat_s" in shown
    for one in (worker, waiting):
        one.wait_output("restart the worker")
        logged = one.output()
        assert "capture.heartbeat_s" in logged and "chunk_rows" not in logged
        assert "77123" not in logged + shown and "4321.5" not in logged + shown
    pipeline_of(conforming)
    poll("nothing is named any more", lambda: named() == {(pid, ()) for pid in both})
    waiting.terminate()
    worker.terminate()


def test_what_is_done_about_changes_of_columns_takes_effect_live(
    conforming: ConformingSource, pipeline_of: PipelineFactory
) -> None:
    """A table that is blocked before a change is dumped once the settings say so, and the next one
    at once; set back, it is blocked again. No worker is restarted."""
    is_postgres = "postgres" in conforming.source["url"]
    kinds, change = ("VARCHAR(20)", "BLOB", "VARCHAR(40)"), "MODIFY ver"
    if is_postgres:
        kinds = ("text", "bytea USING ver::bytea", "text USING encode(ver, 'hex')")
        change = "ALTER COLUMN ver TYPE"
    conforming.make("items")
    conforming.fill("items", 1, 3)
    table = conforming.full_name("items")

    def stands(state: OpenState, condition: TableCondition, generation: int) -> bool:
        found = state.tables.get(table)
        return (
            found is not None
            and (found.condition, found.generation) == (condition, generation)
            and not state.requests
        )

    def retype(kind: str) -> None:
        touched = "UPDATE items SET t = 'touched' WHERE id = 1"
        conforming.run(f"ALTER TABLE items {change} {kind}", touched)

    def follow(word: str) -> None:
        """Return once the worker goes by it."""
        reported = "the settings changed"
        before = worker.output().count(reported)
        pipeline_of(conforming, tables={"*.items": {"on_change": {"retype": word}}})
        poll("the worker has read it", lambda: worker.output().count(reported) > before)

    pipeline = pipeline_of(conforming)
    worker = pipeline.start()
    live, blocked = TableCondition.ACTIVE, TableCondition.SCHEMA_BLOCKED
    pipeline.wait_state("it is dumped", lambda s: stands(s, live, 0))
    retype(kinds[0])
    pipeline.wait_state("it is blocked", lambda s: stands(s, blocked, 0))
    follow("apply")
    pipeline.wait_state("it is dumped for that", lambda s: stands(s, live, 1))
    retype(kinds[1])
    pipeline.wait_state("it is dumped at once", lambda s: stands(s, live, 2))
    follow("park")
    retype(kinds[2])
    pipeline.wait_state("it is blocked again", lambda s: stands(s, blocked, 2))
    worker.terminate()
    written = {manifest.kind for manifest in pipeline.manifests()}
    assert ManifestKind.TAKEOVER not in written, "another worker has begun"
