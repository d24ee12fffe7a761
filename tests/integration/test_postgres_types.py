"""Every value of every type: the source's own text, the log's value and the dump's are one.

The oracle is the server: the type's output function (``format('%s', v)``; a cast to text is another
function for boolean, inet, char(n) and "char") under the pinned settings.
"""

from __future__ import annotations

import io
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg2
import psycopg2.extras
import pyarrow as pa
import pytest
from psycopg2 import sql

from devtools.services.postgres import PostgresServer
from tests.fixtures.postgres_values import CASES, SETUP, TypeCase
from tests.fixtures.services import drop_database, make_database
from tests.fixtures.source_text import column_texts
from tideline.contract.schema import Column, TableSchema
from tideline_capture.sources.decoded import Decoded
from tideline_capture.sources.postgres.replication.decode import decode_rows, decode_rows_loop
from tideline_capture.sources.postgres.replication.pgoutput import Relation, parse_message
from tideline_capture.sources.postgres.snapshot.copy import chunk_from_csv
from tideline_capture.sources.postgres.types import PINNED, PgType, logical_type

SEED = 20_261_121
RANDOM_VALUES = 1_000
SLOT = "types"

# The domains between a column's type and the type that its values are printed by.
BASE_TYPE = """
WITH RECURSIVE step(name, oid, typmod, base, base_typmod) AS (
    SELECT format_type(a.atttypid, a.atttypmod), a.atttypid, a.atttypmod, a.atttypid, a.atttypmod
    FROM pg_attribute a WHERE a.attrelid = %s AND a.attname = 'v'
  UNION ALL
    SELECT name, s.oid, typmod, t.typbasetype, t.typtypmod
    FROM step s JOIN pg_type t ON t.oid = s.base WHERE t.typtype = 'd')
SELECT oid::bigint, typmod, name, base::bigint, base_typmod FROM step
WHERE (SELECT typtype FROM pg_type WHERE oid = base) <> 'd'
"""


class Source:
    """One database with a table per type, everything in it, and the log of how it came there."""

    def __init__(self, dsn: str) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in PINNED.items())
        self.connection = psycopg2.connect(dsn, options=options)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        for statement in (*SETUP, "CREATE TABLE public.cases (n integer)"):
            self.cursor.execute(statement)
        self.oids = {case.name: self._create(at, case) for at, case in enumerate(CASES)}
        self.cursor.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        self.cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
        for at, case in enumerate(CASES):
            self._fill(at, case)
        self.payloads: dict[int, list[bytes]] = defaultdict(list)
        self.relations: dict[int, Relation] = {}
        self._read_log()

    def _create(self, at: int, case: TypeCase) -> int:
        self.cursor.execute(
            f"CREATE TABLE public.t{at} (id integer PRIMARY KEY, v {case.name});"
            f"SELECT 'public.t{at}'::regclass::oid::bigint"
        )
        return int(self.one()[0])

    def _fill(self, at: int, case: TypeCase) -> None:
        rng = random.Random(f"{SEED} {case.name}")
        values: list[str | None] = [None, *case.boundaries]
        values += [case.draw(rng) for _ in range(RANDOM_VALUES)]
        values += [None]
        psycopg2.extras.execute_values(
            self.cursor,
            sql.SQL(
                "INSERT INTO {} SELECT i, x::{} FROM (VALUES %s) given(i, x) ORDER BY i"
            ).format(sql.Identifier("public", f"t{at}"), sql.SQL(case.name)),
            list(enumerate(values)),
            template="(%s, %s::text)",
            page_size=5_000,
        )

    def _read_log(self) -> None:
        self.cursor.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
            " 'proto_version', '1', 'publication_names', 'everything')",
            (SLOT,),
        )
        for (data,) in self.cursor:
            payload = bytes(data)
            if payload[0] in b"IUD":
                self.payloads[int.from_bytes(payload[1:5], "big")].append(payload)
            elif isinstance(message := parse_message(payload), Relation):
                self.relations[message.oid] = message

    def schema(self, case: TypeCase) -> TableSchema:
        relation = self.relations[self.oids[case.name]]
        self.cursor.execute(BASE_TYPE, (relation.oid,))
        pg = PgType(*self.one())
        assert (relation.columns[1].type_oid, relation.columns[1].typmod) == (pg.oid, pg.typmod)
        columns = (
            Column("id", "int32", "integer", nullable=False),
            Column("v", str(logical_type(pg)), pg.name),
        )
        return TableSchema(f"public.{relation.name}", columns, ("id",))

    def texts(self, schema: TableSchema) -> list[str | None]:
        query = sql.SQL(
            "SELECT CASE WHEN v IS DISTINCT FROM NULL THEN format('%%s', v) END FROM {} ORDER BY id"
        )
        self.cursor.execute(query.format(_identifier(schema)), ())
        return [text for (text,) in self.cursor]

    def dumped(self, schema: TableSchema) -> pa.RecordBatch:
        out = io.BytesIO()
        query = sql.SQL("COPY (SELECT id, v FROM {} ORDER BY id) TO STDOUT (FORMAT csv)")
        self.cursor.copy_expert(query.format(_identifier(schema)), out)
        return chunk_from_csv(out.getvalue(), schema.columns)

    def logged(self, schema: TableSchema, decoder: Any = decode_rows) -> Decoded:
        payloads = self.payloads[self.oids_by_table()[schema.table]]
        numbers = np.arange(len(payloads), dtype=np.int64)
        decoded: Decoded = decoder(payloads, schema, seq=numbers, tx=numbers, ts=numbers)
        return decoded

    def one(self) -> tuple[Any, ...]:
        row = self.cursor.fetchone()
        assert row is not None
        return row

    def oids_by_table(self) -> dict[str, int]:
        return {f"public.{relation.name}": oid for oid, relation in self.relations.items()}


def _identifier(schema: TableSchema) -> sql.Identifier:
    return sql.Identifier(*schema.table.split("."))


@pytest.fixture(scope="module")
def source(postgres: PostgresServer) -> Iterator[Source]:
    database = make_database(postgres)
    source = Source(database.dsn)
    yield source
    source.connection.close()
    drop_database(postgres, database.name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: re.sub(r"\W+", "_", case.name))
def test_source_log_and_dump_agree(source: Source, case: TypeCase) -> None:
    schema = source.schema(case)
    column = schema.columns[1]
    assert column.type == case.logical
    expected = source.texts(schema)
    assert len(expected) == len(case.boundaries) + RANDOM_VALUES + 2
    assert len(set(expected)) > 1
    log = source.logged(schema)
    dump = source.dumped(schema)
    assert column_texts(log.rows.batch, "v", column.logical) == expected
    assert column_texts(dump, "v", column.logical) == expected
    assert log.rows.batch.column("v").equals(dump.column("v")) or "float" in column.type
    assert log.rows.batch.column("v").type == dump.column("v").type
    assert (
        source.logged(schema, decode_rows_loop).rows.batch.column("v").type == dump.column("v").type
    )
    if column.type == "string":
        assert log.rows.counts.overflow_rows == 0


def test_the_text_does_not_depend_on_the_clients_settings(source: Source) -> None:
    """Each pinned setting is known to this server, and took effect."""
    for name, value in PINNED.items():
        source.cursor.execute("SELECT current_setting(%s)", (name,))
        assert source.one()[0].lower().startswith(value.lower())
