"""Odd events, statements and GTID sets as the servers at hand write them today."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from devtools.services.binlog_server import BinlogServer
from tests.fixtures.mysql_servers import (
    FLAVOURS,
    Flavour,
    MysqlDatabase,
    start_new,
)
from tests.fixtures.odd_events import (
    FOLDER,
    SCENARIOS,
    Scenario,
    plain_query_body,
    read_events,
    run_scenario,
)
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.gtid import GtidSet, MariadbGtids
from tideline_capture.sources.mysql.binlog.log_events import parse_query
from tideline_capture.sources.mysql.ddl.classify import classify
from tideline_capture.sources.mysql.ddl.statement import DdlStatement, StatementKind

_VARYING = {EventCode.STOP, EventCode.ROTATE, 161}
"""Events that come as the server's own housekeeping has it."""
_CHARSETS = {8: "latin1", 13: "sjis", 28: "gbk", 45: "utf8mb4", 255: "utf8mb4"}
A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def _codes(data: bytes) -> list[int]:
    return [event.code for event in read_events(data) if event.code not in _VARYING]


@pytest.fixture(scope="module")
def servers_of_ours(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Flavour], BinlogServer]]:
    """Servers by flavour whose logs and settings nobody else reads."""
    running: dict[Flavour, BinlogServer] = {}
    with ExitStack() as stack:

        def get(flavour: Flavour) -> BinlogServer:
            if flavour not in running:
                server = start_new(flavour, tmp_path_factory.mktemp(flavour))
                running[flavour] = stack.enter_context(server)
            return running[flavour]

        yield get


@pytest.mark.parametrize(
    ("flavour", "scenario"),
    [(flavour, scenario) for flavour in FLAVOURS for scenario in SCENARIOS
     if flavour in scenario.servers],
    ids=lambda value: getattr(value, "name", value),
)  # fmt: skip
def test_the_servers_still_write_what_was_recorded(
    flavour: Flavour,
    scenario: Scenario,
    servers_of_ours: Callable[[Flavour], BinlogServer],
) -> None:
    (recorded,) = FOLDER.glob(f"{_family(flavour)}*-{scenario.name}.bin")
    now = run_scenario(servers_of_ours(flavour), scenario)
    assert _codes(now[0]) == _codes(recorded.read_bytes())


def _family(flavour: Flavour) -> str:
    return {"mariadb": "mariadb-", "mysql8": "mysql-8", "mysql9": "mysql-9"}[flavour]


def _logged(database: MysqlDatabase, *statements: str | bytes) -> list[tuple[bytes, DdlStatement]]:
    """What the log says of ``statements``, run in one session."""
    server = database.server
    server.run("FLUSH BINARY LOGS")
    name = str(server.rows("SHOW BINARY LOGS")[-1][0])
    with database.connect() as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    found = []
    for event in read_events((server.data / name).read_bytes()):
        if event.code == EventCode.QUERY_COMPRESSED:
            query = parse_query(plain_query_body(event.body, 1 << 20))
        elif event.code == EventCode.QUERY:
            query = parse_query(event.body)
        else:
            continue
        classified = classify(
            query.text,
            mariadb=database.flavour == "mariadb",
            default_schema=query.schema,
            charset=_CHARSETS[query.client_collation or 255],
            ansi_quotes=query.ansi_quotes,
            no_backslash_escapes=query.no_backslash_escapes,
        )
        found.append((query.text, classified))
    return found


def test_comments_that_were_not_executed_are_logged_as_plain_ones(
    mysql_database: MysqlDatabase,
) -> None:
    """Therefore every ``/*! … */`` of the log counts, whatever version it names."""
    ((text, _),) = _logged(
        mysql_database, "CREATE TABLE t (a INT) /*!99999 FROB */ /*!50100 COMMENT='x' */"
    )
    assert text == b"CREATE TABLE t (a INT) /* 99999 FROB */ /*!50100 COMMENT='x' */"


def test_a_new_name_without_a_schema_is_in_the_sessions(mysql_database: MysqlDatabase) -> None:
    other = f"{mysql_database.name}_2"
    mysql_database.server.run(f"CREATE DATABASE {other}")
    try:
        logged = _logged(
            mysql_database,
            f"CREATE TABLE {other}.t (a INT)",
            f"ALTER TABLE {other}.t RENAME TO u",
            "RENAME TABLE u TO v",
        )
        assert mysql_database.rows("SHOW TABLES") == [("v",)]
    finally:
        mysql_database.server.run(f"DROP DATABASE {other}")
    pairs = [(str(old), str(new)) for _, one in logged for old, new in one.renames]
    here = mysql_database.name
    assert pairs == [(f"{other}.t", f"{here}.u"), (f"{here}.u", f"{here}.v")]


def test_names_and_strings_of_sessions_with_other_settings(mysql_database: MysqlDatabase) -> None:
    logged = _logged(
        mysql_database,
        "SET NAMES sjis",
        "CREATE TABLE `表` (a INT)".encode("cp932"),
        "SET NAMES gbk",
        "CREATE TABLE `乣` (a INT)".encode("gbk"),
        "SET NAMES latin1",
        "CREATE TABLE `é` (a INT)".encode("latin1"),
        "SET NAMES utf8mb4",
        "SET sql_mode = 'ANSI_QUOTES'",
        'CREATE TABLE "q""1" (a INT)',
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        r"ALTER TABLE `é` COMMENT 'a\', RENAME TO `b`",
        "SET sql_mode = ''",
        r"ALTER TABLE `b` COMMENT 'a\', RENAME TO c -- '",
    )
    names = [table.name for _, one in logged for table in one.tables]
    assert names == ["表", "乣", "é", 'q"1', "é", "b"]
    assert [[new.name for _, new in one.renames] for _, one in logged][-2:] == [["b"], []]
    in_database = {name for (name,) in mysql_database.rows("SHOW TABLES")}
    assert in_database == {"表", "乣", 'q"1', "b"}


def test_statements_that_concern_no_rows(mysql_database: MysqlDatabase) -> None:
    user = f"'u{mysql_database.name}'@'%'"
    logged = _logged(
        mysql_database,
        f"CREATE USER {user} IDENTIFIED BY 'it''s; a \"secret'",
        f"ALTER USER {user} IDENTIFIED BY 'other'",
        f"GRANT SELECT ON *.* TO {user}",
        f"DROP USER {user}",
        "CREATE VIEW v AS SELECT 1 AS a",
        "CREATE OR REPLACE VIEW v AS SELECT 2 AS a",
        "DROP VIEW v",
        "CREATE PROCEDURE p() BEGIN SELECT 'x'; END",
        "CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM nothing",
        "DROP EVENT e",
        "CREATE TABLE t (a INT)",
        "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1",
        "ANALYZE TABLE t",
        "OPTIMIZE TABLE t",
        "FLUSH TABLES",
    )
    kinds = [one.kind for _, one in logged]
    assert kinds.count(StatementKind.OTHER) == len(logged) - 1 == 15
    assert kinds[11] is StatementKind.CREATE_TABLE


def test_dropping_truncating_and_selecting(mysql_database: MysqlDatabase, flavour: Flavour) -> None:
    statements = ["CREATE TABLE t (a INT)", "TRUNCATE t", "DROP TABLE IF EXISTS t, nothing"]
    if flavour != "mysql8":  # which refuses it under GTIDs
        statements.append("CREATE TABLE u AS SELECT 1 AS a")
    logged = [
        one
        for one in _logged(mysql_database, *statements)
        if one[1].kind is not StatementKind.BEGIN
    ]
    here = mysql_database.name
    reported = [
        (one.kind, [str(table) for table in one.tables])
        for _, one in logged
        if one.kind is not StatementKind.COMMIT
    ]
    assert reported[0] == (StatementKind.CREATE_TABLE, [f"{here}.t"])
    assert reported[1] == (StatementKind.TRUNCATE, [f"{here}.t"])
    # MySQL logs tables that exist apart from those that do not.
    drops = reported[2:-1] if flavour != "mysql8" else reported[2:]
    assert {kind for kind, _ in drops} == {StatementKind.DROP_TABLE}
    assert sorted(name for _, names in drops for name in names) == [f"{here}.nothing", f"{here}.t"]
    if flavour != "mysql8":
        assert reported[-1] == (StatementKind.CREATE_TABLE, [f"{here}.u"])


@pytest.mark.parametrize("flavour", ["mysql8", "mysql9"])
def test_sets_are_what_the_server_makes_of_them(
    mysql_server: BinlogServer, flavour: Flavour
) -> None:
    sets = [
        "",
        f"{A}:1-3:7",
        f"{A}:2-9,{B}:1",
        f"{B}:1-5:7-9, {A.upper()}:1-3",
        f"{A}:1-3:5:4",
    ]
    if flavour == "mysql9":
        sets += [f"{A}:1-3:Tag:1-2:4:a:9", f"{B}:a:1,{B}:1,{A}:tag:2"]
    for left in sets:
        for right in sets:
            ((rest, within),) = mysql_server.rows(
                f"SELECT GTID_SUBTRACT('{left}', '{right}'), GTID_SUBSET('{left}', '{right}')"
            )
            mine, other = GtidSet.parse(left), GtidSet.parse(right)
            assert _tidy(str(mine.subtract(other))) == _tidy(rest)
            assert other.contains(mine) == bool(within)


@pytest.mark.parametrize("flavour", ["mysql8", "mysql9"])
def test_the_text_of_what_was_executed_is_the_servers(mysql_database: MysqlDatabase) -> None:
    statements = ["CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)"]
    if mysql_database.flavour == "mysql9":
        statements += ["SET gtid_next = 'AUTOMATIC:tideline'", "INSERT INTO t VALUES (2)"]
    _logged(mysql_database, *statements)
    ((executed,),) = mysql_database.rows("SELECT @@GLOBAL.gtid_executed")
    assert str(GtidSet.parse(executed)) == executed
    ((source,),) = mysql_database.rows("SELECT @@server_uuid")
    assert executed.startswith(source)


@pytest.mark.parametrize("flavour", ["mariadb"])
def test_mariadbs_position_is_the_servers(mysql_database: MysqlDatabase) -> None:
    _logged(
        mysql_database,
        "CREATE TABLE t (a INT)",
        "SET gtid_domain_id = 12",
        "INSERT INTO t VALUES (1)",
    )
    ((position,),) = mysql_database.rows("SELECT @@GLOBAL.gtid_binlog_pos")
    gtids = MariadbGtids.parse(position)
    assert sorted(str(gtids).split(",")) == sorted(position.split(","))
    assert "12-" in position


def _tidy(text: str) -> str:
    return re.sub(r"\s", "", text)
