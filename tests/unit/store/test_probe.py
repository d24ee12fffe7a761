"""The probe refuses stores that cannot fence, and accepts one that only denies deletion."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.unit.store.scripted_s3 import Fault, ScriptedS3
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.planner.consumers import register_warehouse
from tideline.settings import Settings, Store, make_settings
from tideline.store.objects import open_store
from tideline.store.probe import probe_store, probe_warehouse


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        yield server


def test_a_good_store_is_left_clean(server: ScriptedS3) -> None:
    probe_store(server.settings(), "shop")
    assert server.objects == {}
    assert sum(method == "PUT" for method, _ in server.requests) == 3


def test_a_store_that_ignores_create_only(server: ScriptedS3) -> None:
    server.ignores_conditions = True
    with pytest.raises(Misconfigured, match="lets two writers create the same object"):
        probe_store(server.settings(), "shop")


def test_a_store_that_denies_deletion_is_accepted(server: ScriptedS3) -> None:
    server.denies_deletion = True
    probe_store(server.settings(), "shop")
    assert len(server.objects) == 1


@pytest.mark.parametrize("fault", [Fault(409), Fault(500, effect=True), Fault(503)])
def test_lost_answers_do_not_condemn_a_store(server: ScriptedS3, fault: Fault) -> None:
    server.faults.append(fault)
    probe_store(server.settings(), "shop")
    assert not server.faults, "none was met"


def test_a_store_that_may_not_be_written(server: ScriptedS3) -> None:
    server.faults.extend([Fault(403, "AccessDenied")] * 2)
    with pytest.raises(Misconfigured, match="AccessDenied"):
        probe_store(server.settings(), "shop")


def test_a_store_that_is_down(server: ScriptedS3) -> None:
    server.faults.extend([Fault(503)] * 200)
    with pytest.raises(Unavailable):
        probe_store(server.settings(retry_s=0.2), "shop")


def pipeline(server: ScriptedS3, warehouse: str, **more: object) -> Settings:
    """One whose store is in another bucket that is reached in the same way."""
    keys = server.settings()
    access = {"endpoint": keys.endpoint, "region": keys.region, "retry_s": 1}
    secret = {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret()}
    return make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": "s3://another/x", **access, **secret},
            "warehouse": {"url": warehouse, **more},
        }
    )


def test_a_warehouse_in_s3_is_probed_as_a_store_is(server: ScriptedS3) -> None:
    probe_warehouse(pipeline(server, server.settings().url))
    assert sum(method == "PUT" for method, _ in server.requests) == 3
    server.ignores_conditions = True
    with pytest.raises(Misconfigured, match="lets two writers create the same object"):
        probe_warehouse(pipeline(server, server.settings().url))


@pytest.mark.parametrize("url", ["file:///w", "memory://w"])
def test_another_warehouse_is_not(server: ScriptedS3, url: str) -> None:
    probe_warehouse(pipeline(server, url))
    assert server.requests == []


def test_a_warehouse_is_probed_once_before_it_is_on_record(server: ScriptedS3) -> None:
    """By whoever plans the first merge into it."""
    settings = pipeline(server, server.settings().url)
    store = open_store(Store(url=f"memory://{uuid.uuid4().hex}"))
    server.ignores_conditions = True
    with pytest.raises(Misconfigured, match="lets two writers create the same object"):
        register_warehouse(settings, store)
    assert store.list("") == [], "the next one looks again"
    server.ignores_conditions = False
    register_warehouse(settings, store)
    assert len(store.list("")) == 1
    asked = len(server.requests)
    register_warehouse(settings, store)
    assert len(server.requests) == asked


def test_a_warehouse_of_iceberg_tables_is_probed_with_its_first_delta_table(
    server: ScriptedS3,
) -> None:
    """Iceberg's commits rest on the catalog, and its server may take no other objects there."""
    url = server.settings().url
    store = open_store(Store(url=f"memory://{uuid.uuid4().hex}"))
    server.ignores_conditions = True
    catalog = {"catalog": "jdbc", "url": "postgresql://catalog:5432/iceberg"}
    register_warehouse(pipeline(server, url, format="iceberg", iceberg=catalog), store)
    assert (server.requests, len(store.list(""))) == ([], 1)
    with pytest.raises(Misconfigured, match="lets two writers create the same object"):
        register_warehouse(pipeline(server, url), store)


def test_the_same_address_at_another_server_is_probed_again(server: ScriptedS3) -> None:
    """A bucket's name says nothing of the server that it is asked of."""
    settings = pipeline(server, server.settings().url)
    store = open_store(Store(url=f"memory://{uuid.uuid4().hex}"))
    register_warehouse(settings, store)
    with ScriptedS3() as other:
        other.ignores_conditions = True
        moved = pipeline(other, other.settings().url)
        assert moved.warehouse.url == settings.warehouse.url
        with pytest.raises(Misconfigured, match="lets two writers create the same object"):
            register_warehouse(moved, store)
        other.ignores_conditions = False
        register_warehouse(moved, store)
        asked = len(server.requests), len(other.requests)
        register_warehouse(settings, store)
        register_warehouse(moved, store)
        assert (len(server.requests), len(other.requests)) == asked
