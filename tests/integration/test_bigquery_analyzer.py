"""The analyzer that BigQuery's statements are judged by accepts what BigQuery does, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from wasmtime import Config, Engine, Module

from devtools.bigquery.zetasql_service import compiled
from tests.support.bigquery.analyzer import Analyzer, Refused

CATALOG = {
    "shop.orders": {
        "id": "INT64",
        "name": "STRING",
        "amount": "NUMERIC(10, 2)",
        "rate": "BIGNUMERIC(40, 20)",
        "moment": "DATETIME",
        "seen": "TIMESTAMP",
        "day": "DATE",
        "clock": "TIME",
        "raw": "BYTES",
        "paid": "BOOL",
        "weight": "FLOAT64",
        "tags": "ARRAY<STRUCT<k STRING, v STRING>>",
        "more": "JSON",
    },
    "shop.staged": {
        "id": "INT64",
        "name": "STRING",
        "amount": "NUMERIC(10, 2)",
        "seq": "INT64",
        "op": "STRING",
    },
    "my-project.shop.applied": {"orders": "STRING", "a": "INT64"},
}
MERGE = """\
MERGE `shop`.`orders` AS t
USING (
  SELECT * FROM shop.staged QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC) = 1
) AS s ON t.id = s.id
WHEN MATCHED AND s.op = 'd' THEN DELETE
WHEN MATCHED THEN UPDATE SET name = s.name, amount = s.amount
WHEN NOT MATCHED AND s.op != 'd' THEN INSERT (id, name, amount) VALUES (s.id, s.name, s.amount)
WHEN NOT MATCHED BY SOURCE AND t.id < 0 THEN DELETE"""
SCRIPT = """\
DECLARE known INT64 DEFAULT (SELECT MAX(a) FROM `my-project.shop.applied`);
IF known < 7 OR (known IS NULL) THEN
  BEGIN TRANSACTION;
  MERGE;
  INSERT `my-project`.shop.applied (orders, a) VALUES ('Käufe', known);
  COMMIT TRANSACTION;
END IF;
""".replace("MERGE", MERGE)


@pytest.fixture(scope="module")
def analyzer() -> Analyzer:
    return Analyzer(CATALOG)


@pytest.mark.parametrize(
    "sql",
    [
        MERGE,
        SCRIPT,
        "CREATE TABLE shop.made (id INT64 NOT NULL OPTIONS (description = 'a'), seen TIMESTAMP,"
        " PRIMARY KEY (id) NOT ENFORCED) PARTITION BY DATE(seen) CLUSTER BY id"
        " OPTIONS (labels = [('a', 'b')])",
        "CREATE TABLE shop.made (id INTEGER); INSERT shop.made (id) VALUES (1)",
        "CREATE TEMP TABLE found AS SELECT id, name FROM shop.staged; SELECT id + 1 FROM found",
        "CREATE TABLE shop.copy CLONE shop.orders",
        "ALTER TABLE shop.orders ADD COLUMN b STRUCT<c ARRAY<INT64>>, DROP COLUMN name",
        "ALTER TABLE shop.orders RENAME COLUMN name TO title",
        "ALTER TABLE shop.orders ALTER COLUMN id SET DATA TYPE NUMERIC",
        "DECLARE n INT64; SET n = 3; WHILE n > 0 DO SET n = n - 1; BREAK; END WHILE;",
        "DECLARE a, b INT64; SET (a, b) = (1, 2); SELECT a + @@row_count",
        "ASSERT (SELECT COUNT(*) FROM shop.orders) = @n AS 'rows'",
        "SELECT tags[SAFE_OFFSET(0)].v, more.a, rate / weight FROM shop.orders"
        " WHERE paid AND raw = b'a' AND day = DATE(moment) AND clock = TIME(seen, 'Europe/Berlin')",
    ],
)
def test_what_bigquery_accepts_is_accepted(analyzer: Analyzer, sql: str) -> None:
    analyzer.check(sql, {"n": "INT64"})


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (MERGE.replace("s.name,", "s.nme,", 1), "Name nme not found inside s [at 6:"),
        (SCRIPT.replace("s.name,", "s.nme,", 1), "Name nme not found inside s [at 9:"),
        (
            SCRIPT.replace("amount = s.amount", "amount = s.name"),
            "Value of type STRING cannot be assigned to amount, which has type NUMERIC",
        ),
        (SCRIPT.replace("QUALIFY", "WHERE"), "Analytic function not allowed in WHERE"),
        (SCRIPT.replace("known < 7", "known + 7"), "No matching signature for operator OR"),
        ("IF 7 THEN SELECT 1; END IF", "type INT64 which cannot be coerced to target type BOOL"),
        ("DECLARE n INT64 DEFAULT 'a'", "STRING which cannot be coerced to target type INT64"),
        ("DECLARE n INT64; SET n = DATE '2020-01-01'", "type DATE which cannot be coerced"),
        ("SET n = 1", "Undeclared variable: n"),
        ("BEGIN DECLARE n INT64; END; SELECT n", "Unrecognized name: n"),
        ("DECLARE n INT64; DECLARE N STRING", "'N' redeclaration"),
        ("CREATE TEMP TABLE found (a INT64); SELECT b FROM found", "Unrecognized name: b"),
        ("SELECT 1 FROM shop.order", "Table not found: shop.`order`; Did you mean shop.orders?"),
        ("CREATE TABLE shop.made (id INT32)", "Type not found: INT32"),
        ("CREATE TABLE shop.made (id INT64, PRIMARY KEY (id))", "enforced primary key"),
        ("CREATE TABLE shop.made (id NUMERIC(40, 2))", "NUMERIC(P, 2), P must be"),
        ("BEGIN TRANSACTION; DROP TABLE shop.orders; COMMIT TRANSACTION", "in a transaction"),
        ("BEGIN TRANSACTION; BEGIN TRANSACTION", "transaction"),
        ("COMMIT TRANSACTION", "none to end"),
        ("ASSERT 1 AS 'one'", "ASSERT expression should return type BOOL"),
        ("RAISE USING MESSAGE = 1", "INT64 which cannot be coerced to target type STRING"),
        ("EXECUTE IMMEDIATE 'SELECT 1'", "does not know ExecuteImmediateStatement"),
        ("SELEC 1", 'Unexpected identifier "SELEC"'),
        ("SELECT @missing", "Query parameter 'missing' not found"),
        ("-- nothing", "no statement"),
    ],
)
def test_what_bigquery_refuses_is_refused_in_zetasqls_words(
    analyzer: Analyzer, sql: str, message: str
) -> None:
    with pytest.raises(Refused) as refused:
        analyzer.check(sql)
    assert message in str(refused.value)


def test_what_one_script_creates_no_other_sees(analyzer: Analyzer) -> None:
    analyzer.check("CREATE TABLE shop.made (id INT64); SELECT id FROM shop.made")
    with pytest.raises(Refused, match="Table not found"):
        analyzer.check("SELECT id FROM shop.made")


def test_a_type_that_bigquery_has_not_is_no_columns() -> None:
    with pytest.raises(Refused, match="Type not found: UUID"):
        Analyzer({"shop.orders": {"id": "UUID"}})


def test_the_module_is_compiled_once_and_again_when_it_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config()
    config.shared_memory = True
    engine = Engine(config)
    module = compiled(engine)
    made: list[object] = []

    def from_file(_: Engine, path: object) -> Module:
        made.append(path)
        return module

    monkeypatch.setattr(Module, "from_file", from_file)
    monkeypatch.setenv("TIDELINE_CACHE", str(tmp_path))
    compiled(engine)
    compiled(engine)
    assert len(made) == 1
    [kept] = tmp_path.glob("*.module")
    kept.write_bytes(b"of another processor")
    compiled(engine)
    assert len(made) == 2
    assert {path.suffix for path in tmp_path.iterdir()} == {".module", ".lock"}
