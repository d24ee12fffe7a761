"""The catalogs' clients where a server is not what the settings say, or refuses."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.conformance.test_catalog import Shop
from tests.fixtures.catalogs import CatalogPlace
from tests.support.unity_server import UnityServer
from tests.unit.catalog.test_names import settings_with
from tideline.catalog.base import CatalogTable
from tideline.catalog.columns import hive_type, sql_type
from tideline.catalog.glue import GlueCatalog
from tideline.catalog.hive import HiveCatalog
from tideline.catalog.names import CatalogName
from tideline.catalog.registry import open_catalog
from tideline.catalog.unity import UnityCatalog
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.planner import registration
from tideline.planner.registration import Registration, register
from tideline.warehouse.registry import open_reader

NAME = CatalogName("public", "orders")


@pytest.fixture
def babbler() -> Iterator[int]:
    """The port of a server that answers each connection with a page, as no metastore does."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.recv(64)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_what_is_no_metastore_is_named(babbler: int) -> None:
    url = f"thrift://127.0.0.1:{babbler}"
    catalog = HiveCatalog(settings_with({"kind": "hive", "url": url, "timeout_s": 5}))
    with pytest.raises(Unavailable, match=f"the Hive metastore at {url} does not answer"):
        catalog.check()


def test_a_metastore_that_is_away_is_told_once_and_plainly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Thrift's own socket logs a failure with its traceback."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"thrift://127.0.0.1:{server.getsockname()[1]}"
    catalog = HiveCatalog(settings_with({"kind": "hive", "url": url}))
    with pytest.raises(Unavailable, match=f"{url} does not answer: no connection"):
        catalog.check()
    assert not caplog.records


def unity(server: UnityServer, **keys: Any) -> UnityCatalog:
    catalog: Mapping[str, Any] = {"kind": "unity", "url": server.url, "name": server.name, **keys}
    return UnityCatalog(settings_with(catalog))


def test_a_wrong_token_is_a_clear_error(unity_server: UnityServer) -> None:
    for keys in ({}, {"token": "wrong-canary"}):
        with pytest.raises(Misconfigured, match="refuses the token: 401") as caught:
            unity(unity_server, **keys).check()
        assert "canary" not in str(caught.value)
    assert "answers" in unity(unity_server, token=unity_server.token).check()


def test_a_catalog_that_unity_lacks_is_named(unity_server: UnityServer) -> None:
    catalog = unity(unity_server, token=unity_server.token, name="other")
    with pytest.raises(Misconfigured, match="has no catalog other"):
        catalog.check()


def test_an_error_that_does_not_arrive_is_an_error_of_ours() -> None:
    """Its status is there, and the rest never comes."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        kept: list[socket.socket] = []

        def serve() -> None:
            client, _ = server.accept()
            kept.append(client)
            client.recv(65_536)
            client.sendall(b"HTTP/1.1 500 no\r\nContent-Length: 100\r\n\r\n{")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        keys = {"kind": "unity", "url": url, "name": "main", "timeout_s": 0.5}
        with pytest.raises(Unavailable, match="does not answer: TimeoutError"):
            UnityCatalog(settings_with(keys)).check()
        thread.join()
        for client in kept:
            client.close()


def test_a_token_is_sent_nowhere_else(
    unity_server: UnityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with UnityServer() as elsewhere:
        seen: list[str] = []

        def answer(method: str, path: str, body: Any) -> tuple[int, Any]:
            seen.append(path)
            return 200, {}

        monkeypatch.setattr(elsewhere, "answer", answer)
        elsewhere.token = unity_server.token
        unity_server.redirects_to = elsewhere.url
        with pytest.raises(Misconfigured, match="answered 302"):
            unity(unity_server, token=unity_server.token).find([NAME])
        assert seen == []


def table_of(name: str, comment: str = "") -> CatalogTable:
    return CatalogTable(f"s3://b/{name}", "delta", ("shop", "one", name), (), comment)


def test_grants_on_a_table_survive_a_change_of_it(unity_server: UnityServer) -> None:
    catalog = unity(unity_server, token=unity_server.token)
    assert catalog.create(NAME, table_of("orders"))
    granted = {"analysts": ["SELECT"], "them@example.org": ["SELECT", "MODIFY"], "": ["SELECT"]}
    unity_server.grants["main.public.orders"] = dict(granted)
    catalog.update(NAME, table_of("orders", "other"))
    assert unity_server.tables["main.public.orders"]["comment"] == "other"
    del granted[""]  # A principal that is gone.
    assert unity_server.grants["main.public.orders"] == granted
    unity_server.gone.add("analysts")
    with pytest.raises(Misconfigured, match="without the grants to analysts"):
        catalog.update(NAME, table_of("orders"))
    del granted["analysts"]
    assert unity_server.grants["main.public.orders"] == granted


def test_a_change_that_another_was_faster_with_grants_nothing(
    unity_server: UnityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = unity(unity_server, token=unity_server.token)
    assert catalog.create(NAME, table_of("orders"))
    unity_server.grants["main.public.orders"] = {"analysts": ["SELECT"]}
    drop = catalog.drop

    def late(name: CatalogName) -> None:
        drop(name)
        assert catalog.create(NAME, table_of("secrets"))

    monkeypatch.setattr(catalog, "drop", late)
    catalog.update(NAME, table_of("orders", "other"))
    assert unity_server.tables["main.public.orders"]["storage_location"] == "s3://b/secrets"
    assert not unity_server.grants.get("main.public.orders")


def test_many_names_of_unity_are_listed(unity_server: UnityServer) -> None:
    catalog = unity(unity_server, token=unity_server.token)
    names = [CatalogName("public", f"t{number:02}") for number in range(25)]
    for name in names[:-1]:
        assert catalog.create(name, table_of(name.table))
    elsewhere = CatalogName("other", "t01")
    unity_server.asked.clear()
    found = catalog.find([*names, elsewhere])
    assert {name: one.location for name, one in found.items()} == {
        name: f"s3://b/{name.table}" for name in names[:-1]
    }
    assert len(unity_server.asked) <= 5
    assert catalog.find(CatalogName("none", f"t{number}") for number in range(25)) == {}


def test_the_logs_of_tables_are_read_side_by_side(
    unity_server: UnityServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In S3 each takes a few requests, and each merge reads all of them."""
    keys = {"url": unity_server.url, "name": unity_server.name, "token": unity_server.token}
    tables = [f"public.t{number}" for number in range(4)]
    shop = Shop(tmp_path, CatalogPlace("unity", {"kind": "unity", **keys}), tables).made()
    four = threading.Barrier(4)

    def together(*given: Any) -> Any:
        four.wait(60)
        return open_reader(*given)

    monkeypatch.setattr(registration, "open_reader", together)
    assert sorted(register(shop.settings).made) == tables


def test_what_glue_refuses_is_quoted_and_what_passes_is_not_wrong() -> None:
    catalog = GlueCatalog(settings_with({"kind": "glue", "region": "eu-central-1"}))

    def fails(code: str) -> Any:
        def ask(**_: Any) -> None:
            raise ClientError({"Error": {"Code": code, "Message": "not you"}}, "GetDatabases")

        return type("Client", (), {"get_databases": staticmethod(ask)})

    catalog._client = fails("AccessDeniedException")
    with pytest.raises(Misconfigured, match="refuses: AccessDeniedException: not you"):
        catalog.check()
    catalog._client = fails("ThrottlingException")
    with pytest.raises(Unavailable, match="does not answer: ThrottlingException"):
        catalog.check()


def test_a_glue_entry_keeps_what_others_put_into_it(
    glue_place: CatalogPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = GlueCatalog(settings_with(glue_place.keys))
    made = CatalogTable("s3://b/orders", "delta", ("shop", "one", "public.orders"), (), "ours")
    assert catalog.create(NAME, made)
    client, update = catalog._client, catalog._client.update_table
    asked: list[dict[str, Any]] = []

    def noted(**words: Any) -> Any:
        asked.append(words)
        return update(**words)

    monkeypatch.setattr(client, "update_table", noted)
    place = {"DatabaseName": NAME.schema, "Name": NAME.table}
    found = client.get_table(**place)["Table"]
    kept = {name: found[name] for name in ("Name", "StorageDescriptor")}
    theirs = {**kept, "Parameters": {**found["Parameters"], "steward": "them"}}
    update(DatabaseName=NAME.schema, TableInput=theirs)
    catalog.update(NAME, replace(made, comment=""))
    after = client.get_table(**place)["Table"]["Parameters"]
    assert after["steward"] == "them" and "comment" not in after
    assert after["tideline.fingerprint"] == replace(made, comment="").fingerprint
    assert [one["SkipArchive"] for one in asked] == [True]


def test_an_error_of_a_client_s_own_keeps_no_merge_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("canary")

    monkeypatch.setattr(registration, "_tables", fails)
    settings = settings_with({"kind": "hive", "url": "thrift://127.0.0.1:1"})
    expected = "nothing is registered in the catalog: KeyError"
    assert register(settings) == Registration(failed=expected)
    assert register(settings_with({})) == Registration()


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tideline.catalog.hive", raising=False)
    monkeypatch.setitem(sys.modules, "pymetastore", None)
    monkeypatch.setitem(sys.modules, "pymetastore.hive_metastore", None)
    settings = settings_with({"kind": "hive", "url": "thrift://127.0.0.1:1"})
    with (
        pytest.raises(Misconfigured, match="which is not installed") as caught,
        open_catalog(settings),
    ):
        pass
    assert caught.value.hint == "pip install 'tideline-cdc[hive]'"


def test_types_as_hive_and_spark_write_them() -> None:
    nested = {
        "type": "map",
        "keyType": "string",
        "valueType": {"type": "array", "elementType": "timestamp_ntz", "containsNull": True},
    }
    struct = {"type": "struct", "fields": [{"name": "a b", "type": "long", "nullable": True}]}
    assert [sql_type(one) for one in ("long", "byte", "decimal(38,9)", nested)] == [
        "bigint",
        "tinyint",
        "decimal(38,9)",
        "map<string,array<timestamp_ntz>>",
    ]
    assert [hive_type(one) for one in ("short", "decimal(38,9)", nested, struct, "variant")] == [
        "smallint",
        "decimal(38,9)",
        "map<string,array<timestamp>>",
        "string",
        "string",
    ]
