"""Places in S3: contradictions are named by key, access is inherited whole, no secret is shown."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.certificates import make_authority
from tideline.contract.errors import Misconfigured
from tideline.settings import Settings, make_settings
from tideline.settings.object_storage import ACCESS, ObjectStorage
from tideline.settings.sections import Store, Warehouse

SECRET = "canary-secret"
TOKEN = "canary-token"
KEYS = {"access_key_id": "AKIA", "secret_access_key": SECRET}
ELSEWHERE = {"endpoint": "https://other.example", "region": "eu-1"}


def made(store: dict[str, Any], warehouse: dict[str, Any]) -> Settings:
    return make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": "s3://lake/segments", **store},
            "warehouse": {"url": "s3://tables/all", **warehouse},
        }
    )


@pytest.mark.parametrize("section", ["store", "warehouse"])
@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"access_key_id": "AKIA"}, "access_key_id and secret_access_key"),
        ({"secret_access_key": SECRET}, "access_key_id and secret_access_key"),
        ({"secret_access_key_file": "/f"}, "secret_access_key_file, belong together"),
        ({"profile": "p", **KEYS}, "has a profile and an access key"),
        ({"session_token": TOKEN}, "has a session_token without the keys"),
        ({"session_token": TOKEN, "profile": "p"}, "has a session_token without the keys"),
        ({"kms_key": "arn:aws:kms:x"}, 'kms_key, which counts with encryption = "sse-kms"'),
        ({"kms_key": "k", "encryption": "sse-s3"}, "kms_key, which counts with encryption"),
        ({"path_style": False, "endpoint": "http://10.0.0.1:9000"}, "no bucket can stand before"),
        ({"path_style": False, "endpoint": "https://[::1]"}, "no bucket can stand before"),
    ],
)
def test_keys_that_contradict_each_other(section: str, keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(Misconfigured, match=rf"\n  {section}: .*{reason}") as caught:
        made(**{"store": {}, "warehouse": {}, section: keys})
    assert "has a mistake:" in str(caught.value)
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("section", ["store", "warehouse"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("endpoint", "host:9000"),
        ("endpoint", f"https://u:{SECRET}@host"),
        ("endpoint", "s3://host"),
        ("encryption", "aes"),
        ("profile", ""),
        ("profile", "two words"),
        ("profile", "[default]"),
        ("path_style", "perhaps"),
        ("session_token", [SECRET]),
    ],
)
def test_a_wrong_value_is_named_by_its_key(section: str, key: str, value: Any) -> None:
    with pytest.raises(Misconfigured, match=rf"\n  {section}\.{key}: ") as caught:
        made(**{"store": {}, "warehouse": {}, section: {key: value}})
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", ["s3://key:canary@bucket/x", "s3a://canary@b", "s3://b:canary/x"])
def test_no_credentials_in_an_address(url: str) -> None:
    with pytest.raises(Misconfigured, match=r"warehouse\.url: must not hold credentials") as caught:
        made({}, {"url": url})
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_no_secret_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    given = {"access_key_id": "AKIA", "secret_access_key_file": str(file), "session_token": TOKEN}
    settings = made({**KEYS, "session_token": TOKEN}, given)
    places = (settings.warehouse_storage, settings.warehouse_store(), settings.store, settings)
    for shown in places:
        for text in (repr(shown), str(shown), shown.model_dump_json(), f"{shown.model_dump()}"):
            assert "canary" not in text
    assert "canary" not in repr(settings.store.access())
    assert settings.store.secrets() == settings.warehouse.secrets() == [SECRET, TOKEN]


@pytest.mark.parametrize("key", ["secret_access_key", "session_token"])
def test_a_secret_that_is_not_utf8_is_named_and_not_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the environment may have it."""
    monkeypatch.setenv(f"TIDELINE_WAREHOUSE__{key.upper()}", "canary\udcff")
    settings = made({}, KEYS)
    ask = {
        "secret_access_key": settings.warehouse.secret,
        "session_token": settings.warehouse.token,
    }
    with pytest.raises(Misconfigured, match=rf"warehouse\.{key} is not UTF-8") as caught:
        ask[key]()
    assert "canary" not in "".join(traceback.format_exception(caught.value))
    settings.warehouse.secrets()


def test_an_unreadable_file_is_named_by_the_section(tmp_path: Path) -> None:
    given = {"access_key_id": "AKIA", "secret_access_key_file": str(tmp_path / "none")}
    with pytest.raises(Misconfigured, match=r"warehouse\.secret_access_key_file") as caught:
        made({}, given).warehouse.secret()
    assert "TIDELINE_WAREHOUSE__SECRET_ACCESS_KEY" in str(caught.value.hint)


def test_authorities_are_certificates_in_a_file_that_can_be_read(tmp_path: Path) -> None:
    assert made({}, {}).store.authorities() is None
    file = tmp_path / "ca.pem"
    place = made({"ca_file": str(file)}, {}).store
    with pytest.raises(Misconfigured, match=r"store\.ca_file cannot be read: No such file"):
        place.authorities()
    file.write_text("-----BEGIN PRIVATE KEY-----\ncanary\n")
    with pytest.raises(Misconfigured, match=r"store\.ca_file has no certificate") as caught:
        place.authorities()
    assert "canary" not in str(caught.value)
    file.write_bytes(make_authority(tmp_path).file.read_bytes())
    assert place.authorities() == file.read_bytes()


EVERY_KEY: dict[str, Any] = {
    **ELSEWHERE,
    **KEYS,
    "path_style": False,
    "ca_file": "/ca.pem",
    "encryption": "sse-kms",
    "kms_key": "k",
    "session_token": TOKEN,
}


def test_access_is_each_key_but_the_url() -> None:
    fields = set(ObjectStorage.model_fields) - {"url"}
    assert set(ACCESS) == fields == {*EVERY_KEY, "secret_access_key_file", "profile"}


def test_a_warehouse_in_s3_is_reached_as_the_store_is() -> None:
    settings = made(EVERY_KEY, {})
    place = settings.warehouse_storage
    assert type(place) is Warehouse
    assert (place.url, place.bucket) == ("s3://tables/all", "tables")
    assert place.access() == settings.store.access()
    assert (place.secret(), place.token(), place.path_style) == (SECRET, TOKEN, False)
    assert not settings.warehouse.has_access


@pytest.mark.parametrize("key", sorted(EVERY_KEY))
def test_one_key_of_its_own_and_nothing_is_inherited(key: str) -> None:
    """Keys of one account are not sent to the endpoint of another."""
    whole = {"access_key_id": KEYS, "secret_access_key": KEYS, "kms_key": {"encryption": "sse-kms"}}
    own = {key: EVERY_KEY[key], **whole.get(key, KEYS if key == "session_token" else {})}
    settings = made(EVERY_KEY, own)
    place = settings.warehouse_storage
    assert place is settings.warehouse
    assert place.access() == Warehouse(url="s3://tables/all", **own).access()


@pytest.mark.parametrize(
    ("store", "warehouse"),
    [
        ("file:///segments", "s3://tables/all"),
        ("s3://lake/segments", "file:///tables"),
        ("memory://x", "s3://tables/all"),
    ],
)
def test_nothing_is_inherited_unless_both_are_in_s3(store: str, warehouse: str) -> None:
    settings = made({**EVERY_KEY, "url": store}, {"url": warehouse})
    assert settings.warehouse_storage is settings.warehouse
    assert settings.warehouse_storage.secret() is None


def test_the_environment_gives_a_warehouse_its_own_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELINE_WAREHOUSE__ENDPOINT", "https://mine.example")
    place = made(EVERY_KEY, {}).warehouse_storage
    assert (place.endpoint, place.secret()) == ("https://mine.example", None)


def test_the_warehouse_as_a_store_has_the_stores_limits() -> None:
    settings = made({"timeout_s": 7, "retry_s": 3, **KEYS}, {})
    place = settings.warehouse_store()
    assert type(place) is Store
    assert (place.url, place.timeout_s, place.retry_s) == ("s3://tables/all", 7, 3)
    assert place.secret() == SECRET
    assert made(KEYS, {"url": "file:///w"}).warehouse_store().secret() is None
    own = made(KEYS, ELSEWHERE).warehouse_store()
    assert (own.endpoint, own.secret()) == ("https://other.example", None)


SAME = {"url": "s3://lake/tables"}


@pytest.mark.parametrize(
    "own",
    [
        {"endpoint": "https://other.example"},
        {"region": "eu-2"},
        {"path_style": False},
        {"encryption": "sse-s3"},
        {"profile": "p"},
        {"access_key_id": "AKIA", "secret_access_key": "canary-another"},
    ],
)
def test_one_bucket_is_not_reached_in_two_ways(own: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match=r"\n  warehouse: is in the store's bucket") as caught:
        made({**ELSEWHERE, **KEYS}, {**SAME, **own})
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_one_bucket_that_is_reached_in_one_way() -> None:
    assert made(EVERY_KEY, SAME).warehouse_storage.secret() == SECRET
    assert made(EVERY_KEY, {**SAME, **EVERY_KEY}).warehouse_storage.secret() == SECRET
    assert made(EVERY_KEY, ELSEWHERE).warehouse_storage.secret() is None, "another bucket"
    made({"url": "file:///lake/segments"}, {**SAME, **KEYS})


def test_a_store_with_mistakes_does_not_hide_a_warehouses() -> None:
    with pytest.raises(Misconfigured, match="has 2 mistakes") as caught:
        made({"url": "s3://", **KEYS}, {**SAME, "encryption": "rot13"})
    assert "warehouse.encryption" in str(caught.value)


@pytest.mark.parametrize("section", ["store", "warehouse"])
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3a://b/x", "is written as s3://bucket/prefix"),
        ("gcs://b/x", "is written as gs://bucket/prefix"),
        ("az://c/x", "is written as abfss://container@account"),
        ("wasbs://c@a.blob.core.windows.net/x", "is written as abfss://"),
        ("abfss://account.dfs.core.windows.net/x", "must be file:///absolute/path, s3://"),
        ("hdfs://namenode/x", "must be file:///absolute/path, s3://"),
        ("hdfs://namenode:8020/x", "must be file:///absolute/path, s3://"),
        ("https://u:canary@a.blob.core.windows.net/c", "must be file:///absolute/path, s3://"),
        ("ftp://host/x", "must be file:///absolute/path, s3://"),
        ("file://host/x", "must be file:///absolute/path, s3://"),
        ("x/y", "must be file:///absolute/path, s3://"),
        ("gs://", "must be file:///absolute/path, s3://"),
        ("gs://canary@b/x", "must not hold credentials: they come from the environment"),
        ("abfss://c:canary@a.dfs.core.windows.net/x", "must not hold credentials: they come"),
        ("abfss://c@a.dfs.core.windows.net/x?sig=canary", "must not hold credentials: they come"),
    ],
)
def test_a_place_that_is_not_served(section: str, url: str, reason: str) -> None:
    with pytest.raises(Misconfigured, match=rf"\n  {section}\.url: {reason}") as caught:
        made(**{"store": {}, "warehouse": {}, section: {"url": url}})
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("url", ["gs://b/x", "gs://b", "abfss://c@a.dfs.core.windows.net/x"])
def test_a_place_in_another_cloud(url: str) -> None:
    settings = made({"url": url}, {"url": f"{url}/tables/"})
    assert settings.store.in_object_store and not settings.store.in_s3
    assert settings.warehouse_store().url == f"{url}/tables"
    assert settings.warehouse_storage is settings.warehouse


@pytest.mark.parametrize("url", ["gs://b/x", "abfss://c@a.dfs.core.windows.net/x"])
@pytest.mark.parametrize("key", ["encryption", "ca_file", "path_style"])
def test_keys_of_s3_are_refused_in_another_cloud(url: str, key: str) -> None:
    """Nothing would be encrypted with them, and no one would know."""
    values = {"encryption": "sse-s3", "ca_file": "/ca.pem", "path_style": False}
    with pytest.raises(Misconfigured, match=rf"warehouse: .*has keys of S3 \({key}\)"):
        made({}, {"url": url, key: values[key]})
    made({"url": "file:///store", key: values[key]}, {})
