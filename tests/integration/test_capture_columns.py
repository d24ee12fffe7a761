"""What happens to columns at PostgreSQL: which steps the chain names, and that rows are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.services import Database
from tests.support.checks import Captured, check_equal
from tideline.contract.open_state import TableCondition

KEY = "id int PRIMARY KEY"


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to a table ``t_{name}`` with rows 1 to 30 (id, a, b), and what is told of it.

    ``steps``: as ``kind was column default``; None: whatever they are. ``dumped``: it is dumped
    again; None: that depends on whether the catalog was read between two of the changes.
    """

    name: str
    statements: tuple[str, ...]
    steps: tuple[str, ...] | None = None
    dumped: bool | None = False
    make: str = f"CREATE TABLE {{t}} ({KEY}, a int, b int)"

    @property
    def table(self) -> str:
        return f"public.t_{self.name}"


PARTED = (
    f"CREATE TABLE {{t}} ({KEY}, a int, b int) PARTITION BY RANGE (id);"
    "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (10);"
    "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (10) TO (10000)"
)
CASES = (
    Case("rename", ("ALTER TABLE {t} RENAME a TO c",), ("rename a c",)),
    Case("rename_key", ("ALTER TABLE {t} RENAME id TO pk",), ("rename id pk",)),
    Case(
        "swap",
        (
            "BEGIN; ALTER TABLE {t} RENAME a TO x; ALTER TABLE {t} RENAME b TO a;"
            " ALTER TABLE {t} RENAME x TO b; COMMIT",
        ),
        ("rename a _tl_between_2", "rename b a", "rename _tl_between_2 b"),
    ),
    Case("drop", ("ALTER TABLE {t} DROP a",), ("drop a",)),
    Case("default", ("ALTER TABLE {t} ADD c int NOT NULL DEFAULT 7",), ("add c 7",)),
    Case(
        "defaults",
        (
            """ALTER TABLE {t} ADD c text DEFAULT 'a,"b" {c}\\', ADD d numeric(9,3) DEFAULT 1.5,
            ADD e date DEFAULT '2024-02-29', ADD f timestamptz DEFAULT '2024-02-29 12:00:00.5+02',
            ADD h bytea DEFAULT '\\x00ff', ADD i text DEFAULT ''""",
        ),
        (
            'add c a,"b" {c}\\',
            "add d 1.500",
            "add e 2024-02-29",
            "add f 2024-02-29 10:00:00.500000",
            "add h 00ff",
            "add i ",
        ),
    ),
    Case("overflow", ("ALTER TABLE {t} ADD c date DEFAULT 'infinity'",), dumped=True),
    Case("array", ("ALTER TABLE {t} ADD c int[] DEFAULT '{1,2}'",), ("add c {1,2}",)),
    Case("box", ("ALTER TABLE {t} ADD c box DEFAULT '(1,1),(0,0)'",), dumped=True),
    Case(
        "expression",
        ("ALTER TABLE {t} ALTER g DROP EXPRESSION",),
        dumped=True,
        make=f"CREATE TABLE {{t}} ({KEY}, a int, b int, g int GENERATED ALWAYS AS (a * 2) STORED)",
    ),
    Case("volatile", ("ALTER TABLE {t} ADD c float8 DEFAULT random()",), dumped=True),
    Case("parted", ("ALTER TABLE {t} ADD c int DEFAULT 7",), ("add c 7",), make=PARTED),
    Case("parted_rename", ("ALTER TABLE {t} RENAME a TO c",), ("rename a c",), make=PARTED),
    Case("replaced", ("ALTER TABLE {t} DROP b, ADD b int DEFAULT 9",), dumped=True),
    Case(
        "replaced_later",
        (
            "ALTER TABLE {t} RENAME a TO c",
            "INSERT INTO {t} (id, b) VALUES (200, 1)",
            # Between the two the catalog would show that b is gone, and nothing to dump for.
            "BEGIN; ALTER TABLE {t} DROP b; ALTER TABLE {t} ADD b int DEFAULT 9; COMMIT",
        ),
        dumped=True,
    ),
    Case("made_otherwise", ("ALTER TABLE {t} DROP b, ADD c int DEFAULT 9",), dumped=True),
    Case("using", ("ALTER TABLE {t} ALTER b TYPE bigint USING b * 2",), dumped=True),
    Case(
        "one_after_another",
        (
            "ALTER TABLE {t} RENAME a TO c",
            "INSERT INTO {t} (id, c) VALUES (200, 1)",
            "ALTER TABLE {t} ADD a text DEFAULT 'x'",
            "INSERT INTO {t} (id, c) VALUES (201, 1)",
            "UPDATE {t} SET a = 'y' WHERE id = 3",
            "ALTER TABLE {t} DROP b",
        ),
        dumped=None,
    ),
    Case(
        "within_the_transaction_of_rows",
        (
            "BEGIN; UPDATE {t} SET b = 3 WHERE id = 3; ALTER TABLE {t} RENAME a TO c;"
            " UPDATE {t} SET c = 4 WHERE id = 4; ALTER TABLE {t} ADD d int DEFAULT 5;"
            " UPDATE {t} SET d = 6 WHERE id = 6; COMMIT",
        ),
        dumped=None,
    ),
    Case(
        "attached",
        (
            "CREATE TABLE {t}_3 (LIKE {t}_1 INCLUDING ALL); INSERT INTO {t}_3 VALUES (20001, 1, 1);"
            " ALTER TABLE {t} ATTACH PARTITION {t}_3 FOR VALUES FROM (20000) TO (30000)",
        ),
        dumped=True,
        make=PARTED,
    ),
    Case("detached", ("ALTER TABLE {t} DETACH PARTITION {t}_1",), dumped=True, make=PARTED),
    Case(
        "swapped",
        (
            "CREATE TABLE {t}_new (LIKE {t} INCLUDING ALL); INSERT INTO {t}_new VALUES (3, 7, 7);"
            " BEGIN; ALTER TABLE {t} RENAME TO {t}_old; ALTER TABLE {t}_new RENAME TO {t}; COMMIT;"
            " UPDATE {t} SET a = 8 WHERE id = 3",
        ),
        dumped=True,
    ),
    Case(
        "vacuumed",
        (
            "ALTER TABLE {t} ADD c int DEFAULT 7",
            "VACUUM FULL {t}",
            "INSERT INTO {t} (id) VALUES (200)",
        ),
        dumped=True,
    ),
)


def reported(captured: Captured, case: Case) -> tuple[str, ...]:
    found = []
    for event in captured.events(case.table):
        for step in event.steps:
            words: list[Any] = [step.kind.value, step.was or None, step.column, step.default]
            found.append(" ".join(word for word in words if word is not None))
    return tuple(found)


def dumps_of(captured: Captured, table: str) -> int:
    return sum(
        delete_before.table == table
        for m in captured.manifests
        for delete_before in m.deletes_before
    )


@pytest.mark.parametrize("live", [True, False], ids=["while-it-runs", "while-it-is-down"])
def test_steps_of_columns(database: Database, pipeline_of: PipelineFactory, live: bool) -> None:
    for case in CASES:
        table = f"t_{case.name}"
        database.run(
            case.make.replace("{t}", table),
            f"INSERT INTO {table} SELECT g, g, g FROM generate_series(1, 30) g",  # noqa: S608
        )
    shop: Pipeline[Database] = pipeline_of(database)
    shop.drain()
    worker = shop.start() if live else None
    if worker is not None:
        worker.wait_point("reading")
    for case in CASES:
        table = f"t_{case.name}"
        for text in case.statements:
            database.run(*text.replace("{t}", table).split("; "))
        key = "pk" if case.name == "rename_key" else "id"
        database.run(f"INSERT INTO {table} ({key}) VALUES (1000)")  # noqa: S608
    if worker is not None:
        worker.terminate()
    shop.drain()
    captured = check_equal(shop.settings, database, [case.table for case in CASES])
    wrong = {}
    for case in CASES:
        state = shop.table(case.table)
        assert state.condition is TableCondition.ACTIVE, (case.name, state.reason)
        is_dumped = dumps_of(captured, case.table) > 1
        steps = reported(captured, case)
        if case.dumped not in (None, is_dumped) or case.steps not in (None, steps):
            wrong[case.name] = (is_dumped, steps)
    assert not wrong
