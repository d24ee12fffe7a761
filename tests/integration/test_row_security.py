# ruff: noqa: S608  statements are made of constants and our own names
"""Row-level security: the log has every row, and a dump has them all or ends in an error."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from devtools.services.postgres import PostgresServer
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.services import Database
from tideline.contract.request import DumpRequest, RequestState
from tideline_console import doctor

ROWS = 10
TABLES = {"public.orders": {}, "public.loose": {"keyless": "counted", "mode": "append"}}


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """A role that may read what it is shown. A policy hides half of the rows, and runs a function
    that fails for this role alone."""
    name = f"capture_{uuid.uuid4().hex[:6]}"
    database.run(
        f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'pw'",
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "CREATE TABLE loose (id int, note text)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "CREATE FUNCTION theirs() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN"
        f" IF current_user = '{name}' THEN RAISE EXCEPTION 'it ran'; END IF;"
        " RETURN true; END $$",
        "CREATE PUBLICATION mine FOR TABLE orders, loose WITH (publish_via_partition_root = true)",
    )
    for table in ("orders", "loose"):
        database.run(
            f"INSERT INTO {table} SELECT g, 'note' FROM generate_series(1, {ROWS}) g",
            f"GRANT SELECT ON {table} TO {name}",
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            f"CREATE POLICY halves ON {table} USING (id % 2 = 0 AND theirs())",
        )
    yield name
    database.run(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        " WHERE database = current_database()",
        f"DROP OWNED BY {name}",
        f"DROP ROLE {name}",
    )


@pytest.fixture
def pipeline(
    role: str, database: Database, postgres: PostgresServer, pipeline_of: PipelineFactory
) -> Pipeline[Database]:
    dsn = postgres.dsn(database.name, user=role, password="pw")
    source = {"url": dsn, "publication": "mine"}
    return pipeline_of(database, source=source, tables=TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_a_dump_has_every_row_or_is_an_error(
    table: str, role: str, database: Database, pipeline: Pipeline[Database]
) -> None:
    worker = pipeline.start()
    hidden = pipeline.ask(DumpRequest(f"hidden-{table}", (table,)))
    assert hidden.state is RequestState.FAILED
    (progress,) = hidden.tables
    assert "row-level security hides rows" in str(progress.error)
    assert "BYPASSRLS" in f"{progress.error} {hidden.hint}"
    database.run(f"UPDATE {table.removeprefix('public.')} SET note = 'new' WHERE id = 1")
    pipeline.catch_up(worker)
    assert (pipeline.rows_of("r"), pipeline.rows_of("u")) == (0, 1), "the log has every row"
    database.run(f"ALTER ROLE {role} BYPASSRLS")
    shown = pipeline.ask(DumpRequest(f"shown-{table}", (table,)))
    assert shown.state is RequestState.DONE, shown
    assert sum(p.rows for m in pipeline.manifests() for p in m.parts if p.table == table) >= ROWS
    assert "it ran" not in worker.output()


def test_doctor_names_it_with_its_cure(
    role: str,
    database: Database,
    pipeline: Pipeline[Database],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert doctor.run(pipeline.settings, pipeline.config) == 2
    shown = capsys.readouterr().out
    assert 'hides rows of "public"."orders"' in shown
    cure = f'ALTER ROLE "{role}" BYPASSRLS;'
    assert cure in shown
    database.run(cure)
    doctor.run(pipeline.settings, pipeline.config)
    assert "row-level security" not in capsys.readouterr().out


def test_who_owns_a_table_sees_all_of_it(
    role: str, database: Database, pipeline: Pipeline[Database]
) -> None:
    """Policies do not apply to the owner, unless they are forced."""
    database.run(f"ALTER TABLE orders OWNER TO {role}")
    pipeline.start()
    assert pipeline.ask(DumpRequest("owned", ("public.orders",))).state is RequestState.DONE
