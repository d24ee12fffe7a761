"""Row events of real servers, decoded, read as the very texts that the server prints."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pymysql

from tests.fixtures.mysql_binlog import LoggedTable, recorded
from tests.fixtures.mysql_cases import (
    Case,
    cases_of,
    create_statement,
    insert_statements,
    natives_of,
    select_statement,
)
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.mysql_text import column_texts
from tideline_capture.sources.mysql.types.columns import Code, MysqlColumn

LENIENT = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"


def test_every_type_reads_as_the_server_prints_it(mysql_database: MysqlDatabase) -> None:
    cases = cases_of(mysql_database.flavour)
    mysql_database.run(create_statement("t", cases))
    with recorded(mysql_database, natives_of(cases)) as log:
        run_leniently(mysql_database, *insert_statements("t", cases))
        printed = shown(mysql_database, select_statement("t", cases))
    inserted = log.one("t")
    check_columns(inserted, cases, printed)
    assert inserted.decode().key_overflow == ()


def test_updates_and_deletes_of_every_type(mysql_database: MysqlDatabase) -> None:
    """After-images read as the rows do now; deletes and old keys hold the key only."""
    cases = cases_of(mysql_database.flavour)
    mysql_database.run(create_statement("t", cases))
    run_leniently(mysql_database, *insert_statements("t", cases))
    with recorded(mysql_database, natives_of(cases)) as log:
        run_leniently(mysql_database, "UPDATE t SET id = id + 1000 WHERE id % 2 = 1")
        printed = shown(
            mysql_database, select_statement("t", cases).replace("ORDER", "WHERE id > 999 ORDER")
        )
        run_leniently(mysql_database, "DELETE FROM t WHERE id > 999")
    logged = log.one("t")
    decoded = logged.decode()
    updates = len(printed)
    batch = decoded.rows.batch
    assert batch.column("_tl_op").to_pylist() == ["u"] * updates + ["d"] * updates
    ids = [int(row[0] or 0) for row in printed]
    order = sorted(range(updates), key=lambda at: batch.column("id")[at].as_py())
    assert [batch.column("id")[at].as_py() for at in order] == ids
    old = batch.column("_tl_before_id").to_pylist()
    assert [old[at] for at in order] == [number - 1000 for number in ids]
    assert decoded.rows.counts.before_rows == updates
    check_texts(batch.slice(0, updates).take(pa.array(order)), logged, cases, printed)
    deletes = batch.slice(updates)
    assert sorted(deletes.column("id").to_pylist()) == ids
    for name, _ in cases:
        assert deletes.column(name).null_count == updates
    assert all(not entry for entry in deletes_overflow(deletes))


def deletes_overflow(batch: pa.RecordBatch) -> list[Any]:
    if batch.schema.get_field_index("_tl_overflow") < 0:
        return []
    held: list[Any] = batch.column("_tl_overflow").to_pylist()
    return held


def check_columns(
    logged: LoggedTable, cases: list[tuple[str, Case]], printed: list[tuple[str | None, ...]]
) -> None:
    batch = logged.decode().rows.batch
    batch.validate(full=True)
    assert batch.num_rows == len(printed)
    check_texts(batch, logged, cases, printed)


def check_texts(
    batch: pa.RecordBatch,
    logged: LoggedTable,
    cases: list[tuple[str, Case]],
    printed: list[tuple[str | None, ...]],
) -> None:
    columns = {column.name: column for column in logged.table.columns}
    wrong = {}
    for place, (name, case) in enumerate(cases, 1):
        expected = [canonical(row[place], columns[name]) for row in printed]
        texts = [canonical(text, columns[name]) for text in column_texts(batch, columns[name])]
        if texts != expected:
            wrong[case.definition] = [
                pair for pair in zip(texts, expected, strict=True) if pair[0] != pair[1]
            ]
    assert not wrong, wrong


def canonical(text: str | None, column: MysqlColumn) -> str | None:
    """Floating-point numbers by their value: their text has many forms."""
    if text is None or column.code not in (Code.FLOAT, Code.DOUBLE):
        return text
    return repr(float(text))


def run_leniently(database: MysqlDatabase, *statements: str) -> None:
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in (LENIENT, *statements):
            cursor.execute(statement)


def shown(database: MysqlDatabase, query: str) -> list[tuple[str | None, ...]]:
    """A query's rows as the texts the server sends."""
    connection = database.connect(conv={}, use_unicode=True, charset="utf8mb4")
    with connection, connection.cursor(pymysql.cursors.Cursor) as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(query)
        return [
            tuple(v.decode() if isinstance(v, bytes) else v for v in row)
            for row in cursor.fetchall()
        ]
