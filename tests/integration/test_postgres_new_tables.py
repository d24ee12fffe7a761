"""Tables that come to be while a pipeline runs, in a publication of their schema: the stream has
their rows at once."""

from __future__ import annotations

import pytest

from tests.conformance.test_live_tables import rows_of
from tests.fixtures.capture import PipelineFactory
from tests.fixtures.services import Database
from tideline_capture.sources.postgres.publication import OPTIONS

NAME = "public.fresh"


@pytest.mark.parametrize("initial", ["dump", "log-only"])
def test_rows_right_after_their_table_was_made_are_captured(
    database: Database, pipeline_of: PipelineFactory, initial: str
) -> None:
    """With the first of them; whether there were others before, the log does not say. So it is
    dumped, where that is wanted."""
    database.run(
        "CREATE TABLE old (id int PRIMARY KEY, v int)",
        f"CREATE PUBLICATION whole FOR TABLES IN SCHEMA public WITH ({OPTIONS})",
    )
    source = {"initial": initial, "publication": "whole", "exclude": ["*.private"]}
    pipeline = pipeline_of(database, source=source, capture={"catalog_interval_s": 5.0})
    worker = pipeline.start()
    pipeline.wait_state("it looks", lambda state: "public.old" in state.tables)
    database.run(
        "CREATE TABLE fresh (id int PRIMARY KEY, v int)",
        "CREATE TABLE private (id int PRIMARY KEY, v int)",
        "INSERT INTO fresh VALUES (1, 10), (2, 20)",
        "INSERT INTO private VALUES (1, 10)",
        "UPDATE fresh SET v = 11 WHERE id = 1",
    )
    pipeline.finish(worker)
    rows = [(row["_tl_op"], row["id"], row["v"]) for row in rows_of(pipeline, NAME)]
    assert [one for one in rows if one[0] != "r"] == [("c", 1, 10), ("c", 2, 20), ("u", 1, 11)]
    assert ("r", 1, 11) in rows or initial == "log-only"
    assert rows_of(pipeline, "public.private") == []
    state = pipeline.table(NAME)
    assert state.captured_from is not None and not state.captured_from.created
    assert (state.complete_seq is None) == (initial == "log-only")
