"""Paging by keys of every type and collation: every row once, in the database's own order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.mysql_chunks import fill, make_reader, order, read_all
from tests.fixtures.mysql_keys import EVERYWHERE, ONLY, text_key
from tests.fixtures.mysql_servers import MysqlDatabase
from tideline_capture.core.chunks import ChunkFailed
from tideline_capture.sources.mysql.names import quoted
from tideline_capture.sources.mysql.snapshot.chunks import RowChunkReader


@pytest.fixture
def reader(mysql_database: MysqlDatabase) -> Iterator[RowChunkReader]:
    made = make_reader(mysql_database)
    yield made
    made.close()


def check_paging(database: MysqlDatabase, reader: RowChunkReader, definition: str) -> None:
    """Every row once, in the database's own order, however few rows a chunk has."""
    key = ", ".join(quoted(name) for name in fill(database, definition))
    count = len(database.rows(f"SELECT 1 FROM t ORDER BY {key}"))  # noqa: S608
    (whole,) = read_all(reader, database, rows_max=10_000)
    assert whole.batch.num_rows == count >= 3
    for rows_max in (1, 2, 3, 7):
        chunks = read_all(reader, database, rows_max=rows_max)
        rows = [row for chunk in chunks for row in chunk.batch.to_pylist()]
        assert rows == whole.batch.to_pylist(), rows_max
        assert {chunk.batch.num_rows for chunk in chunks[:-1]} <= {rows_max}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_paging_by_any_key_brings_every_row_once(
    mysql_database: MysqlDatabase, reader: RowChunkReader, name: str
) -> None:
    check_paging(mysql_database, reader, EVERYWHERE[name])


@pytest.mark.parametrize("family,name", [(f, name) for f in ONLY for name in ONLY[f]])
def test_paging_by_keys_that_one_server_has(
    mysql_database: MysqlDatabase, reader: RowChunkReader, family: str, name: str
) -> None:
    if mysql_database.flavour.startswith(family):
        check_paging(mysql_database, reader, ONLY[family][name])


@pytest.mark.parametrize("flavour", ["mariadb"])
@pytest.mark.parametrize(
    "collation", ["utf8mb4_nopad_bin", "utf8mb4_general_nopad_ci", "latin1_swedish_nopad_ci"]
)
def test_a_char_key_that_mariadb_cannot_page_by_is_refused_by_name(
    mysql_database: MysqlDatabase, reader: RowChunkReader, collation: str
) -> None:
    definition = text_key("char(20)", collation)
    fill(mysql_database, definition)
    reported = reader.fetch(order(mysql_database), lambda reason: None)
    assert not isinstance(reported, ChunkFailed)
    facts = reported.decode().facts
    assert facts.problem is not None and facts.hint is not None
    assert facts.problem.endswith(f"skips rows: k ({collation})")
    assert len(pages(mysql_database, collation)) < len(mysql_database.rows("SELECT k FROM t"))
    mysql_database.run(facts.hint.partition(" -- ")[0])
    assert len(pages(mysql_database, collation)) == len(mysql_database.rows("SELECT k FROM t"))
    mysql_database.run("DROP TABLE t")
    check_paging(mysql_database, reader, definition.replace("char(", "varchar("))


def pages(database: MysqlDatabase, collation: str) -> list[str]:
    """The keys that plain SQL finds, each behind the one before it."""
    charset, found, behind = collation.partition("_")[0], list[str](), ""
    query = "SELECT HEX(k) FROM t FORCE INDEX (PRIMARY) {} ORDER BY k LIMIT 1"
    with database.connect() as connection, connection.cursor() as cursor:
        while cursor.execute(query.format(behind)):
            row = cursor.fetchone()
            assert row is not None
            found.append(row[0])
            behind = f"WHERE k > _{charset} X'{row[0]}'"
    return found
