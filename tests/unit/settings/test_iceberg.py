"""The settings of Iceberg tables: each mistake is named with its remedy, no secret is shown, and a
table's url follows from them."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import pytest

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId
from tideline.contract.target_url import table_format_of
from tideline.settings import Settings, make_settings

SECRET = "canary-password-77"
REST = {"catalog": "rest", "url": "https://host"}
JDBC = {"catalog": "jdbc", "url": "postgresql://db:5432/iceberg"}


def settings_with(iceberg: dict[str, Any], **more: Any) -> Settings:
    return make_settings(
        {
            "pipeline": "p",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": "file:///s"},
            "warehouse": {"url": "file:///w", "format": "iceberg", "iceberg": iceberg},
            **more,
        }
    )


@pytest.mark.parametrize(
    ("iceberg", "reason"),
    [
        ({"url": "https://host"}, "has keys and no catalog"),
        ({"catalog": "nessie"}, "'jdbc', 'rest', 'glue' or 'hive'"),
        ({"catalog": "jdbc"}, "url must be given: postgresql://host:5432/database"),
        ({"catalog": "jdbc", "url": "mysql://host/d"}, "url must be postgresql://host"),
        ({"catalog": "jdbc", "url": "sqlite://relative.db"}, "url must be postgresql://host"),
        ({"catalog": "rest", "url": "thrift://host"}, "url must be https://host"),
        ({"catalog": "rest", "url": f"https://u:{SECRET}@host"}, "must not hold credentials"),
        ({**JDBC, "url": "postgresql://h/d?user=x"}, "must not hold credentials"),
        ({"catalog": "rest", "url": "https://h?sslmode=x"}, "must not hold credentials"),
        ({**REST, "oauth2_url": f"https://u:{SECRET}@host"}, "must not hold credentials"),
        ({**REST, "oauth2_url": "ftp://host"}, "oauth2_url must be https://host"),
        ({**REST, "user": "a:b", "password": SECRET}, "must not hold a colon"),
        ({**JDBC, "scope": "x", "oauth2_url": "https://h"}, "oauth2_url and scope are for a REST"),
        ({**JDBC, "format_version": 1}, "2 or 3"),
        ({**JDBC, "namespace": "a.b"}, "namespace"),
    ],
)
def test_what_is_refused(iceberg: dict[str, Any], reason: str) -> None:
    with pytest.raises(Misconfigured, match=re.escape(reason)) as caught:
        settings_with(iceberg)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_the_password_from_a_setting_or_a_file(tmp_path: Path) -> None:
    found = settings_with({**JDBC, "password": SECRET})
    assert SECRET not in repr(found)
    assert SECRET in found.warehouse.secrets()
    file = tmp_path / "password"
    with pytest.raises(Misconfigured, match="password_file cannot be read") as caught:
        settings_with({**JDBC, "password_file": file}).warehouse.iceberg.secret()
    assert "TIDELINE_WAREHOUSE__ICEBERG__PASSWORD" in str(caught.value.hint)
    file.write_text(f"{SECRET}\n")
    assert settings_with({**JDBC, "password_file": file}).warehouse.iceberg.secret() == SECRET


def test_a_tables_url_names_its_format() -> None:
    settings = settings_with(
        {**JDBC, "namespace": "erp"}, tables={"public.audit": {"format": "delta"}}
    )
    orders, audit = (settings.target_url(TableId("public", n)) for n in ("order items", "audit"))
    assert (orders, audit) == (
        "iceberg://tideline/erp/public/order~20items",
        "file:///w/public/audit",
    )
    assert [table_format_of(url) for url in (orders, audit)] == ["iceberg", "delta"]
    assert settings.formats == {"iceberg", "delta"}


def test_a_rebuild_has_a_place_of_its_own_in_either_format() -> None:
    place = settings_with({**JDBC, "namespace": "erp"}).warehouse
    for made in (place.shadow(7), place.shadow(8)):
        assert made.root("delta") != place.root("delta")
        assert made.root("iceberg") != place.root("iceberg")
    assert place.shadow(7).root("iceberg") == "iceberg://tideline/erp__rebuild_000007"


@pytest.mark.parametrize(
    ("of_all", "of_one", "lacks"),
    [
        ("iceberg", None, "no catalog is named"),
        ("bigquery", None, "no project is named"),
        ("delta", "iceberg", "public.audit: Iceberg tables are wanted, and no catalog is named"),
        ("delta", "bigquery", "public.audit: tables in BigQuery are wanted, and no project is"),
    ],
)
def test_tables_of_a_format_that_has_no_place_are_refused(
    of_all: str, of_one: str | None, lacks: str
) -> None:
    """With the settings: no merge of theirs could ever work."""
    tables = {} if of_one is None else {"public.audit": {"format": of_one}}
    with pytest.raises(Misconfigured, match=lacks) as caught:
        settings_with({}, warehouse={"url": "file:///w", "format": of_all}, tables=tables)
    key = "catalog" if "catalog" in lacks else "project"
    assert f"set warehouse.{of_one or of_all}.{key}" in str(caught.value)


def test_a_place_that_some_tables_have_is_enough_for_them() -> None:
    """The others need none, and neither does a catalog that new tables are not made in."""
    settings_with(JDBC, warehouse={"url": "file:///w", "iceberg": JDBC})
    both = {"url": "file:///w", "bigquery": {"project": "my-project"}}
    tables = {"public.audit": {"format": "bigquery"}, "public.b": {"format": "delta"}}
    assert settings_with({}, warehouse=both, tables=tables).formats == {"delta", "bigquery"}
