"""DDL: what the log says of tables' forms, and the catalog, in any order; the end is equal."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import FLAVOURS, Flavour, MysqlDatabase
from tests.fixtures.mysql_writes import MARIADB, run_sessions
from tests.support.checks import check_equal
from tideline.contract.manifest import SchemaEvent
from tideline.contract.open_state import TableCondition
from tideline.contract.request import DumpRequest, RequestState


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to a table ``{t}`` of its own, which has 30 rows (id, v, n) before."""

    name: str
    statements: tuple[str, ...]
    flavours: tuple[Flavour, ...] = FLAVOURS
    gone: bool = False
    """The table is no longer there."""
    dumped: bool | None = None
    """Whether it is dumped again; None: either way."""
    columns: str = "id INT PRIMARY KEY, v VARCHAR(50), n INT"
    options: str = ""
    steps: tuple[str, ...] | None = None
    """What the chain says of its columns, as ``kind was column default``."""
    filled: str = ""
    """The columns that its rows fill, where these are not all."""
    blocked: bool | None = None
    """Whether it waits for someone to have it dumped; None: either way."""

    @property
    def table(self) -> str:
        return f"t_{self.name}"


_COPY = "INSERT IGNORE INTO {x} (id, v, n) SELECT id, v, n FROM {t}"

CHANGES = (
    Change(
        "nullable",
        (
            "ALTER TABLE {t} ADD COLUMN w INT",
            "INSERT INTO {t} VALUES (100, 'x', 1, 2)",
            "UPDATE {t} SET w = 7 WHERE id < 5",
        ),
        dumped=False,
    ),
    Change(
        "default",
        ("ALTER TABLE {t} ADD COLUMN w INT NOT NULL DEFAULT 7 FIRST",),
        dumped=False,
        steps=("add w 7",),
    ),
    Change(
        "instant_in_the_middle",
        (
            "ALTER TABLE {t} ADD COLUMN w INT NULL AFTER id, ALGORITHM = INSTANT",
            "INSERT INTO {t} VALUES (100, 5, 'x', 1)",
            "ALTER TABLE {t} ADD COLUMN y INT NULL, ALGORITHM = INSTANT",
            "INSERT INTO {t} VALUES (101, 5, 'x', 1, 6)",
        ),
        ("mariadb", "mysql9"),
        dumped=False,
    ),
    Change(
        "instant_drop",
        (
            "ALTER TABLE {t} DROP COLUMN n, ALGORITHM = INSTANT",
            "INSERT INTO {t} VALUES (100, 'x')",
        ),
        ("mariadb", "mysql9"),
        dumped=False,
        steps=("drop n",),
    ),
    Change(
        "drop_and_add",
        (
            "ALTER TABLE {t} DROP COLUMN n, ADD COLUMN n INT NULL",
            "INSERT INTO {t} VALUES (100, 'x', 9)",
        ),
        dumped=False,
        steps=("drop n", "add n"),
    ),
    Change(
        "modify",
        (
            "ALTER TABLE {t} MODIFY n BIGINT, MODIFY v VARCHAR(300)",
            "INSERT INTO {t} VALUES (100, REPEAT('x', 290), 5000000000)",
            "ALTER TABLE {t} MODIFY n DECIMAL(20,3)",
            "UPDATE {t} SET n = 1.125 WHERE id = 100",
        ),
    ),
    Change(
        "recoded",
        (
            "UPDATE {t} SET v = 'é' WHERE id < 5",
            "ALTER TABLE {t} MODIFY v VARCHAR(50) CHARACTER SET utf8mb4",
        ),
        columns="id INT PRIMARY KEY, v VARCHAR(50) CHARACTER SET latin1, n INT",
        dumped=False,
    ),
    Change(
        "recoded_and_derived",
        (
            "UPDATE {t} SET v = 'é' WHERE id < 5",
            "ALTER TABLE {t} MODIFY v VARCHAR(50) CHARACTER SET utf8mb4",
        ),
        columns="id INT PRIMARY KEY, v VARCHAR(50) CHARACTER SET latin1, n INT,"
        " s INT AS (LENGTH(v)) STORED, w INT AS (LENGTH(v)) VIRTUAL",
        filled="(id, v, n)",
        dumped=True,
    ),
    Change(
        "rename_columns",
        (
            "ALTER TABLE {t} CHANGE v x VARCHAR(50), CHANGE n v INT, CHANGE id id INT",
            "INSERT INTO {t} VALUES (100, 'x', 5)",
            "ALTER TABLE {t} RENAME COLUMN x TO y",
            "UPDATE {t} SET y = 'why' WHERE id = 3",
        ),
        dumped=False,
        steps=("rename v x", "rename n v", "rename x y"),
    ),
    Change(
        "swap_names",
        ("ALTER TABLE {t} RENAME COLUMN a TO b, RENAME COLUMN b TO a", "UPDATE {t} SET a = 5"),
        columns="id INT PRIMARY KEY, a INT, b INT",
        dumped=False,
        steps=("rename a _tl_between_2", "rename b a", "rename _tl_between_2 b"),
    ),
    Change(
        "defaults",
        (
            "ALTER TABLE {t} ADD a DECIMAL(9,3) DEFAULT 1.5, ADD b VARCHAR(9) NOT NULL,"
            " ADD c VARCHAR(9) DEFAULT 'a b', ADD d DATE DEFAULT '2024-02-29', ADD e BIGINT"
            " UNSIGNED NOT NULL, ADD f DATETIME(2) DEFAULT '2024-02-29 01:02:03', ADD g INT",
            "ALTER TABLE {t} ADD INDEX (a)",
        ),
        dumped=False,
        steps=(
            "add a 1.500",
            "add b ",
            "add c a b",
            "add d 2024-02-29",
            "add e 0",
            "add f 2024-02-29 01:02:03",
            "add g",
        ),
    ),
    Change(
        "table_of_bytes",
        ("ALTER TABLE {t} ADD a VARCHAR(9) NOT NULL DEFAULT 'abcd'",),
        options="CHARACTER SET binary",
        dumped=True,
    ),
    Change(
        "expression",
        ("ALTER TABLE {t} ADD a INT DEFAULT (1 + 1)",),
        ("mariadb", "mysql9"),
        dumped=True,
    ),
    Change(
        "widened",
        ("ALTER TABLE {t} MODIFY n BIGINT, MODIFY v VARCHAR(300)", "UPDATE {t} SET n = 1 << 40"),
        dumped=False,
        steps=("widen n",),
    ),
    Change(
        "retyped",
        ("ALTER TABLE {t} MODIFY n VARCHAR(20)", "UPDATE {t} SET n = 'x' WHERE id = 3"),
        blocked=True,
        steps=("retype n",),
    ),
    Change(
        "renamed_away",
        ("RENAME TABLE {t} TO {t}_new", "INSERT INTO {t}_new VALUES (100, 'x', 1)"),
        gone=True,
    ),
    Change(
        "renamed_away_and_back",
        (
            "RENAME TABLE {t} TO {t}_new",
            "UPDATE {t}_new SET v = 'under another name'",
            "ALTER TABLE {t}_new RENAME TO {t}",
            "INSERT INTO {t} VALUES (100, 'x', 1)",
        ),
        dumped=True,
    ),
    Change("truncated", ("TRUNCATE TABLE {t}", "INSERT INTO {t} VALUES (3, 'x', 1)"), dumped=False),
    Change("dropped", ("INSERT INTO {t} VALUES (99, 'x', 1)", "DROP TABLE {t}"), gone=True),
    Change(
        "made_anew",
        (
            "DROP TABLE {t}",
            "CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(50), n INT)",
            "INSERT INTO {t} VALUES (1, 'other', 1)",
        ),
    ),
    Change(
        "made_again_otherwise",
        (
            "DROP TABLE {t}",
            "CREATE TABLE {t} (n DATE, id INT PRIMARY KEY)",
            "INSERT INTO {t} VALUES ('2026-01-02', 1)",
        ),
    ),
    Change(
        "made_like",
        (
            "CREATE TABLE {t}_x LIKE {t}",
            "DROP TABLE {t}",
            "CREATE TABLE {t} LIKE {t}_x",
            "INSERT INTO {t} VALUES (1, 'x', 1)",
        ),
    ),
    Change(
        "other_key",
        (
            "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
            "INSERT INTO {t} VALUES (1, 'same id', 1)",
        ),
        columns="id INT, v VARCHAR(50), n INT, PRIMARY KEY (id)",
    ),
    Change(
        "other_charset",
        (
            "INSERT INTO {t} VALUES (100, 'grün€', 1)",
            "ALTER TABLE {t} CONVERT TO CHARACTER SET latin1",
            "INSERT INTO {t} VALUES (101, 'grün€', 1)",
            "ALTER TABLE {t} CONVERT TO CHARACTER SET utf16",
            "INSERT INTO {t} VALUES (102, 'grün€', 1)",
        ),
    ),
    Change(
        "partitions",
        (
            "ALTER TABLE {t} PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10),"
            " PARTITION b VALUES LESS THAN (20), PARTITION c VALUES LESS THAN MAXVALUE)",
            "ALTER TABLE {t} TRUNCATE PARTITION a",
            "CREATE TABLE {t}_x LIKE {t}",
            "ALTER TABLE {t}_x REMOVE PARTITIONING",
            "INSERT INTO {t}_x VALUES (15, 'exchanged', 1)",
            "ALTER TABLE {t} EXCHANGE PARTITION b WITH TABLE {t}_x",
            "ALTER TABLE {t} DROP PARTITION c",
            "INSERT INTO {t} VALUES (12, 'x', 1)",
        ),
        dumped=True,
    ),
    Change(
        "gh_ost",
        (
            "CREATE TABLE _{t}_gho LIKE {t}",
            "ALTER TABLE _{t}_gho MODIFY n BIGINT, ADD added INT DEFAULT 4",
            "CREATE TABLE _{t}_ghc (id BIGINT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64) UNIQUE,"
            " value VARCHAR(255))",
            "INSERT INTO _{t}_ghc (hint, value) VALUES ('state', 'GhostTableMigrated')",
            _COPY.replace("{x}", "_{t}_gho"),
            "INSERT INTO {t} VALUES (100, 'meanwhile', 1)",
            "REPLACE INTO _{t}_gho (id, v, n) VALUES (100, 'meanwhile', 1)",
            "CREATE TABLE _{t}_del (id INT AUTO_INCREMENT PRIMARY KEY) COMMENT = 'ghost-cut-over'",
            "one: LOCK TABLES {t} WRITE, _{t}_del WRITE",
            "one: DROP TABLE IF EXISTS _{t}_del",
            "drop: one",
            "RENAME TABLE {t} TO _{t}_del, _{t}_gho TO {t}",
            "INSERT INTO {t} VALUES (101, 'after', 9000000000, 5)",
            "DROP TABLE _{t}_ghc",
            "DROP TABLE _{t}_del",
        ),
        dumped=True,
    ),
    Change(
        "pt_osc",
        (
            "CREATE TABLE _{t}_new LIKE {t}",
            "ALTER TABLE _{t}_new ADD added INT DEFAULT 4, DROP n",
            "CREATE TRIGGER pt_osc_{t}_ins AFTER INSERT ON {t} FOR EACH ROW"
            " REPLACE INTO _{t}_new (id, v) VALUES (NEW.id, NEW.v)",
            "CREATE TRIGGER pt_osc_{t}_del AFTER DELETE ON {t} FOR EACH ROW"
            " DELETE IGNORE FROM _{t}_new WHERE _{t}_new.id <=> OLD.id",
            "INSERT LOW_PRIORITY IGNORE INTO _{t}_new (id, v) SELECT id, v FROM {t}"
            " LOCK IN SHARE MODE",
            "DELETE FROM {t} WHERE id = 5",
            "INSERT INTO {t} VALUES (100, 'meanwhile', 1)",
            "ANALYZE TABLE _{t}_new",
            "RENAME TABLE {t} TO _{t}_old, _{t}_new TO {t}",
            "DROP TABLE IF EXISTS _{t}_old",
            "DROP TRIGGER IF EXISTS pt_osc_{t}_ins",
            "DROP TRIGGER IF EXISTS pt_osc_{t}_del",
            "INSERT INTO {t} VALUES (101, 'after', 5)",
        ),
        dumped=True,
    ),
    Change(
        "natives",
        (
            "INSERT INTO {t} VALUES (1, '123e4567-e89b-12d3-a456-426655440000', '10.0.0.1')",
            "ALTER TABLE {t} MODIFY u BINARY(16), MODIFY a BINARY(4)",
            "INSERT INTO {t} VALUES (2, REPEAT('x', 16), 'abcd')",
            "ALTER TABLE {t} MODIFY u VARBINARY(20)",
            "INSERT INTO {t} VALUES (3, 'abc', 'a')",
        ),
        MARIADB,
        columns="id INT PRIMARY KEY, u UUID, a INET4",
    ),
    Change(
        "enumerations",
        (
            "INSERT INTO {t} VALUES (1, 'a', 'x,y')",
            "ALTER TABLE {t} MODIFY e ENUM('b', 'a', 'c'), MODIFY s SET('z', 'y', 'x')",
            "INSERT INTO {t} VALUES (2, 'b', 'z')",
        ),
        columns="id INT PRIMARY KEY, e ENUM('a', 'b'), s SET('x', 'y', 'z')",
    ),
    Change(
        "replaced",
        (
            "CREATE OR REPLACE TABLE {t} (id BIGINT PRIMARY KEY, w TEXT)",
            "INSERT INTO {t} VALUES (5, 'w')",
        ),
        MARIADB,
    ),
    Change(
        "generated",
        (
            "ALTER TABLE {t} ADD g INT AS (id * 2) VIRTUAL, ADD h INT AS (id * 3) STORED",
            "INSERT INTO {t} (id, v, n) VALUES (100, 'x', 1)",
        ),
        dumped=True,
    ),
    Change(
        "odd_words",
        (
            "/* a comment */ ALTER /* in */ TABLE -- between\n {t} ADD COLUMN `w` INT NULL",
            "ALTER TABLE {t} COMMENT = 'DROP TABLE {t}; it''s \"quoted\" `so`'",
            "INSERT INTO {t} VALUES (100, 'x', 1, 2)",
        ),
        dumped=False,
    ),
)


def chosen(flavour: Flavour) -> list[Change]:
    return [change for change in CHANGES if flavour in change.flavours]


def prepare(database: MysqlDatabase, changes: list[Change]) -> None:
    rows = ", ".join(f"({number}, {number}, {number})" for number in range(1, 31))
    for change in changes:
        database.run(f"CREATE TABLE {change.table} ({change.columns}) {change.options}")
        if change.table not in ("t_natives", "t_enumerations"):
            database.run(f"INSERT INTO {change.table} {change.filled} VALUES {rows}")  # noqa: S608


def perform(database: MysqlDatabase, change: Change) -> None:
    try:
        run_sessions(database, [text.replace("{t}", change.table) for text in change.statements])
    except Exception as error:
        raise AssertionError(f"{change.table}: {error}") from error


def check(shop: Pipeline[MysqlDatabase], changes: list[Change]) -> list[SchemaEvent]:
    """Every table is live and equal, those that a change blocks after the dump that these wait
    for; the schema events of the whole chain."""
    name = shop.database.name
    there = [f"{name}.{change.table}" for change in changes if not change.gone]
    state = shop.state()
    blocked = [one for one in there if state.tables[one].condition is TableCondition.SCHEMA_BLOCKED]
    for change in (one for one in changes if not one.gone):
        is_blocked = f"{name}.{change.table}" in blocked
        assert change.blocked in (None, is_blocked), state.tables[f"{name}.{change.table}"]
    if blocked:
        worker = shop.start()
        answer = shop.ask(DumpRequest("unblock", tuple(blocked)))
        assert answer.state is RequestState.DONE, answer
        worker.terminate()
    for table in there:
        assert shop.table(table).condition is TableCondition.ACTIVE, (
            table,
            shop.table(table).reason,
        )
    check_equal(shop.settings, shop.database, there)
    return [event for manifest in shop.manifests() for event in manifest.schema_events]


def reported(events: list[SchemaEvent], table: str) -> tuple[str, ...]:
    """The steps of a table's columns, in words."""
    found = []
    for step in [s for event in events if event.table == table for s in event.steps]:
        words = (step.kind.value, step.was or None, step.column, step.default)
        found.append(" ".join(word for word in words if word is not None))
    return tuple(found)


def dumps_of(shop: Pipeline[MysqlDatabase], table: str) -> int:
    """How often all of the table was dumped."""
    return len([f for m in shop.manifests() for f in m.deletes_before if f.table == table])


def test_while_no_worker_runs(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    """The reader meets old forms of tables that the catalog has in their newest form only."""
    changes = chosen(mysql_database.flavour)
    prepare(mysql_database, changes)
    shop = pipeline_of(mysql_database)
    shop.drain()
    for change in changes:
        perform(mysql_database, change)
    shop.drain()
    events = check(shop, changes)
    for change in changes:
        table = f"{mysql_database.name}.{change.table}"
        found = {event.statement for event in events if event.table == table and event.statement}
        for text in change.statements:
            statement = text.replace("{t}", change.table)
            if statement.startswith(f"ALTER TABLE {change.table} "):
                assert statement in found, change.table
        if change.dumped is not None:
            assert (dumps_of(shop, table) > 1) is change.dumped, change.table
        if change.steps is not None:
            assert reported(events, table) == change.steps, change.table
        seqs = [event.seq for event in events if event.table == table]
        assert seqs == sorted(set(seqs))


def test_while_a_worker_runs(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    changes = chosen(mysql_database.flavour)
    prepare(mysql_database, changes)
    shop = pipeline_of(mysql_database)
    worker = shop.start()
    name = mysql_database.name
    shop.wait_state(
        "all tables are dumped",
        lambda state: all(
            f"{name}.{change.table}" in state.tables
            and state.tables[f"{name}.{change.table}"].complete_seq is not None
            for change in changes
        ),
    )
    for change in changes:
        perform(mysql_database, change)
    worker.terminate()
    shop.drain()
    check(shop, changes)


@pytest.mark.parametrize("flavour", ["mariadb", "mysql9"])
def test_a_whole_database_recreated(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    database = mysql_database
    database.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    shop = pipeline_of(database)
    shop.drain()
    name = database.name
    database.server.run(
        f"INSERT INTO {name}.t VALUES (2, 2)",  # noqa: S608
        f"DROP DATABASE {name}",
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (id INT PRIMARY KEY, w DATE)",
        f"INSERT INTO {name}.t VALUES (7, '2026-01-02')",  # noqa: S608
    )
    shop.drain()
    check_equal(shop.settings, database, [f"{name}.t"])
