"""Keys and paths: exact examples, for they name what is stored; injectivity is a property test."""

from __future__ import annotations

import pytest

from tideline.contract import layout
from tideline.contract.layout import encode_name
from tideline.contract.schema import TableId


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("orders", "orders"),
        ("Order-items_2", "Order-items_2"),
        ("_private", "~5Fprivate"),
        ("a_b", "a_b"),
        ("a.b", "a~2Eb"),
        ("..", "~2E~2E"),
        ("a/b", "a~2Fb"),
        ("a b%~", "a~20b~25~7E"),
        ("ü", "~C3~BC"),
        ("\n", "~0A"),
        ("x" * 100, "x" * 100),
        (
            "x" * 101,
            "x" * 60 + "~~" + "c675a2e604b0cd12",
        ),
    ],
)
def test_names(name: str, encoded: str) -> None:
    assert encode_name(name) == encoded


def test_a_cut_never_splits_a_byte() -> None:
    for lead in range(3):
        encoded = encode_name("x" * lead + "ü" * 60)
        kept, _, digits = encoded.partition("~~")
        assert len(digits) == 16
        assert len(kept) <= 60
        assert (len(kept) - lead) % 3 == 0


def test_long_names_with_one_beginning_differ() -> None:
    assert encode_name("x" * 200) != encode_name("x" * 201)


def test_keys() -> None:
    table = TableId("public", "order items")
    assert layout.manifest_key("shop", 12) == "shop/log/00000000000000000012.json"
    assert layout.part_prefix("shop", 12) == "shop/data/00000000000000000012"
    assert layout.part_key("shop", 12, table, "ab12", "c0de") == (
        "shop/data/00000000000000000012/t-public.order~20items-ab12-c0de.parquet"
    )
    assert layout.schema_key("shop", "ab12") == "shop/schemas/ab12.json"
    assert layout.plan_key("shop", "run:1") == "shop/plans/run~3A1.json"
    assert layout.receipt_key("shop", "run:1") == "shop/receipts/run~3A1.json"
    assert layout.block_key("shop", 7) == "shop/blocks/000000000007.json"
    assert layout.rollup_key("shop", 7, table, "ab12", "c0de" * 16) == (
        "shop/blocks/000000000007/t-public.order~20items-ab12-c0dec0dec0dec0de.parquet"
    )
    assert layout.receipt_key_of(layout.plan_key("plans", "run:1")) == (
        layout.receipt_key("plans", "run:1")
    )
    assert layout.consumer_key("shop", "w") == "shop/consumers/w.json"
    assert layout.probe_key("shop", "n") == "shop/probe/n"
    assert layout.table_path("file:///w/", table) == "file:///w/public/order~20items"
    assert layout.object_url("s3://b/p/", "shop/log/1") == "s3://b/p/shop/log/1"


def test_keys_of_parts_and_roll_ups_are_parsed() -> None:
    table = TableId("public", "t/.json")
    part = layout.part_key("shop", 12, table, "ab12", "c0de")
    rollup = layout.rollup_key("shop", 7, table, "ab12", "c0de" * 16)
    assert part.startswith(layout.parts_prefix("shop") + "/")
    assert rollup.startswith(layout.blocks_prefix("shop") + "/")
    assert (layout.parse_part_key(part), layout.parse_rollup_key(part)) == (12, None)
    assert (layout.parse_part_key(rollup), layout.parse_rollup_key(rollup)) == (None, 7)
    for key in (layout.block_key("shop", 7), "shop/data/12/t-x.parquet", part + ".tmp"):
        assert (layout.parse_part_key(key), layout.parse_rollup_key(key)) == (None, None)
