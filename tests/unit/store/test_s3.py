"""What the store's client is told of a place in S3."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from tests.fixtures.certificates import make_authority
from tests.fixtures.tls_front import TlsFront
from tests.unit.store.scripted_s3 import ScriptedS3
from tideline import aws_profile
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.settings import Store
from tideline.store import s3
from tideline.store.objects import open_store
from tideline.store.s3 import cloud_client, s3_client, s3_options

KEYS: dict[str, Any] = {"access_key_id": "AKIA", "secret_access_key": "canary"}
LEAST = {"virtual_hosted_style_request": False}


def of(**keys: Any) -> dict[str, Any]:
    return s3_options(Store(url="s3://b/x", **keys))


def test_access() -> None:
    assert of() == LEAST
    assert of(**KEYS) == {**LEAST, "access_key_id": "AKIA", "secret_access_key": "canary"}
    assert of(**KEYS, session_token="t")["session_token"] == "t"
    assert of(profile="p") == LEAST


def test_the_rest_of_the_keys() -> None:
    assert of(endpoint="https://h:1", region="eu-1") == {
        **LEAST,
        "endpoint": "https://h:1",
        "region": "eu-1",
    }
    assert of(encryption="sse-s3") == {**LEAST, "server_side_encryption": "AES256"}
    kms = {"server_side_encryption": "aws:kms", "sse_kms_key_id": "k"}
    assert of(encryption="sse-kms", kms_key="k") == {**LEAST, **kms}


def test_a_bucket_in_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library puts it before Amazon's endpoint itself, and before no other."""
    hosted = {"virtual_hosted_style_request": True}
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert of(path_style=False) == hosted
    assert of(endpoint="https://h:1", path_style=False) == {**hosted, "endpoint": "https://b.h:1"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://environment:2")
    assert of(path_style=False) == {**hosted, "endpoint": "http://b.environment:2"}
    assert of() == LEAST, "the library takes it as it is"


@pytest.mark.parametrize(
    ("keys", "headers"),
    [
        ({}, {}),
        ({"encryption": "sse-s3"}, {"x-amz-server-side-encryption": "AES256"}),
        ({"encryption": "sse-kms"}, {"x-amz-server-side-encryption": "aws:kms"}),
        (
            {"encryption": "sse-kms", "kms_key": "k"},
            {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": "k",
            },
        ),
    ],
)
def test_what_is_written_asks_for_encryption(keys: dict[str, str], headers: dict[str, str]) -> None:
    """Create-only or not."""
    with ScriptedS3() as server:
        store = open_store(server.settings().model_copy(update=keys))
        assert store.create("a", b"data")
        store.put("a", b"data")
        for sent in server.headers:
            asked = {name: one for name, one in sent.items() if "server-side" in name}
            assert asked == headers


def test_temporary_keys_come_with_their_token() -> None:
    with ScriptedS3() as server:
        more = {"session_token": SecretStr("of-temporary-keys")}
        open_store(server.settings().model_copy(update=more)).put("a", b"data")
        assert server.headers[0]["x-amz-security-token"] == "of-temporary-keys"


def test_an_endpoint_of_a_private_authority_is_trusted(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    with ScriptedS3() as server:
        given = server.settings(retry_s=0.2)
        port = urlsplit(str(given.endpoint)).port
        assert port is not None
        with TlsFront(tmp_path, authority, port) as front:
            place = given.model_copy(update={"endpoint": f"https://127.0.0.1:{front.port}"})
            with pytest.raises(Misconfigured, match="no verified TLS") as caught:
                open_store(place).put("a", b"data")
            assert "ca_file" in str(caught.value.hint)
            assert server.objects == {}
            open_store(place.model_copy(update={"ca_file": authority.file})).put("a", b"data")
            assert server.objects == {"a": b"data"}
            assert front.encrypted


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_of_authorities_that_is_none(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Misconfigured, match=r"store\.ca_file"):
        s3_client(Store(url="s3://b", ca_file=file, **KEYS), timeout_s=1.0)


def test_a_profile_is_asked_for_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    keys = "aws_access_key_id = AKIA\naws_secret_access_key = canary\naws_session_token = token\n"
    file.write_text(f"[p]\n{keys}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    aws_profile._credentials.cache_clear()
    ask = s3._provider(Store(url="s3://b", profile="p"))
    assert ask is not None
    found = ask()
    assert (found["access_key_id"], found["secret_access_key"]) == ("AKIA", "canary")
    assert found["token"] == "token"
    assert datetime.now(UTC) < found["expires_at"] < datetime.now(UTC) + timedelta(minutes=6)
    with ScriptedS3() as server:
        given = server.settings()
        place = Store(
            url=given.url, endpoint=given.endpoint, region=given.region, profile="p", retry_s=1
        )
        open_store(place).put("a", b"data")
        assert server.objects == {"a": b"data"}
    aws_profile._credentials.cache_clear()


def test_a_profile_that_gives_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may pass, as a store does that is away."""

    class Gone:
        def __init__(self, name: str) -> None:
            pass

        def keys(self) -> None:
            raise Unavailable("the AWS profile p gave no credentials: canary")

    monkeypatch.setattr(s3, "AwsProfile", Gone)
    with ScriptedS3() as server:
        given = server.settings()
        place = Store(url=given.url, endpoint=given.endpoint, profile="p", retry_s=0.2)
        with pytest.raises(Unavailable, match="the AWS profile gives no credentials") as caught:
            open_store(place).put("a", b"data")
        assert "canary" not in "".join(traceback.format_exception(caught.value))
        assert server.requests == []


def test_a_profile_that_is_not_there_is_no_bug_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(Misconfigured, match="AWS profile nobody"):
        open_store(Store(url="s3://b", profile="nobody"))


@pytest.mark.parametrize(
    ("url", "bucket"),
    [
        ("gs://b/x/y", {"bucket": "b"}),
        (
            "abfss://c@a.dfs.core.windows.net/x/y",
            {"container_name": "c", "account_name": "a"},
        ),
    ],
)
def test_a_store_of_another_cloud(url: str, bucket: dict[str, str]) -> None:
    """Made, and never asked here: there is no server of either."""
    open_store(Store(url=url))
    client = cloud_client(Store(url=url), timeout_s=7.0)
    assert (client.prefix, dict(client.config or {})) == ("x/y", bucket)
    assert (client.retry_config or {})["max_retries"] == 0
