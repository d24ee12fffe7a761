"""The places of targets as the status shows them: folders only where there are folders."""

from __future__ import annotations

import pytest

from tideline.contract.schema import TableId
from tideline.settings import Settings, make_settings
from tideline_console.places import address_of, heading, place_of

ODD = TableId("public", "order items")


def settings(table_format: str) -> Settings:
    warehouse = {
        "url": "s3://lake/w",
        "format": table_format,
        "iceberg": {"catalog": "rest", "url": "https://host", "namespace": "erp"},
        "bigquery": {"project": "my-project", "dataset_prefix": "erp"},
    }
    values = {"pipeline": "p", "source": {"url": "postgresql://u@h/d"}, "warehouse": warehouse}
    return make_settings({**values, "store": {"url": "s3://lake/s"}})


@pytest.mark.parametrize(
    ("table_format", "kind", "warehouse", "name"),
    [
        ("delta", "folder", "s3://lake/w: each table in its folder", "public/order~20items"),
        (
            "iceberg",
            "name",
            "iceberg://tideline: each table by its name there",
            "erp__public.order~20items",
        ),
        (
            "bigquery",
            "name",
            "bigquery://my-project: each table by its dataset and name there",
            "erp__public.order_x20_items",
        ),
    ],
)
def test_what_a_place_is_called(table_format: str, kind: str, warehouse: str, name: str) -> None:
    found = place_of(settings(table_format).target_url(ODD))
    assert found == (kind, f"warehouse {warehouse}", name)


def test_the_address_is_what_a_reader_takes() -> None:
    addresses = [
        address_of(settings(one).target_url(ODD)) for one in ("delta", "iceberg", "bigquery")
    ]
    assert addresses == [
        "s3://lake/w/public/order~20items",
        "tideline.erp__public.order~20items",
        "my-project.erp__public.order_x20_items",
    ]


def test_the_heading_names_each_kind_that_is_there() -> None:
    folder, name = (place_of(settings(one).target_url(ODD)) for one in ("delta", "iceberg"))
    assert heading([]) == heading([folder, folder]) == "folder"
    assert heading([name]) == "name"
    assert heading([name, folder]) == "folder or name"
