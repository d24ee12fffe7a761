# ruff: noqa: S608  statements are made of constants and our own names
"""Tables that are new while a pipeline runs: from where on their changes are captured, and that the
pipeline says so. Where the log has their creation, that is from their first row on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.test_live_tables import rows_of
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.settings import Section
from tests.fixtures.sources import EVERY_SOURCE, SOURCES, ConformingSource
from tideline_console.status import read_status
from tideline_console.status.text import print_status
from tideline_console.tables import moment

WITH_DDL = tuple(name for name in SOURCES if name != "postgres")
LOG_ONLY: Section = {"initial": "log-only"}
MADE = {
    "plain": ("CREATE TABLE plain (id INT PRIMARY KEY, v INT)",),
    "perhaps": ("CREATE TABLE IF NOT EXISTS perhaps (id INT PRIMARY KEY, v INT)",),
    "copied": ("CREATE TABLE copied LIKE old",),
    "altered": (
        "CREATE TABLE altered (id INT PRIMARY KEY)",
        "ALTER TABLE altered ADD COLUMN v INT",
    ),
    "twice": (
        "CREATE TABLE twice (id INT PRIMARY KEY, gone TEXT)",
        "DROP TABLE twice",
        "CREATE TABLE twice (id INT PRIMARY KEY, v INT)",
    ),
    "short": ("CREATE TABLE short (id INT PRIMARY KEY, v INT)",),
}
"""By table, what makes it; ``short`` is dropped again."""


def ops(pipeline: Pipeline[Any], table: str) -> list[tuple[str, int | None, Any]]:
    """Operation, key and ``v`` of each change of a table, as the parts hold them."""
    return [(row["_tl_op"], row["id"], row.get("v")) for row in rows_of(pipeline, table)]


def make_all(source: ConformingSource) -> None:
    """Each table of `MADE` with two rows at once, and then changes of them all."""
    for name, statements in MADE.items():
        source.run(*statements, f"INSERT INTO {name} (id, v) VALUES (1, 10), (2, 20)")
    for name in MADE:
        source.run(f"UPDATE {name} SET v = 11 WHERE id = 1", f"DELETE FROM {name} WHERE id = 2")
    source.run("DROP TABLE short")


HAPPENED = [("c", 1, 10), ("c", 2, 20), ("u", 1, 11), ("d", 2, None)]


@pytest.mark.parametrize("conforming", WITH_DDL, indirect=True)
@pytest.mark.parametrize(("initial", "away"), [("log-only", False), ("dump", True)])
def test_rows_right_after_their_table_was_made_are_captured(
    conforming: ConformingSource, pipeline_of: PipelineFactory, initial: str, away: bool
) -> None:
    """Where the log has DDL: while the worker reads it, and when it was away. Such a table was
    empty, so it is not dumped; but where IF NOT EXISTS may have met one that no worker saw."""
    conforming.run("CREATE TABLE old (id INT PRIMARY KEY, v INT)")
    pipeline = pipeline_of(conforming, source={"initial": initial})
    if away:
        pipeline.drain()
        make_all(conforming)
        pipeline.drain()
    else:
        worker = pipeline.start()
        pipeline.wait_state("it looks", lambda s: conforming.full_name("old") in s.tables)
        make_all(conforming)
        pipeline.finish(worker)
    for name in MADE:
        changes = ops(pipeline, conforming.full_name(name))
        assert [one for one in changes if one[0] != "r"] == HAPPENED, name
        begun = pipeline.table(conforming.full_name(name)).captured_from
        assert begun is not None
        certain = name != "perhaps" or not away
        assert (begun.created, changes == HAPPENED) == (certain, certain), name


@pytest.mark.parametrize("conforming", EVERY_SOURCE, indirect=True)
def test_log_only_says_from_where_on(
    conforming: ConformingSource, pipeline_of: PipelineFactory, capsys: Any
) -> None:
    """Of a table that was there, one that comes while the worker runs, and one that is included
    later: in the worker's log and in the status, by sequence and by the source's clock. What was
    committed after that is captured."""
    names = ("old", "later", "new")
    old, later, new = (conforming.full_name(name) for name in names)
    for name in names[:2]:
        conforming.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
        conforming.run(f"INSERT INTO {name} VALUES (1, 0)")
    section = {**LOG_ONLY, "exclude": ["*.later"]}
    pipeline = pipeline_of(conforming, source=section)
    worker = pipeline.start()
    pipeline.wait_state("it looks", lambda state: old in state.tables)
    conforming.run("CREATE TABLE new (id INT PRIMARY KEY, v INT)")
    pipeline.wait_state("it looks again", lambda state: new in state.tables)
    conforming.run(
        "UPDATE old SET v = 1", "INSERT INTO new VALUES (1, 0)", "UPDATE later SET v = 1"
    )
    pipeline.catch_up(worker)
    pipeline_of(conforming, source=LOG_ONLY)
    included = pipeline.wait_state("it is included", lambda state: later in state.tables)
    conforming.run("UPDATE later SET v = 2")
    pipeline.finish(worker)

    assert ops(pipeline, old) == [("u", 1, 1)]
    assert ops(pipeline, new) == [("c", 1, 0)]
    assert ops(pipeline, later) == [("u", 1, 2)]
    status = read_status(pipeline.settings)
    print_status(status)
    shown, logged = capsys.readouterr().out, worker.output()
    in_log = "postgres" not in conforming.source["url"]
    for one in status.tables:
        begun = one.captured_from
        assert begun is not None and begun.source_time_us is not None, one.table
        assert begun.earlier_rows == ("none" if in_log and one.table == new else "missing")
        assert min(row["_tl_seq"] for row in rows_of(pipeline, one.table)) >= begun.seq
        at = f"seq {begun.seq} (source time {moment(begun.source_time_us)})"
        assert f"{one.table} is captured from {at} on; " in shown
        lines = [line for line in logged.splitlines() if "captures a table" in line]
        assert [line for line in lines if one.table in line and f"{begun.seq}" in line]
    assert f"`tideline dump {old}` brings them" in shown
    since = included.tables[later].captured_from
    assert since is not None and since.source_time_us is not None
    assert since.source_time_us > (pipeline.manifests()[0].source_time_us or 0)
