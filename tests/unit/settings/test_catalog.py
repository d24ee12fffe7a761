"""The catalog's settings: each mistake is named with its remedy, and the token never shown."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.unit.catalog.test_names import settings_with
from tideline.contract.errors import Misconfigured

TOKEN = "canary-token-77"
HIVE = {"kind": "hive", "url": "thrift://metastore:9083"}
UNITY = {"kind": "unity", "url": "https://unity", "name": "main"}


@pytest.mark.parametrize(
    ("catalog", "reason"),
    [
        ({"url": "thrift://host"}, "has keys and no kind"),
        ({"kind": "iceberg"}, "'hive', 'unity' or 'glue'"),
        ({"kind": "hive"}, "url must be given: thrift://host:9083"),
        ({"kind": "hive", "url": "http://host"}, "url must be thrift://host:9083"),
        ({"kind": "unity", "url": "https://host"}, "name must be given"),
        ({**UNITY, "url": f"https://user:{TOKEN}@host"}, "must not hold credentials"),
        ({**UNITY, "url": f"https://host?token={TOKEN}"}, "must not hold credentials"),
        ({**UNITY, "url": "https://host:nan"}, "has a port that is not a number"),
        ({**HIVE, "token": TOKEN}, "token belongs to unity only"),
        ({**UNITY, "region": "eu-west-1"}, "region belongs to glue only"),
        ({**HIVE, "table_name": "orders"}, "must hold {table}"),
        ({**HIVE, "schema_name": "{schema!r}"}, "and no other braces"),
        ({**HIVE, "schema_name": "{schema.__class__}"}, "and no other braces"),
        ({**HIVE, "schema_name": "{database}"}, "and no other braces"),
        ({**HIVE, "schema_name": "{"}, "has a brace that stands alone"),
        ({**HIVE, "tabel_name": "x_{table}"}, "did you mean warehouse.catalog.table_name?"),
    ],
)
def test_what_a_catalog_refuses(catalog: dict[str, Any], reason: str) -> None:
    with pytest.raises(Misconfigured, match=re.escape(reason)) as caught:
        settings_with(catalog)
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_the_token_from_a_setting_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = settings_with({**UNITY, "token": TOKEN})
    assert TOKEN not in repr(found)
    assert found.warehouse.catalog.secret() == TOKEN
    assert TOKEN in found.warehouse.secrets()
    file = tmp_path / "token"
    with pytest.raises(Misconfigured, match="token_file cannot be read") as caught:
        settings_with({**UNITY, "token_file": file}).warehouse.catalog.secret()
    assert "TIDELINE_WAREHOUSE__CATALOG__TOKEN" in str(caught.value.hint)
    file.write_text(f"{TOKEN}\n")
    assert settings_with({**UNITY, "token_file": file}).warehouse.catalog.secret() == TOKEN
    monkeypatch.setenv("TIDELINE_WAREHOUSE__CATALOG__TOKEN", TOKEN)
    assert settings_with(UNITY).warehouse.catalog.secret() == TOKEN


def test_authorities_are_read_or_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    catalog = settings_with({**UNITY, "ca_file": file}).warehouse.catalog
    with pytest.raises(Misconfigured, match="ca_file cannot be read"):
        catalog.authorities()
    file.write_text("not one")
    with pytest.raises(Misconfigured, match="ca_file has no certificate"):
        catalog.authorities()


@pytest.mark.parametrize("name", ["orders", "a.b.c", ".a", "a."])
def test_a_table_s_own_name_has_two_parts(name: str) -> None:
    with pytest.raises(Misconfigured, match="catalog_name"):
        settings_with(HIVE, {"public.orders": {"catalog_name": name}})
