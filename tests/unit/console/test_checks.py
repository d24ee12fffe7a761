"""What doctor says of connections that someone could read, or stand in for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.store.scripted_s3 import ScriptedS3
from tideline.contract.errors import Misconfigured
from tideline.settings import make_settings
from tideline_capture.sources.registry import source_of
from tideline_console import checks
from tideline_console.checks import (
    check_cluster,
    check_control,
    check_redis_tls,
    check_store,
    check_store_tls,
    check_warehouse,
)


def names(found: Iterable[Any]) -> list[tuple[str, str]]:
    return [(one.name, one.level) for one in found]


def settings(**sections: Any) -> Any:
    return make_settings(
        {
            "pipeline": "p",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": "s3://b/x"},
            "warehouse": {"url": "file:///w"},
            **sections,
        }
    )


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("redis://127.0.0.1/0", False),
        ("rediss://db.example/0", False),
        ("redis://db.example/0", True),
        ("rediss://db.example/0?ssl_cert_reqs=none", True),
    ],
)
def test_the_queue(url: str, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Answers:
        def __init__(self, *_: Any) -> None: ...

        def ping(self) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr(checks, "ControlClient", Answers)
    asked = settings(control={"url": url})
    expected = [("control", "ok")] + [("control_encryption", "warning")] * warned
    assert names([*check_control(asked), *check_redis_tls(asked)]) == expected
    events = {"output": "redis", "redis": {"url": url}}
    (*_, of_publisher) = (None, *check_redis_tls(settings(publish={"events": events})))
    assert (of_publisher is not None) == warned
    assert of_publisher is None or "publish.events.redis.url" in str(of_publisher.fix)


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("postgresql://u@db.example/shop", False),
        ("postgresql://u@db.example/shop?sslmode=disable", True),
        ("postgresql://u@db.example/shop?sslmode=require", True),
        ("postgresql://u@127.0.0.1/shop?sslmode=disable", False),
        ("mysql://u@db.example/", False),
        ("mariadb://u@db.example/?ssl-mode=DISABLED", True),
        ("mysql://u@db.example/?ssl-mode=REQUIRED", True),
        ("mysql://u@[::1]/?ssl-mode=DISABLED", False),
    ],
)
def test_a_source_that_cannot_be_reached(url: str, warned: bool) -> None:
    found = source_of(settings(source={"url": url, "tables": ["*.*"]})).check_url()
    assert names(found) == [("encryption", "warning")] * warned


@pytest.mark.parametrize(
    ("endpoint", "warned"),
    [
        (None, False),
        ("https://s3.example", False),
        ("http://127.0.0.1:9000", False),
        ("http://localhost:9000", False),
        ("http://s3.example:9000", True),
        ("http://10.0.0.7", True),
    ],
)
def test_the_store(endpoint: str | None, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "probe_store", lambda *_: None)
    asked = settings(store={"url": "s3://b/x", "endpoint": endpoint})
    expected = [("store", "ok")] + [("store_encryption", "warning")] * warned
    assert names([*check_store(asked), *check_store_tls(asked)]) == expected


@pytest.mark.parametrize(
    ("store", "warehouse", "warned"),
    [
        ({}, {}, []),
        ({"endpoint": "http://a.example"}, {}, ["store"]),
        ({}, {"endpoint": "http://a.example"}, ["warehouse"]),
        ({"endpoint": "http://a.example"}, {"endpoint": "https://a.example"}, ["store"]),
        ({"endpoint": "http://a"}, {"endpoint": "http://b"}, ["store", "warehouse"]),
        ({}, {"endpoint": "http://127.0.0.1:1"}, []),
    ],
)
def test_the_warehouses_encryption_is_looked_at_too(
    store: dict[str, str], warehouse: dict[str, str], warned: list[str]
) -> None:
    """One that is reached as the store is has no line of its own: the key is the store's."""
    asked = settings(store={"url": "s3://a", **store}, warehouse={"url": "s3://b", **warehouse})
    found = list(check_store_tls(asked))
    assert names(found) == [(f"{name}_encryption", "warning") for name in warned]
    assert [one.fix for one in found] == [f"write https:// in {name}.endpoint" for name in warned]


def test_a_warehouse_in_files(tmp_path: Path) -> None:
    asked = settings(warehouse={"url": (tmp_path / "w").as_uri()})
    [found] = check_warehouse(asked)
    assert (found.name, found.level) == ("warehouse", "ok")
    assert list((tmp_path / "w").iterdir()) == []


def in_s3(server: ScriptedS3) -> Any:
    """A warehouse in ``server``, which is reached as the store is."""
    keys = server.settings()
    access = {"endpoint": keys.endpoint, "region": keys.region, "retry_s": 1}
    secret = {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret()}
    store = {"url": "s3://another/x", **access, **secret}
    return settings(store=store, warehouse={"url": keys.url})


def test_a_warehouse_in_s3_is_raced_for() -> None:
    with ScriptedS3() as server:
        [found] = check_warehouse(in_s3(server))
        assert (found.name, found.level) == ("warehouse", "ok")
        assert "of two racing commits one wins" in found.message
        assert server.objects == {}


def test_a_warehouse_in_which_commits_would_be_lost() -> None:
    with ScriptedS3() as server:
        server.ignores_conditions = True
        with pytest.raises(Misconfigured, match="lets two writers create the same object"):
            check_warehouse(in_s3(server))


KEYS = {"access_key_id": "id", "secret_access_key": "canary"}


@pytest.mark.parametrize(
    ("master", "merge", "warned"),
    [
        ("local[2]", {}, []),
        ("spark://127.0.0.1:7077", {}, ["cluster_files"]),
        ("spark://10.0.0.7:7077", {}, ["cluster_files", "cluster_encryption"]),
        ("spark://127.0.0.1:7077,h:7077", {"shared_files": True}, ["cluster_encryption"]),
        ("spark://10.0.0.7:7077", {"authenticate_secret": "canary"}, ["cluster_files"]),
        ("yarn", {"shared_files": True}, []),
    ],
)
def test_a_cluster(master: str, merge: dict[str, Any], warned: list[str]) -> None:
    """``spark.authenticate`` encrypts what the driver hands on."""
    found = list(check_cluster(settings(merge=merge), master))
    assert names(found) == [(name, "warning") for name in warned]
    assert "keys of S3" not in str(found) and "canary" not in str(found)
    in_s3 = settings(merge=merge, store={"url": "s3://b/x", **KEYS}, warehouse={"url": "s3://b/w"})
    again = list(check_cluster(in_s3, master))
    assert names(again) == [(n, "warning") for n in warned if n != "cluster_files"]
    assert ("keys of S3" in str(again)) is ("cluster_encryption" in warned)
