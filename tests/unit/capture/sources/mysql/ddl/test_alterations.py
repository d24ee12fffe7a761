"""What statements do to columns: all of it, or nothing is known of the statement."""

from __future__ import annotations

import pytest

from tideline_capture.sources.mysql.ddl.classify import classify
from tideline_capture.sources.mysql.ddl.statement import DdlStatement


def read(clauses: str) -> DdlStatement:
    text = f"ALTER TABLE t {clauses}".encode()
    return classify(text, mariadb=True, default_schema="d", charset="utf8mb4")


def reported(clauses: str) -> list[str] | None:
    """Each step as ``kind was column = default``."""
    steps = read(clauses).steps
    if steps is None:
        return None
    found = []
    for step in steps:
        default = "" if step.default is None else f" = {step.default}"
        found.append(f"{step.kind.value} {step.was} {step.column}{default}".replace("  ", " "))
    return found


@pytest.mark.parametrize(
    ("clauses", "steps"),
    [
        ("RENAME COLUMN a TO `b c`", ["rename a b c"]),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", ["rename a b", "rename b a"]),
        ("CHANGE a b INT", ["rename a b"]),
        ("CHANGE COLUMN `a` b VARCHAR(10) NOT NULL DEFAULT 'x' AFTER c", ["rename a b"]),
        ("CHANGE a a BIGINT", []),
        ("MODIFY a BIGINT UNSIGNED NOT NULL FIRST", []),
        ("DROP a", ["drop a"]),
        ("DROP COLUMN `primary`", ["drop primary"]),
        ("DROP INDEX a, DROP COLUMN b", ["drop b"]),
        ("DROP n, ADD n INT", ["drop n", "add n"]),
        ("ADD INDEX (a), ALGORITHM = INPLACE, COMMENT 'x'", []),
        ("ADD a INT, ADD COLUMN (b INT, c INT DEFAULT 5)", ["add a", "add b", "add c = 5"]),
        ("ADD IF NOT EXISTS a INT", ["add a"]),
        ("ADD a TIMESTAMP NULL", ["add a"]),
        ("ADD a INT UNIQUE, ADD b INT UNIQUE KEY", ["add a", "add b"]),
        ("ADD vector INT NOT NULL", ["add vector = 0"]),
        ("ADD period INT DEFAULT 3, ADD COLUMN system INT", ["add period = 3", "add system"]),
        ("ADD `key` INT DEFAULT 3, ADD `primary` INT", ["add key = 3", "add primary"]),
        ("ADD COLUMN `index` INT NOT NULL", ["add index = 0"]),
        ("CHANGE `check` `column` INT", ["rename check column"]),
        ("DROP `key`, DROP `check`, DROP `index`", ["drop key", "drop check", "drop index"]),
        ("ADD VECTOR INDEX (v), ADD VECTOR (w)", []),
    ],
)
def test_what_is_done_to_columns(clauses: str, steps: list[str]) -> None:
    assert reported(clauses) == steps


@pytest.mark.parametrize(
    ("column", "default"),
    [
        ("INT DEFAULT 7", "7"),
        ("INT DEFAULT -7", "-7"),
        ("INT DEFAULT +07", "7"),
        ("BIGINT DEFAULT '12'", "12"),
        ("TINYINT(1) NOT NULL DEFAULT TRUE", "1"),
        ("INT NOT NULL", "0"),
        ("DECIMAL(10,2) DEFAULT 1.5", "1.50"),
        ("DECIMAL DEFAULT 3", "3"),
        ("DECIMAL(10,3) NOT NULL", "0.000"),
        ("VARCHAR(5) CHARACTER SET utf16 DEFAULT 'ab c'", "ab c"),
        ("VARCHAR(5) NOT NULL", ""),
        ("DATE DEFAULT '2024-02-29'", "2024-02-29"),
        ("DATETIME(3) DEFAULT '2024-02-29 01:02:03'", "2024-02-29 01:02:03"),
    ],
)
def test_defaults_that_are_known(column: str, default: str) -> None:
    assert reported(f"ADD a {column}") == [f"add a = {default}"]


@pytest.mark.parametrize(
    "clauses",
    [
        "ADD a INT DEFAULT (1 + 1)",
        "ADD a INT DEFAULT 1.5",
        "ADD a INT DEFAULT 1e3",
        "ADD a TINYINT DEFAULT 200",
        "ADD a DECIMAL(4,1) DEFAULT 1.55",
        "ADD a DECIMAL(4,1) DEFAULT 1000",
        "ADD a VARCHAR(5) DEFAULT 'grün'",
        "ADD a VARCHAR(5) DEFAULT 'it''s'",
        r"ADD a VARCHAR(5) DEFAULT 'a\nb'",
        "ADD a VARCHAR(5) DEFAULT 'a' 'b'",
        "ADD a VARCHAR(5) DEFAULT _latin1'a'",
        "ADD a VARCHAR(5) DEFAULT X'41'",
        "ADD a CHAR(5) DEFAULT 'a '",
        "ADD a VARCHAR(5) CHARACTER SET binary DEFAULT 'a'",
        "ADD a VARCHAR(2) DEFAULT 'abc'",
        "ADD a DATE DEFAULT '2024-2-9'",
        "ADD a DATE DEFAULT '0000-00-00'",
        "ADD a DATE NOT NULL",
        "ADD a DATETIME DEFAULT CURRENT_TIMESTAMP",
        "ADD a TIMESTAMP",
        "ADD a TIMESTAMP NOT NULL DEFAULT '2024-02-29 01:02:03'",
        "ADD a ENUM('x', 'y') DEFAULT 'x'",
        "ADD a ENUM('x', 'y') NOT NULL",
        "ADD a FLOAT DEFAULT 1.5",
        "ADD a INT AUTO_INCREMENT",
        "ADD a INT AS (b * 2)",
        "ADD a INT PRIMARY KEY",
        "ADD a INT KEY",
        "ADD a INT NOT NULL NULL",
        "ADD a INT DEFAULT 5 DEFAULT NULL",
        "ADD (a INT, KEY int (b))",
        "ADD PERIOD FOR SYSTEM_TIME (a, b)",
        "ADD SYSTEM VERSIONING",
        "ADD a INT REFERENCES b (c)",
        "ADD a INT, ORDER BY b",
        "CHANGE a b INT AUTO_INCREMENT",
        "CHANGE IF EXISTS a b INT",
        "RENAME COLUMN IF EXISTS a TO b",
        "RENAME TO u",
        "RENAME u",
        "DROP PRIMARY KEY",
        "DROP PARTITION p",
        "DROP CONSTRAINT",
        "DROP COLUMN",
        "ADD a VARCHAR(9) COLLATE",
        "DROP COLUMN a, CONVERT TO CHARACTER SET latin1",
        "DROP COLUMN a, TRUNCATE PARTITION p",
        "MODIFY a INT SOMETHING",
    ],
)
def test_what_is_not_understood_as_a_whole(clauses: str) -> None:
    assert reported(clauses) is None


def test_rows_of_an_ignoring_statement_are_thrown_away() -> None:
    text = b"ALTER IGNORE TABLE t RENAME COLUMN a TO b"
    assert classify(text, mariadb=True, default_schema="d", charset="utf8mb4").steps is None


@pytest.mark.parametrize(
    ("clauses", "converts"),
    [("CHANGE a b INT", True), ("MODIFY a INT", True), ("RENAME COLUMN a TO b, DROP c", False)],
)
def test_only_what_defines_a_column_again_converts_values(clauses: str, converts: bool) -> None:
    assert read(clauses).converts is converts


@pytest.mark.parametrize(
    ("clauses", "recodes"),
    [
        ("MODIFY a VARCHAR(20) CHARACTER SET utf8mb4", True),
        ("MODIFY a VARCHAR(20)", True),
        ("CHANGE a b MEDIUMTEXT, ADD c INT", True),
        ("MODIFY a ENUM('x', 'y')", True),
        ("MODIFY a JSON", True),
        ("MODIFY a NVARCHAR(9)", True),
        ("MODIFY a BIGINT, MODIFY b VARBINARY(20)", False),
        ("RENAME COLUMN a TO b, ADD c VARCHAR(9)", False),
    ],
)
def test_texts_that_are_defined_again_may_get_another_character_set(
    clauses: str, recodes: bool
) -> None:
    """One that a definition does not name is the table's own."""
    assert read(clauses).recodes is recodes
