# ruff: noqa: S608  statements are made of constants and our own names
"""Every value of every type: the server's own text, the dump's value and the log's are one.

Of each table one part of the rows exists before the pipeline: it is dumped. The same values are
then inserted, and written over rows of NULLs, by the server itself: those come by the log.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_cases import Case, cases_of, create_statement, insert_statements
from tests.fixtures.mysql_draws import drawn_rows
from tests.fixtures.mysql_keys import keys_of
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.support.checks import Captured, check_equal, read_chain
from tideline.contract.open_state import TableCondition
from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.names import qualified, quoted

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
    keys = dict(keys_of("mariadb" if database.flavour == "mariadb" else "mysql"))
    tables = [f"k{at}" for at in range(len(keys))]
    for table, definition in zip(tables, keys.values(), strict=True):
        columns, _, rows = definition.partition("|")
        run(
            database,
            f"CREATE TABLE {table} ({columns})",
            f"INSERT IGNORE INTO {table} VALUES {rows}",
            f"CREATE TABLE copy_of_{table} LIKE {table}",
            f"INSERT INTO copy_of_{table} SELECT * FROM {table}",
            f"ALTER TABLE {table} ADD COLUMN `an extra` INT",
        )
    shop = pipeline_of(database, source={"exclude": [f"{database.name}.copy_of_*"]})
    shop.drain()
    for table in tables:
        listed = ", ".join(quoted(row[0]) for row in database.rows(f"DESCRIBE copy_of_{table}"))
        key = key_columns(database, table)
        run(
            database,
            f"UPDATE {table} SET `an extra` = 1 ORDER BY {key} DESC LIMIT 2",
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
    for row, texts in found.items():
        for at, name in enumerate(bare, 1):
            check_charset_text(texts[name], printed[row][at], (name, row))


def check_charset_text(ours: str | None, server: str | None, where: object) -> None:
    r"""What a server has no character for, it prints as ``?`` or U+FFFD; we, as ``\xNN``."""
    if ours == server:
        return
    assert ours is not None and server is not None, where
    reported = re.sub(r"\\x[0-9a-f]{2}", "?", ours)
    assert reported == server.replace("\ufffd", "?") and "\\x" in ours, (where, ours, server)


ODD_TEXTS = (
    "", "a ", " a", "zażółć", "Ünïcödé", "Привет", "Ελληνικά", "עברית", "العربية", "ไทย", "中文㐀",
    "日本語ソ表~\\|¥‾", "ｱｲｳ", "한국어", "😀𝄞\U0010fffd", "\ufeffx", "e\u0301", "ﬀ\u2028", "€ß",
    "\0\x1a\n\t", "ĂăŞşŢţ", "ҐґЎў", "ԱՈւ", "აბგ", "−‐–—―", "\\x41", "?",
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
        for name, label in labels.items():
            assert values[name] == label[number % len(label)], (name, number)
        members = [one for at, one in enumerate(("é", "ß", " x", ") unsigned")) if number >> at & 1]
        assert values["s"] == ",".join(members)
    printed = {int(str(row[0])): row for row in database.texts(captured.schemas[table])}
    for number, values in found.items():
        assert [values[name] for name in "ejus"] == list(printed[number][2:])


ODD_NAMES = (
    "key.1",
    "select",
    "a.b",
    'c"d',
    "e`f",
    "g h",
    "%s %(x)s",
    "x'y",
    ";--",
    "Ü",
    "日" * 64,
)


def test_tables_of_every_shape(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    """Very many columns, odd names, and columns that are made, hidden, or not to be captured."""
    database = mysql_database
    odd = f'{database.name} "o.d`'
    shapes = list(shapes_of(database, odd))
    user = f"'{database.cdc_user}'@'127.0.0.1'"
    run(
        database,
        f"CREATE DATABASE {quoted(odd)}",
        f"GRANT SELECT ON {quoted(odd)}.* TO {user}",
        *(statement for shape in shapes for statement in shape.before),
    )
    try:
        tables = [f"{database.name}.*", f'"{odd.replace(chr(34), chr(34) * 2)}".*']
        shop = pipeline_of(database, source={"tables": tables})
        shop.drain()
        run(database, *(statement for shape in shapes for statement in shape.work))
        shop.drain()
        state = shop.state()
        captured = check_equal(
            shop.settings, database, [str(one.table) for one in shapes if not one.refused]
        )
        for shape in shapes:
            found = state.tables[str(shape.table)]
            if shape.refused:
                assert found.condition is TableCondition.QUARANTINED, shape
                assert shape.refused in str(found.reason)
            else:
                assert found.condition is TableCondition.ACTIVE, (shape.table, found.reason)
                ops = {change.op for change in captured.table(str(shape.table))}
                assert ops == set("rcud"), shape
    finally:
        database.run(f"DROP DATABASE {quoted(odd)}")


@dataclass(frozen=True, slots=True)
class Shape:
    """A table of which a row is dumped, and another inserted, updated and deleted;
    ``refused`` is what it is quarantined for."""

    table: TableId
    before: tuple[str, ...]
    work: tuple[str, ...]
    refused: str = ""


def shape(
    table: TableId, columns: str, row: str, *, key: str = "id", refused: str = "", options: str = ""
) -> Shape:
    """``row`` is a row with ``{n}`` for its key."""
    name = qualified(table)
    listed, _, values = row.partition(" VALUES ")
    insert = f"INSERT INTO {name} ({listed}) VALUES {values}"
    keyed = quoted(key)
    return Shape(
        table,
        (
            f"CREATE TABLE {name} ({columns}) {options}",
            *(insert.replace("{n}", str(n)) for n in (1, 2, 3)),
        ),
        (
            insert.replace("{n}", "5"),
            f"UPDATE {name} SET {keyed} = 7 WHERE {keyed} = 2",
            f"DELETE FROM {name} WHERE {keyed} = 3",
        ),
        refused,
    )


def shapes_of(database: MysqlDatabase, odd: str) -> Iterator[Shape]:
    def table(name: str) -> TableId:
        return TableId(database.name, name)

    rng = random.Random(SEED)
    kinds = ("INT", "VARCHAR(3)", "TINYINT NOT NULL DEFAULT 3", "DATE", "BIT(9)", "CHAR(2)")
    wide = ", ".join(f"c{at} {kinds[at % 6]}" for at in range(700))
    some = sorted(rng.sample(range(700), 300))
    listed = ", ".join(f"c{at}" for at in some)
    values = ", ".join(("7", "'ż'", "1", "'2024-02-29'", "257", "'x'")[at % 6] for at in some)
    yield shape(
        table("wide"), f"id INT PRIMARY KEY, {wide}", f"id, {listed} VALUES ({{n}}, {values})"
    )

    for where in (table("я" * 64), TableId(odd, 'select `a`.b "c" %s')):
        columns = ", ".join(f"{quoted(name)} VARCHAR(9)" for name in ODD_NAMES[1:])
        names = ", ".join(map(quoted, ODD_NAMES))
        values = ", ".join(f"'{at}'" for at in range(1, len(ODD_NAMES)))
        yield shape(
            where,
            f"`key.1` INT PRIMARY KEY, {columns}",
            f"{names} VALUES ({{n}}, {values})",
            key="key.1",
        )

    hidden = "" if database.flavour == "mysql8" else ", h INT INVISIBLE DEFAULT 5"
    yield shape(
        table("made"),
        "id INT PRIMARY KEY, a INT, v INT GENERATED ALWAYS AS (a + id) VIRTUAL,"
        f" s VARCHAR(20) GENERATED ALWAYS AS (CONCAT('x', a)) STORED{hidden}",
        "id, a VALUES ({n}, 10)",
    )
    yield shape(
        table("zero"),
        "id INT, d DATE, PRIMARY KEY (id, d)",
        "id, d VALUES ({n}, '0000-00-00')",
        refused="d",
    )
    yield shape(table("keyless"), "id INT", "id VALUES ({n})", refused="no primary key")
    yield shape(table("ours"), "id INT PRIMARY KEY, _tl_x INT", "id VALUES ({n})", refused="_tl_x")
    if database.flavour == "mariadb":
        yield shape(
            table("versioned"),
            "id INT PRIMARY KEY",
            "id VALUES ({n})",
            refused="system-versioned",
            options="WITH SYSTEM VERSIONING",
        )
        nopad = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
        yield shape(
            table("nopad"), f"id CHAR(9) {nopad} PRIMARY KEY", "id VALUES ('{n}')", refused="id ("
        )
    else:
        yield shape(
            table("key_made"),
            "id INT, k INT GENERATED ALWAYS AS (id * 2) STORED PRIMARY KEY",
            "id VALUES ({n})",
        )
    if database.flavour == "mysql9":  # 8.0.15 logs the index's hidden column
        indexed = "id INT PRIMARY KEY, a INT, KEY ((a + 3))"
        yield shape(table("by_function"), indexed, "id, a VALUES ({n}, 1)")
        made = shape(table("gipk"), "id INT", "id VALUES ({n})")
        on = "SET SESSION sql_generate_invisible_primary_key = "
        yield replace(made, before=(f"{on}ON", *made.before, f"{on}OFF"))
