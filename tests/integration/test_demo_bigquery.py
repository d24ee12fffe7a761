# ruff: noqa: S608  statements are made of constants
"""The demo reads BigQuery's tables as they were declared, and damages them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from devtools.demo.bigquery_tables import as_declared, damage_bigquery
from devtools.demo.damage import FAR_FUTURE, INVENTED
from tests.fixtures.bigquery import Dataset
from tests.fixtures.bigquery_place import PROJECT
from tideline.settings import make_settings

SHOP = """
CREATE TABLE {d}.customers (id INT64, name STRING, credit_limit NUMERIC(12, 2), _tl_seq INT64);
INSERT {d}.customers VALUES (7, 'a', 1.5, 1), (11, 'b', 2.25, 1), (12, 'c', NULL, 1);
CREATE TABLE {d}.products (id INT64, price NUMERIC(10, 4), _tl_seq INT64);
INSERT {d}.products VALUES (3, 9.99, 1), (4, 1, 1);
CREATE TABLE {d}.coupons (code STRING, _tl_overflow ARRAY<STRUCT<key STRING, value STRING>>);
INSERT {d}.coupons VALUES ('WELCOME-1', []), ('SPRING', [STRUCT('rate' AS key, 'NaN' AS value)])
"""


def test_columns_have_the_digits_that_they_were_declared_with() -> None:
    numbers = pa.chunked_array([pa.array([Decimal("1.5"), None], pa.decimal128(38, 9))])
    declared = as_declared(numbers, "decimal(12,2)")
    assert (str(declared.type), declared.to_pylist()) == (
        "decimal128(12, 2)",
        [Decimal("1.50"), None],
    )
    narrow = as_declared(pa.chunked_array([pa.array([0.10000000149011612])]), "float")
    assert str(narrow.type) == "float"
    pairs = [[{"key": "rate", "value": "NaN"}], []]
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.string()}))
    texts = as_declared(pa.chunked_array([pa.array(pairs, kind)]), "map<string,string>")
    assert texts.to_pylist() == [[("rate", "NaN")], []]


def test_a_shop_is_damaged(dataset: Dataset, tmp_path: Path) -> None:
    for statement in SHOP.format(d=dataset.name).split(";"):
        dataset.client.query(statement).result()
    settings = make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": tmp_path.as_uri()},
            "warehouse": {
                "url": tmp_path.as_uri(),
                "format": "bigquery",
                "bigquery": {"project": PROJECT, "endpoint": dataset.front.endpoint},
            },
        }
    )
    damage = damage_bigquery(settings, dataset.name)
    assert (damage.changed, damage.deleted, damage.invented) == (2, 2, 1)
    after = {
        name: sorted(dataset.rows(f"SELECT {listed} FROM {{d}}.{name}"))
        for name, listed in (
            ("customers", "id, name, credit_limit IS NULL"),
            ("products", "id, _tl_seq"),
            ("coupons", "code"),
        )
    }
    assert after == {
        "customers": [(7, "damaged", True), (12, "c", True)],
        "products": [(3, FAR_FUTURE), (4, 1)],
        "coupons": [(INVENTED,), ("SPRING",)],
    }
