"""A catalog in SQLite through pyiceberg: tables that are found, owned and removed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tests.fixtures.iceberg import with_catalog
from tideline import aws_profile
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.target_properties import owner_properties
from tideline.settings import Warehouse
from tideline.warehouse.iceberg.catalog import iceberg_settings, reader_properties
from tideline.warehouse.iceberg.client import find_table, owned_tables, remove_table
from tideline.warehouse.iceberg.names import CATALOG_SETTING, identifier_of
from tideline.warehouse.iceberg.reader import open_iceberg

ORDERS = "iceberg://tideline/public/orders"


@pytest.fixture
def place(tmp_path: Path) -> Warehouse:
    return with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")


def make(place: Warehouse, name: str, pipeline: str) -> None:
    catalog = load_catalog("tideline", **reader_properties(place))
    catalog.create_namespace_if_not_exists("public")
    rows = pa.table({"id": [1, 2]})
    properties = owner_properties((pipeline, "one", f"public.{name}"))
    catalog.create_table(("public", name), rows.schema, properties=properties).append(rows)


def test_a_table_that_is_not_there_is_none(place: Warehouse) -> None:
    assert open_iceberg(ORDERS, place) is None
    assert find_table(place, identifier_of(ORDERS)) is None
    assert list(owned_tables(place, "shop", None)) == []


def test_a_pipelines_tables_are_removed_with_their_files(place: Warehouse, tmp_path: Path) -> None:
    make(place, "orders", "shop")
    make(place, "theirs", "market")
    assert list(owned_tables(place, "shop", "two")) == []
    (name,) = owned_tables(place, "shop", "one")
    assert name == ("public", "orders")
    remove_table(place, name)
    assert open_iceberg(ORDERS, place) is None
    assert not list(tmp_path.glob("~iceberg/public/orders/data/*.parquet"))
    assert list(tmp_path.glob("~iceberg/public/theirs/data/*.parquet"))
    assert open_iceberg("iceberg://tideline/public/theirs", place) is not None


def test_a_catalog_that_cannot_be_read_is_an_error_without_its_password(tmp_path: Path) -> None:
    place = with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "no" / "such" / "folder.db")
    with pytest.raises(Unavailable, match="cannot be read") as caught:
        open_iceberg(ORDERS, place)
    assert "catalog is complete" in str(caught.value.hint)


def test_no_catalog_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no catalog is named"):
        open_iceberg(ORDERS, Warehouse(url=tmp_path.as_uri()))
    assert iceberg_settings(Warehouse(url=tmp_path.as_uri())) == {}


def test_both_clients_are_told_the_same(tmp_path: Path) -> None:
    settings = {
        "catalog": "jdbc",
        "url": "postgresql://db:5433/cat?sslmode=verify-full",
        "user": "t@x",
        "password": "p:w",
    }
    place = Warehouse.model_validate({"url": "file:///w", "iceberg": settings})
    spark = iceberg_settings(place)
    assert spark[f"{CATALOG_SETTING}.uri"] == ("jdbc:postgresql://db:5433/cat?sslmode=verify-full")
    assert (spark[f"{CATALOG_SETTING}.jdbc.user"], spark[f"{CATALOG_SETTING}.jdbc.password"]) == (
        "t@x",
        "p:w",
    )
    assert reader_properties(place) == {
        "type": "sql",
        "uri": "postgresql+psycopg2://t%40x:p%3Aw@db:5433/cat?sslmode=verify-full",
        "warehouse": "file:///w/~iceberg",
        "pool_pre_ping": "true",
    }


OF_CLIENT = {
    "credential": "client:p:w",
    "oauth2-server-uri": "https://host/v1/oauth/tokens",
    "scope": "catalog",
}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {}),
        ({"password": "p:w"}, {"token": "p:w"}),
        ({"user": "client", "password": "p:w"}, OF_CLIENT),
        (
            {
                "user": "client",
                "password": "p:w",
                "oauth2_url": "https://login/token",
                "scope": "all",
            },
            {**OF_CLIENT, "oauth2-server-uri": "https://login/token", "scope": "all"},
        ),
    ],
)
def test_both_log_in_alike_at_a_rest_catalog(
    keys: dict[str, str], expected: dict[str, str]
) -> None:
    settings = {"catalog": "rest", "url": "https://host/", "warehouse": "lake", **keys}
    place = Warehouse.model_validate({"url": "file:///w", "iceberg": settings})
    names = ("token", "credential", "oauth2-server-uri", "scope")
    spark, reader = iceberg_settings(place), reader_properties(place)
    for prefix, found in ((f"{CATALOG_SETTING}.", spark), ("", reader)):
        got = {name: found[f"{prefix}{name}"] for name in names if f"{prefix}{name}" in found}
        assert got == expected
        assert found[f"{prefix}warehouse"] == "lake"
        assert found[f"{prefix}uri"] == "https://host"


def test_a_client_id_needs_its_secret() -> None:
    settings = {"catalog": "rest", "url": "https://host", "user": "client"}
    place = Warehouse.model_validate({"url": "file:///w", "iceberg": settings})
    for ask in (iceberg_settings, reader_properties):
        with pytest.raises(Misconfigured, match="has no secret") as caught:
            ask(place)
        assert "TIDELINE_WAREHOUSE__ICEBERG__PASSWORD" in str(caught.value.hint)


@pytest.mark.parametrize("token", [None, "token"])
def test_a_profile_gives_keys_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    """Where files are is in the settings all the same."""
    file = tmp_path / "credentials"
    more = "" if token is None else f"aws_session_token = {token}\n"
    file.write_text(f"[p]\naws_access_key_id = AKIA\naws_secret_access_key = canary\n{more}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    aws_profile._credentials.cache_clear()
    keys = {"access_key_id": "AKIA", "secret_access_key": "canary"}
    keys |= {} if token is None else {"session_token": token}
    of_profile, of_settings = (
        with_catalog(
            Warehouse.model_validate(
                {"url": "s3://b/w", "endpoint": "http://h:1", "region": "eu-1", **access}
            ),
            tmp_path / "catalog.db",
        )
        for access in ({"profile": "p"}, keys)
    )
    found = reader_properties(of_profile)
    assert (found["s3.endpoint"], found["s3.region"]) == ("http://h:1", "eu-1")
    assert found == reader_properties(of_settings)
    aws_profile._credentials.cache_clear()


def test_names_have_one_level_of_namespace() -> None:
    assert identifier_of("iceberg://tideline/erp/a.b/t%20x") == ("erp__a~2Eb", "t~20x")
