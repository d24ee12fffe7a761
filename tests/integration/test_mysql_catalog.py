"""What ``information_schema`` says of tables, on real servers, and that the log says the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from tests.fixtures.mysql_binlog import recorded
from tests.fixtures.mysql_cases import cases_of, create_statement
from tests.fixtures.mysql_servers import MysqlDatabase, ServerFactory, make_mysql_database
from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.catalog.tables import (
    Flavour,
    MysqlCatalogTable,
    is_refused,
    list_tables,
    natives,
    read_tables,
)

MARIADB_ONLY = pytest.mark.parametrize("flavour", ["mariadb"])
MYSQL_ONLY = pytest.mark.parametrize("flavour", ["mysql8", "mysql9"])
MYSQL9_ONLY = pytest.mark.parametrize("flavour", ["mysql9"])


def kind(database: MysqlDatabase) -> Flavour:
    return "mariadb" if database.flavour == "mariadb" else "mysql"


@contextmanager
def cursor_of(database: MysqlDatabase) -> Iterator[Any]:
    """A cursor of the user with exactly the documented grants."""
    with database.cdc_connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        yield cursor


def read(database: MysqlDatabase, *names: str, cascades: Any = "refuse") -> list[MysqlCatalogTable]:
    with cursor_of(database) as cursor:
        tables = [TableId(database.name, name) for name in names]
        return read_tables(cursor, tables, flavour=kind(database), cascades=cascades)


def one(database: MysqlDatabase, name: str = "t", cascades: Any = "refuse") -> MysqlCatalogTable:
    (found,) = read(database, name, cascades=cascades)
    return found


def listed(database: MysqlDatabase, *patterns: str, exclude: tuple[str, ...] = ()) -> list[str]:
    with cursor_of(database) as cursor:
        found = list_tables(cursor, patterns or (f"{database.name}.*",), exclude)
    assert {table.schema for table in found} <= {database.name}
    return [table.name for table in found]


MORE = (
    "k1 INT(5) ZEROFILL",
    "k2 DOUBLE(10,2) UNSIGNED",
    "k3 DECIMAL(10) UNSIGNED ZEROFILL",
    "k4 BOOL",
    "k5 FLOAT(7,3)",
    "k6 POINT",
    "k7 MULTIPOLYGON",
    "k8 INT GENERATED ALWAYS AS (id + 1) VIRTUAL",
    "k9 INT GENERATED ALWAYS AS (id + 2) STORED",
    "k10 NATIONAL VARCHAR(5)",
    "k11 TEXT(70) CHARACTER SET sjis",
    "k12 TIMESTAMP(6) NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)",
    "k13 ENUM('x') CHARACTER SET binary NOT NULL",
    "k14 CHAR(5) CHARACTER SET binary",
    '`we``ird "é` INT NOT NULL DEFAULT 5',
)


def test_every_type_as_the_log_says_it(mysql_database: MysqlDatabase) -> None:
    cases = cases_of(mysql_database.flavour)
    added = ", ".join(f"ADD COLUMN {definition}" for definition in MORE)
    mysql_database.run(create_statement("t", cases), f"ALTER TABLE t {added}")
    check_parity(mysql_database, "INSERT INTO t (id, k13) VALUES (1, 'x')")
    assert len(one(mysql_database).table.columns) == 1 + len(cases) + len(MORE)


def check_parity(database: MysqlDatabase, change: str) -> None:
    """The log of a change to the table ``t`` describes it as the catalog does."""
    table = TableId(database.name, "t")
    with cursor_of(database) as cursor:
        special = natives(cursor, [table]).get(table)
    with recorded(database, special) as log:
        database.run(change)
    catalog, seen = one(database), log.one("t").table
    assert catalog.facts.problem is None
    for ours, logged in zip(catalog.table.columns, seen.columns, strict=True):
        assert (replace(ours, labels=()), ours.source_type) == (
            replace(logged, labels=()),
            logged.source_type,
        )
    assert catalog.table.schema == seen.schema == catalog.facts.schema


def test_labels_that_the_catalog_cannot_say(mysql_database: MysqlDatabase) -> None:
    mysql_database.run(
        r"""CREATE TABLE t (id INT PRIMARY KEY,
            e ENUM('a\\b','c\nd','q''q','😀','x"y','tab\tz','nul\0z','cr\rz','%','sub\Zz','_\_')
              CHARACTER SET utf8mb4,
            b ENUM(x'ff', 'b', x'c3a9', x'61ff62') CHARACTER SET binary,
            j ENUM('表','ソ') CHARACTER SET sjis,
            u ENUM('é','x''','(a)','b)') CHARACTER SET utf16,
            s SET('é','ß',' x',') unsigned') CHARACTER SET latin1,
            w ENUM('trail  ',' lead'))"""
    )
    check_parity(mysql_database, "INSERT INTO t (id) VALUES (1)")
    labels = {column.name: column.labels for column in one(mysql_database).table.columns}
    plain = ("tab\tz", "nul\0z", "cr\rz", "%", "sub\x1az", r"_\_")
    assert labels["e"] == (r"a\b", "c\nd", "q'q", "?", 'x"y', *plain)
    assert labels["u"] == ("é", "x'", "(a)", "b)")


def test_many_labels(mysql_database: MysqlDatabase) -> None:
    labels = ",".join(f"'l{number}'" for number in range(256))
    sets = [", ".join(f"'s{number}'" for number in range(count)) for count in (1, 8, 9, 33, 64)]
    columns = ", ".join(f"s{place} SET({given})" for place, given in enumerate(sets))
    mysql_database.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({labels}), f ENUM('a'), {columns})"
    )
    check_parity(mysql_database, "INSERT INTO t (id) VALUES (1)")
    lengths = [column.length for column in one(mysql_database).table.columns[1:]]
    assert lengths == [2, 1, 1, 1, 2, 8, 8]


@pytest.mark.parametrize(
    ("definition", "key"),
    [
        ("a INT, b INT, PRIMARY KEY (b, a)", ("b", "a")),
        ("a VARCHAR(50), b TEXT, PRIMARY KEY (a, b(10))", ("a", "b")),
        ("a CHAR(50) CHARACTER SET latin1, b INT, PRIMARY KEY (a(3), b), UNIQUE (b)", ("a", "b")),
        ("a ENUM('1','2'), b BINARY(16), PRIMARY KEY (b, a)", ("b", "a")),
    ],
)
def test_keys(definition: str, key: tuple[str, ...], mysql_database: MysqlDatabase) -> None:
    mysql_database.run(f"CREATE TABLE t ({definition})")
    check_parity(mysql_database, "INSERT INTO t (a, b) VALUES ('1', '2')")
    assert one(mysql_database).table.key == key


@MARIADB_ONLY
def test_keys_of_periods(mysql_database: MysqlDatabase) -> None:
    mysql_database.run(
        "CREATE TABLE t (id INT, s DATE, e DATE, PERIOD FOR p(s, e),"
        " PRIMARY KEY (id, p WITHOUT OVERLAPS))"
    )
    check_parity(mysql_database, "INSERT INTO t VALUES (1, '2020-01-01', '2021-01-01')")


@MYSQL9_ONLY
def test_an_invisible_key(mysql_database: MysqlDatabase) -> None:
    """MySQL makes one, and may be told not to show it."""
    with mysql_database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_generate_invisible_primary_key = ON")
        cursor.execute("CREATE TABLE t (a INT, b INT INVISIBLE)")
        hide = "SET GLOBAL show_gipk_in_create_table_and_information_schema = "
        cursor.execute(f"{hide} OFF")
        try:
            check_parity(mysql_database, "INSERT INTO t (a) VALUES (1)")
            assert one(mysql_database).table.key == ("my_row_id",)
        finally:
            cursor.execute(f"{hide} ON")


@pytest.mark.parametrize(
    ("definition", "problem", "fix"),
    [
        ("a INT", "it has no primary key", "ADD PRIMARY KEY (…);"),
        ("a INT, UNIQUE (a)", "it has no primary key", "ADD PRIMARY KEY (…);"),
        (
            "a INT NOT NULL, b CHAR(9) NOT NULL, UNIQUE (b(3)), UNIQUE (b, a)",
            "it has no primary key",
            "ADD PRIMARY KEY (`b`, `a`);",
        ),
        (
            "a INT PRIMARY KEY, _TL_seq INT",
            "columns have names that Tideline (_tl_…) or Spark (_metadata) keeps for itself:"
            " _TL_seq",
            "RENAME COLUMN `_TL_seq` TO …;",
        ),
        ("a INT PRIMARY KEY, _metadata INT", "keeps for itself: _metadata", "RENAME COLUMN"),
        (
            "a ENUM('x', ''), b SET('', 'y'), c ENUM(''), PRIMARY KEY (b, a)",
            "an empty label, which reads as their number 0 does: a, b",
            "MODIFY `a` ENUM(…) NOT NULL, MODIFY `b` SET(…) NOT NULL;",
        ),
    ],
)
def test_what_cannot_be_captured(
    definition: str, problem: str, fix: str, mysql_database: MysqlDatabase
) -> None:
    mysql_database.run(f"CREATE TABLE t ({definition})")
    facts = one(mysql_database).facts
    assert facts.problem is not None
    assert problem in facts.problem
    assert facts.hint is not None
    assert fix in facts.hint
    assert facts.schema is None
    if "…" not in fix:
        mysql_database.run(facts.hint.partition(" -- ")[0])
        assert one(mysql_database).facts.problem is None


def test_a_column_that_its_server_reads_as_all_columns(mysql_database: MysqlDatabase) -> None:
    """MySQL 8; the others read it, and a chunk's rows are as wide as its columns."""
    mysql_database.run("CREATE TABLE t (a INT PRIMARY KEY, `*` INT)", "INSERT INTO t VALUES (1, 2)")
    facts = one(mysql_database).facts
    read = mysql_database.rows(f"SELECT t.`*` FROM {mysql_database.name}.t t")  # noqa: S608
    if mysql_database.flavour == "mysql8":
        assert facts.problem == "its server reads a column named * as all columns"
        assert facts.hint is not None and "RENAME COLUMN `*` TO" in facts.hint
    else:
        assert (facts.problem, read) == (None, [(2,)])


@pytest.mark.parametrize("engine", ["MEMORY", "ARCHIVE", "BLACKHOLE", "MyISAM", "Aria"])
def test_engines(engine: str, mysql_database: MysqlDatabase) -> None:
    try:
        mysql_database.run("CREATE TABLE t (a INT PRIMARY KEY)", f"ALTER TABLE t ENGINE = {engine}")
    except pymysql.MySQLError as error:
        assert "storage engine" in str(error) or "Unknown" in str(error) or engine == "ARCHIVE"
        return
    found = one(mysql_database)
    if engine in ("MyISAM", "Aria"):
        assert (found.facts.problem, found.engine) == (None, engine)
        return
    assert found.facts.problem == f"its engine is {engine}, which does not log all changes"
    assert found.facts.hint is not None
    mysql_database.run(found.facts.hint.partition(" -- ")[0])
    assert one(mysql_database).facts.problem is None


@MARIADB_ONLY
def test_system_versioned_tables_are_refused(mysql_database: MysqlDatabase) -> None:
    """Their history is in the log as rows among the others; the catalog hides its columns."""
    mysql_database.run("CREATE TABLE t (a INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    assert listed(mysql_database) == ["t"]
    facts = one(mysql_database).facts
    assert facts.problem is not None
    assert facts.problem.startswith("it is system-versioned")
    assert facts.hint is not None
    mysql_database.run(facts.hint.partition(" -- ")[0])
    assert one(mysql_database).facts.problem is None


def test_only_tables_are_listed(mysql_database: MysqlDatabase) -> None:
    name = mysql_database.name
    ghosts = ("_t_gho", "_t_ghc", "_t_del", "_t_new", "_t_old", "__t_new", "_t_20261121_del")
    makes = [f"CREATE TABLE {table} (a INT PRIMARY KEY)" for table in ("t", "`T 2`", *ghosts)]
    mysql_database.run(*makes, "CREATE VIEW v AS SELECT * FROM t")
    if mysql_database.flavour == "mariadb":
        mysql_database.run("CREATE SEQUENCE s")
    mysql_database.run(
        "CREATE TABLE _x (a INT PRIMARY KEY)", "CREATE TABLE new (a INT PRIMARY KEY)"
    )
    assert listed(mysql_database) == ["T 2", "_x", "new", "t"]
    assert listed(mysql_database, f'{name}."T 2"', f"{name}._t_gho") == ["T 2", "_t_gho"]
    assert listed(mysql_database, f'"{name}"."_t_old"') == ["_t_old"]
    assert listed(mysql_database, f"{name}._t_*") == []
    assert listed(mysql_database, exclude=(f"{name}.[tn]*",)) == ["T 2", "_x"]


def test_the_servers_own_schemas_are_not_listed(mysql_database: MysqlDatabase) -> None:
    with mysql_database.connect() as connection, connection.cursor() as cursor:
        ours = TableId(mysql_database.name, "ours")
        mysql_database.run("CREATE TABLE ours (a INT PRIMARY KEY)")
        found = list_tables(cursor, ["*.*", "mysql.*", "sys.*"], [], ours=[ours])
        schemas = {table.schema for table in found}
        assert schemas.isdisjoint({"mysql", "sys", "information_schema", "performance_schema"})
        assert ours not in found
        assert ours in list_tables(cursor, ["*.*"], [])


def test_names_differ_by_case(mysql_database: MysqlDatabase) -> None:
    mysql_database.run("CREATE TABLE t (a INT PRIMARY KEY)", "CREATE TABLE T (b INT PRIMARY KEY)")
    assert [table.facts.table.rpartition(".")[2] for table in read(mysql_database, "t")] == ["t"]
    assert one(mysql_database, "T").table.key == ("b",)
    assert [found.table.key for found in read(mysql_database, "t", "T", "x")] == [("b",), ("a",)]


def test_a_new_definition_is_another_digest(mysql_database: MysqlDatabase) -> None:
    mysql_database.run("CREATE TABLE t (a INT, k CHAR(9) CHARACTER SET latin1, PRIMARY KEY (k))")
    first = one(mysql_database).facts
    mysql_database.run("ALTER TABLE t COMMENT = 'x', MODIFY a INT DEFAULT 7, ADD INDEX (a)")
    same = one(mysql_database).facts
    assert (same.columns, same.key_definition) == (first.columns, first.key_definition)
    mysql_database.run("ALTER TABLE t MODIFY a BIGINT")
    wider = one(mysql_database).facts
    assert wider.columns[0] != first.columns[0]
    assert (wider.columns[1], wider.key_definition) == (first.columns[1], first.key_definition)
    mysql_database.run("ALTER TABLE t MODIFY k CHAR(9) CHARACTER SET latin1 COLLATE latin1_bin")
    binary = one(mysql_database).facts
    assert binary.columns == wider.columns
    assert binary.key_definition != wider.key_definition
    mysql_database.run("ALTER TABLE t MODIFY k CHAR(9) CHARACTER SET cp1251")
    assert one(mysql_database).facts.columns != binary.columns
    mysql_database.run("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (k(3))")
    assert one(mysql_database).facts.key_definition != binary.key_definition


CASCADES = (
    "CREATE TABLE a (id INT PRIMARY KEY)",
    "CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id)"
    " ON DELETE CASCADE)",
    "CREATE TABLE c (id INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES b (id)"
    " ON DELETE SET NULL)",
    "CREATE TABLE d (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (id)"
    " ON UPDATE CASCADE)",
    "CREATE TABLE e (id INT PRIMARY KEY, d INT, FOREIGN KEY (d) REFERENCES d (id))",
    "CREATE TABLE f (id INT PRIMARY KEY, f INT, FOREIGN KEY (f) REFERENCES f (id)"
    " ON DELETE CASCADE)",
)


def logs_cascades(database: MysqlDatabase) -> bool:
    database.run(*CASCADES, "INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1, 1)")
    with recorded(database) as log:
        database.run("DELETE FROM a")
    return any(logged.table.table.name == "b" and logged.events for logged in log.tables)


def test_cascades(mysql_database: MysqlDatabase) -> None:
    """Where the log lacks what cascades, children are refused; the log is asked whether it does."""
    logged = logs_cascades(mysql_database)
    assert logged is (mysql_database.flavour == "mysql9")
    if logged:
        found = read(mysql_database, *"abcdef")
        assert [(one.facts.problem, one.cascades_from) for one in found] == [(None, ())] * 6
        return
    check_refused_children(mysql_database)


def test_cascades_below_the_sql_layer(start_server: ServerFactory) -> None:
    server = start_server("mysql9", innodb_native_foreign_keys="ON")
    database = make_mysql_database(server, "mysql9")
    assert not logs_cascades(database)
    check_refused_children(database)


def check_refused_children(database: MysqlDatabase) -> None:
    found = {table.table.table.name: table for table in read(database, *"abcdef")}
    above = {name: "".join(p.name for p in table.cascades_from) for name, table in found.items()}
    assert above == {"a": "", "b": "a", "c": "ab", "d": "abc", "e": "", "f": "f"}
    refused = {name for name, table in found.items() if table.facts.problem is not None}
    assert refused == set("bcdf")
    problem = found["b"].facts.problem
    assert problem is not None
    assert f"carry changes of `{database.name}`.`a` over to it" in problem
    allowed = read(database, *"abcdef", cascades="redump")
    assert [table.facts.problem for table in allowed] == [None] * 6
    assert [bool(table.cascades_from) for table in allowed] == [False, *[True] * 3, False, True]


@MARIADB_ONLY
def test_native_types(mysql_database: MysqlDatabase) -> None:
    mysql_database.run(
        "CREATE TABLE t (u UUID PRIMARY KEY, i INET6, j INET4, b BINARY(16))",
        "CREATE TABLE n (a INT PRIMARY KEY)",
    )
    t, n = TableId(mysql_database.name, "t"), TableId(mysql_database.name, "n")
    with cursor_of(mysql_database) as cursor:
        assert natives(cursor, [t, n]) == {t: {"u": "uuid", "i": "inet6", "j": "inet4"}}
        assert natives(cursor, []) == {}


def test_rows_are_estimated_afresh(mysql_database: MysqlDatabase) -> None:
    """MySQL remembers such numbers for a day, unless it is told not to."""
    mysql_database.run("CREATE TABLE t (a INT PRIMARY KEY)")
    assert one(mysql_database).rows_estimate == 0
    with mysql_database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s)", [(number,) for number in range(2000)])
        cursor.execute("ANALYZE TABLE t")
    assert 1000 < one(mysql_database).rows_estimate < 4000


@MYSQL_ONLY
def test_the_catalog_is_that_of_the_snapshot(mysql_database: MysqlDatabase) -> None:
    mysql_database.run("CREATE TABLE t (a INT PRIMARY KEY)")
    with cursor_of(mysql_database) as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        mysql_database.run("ALTER TABLE t ADD b INT", "CREATE TABLE u (a INT PRIMARY KEY)")
        tables = list_tables(cursor, [f"{mysql_database.name}.*"], [])
        (found,) = read_tables(cursor, tables, flavour="mysql")
        assert [column.name for column in found.table.columns] == ["a"]
        cursor.execute("COMMIT")
        assert len(read_tables(cursor, tables, flavour="mysql")[0].table.columns) == 2


def test_many_tables(mysql_database: MysqlDatabase) -> None:
    columns = ", ".join(f"c{number} VARCHAR(20)" for number in range(10))
    mysql_database.run(
        *(f"CREATE TABLE t{number} (a INT PRIMARY KEY, {columns})" for number in range(300))
    )
    with cursor_of(mysql_database) as cursor:
        tables = list_tables(cursor, [f"{mysql_database.name}.*"], [])
        assert len(read_tables(cursor, tables, flavour=kind(mysql_database))) == 300
        counted = _Counting(cursor)

        def took(some: Sequence[TableId]) -> float:
            started, counted.queries = time.monotonic(), 0
            assert len(read_tables(counted, some, flavour=kind(mysql_database))) == len(some)
            assert counted.queries <= 6
            return time.monotonic() - started

        # The least of several: a machine may stand still for a moment.
        assert min(took(tables) for _ in range(3)) < 10
        assert min(took(tables[:1]) for _ in range(5)) < 1


class _Counting:
    """A cursor that counts what is asked of it."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.queries = 0
        self.connection = cursor.connection

    def execute(self, *arguments: Any) -> None:
        self.queries += 1
        self._cursor.execute(*arguments)

    def fetchall(self) -> Any:
        return self._cursor.fetchall()

    def fetchone(self) -> Any:
        return self._cursor.fetchone()


@pytest.mark.parametrize("charset", ["armscii8", "cp932", "eucjpms", "sjis", "ujis"])
@pytest.mark.parametrize("flavour", ["mariadb"])
def test_keys_whose_characters_have_several_codes_are_refused(
    mysql_database: MysqlDatabase, charset: str
) -> None:
    mysql_database.run(
        f"CREATE TABLE t (id VARCHAR(9) CHARACTER SET {charset} PRIMARY KEY, v INT)",
        "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET sjis)",
    )
    facts = one(mysql_database).facts
    assert f"id ({charset})" in (facts.problem or "")
    assert "utf8mb4" in (facts.hint or "")
    assert one(mysql_database, "u").facts.problem is None


class BetweenStatements:
    """A cursor that lets ``happen`` run once, right after the first statement on tables."""

    def __init__(self, cursor: Any, happen: Callable[[], None]) -> None:
        self._cursor = cursor
        self._happen: Callable[[], None] | None = happen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, query: str, *args: Any) -> Any:
        done = self._cursor.execute(query, *args)
        happen = self._happen
        if happen is not None and "FROM information_schema.TABLES" in query:
            self._happen = None
            happen()
        return done


@pytest.mark.parametrize(
    ("meanwhile", "refused"),
    [
        (("DROP TABLE t",), False),
        (("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY)"), False),
        (("ALTER TABLE t DROP FOREIGN KEY up",), False),
        (("ALTER TABLE t DROP PRIMARY KEY",), True),
    ],
    ids=["dropped", "another", "alone", "without its key"],
)
def test_a_look_at_a_table_that_moves_refuses_none(
    mysql_database: MysqlDatabase, meanwhile: Sequence[str], refused: bool
) -> None:
    """A table that is dropped between the statements of a look shows neither columns nor a key: its
    rows are in the log all the same, and are not to be left out for that."""
    mysql_database.run(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE t (id INT PRIMARY KEY, p INT,"
        " CONSTRAINT up FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
    )
    with cursor_of(mysql_database) as cursor:
        torn = BetweenStatements(cursor, lambda: mysql_database.run(*meanwhile))
        table = TableId(mysql_database.name, "t")
        found = is_refused(torn, table, flavour=kind(mysql_database), cascades="redump")
    assert found is refused
