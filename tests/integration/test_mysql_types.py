# ruff: noqa: S608  statements are made of constants and our own names
"""Every value of every type: the server's own text, the dump's value and the log's are one.

Of each table one part of the rows exists before the pipeline: it is dumped. The same values are
then inserted, and written over rows of NULLs, by the server itself: those come by the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from capture.sources.mysql.names import quoted
from tests.faults.checks import Captured, check_equal, read_chain
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_cases import Case, cases_of, create_statement, insert_statements
from tests.fixtures.mysql_draws import drawn_rows
from tests.fixtures.mysql_keys import keys_of
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
    depth = 31 if database.flavour == "mariadb" else 99
    deep = f"CONCAT(REPEAT('[', {depth}), REPEAT(']', {depth}))"
    keys = ", ".join(f'"{"k" * (at % 9)}{at}": {at * 7919}' for at in range(3_000))
    return [("deep", Case("JSON", (deep, f"'{{{keys}}}'")))]


def name_of(shop: Pipeline[MysqlDatabase], table: str) -> str:
    return f"{shop.database.name}.{table}"


def equal(shop: Pipeline[MysqlDatabase], *tables: str) -> Captured:
    return check_equal(shop.settings, shop.database, [name_of(shop, table) for table in tables])


def test_keys_of_every_type(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    """A key reads the same whether its row is dumped, deleted, inserted or moved."""
    database = mysql_database
    keys = keys_of("mariadb" if database.flavour == "mariadb" else "mysql")
    tables = [f"k{at}" for at in range(len(keys))]
    for table, definition in zip(tables, keys.values(), strict=True):
        columns, _, rows = definition.partition("|")
        run(
            database,
            f"CREATE TABLE {table} ({columns})",
            f"INSERT IGNORE INTO {table} VALUES {rows}",
            f"CREATE TABLE copy_of_{table} LIKE {table}",
            f"INSERT INTO copy_of_{table} SELECT * FROM {table}",
            f"ALTER TABLE {table} ADD COLUMN n INT",
        )
    shop = pipeline_of(database, source={"exclude": [f"{database.name}.copy_of_*"]})
    shop.drain()
    for table in tables:
        listed = ", ".join(quoted(row[0]) for row in database.rows(f"DESCRIBE copy_of_{table}"))
        key = key_columns(database, table)
        run(
            database,
            f"UPDATE {table} SET n = 1 ORDER BY {key} DESC LIMIT 2",
            f"DELETE FROM {table} ORDER BY {key} LIMIT 2",
            f"INSERT IGNORE INTO {table} ({listed}) SELECT {listed} FROM copy_of_{table}",
        )
    shop.drain()
    captured = equal(shop, *tables)
    for table, name in zip(tables, keys, strict=True):
        changes = captured.table(name_of(shop, table))
        by = {op: [c.key for c in changes if c.op == op] for op in "rdcu"}
        assert len(by["d"]) == len(by["u"]) == 2, name
        assert sorted(map(str, by["c"])) == sorted(map(str, by["d"])), name
        assert {*by["d"], *by["u"]} <= set(by["r"]), name
        assert len(set(by["r"])) == len(by["r"]), name


def key_columns(database: MysqlDatabase, table: str) -> str:
    found = database.rows(f"SHOW INDEX FROM {table} WHERE Key_name = 'PRIMARY'")
    return ", ".join(quoted(row[4]) for row in sorted(found, key=lambda row: int(row[3])))


def test_keys_that_only_change_for_us(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """To the database the key is the same row's; its text is another."""
    database = mysql_database
    run(
        database,
        "CREATE TABLE ci (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT)",
        "CREATE TABLE pad (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT)",
        "CREATE TABLE zero (k DOUBLE, n INT, PRIMARY KEY (k, n))",
        "INSERT INTO ci VALUES ('straße', 1), ('ÄB', 2), ('c', 3)",
        "INSERT INTO pad VALUES ('a', 1), ('b  ', 2)",
        "INSERT INTO zero VALUES (0, 1), (-0e0, 2)",
    )
    shop = pipeline_of(database)
    shop.drain()
    run(
        database,
        "UPDATE ci SET k = UPPER(k)",
        "UPDATE ci SET k = 'äb', n = 7 WHERE k = 'ab'",
        "REPLACE INTO ci VALUES ('C', 4)",
        "UPDATE pad SET k = CONCAT(TRIM(k), ' ')",
        "UPDATE zero SET k = -k",
    )
    shop.drain()
    captured = equal(shop, "ci", "pad", "zero")
    assert set(captured.rows(name_of(shop, "pad"))) == {("a ",), ("b ",)}
    assert ("äb",) in captured.rows(name_of(shop, "ci"))


def test_every_charset(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    """Every byte of the sets of single bytes, and odd characters in all of them."""
    database = mysql_database
    sets = sorted((row[0], int(row[3])) for row in database.rows("SHOW CHARACTER SET"))
    names = [f"`{name}`" for name, _ in sets if name != "binary"]
    columns = ", ".join(f"`{n}` VARCHAR(64) CHARACTER SET {n}" for n, _ in sets if n != "binary")
    run(database, f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    for row in range(16):
        raw = bytes(range(16 * row, 16 * row + 16)).hex()
        single = [f"`{name}`" for name, width in sets if width == 1 and name != "binary"]
        values = ", ".join(f"x'{raw}'" for _ in single)
        run(database, f"INSERT INTO t (id, {', '.join(single)}) VALUES ({row}, {values})")
    for row, text in enumerate(ODD_TEXTS, 16):
        values = ", ".join(f"_utf8mb4 x'{text.encode().hex()}'" for _ in names)
        run(database, f"INSERT INTO t (id, {', '.join(names)}) VALUES ({row}, {values})")
    prepare(database, "t")
    shop = pipeline_of(database)
    shop.drain()
    copy(database, "t", names)
    shop.drain()
    captured = read_chain(shop.settings)
    table = name_of(shop, "t")
    bare = [name.strip("`") for name in names]
    found = check_three_ways(captured, table, bare)
    schema = captured.schemas[table]
    printed = {int(str(row[0])): row for row in database.texts(schema)}
    for row, values in found.items():
        for at, name in enumerate(bare, 1):
            check_charset_text(values[name], printed[row][at], (name, row))


def check_charset_text(ours: str | None, server: str | None, where: object) -> None:
    r"""What a server has no character for, it prints as ``?``; we, as ``\xNN``."""
    if ours == server:
        return
    assert ours is not None and server is not None, where
    told = re.sub(r"\\x[0-9a-f]{2}", "?", ours)
    assert told == server and "\\x" in ours, (where, ours, server)


ODD_TEXTS = (
    "", "a ", " a", "zażółć", "Ünïcödé", "Привет", "Ελληνικά", "עברית", "العربية", "ไทย", "中文㐀",
    "日本語ソ表~\\|¥‾", "ｱｲｳ", "한국어", "😀𝄞\U0010fffd", "\ufeffx", "e\u0301", "ﬀ\u2028", "€ß", "\0\x1a\n\t",
    "ĂăŞşŢţ", "ҐґЎў", "ԱՈւ", "აბგ", "−‐–—―", "\\x41", "?",
)  # fmt: skip


def test_labels_of_every_kind(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    """Labels that are no text, or none that the catalog can say, and the index 0."""
    database = mysql_database
    run(
        database,
        r"""CREATE TABLE t (id INT PRIMARY KEY,
            b ENUM(x'ff', 'b', x'c3a9', x'61ff62') CHARACTER SET binary,
            e ENUM('a\\b', 'c\nd', 'q''q', '😀', 'x"y', 'nul\0z', '') CHARACTER SET utf8mb4,
            j ENUM('表', 'ソ') CHARACTER SET sjis,
            u ENUM('é', 'x''', '(a)', 'b)') CHARACTER SET utf16,
            s SET('é', 'ß', ' x', ') unsigned') CHARACTER SET latin1)""",
        *(f"INSERT INTO t VALUES ({n}, {n % 5}, {n % 8}, {n % 3}, {n % 5}, {n % 16})"
          for n in range(16)),
    )  # fmt: skip
    prepare(database, "t")
    shop = pipeline_of(database)
    shop.drain()
    copy(database, "t", list("bejus"))
    shop.drain()
    table = name_of(shop, "t")
    captured = read_chain(shop.settings)
    found = check_three_ways(captured, table, list("bejus"))
    labels = {
        "b": ["", r"\xff", "b", "é", r"a\xffb"],
        "e": ["", "a\\b", "c\nd", "q'q", "😀", 'x"y', "nul\0z", ""],
        "j": ["", "表", "ソ"],
        "u": ["", "é", "x'", "(a)", "b)"],
    }
    for number, values in found.items():
        for name, texts in labels.items():
            assert values[name] == texts[number % len(texts)], (name, number)
        members = [one for at, one in enumerate(("é", "ß", " x", ") unsigned")) if number >> at & 1]
        assert values["s"] == ",".join(members)
    printed = {int(str(row[0])): row for row in database.texts(captured.schemas[table])}
    for number, values in found.items():
        assert [values[name] for name in "ejus"] == list(printed[number][2:])
