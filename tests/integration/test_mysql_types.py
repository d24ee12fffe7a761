# ruff: noqa: S608  statements are made of constants and our own names
"""Every value of every type: the server's own text, the dump's value and the log's are one.

Of each table one part of the rows exists before the pipeline: it is dumped. The same values are
then inserted, and written over rows of NULLs, by the server itself: those come by the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.faults.checks import Captured, check_equal
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_cases import Case, cases_of, create_statement, insert_statements
from tests.fixtures.mysql_draws import drawn_rows
from tests.fixtures.mysql_servers import MysqlDatabase

SEED = 20_261_121
RANDOM_ROWS = 250
LENIENT = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
INSERTED, UPDATED = 100_000, 200_000
"""What the log's copies add to a row's id."""

Columns = Sequence[tuple[str, Case]]


def run(database: MysqlDatabase, *statements: str) -> None:
    """In one session that takes values which are out of order."""
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in (LENIENT, *statements):
            cursor.execute(statement)


def prepare(database: MysqlDatabase, table: str) -> None:
    """Rows of NULLs to be updated."""
    run(database, f"INSERT INTO {table} (id) SELECT id + {UPDATED} FROM {table}")


def copy(database: MysqlDatabase, table: str, names: Sequence[str]) -> None:
    """All values of the dumped rows once more, inserted and updated by the server."""
    listed = ", ".join(names)
    sets = ", ".join(f"a.{name} = b.{name}" for name in names)
    run(
        database,
        f"INSERT INTO {table} (id, {listed}) SELECT id + {INSERTED}, {listed} FROM {table}"
        f" WHERE id < {INSERTED}",
        f"UPDATE {table} a JOIN {table} b ON a.id = b.id + {UPDATED} SET {sets}",
    )


def check_three_ways(
    captured: Captured, table: str, schema_names: Sequence[str]
) -> dict[int, Mapping[str, str | None]]:
    """Dumped, inserted and updated values are the same; by id of the dumped row."""
    found: dict[str, dict[int, Mapping[str, str | None]]] = {"r": {}, "c": {}, "u": {}}
    for change in captured.table(table):
        key = int(str(change.key[0]))
        values = {name: str_or_none(change.values[name][1]) for name in schema_names}
        if change.op == "r" and key >= UPDATED:
            assert set(values.values()) == {None}
            continue
        base = key - {"r": 0, "c": INSERTED, "u": UPDATED}[change.op]
        found[change.op][base] = values
    assert found["r"] and found["r"].keys() == found["c"].keys()
    assert found["u"].keys() <= found["r"].keys()
    unchanged = found["r"].keys() - found["u"].keys()
    assert all(set(found["r"][key].values()) == {None} for key in unchanged)
    wrong = [
        (key, name)
        for key, values in found["r"].items()
        for name, text in values.items()
        for way in ("c", "u")
        if key in found[way] and found[way][key][name] != text
    ]
    assert not wrong, wrong[:10]
    return found["r"]


def str_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def test_every_type(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    database = mysql_database
    flavour = database.flavour
    cases = [*cases_of(flavour), *more_cases(database)]
    drawn, rows = drawn_rows(flavour, RANDOM_ROWS, seed=SEED)
    run(
        database,
        create_statement("cases", cases),
        *insert_statements("cases", cases),
        create_statement("draws", drawn),
        f"INSERT INTO draws VALUES {rows}",
    )
    tables: dict[str, Columns] = {"cases": cases, "draws": drawn}
    for table in tables:
        prepare(database, table)
    shop = pipeline_of(database)
    shop.drain()
    for table, columns in tables.items():
        copy(database, table, [name for name, _ in columns])
    shop.drain()
    captured = equal(shop, *tables)
    for table, columns in tables.items():
        kept = check_three_ways(captured, name_of(shop, table), [name for name, _ in columns])
        for name, case in columns:
            texts = {values[name] for values in kept.values()}
            assert len(texts) > 1, f"{case.definition} was tried with {texts}"


def more_cases(database: MysqlDatabase) -> list[tuple[str, Case]]:
    """JSON as deep as a server takes it, and as large as its long form."""
    deep = "CONCAT(REPEAT('[', 99), REPEAT(']', 99))"
    keys = ", ".join(f'"{"k" * (at % 9)}{at}": {at * 7919}' for at in range(3_000))
    return [("deep", Case("JSON", (deep, f"'{{{keys}}}'")))]


def name_of(shop: Pipeline[MysqlDatabase], table: str) -> str:
    return f"{shop.database.name}.{table}"


def equal(shop: Pipeline[MysqlDatabase], *tables: str) -> Captured:
    return check_equal(shop.settings, shop.database, [name_of(shop, table) for table in tables])
