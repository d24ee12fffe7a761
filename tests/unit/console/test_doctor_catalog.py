"""What `tideline doctor` says of the catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.test_catalog import Shop
from tests.fixtures.catalogs import CatalogPlace
from tests.support.unity_server import UnityServer
from tideline.planner.registration import register
from tideline.settings.catalog import CatalogSettings
from tideline_console.doctor_catalog import check_catalog


@pytest.fixture
def place(unity_server: UnityServer) -> CatalogPlace:
    server = unity_server
    keys = {"kind": "unity", "url": server.url, "name": server.name, "token": server.token}
    return CatalogPlace("unity", keys)


def found(shop: Shop) -> list[tuple[str, str, str]]:
    return [(one.level, one.name, one.message) for one in check_catalog(shop.settings)]


def test_what_is_not_registered_is_named(tmp_path: Path, place: CatalogPlace) -> None:
    shop = Shop(tmp_path, place, ["public.orders", "public.Orders", "public.items"]).made()
    reached, *rest = found(shop)
    assert reached[:2] == ("ok", "catalog")
    assert [one[0] for one in rest] == ["warning", "warning", "ok"]
    assert "as public.Orders would" in rest[1][2]
    assert (
        f"1 tables are to be registered: public.items as {shop.name('public.items')}" in rest[2][2]
    )
    assert shop.entry("public.items") is None
    register(shop.settings)
    assert len(found(shop)) == 3
    whole = Shop(tmp_path / "b", place).made()
    register(whole.settings)
    assert found(whole)[-1] == (
        "ok",
        "catalog_entries",
        "every table of the warehouse is registered",
    )


def test_a_catalog_that_cannot_be_asked_keeps_no_capture_from_starting(
    tmp_path: Path, place: CatalogPlace
) -> None:
    shop = Shop(tmp_path, place).made()
    shop.use({"token": "wrong-canary"})
    ((level, name, text),) = found(shop)
    assert (level, name) == ("warning", "catalog")
    assert "refuses the token" in text and "tables are merged" in text and "canary" not in text
    shop.use({"url": "http://127.0.0.1:1", "timeout_s": 1})
    ((level, _, text),) = found(shop)
    assert level == "warning" and "does not answer" in text


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"kind": "hive", "url": "thrift://metastore.invalid:9083"}, "without a login"),
        ({"kind": "unity", "url": "http://unity.invalid", "name": "main"}, "the token goes"),
    ],
)
def test_what_goes_to_another_machine_in_the_clear_is_named(
    tmp_path: Path, keys: dict[str, str], text: str
) -> None:
    shop = Shop(tmp_path, CatalogPlace(keys["kind"], {**keys, "timeout_s": 1}))
    first = found(shop)[0]
    assert first[:2] == ("warning", "catalog_encryption") and text in first[2]


def test_a_pipeline_without_a_catalog_has_no_findings(tmp_path: Path, place: CatalogPlace) -> None:
    shop = Shop(tmp_path, place)
    bare = shop.settings.warehouse.model_copy(update={"catalog": CatalogSettings()})
    settings = shop.settings.model_copy(update={"warehouse": bare})
    assert list(check_catalog(settings)) == []
