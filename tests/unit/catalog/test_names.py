"""Names of tables in a catalog: what is not permitted there is refused, and never another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.fixtures.hostile_names import NAMES
from tideline.catalog.names import CatalogName, name_of, names_of
from tideline.catalog.registry import KINDS
from tideline.contract.printable import printable
from tideline.contract.schema import TableId
from tideline.settings import Settings, make_settings

HIVE = {"kind": "hive", "url": "thrift://metastore:9083"}


def settings_with(catalog: Mapping[str, Any], tables: Mapping[str, Any] | None = None) -> Settings:
    return make_settings(
        {
            "pipeline": "Shop",
            "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
            "store": {"url": "file:///store"},
            "warehouse": {"url": "file:///warehouse", "catalog": dict(catalog)},
            "tables": dict(tables or {}),
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_name_is_kept_or_refused(kind: str) -> None:
    tables = [str(TableId("public", one.name)) for one in NAMES]
    settings = settings_with(HIVE)
    found = names_of(settings, tables, KINDS[kind].rule)
    assert set(found.names) | set(found.refused) == set(tables)
    for one, table in zip(NAMES, tables, strict=True):
        if table in found.names:
            assert found.names[table] == CatalogName("public", one.name.lower())
        else:
            assert "catalog_name = 'schema.table'" in found.refused[table]
    assert len(set(found.names.values())) == len(found.names)
    assert kind == "unity" or all(
        printable(str(name)) == str(name) for name in found.names.values()
    )


def test_templates_and_a_table_s_own_name() -> None:
    templates = {"schema_name": "{pipeline}_raw", "table_name": "{schema}__{table}"}
    tables = {
        "sales.*": {"catalog_name": "sales.all_of_them"},
        "sales.Orders": {"catalog_name": "Sales.Orders"},
    }
    settings = settings_with({**HIVE, **templates}, tables)
    assert name_of(settings, "public.Orders") == CatalogName("shop_raw", "public__orders")
    assert name_of(settings, "sales.Orders") == CatalogName("sales", "orders")
    both = names_of(settings, ["sales.a", "sales.b", "sales.Orders"], KINDS["hive"].rule)
    assert list(both.names) == ["sales.Orders"]
    assert "as sales.b would" in both.refused["sales.a"]


def test_braces_of_a_name_are_no_template() -> None:
    settings = settings_with(HIVE)
    assert name_of(settings, 'public."{pipeline}"') == CatalogName("public", "{pipeline}")


def test_a_name_that_is_too_long_is_refused() -> None:
    settings = settings_with(HIVE)
    tables = [f"public.{'x' * 128}", f"public.{'x' * 129}"]
    found = names_of(settings, tables, KINDS["hive"].rule)
    assert list(found.refused) == [tables[1]]
