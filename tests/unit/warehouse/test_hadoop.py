"""S3A's settings for each way of access, and how they reach a job: by its environment alone."""

from __future__ import annotations

import json
import os
import traceback
from pathlib import Path
from typing import Any

import pytest

from tideline.contract.errors import Misconfigured
from tideline.settings import Store, Warehouse, make_settings
from tideline.warehouse import hadoop
from tideline.warehouse.hadoop import (
    AUTHORITIES,
    SETTINGS_VARIABLE,
    handed_on,
    place_settings,
    s3_settings,
    taken,
)

KEYS: dict[str, Any] = {"access_key_id": "AKIA", "secret_access_key": "canary"}
S3A = "spark.hadoop.fs.s3a.bucket."
PROVIDER = "aws.credentials.provider"
OURS = "org.apache.hadoop.fs.s3a."


@pytest.fixture(autouse=True)
def no_variables_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)


def of(bucket: str = "b", **keys: Any) -> dict[str, str]:
    """What S3A is told of a bucket that is reached by ``keys``, but for its time limits."""
    found = place_settings([Warehouse(url=f"s3://{bucket}/x", **keys)])
    prefix = f"{S3A}{bucket}."
    told = {name.removeprefix(prefix): value for name, value in found.items() if prefix in name}
    return {name: value for name, value in told.items() if not name.endswith(".timeout")}


def test_keys() -> None:
    assert of(**KEYS) == {
        "path.style.access": "true",
        "access.key": "AKIA",
        "secret.key": "canary",
        PROVIDER: f"{OURS}SimpleAWSCredentialsProvider",
    }


def test_temporary_keys() -> None:
    found = of(**KEYS, session_token="token")
    assert found["session.token"] == "token"
    assert found[PROVIDER] == f"{OURS}TemporaryAWSCredentialsProvider"


def test_a_secret_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("canary\n")
    assert of(access_key_id="AKIA", secret_access_key_file=file)["secret.key"] == "canary"
    file.unlink()
    with pytest.raises(Misconfigured, match=r"warehouse\.secret_access_key_file cannot be read"):
        of(access_key_id="AKIA", secret_access_key_file=file)


def test_a_profile() -> None:
    found = of(profile="mine")
    assert found["auth.profile.name"] == "mine"
    assert found[PROVIDER] == f"{OURS}auth.ProfileAWSCredentialsProvider"
    assert not {"access.key", "secret.key", "session.token"} & found.keys()


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys are not copied: whoever renews them is asked each time."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    found = of()
    assert "canary" not in str(found)
    assert provided(found) == [
        "TemporaryAWSCredentialsProvider",
        "SimpleAWSCredentialsProvider",
        "EnvironmentVariableCredentialsProvider",
        "IAMInstanceCredentialsProvider",
    ]


def provided(found: dict[str, str]) -> list[str]:
    return [name.rpartition(".")[2] for name in found[PROVIDER].split(",")]


def test_a_web_identity_is_asked_where_the_environment_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without it S3A would not start, and an instance's role would never be asked."""
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
    assert provided(of())[-2:] == [
        "WebIdentityTokenFileCredentialsProvider",
        "IAMInstanceCredentialsProvider",
    ]
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "")
    assert "WebIdentityTokenFileCredentialsProvider" not in provided(of())


@pytest.mark.parametrize(
    ("endpoint", "encrypted"), [("http://127.0.0.1:9000", "false"), ("https://s3.example", "true")]
)
def test_an_endpoint(endpoint: str, encrypted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = of(endpoint=endpoint)
    assert (found["endpoint"], found["connection.ssl.enabled"]) == (endpoint, encrypted)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert of() == found
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://the-settings-win.example")
    assert of(endpoint=endpoint) == found


def test_amazons_own_endpoint_is_left_to_s3a() -> None:
    assert not {"endpoint", "connection.ssl.enabled", "endpoint.region"} & of().keys()


def test_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(region="eu-1")["endpoint.region"] == "eu-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-2")
    assert of()["endpoint.region"] == "eu-2"
    monkeypatch.setenv("AWS_REGION", "eu-3")
    assert of()["endpoint.region"] == "eu-3"
    assert of(region="eu-1")["endpoint.region"] == "eu-1"


def test_the_style_of_addresses() -> None:
    assert of()["path.style.access"] == "true"
    assert of(path_style=False)["path.style.access"] == "false"


def test_encryption() -> None:
    assert "encryption.algorithm" not in of()
    assert of(encryption="sse-s3")["encryption.algorithm"] == "AES256"
    found = of(encryption="sse-kms", kms_key="arn:k")
    assert (found["encryption.algorithm"], found["encryption.key"]) == ("SSE-KMS", "arn:k")
    assert "encryption.key" not in of(encryption="sse-kms")


def test_authorities_are_named_once_each(tmp_path: Path) -> None:
    one, other = tmp_path / "one.pem", tmp_path / "other.pem"
    assert AUTHORITIES not in place_settings([Warehouse(url="s3://b")])
    places = [
        Store(url="s3://a", ca_file=one),
        Warehouse(url="s3://b", ca_file=one),
        Warehouse(url="s3://c", ca_file=other),
        Warehouse(url="file:///w", ca_file=tmp_path / "unused.pem"),
    ]
    assert place_settings(places)[AUTHORITIES] == f"{one}{os.pathsep}{other}"


def test_s3_is_the_scheme_of_s3a() -> None:
    found = place_settings([Warehouse(url="s3://b")])
    assert found["spark.hadoop.fs.s3.impl"] == f"{OURS}S3AFileSystem"
    assert found["spark.hadoop.fs.AbstractFileSystem.s3.impl"] == f"{OURS}S3A"


@pytest.mark.parametrize("other", ["file:///w", "gs://bucket/w", "memory://x"])
def test_nothing_is_said_of_other_places(other: str) -> None:
    keys = {} if other.startswith("gs") else KEYS  # which are refused there
    assert place_settings([Warehouse(url=other, **keys)]) == {}
    of_the_other_place = place_settings([Store(url="s3://b")])
    assert place_settings([Warehouse(url=other), Store(url="s3://b")]) == of_the_other_place


def pipeline(store: dict[str, Any], warehouse: dict[str, Any]) -> dict[str, str]:
    values = {"pipeline": "p", "source": {"url": "postgresql://u@h/d"}}
    return s3_settings(make_settings({**values, "store": store, "warehouse": warehouse}))


def test_each_bucket_of_a_pipeline_has_its_own_access() -> None:
    other = {"access_key_id": "AKIB", "secret_access_key": "other"}
    found = pipeline({"url": "s3://a/x", **KEYS}, {"url": "s3://b", **other})
    assert found[f"{S3A}a.secret.key"] == "canary"
    assert found[f"{S3A}b.secret.key"] == "other"
    inherited = pipeline({"url": "s3://a/x", **KEYS}, {"url": "s3://b"})
    assert inherited[f"{S3A}a.secret.key"] == inherited[f"{S3A}b.secret.key"] == "canary"
    alone = pipeline({"url": "file:///s"}, {"url": "s3://b", **KEYS})
    assert {name.split(".")[5] for name in alone if name.startswith(S3A)} == {"b"}
    assert pipeline({"url": "file:///s"}, {"url": "file:///w"}) == {}


def test_the_stores_time_limit_is_that_of_a_request_to_either_bucket() -> None:
    found = pipeline({"url": "s3://a/x", "timeout_s": 0.5, **KEYS}, {"url": "s3://b"})
    for bucket in "ab":
        limits = {
            name.removeprefix(f"{S3A}{bucket}.connection."): value
            for name, value in found.items()
            if name.startswith(f"{S3A}{bucket}.") and name.endswith("timeout")
        }
        assert limits == {
            "establish.timeout": "500ms",
            "timeout": "500ms",
            "request.timeout": "500ms",
            "part.upload.timeout": "2000ms",
        }
    assert pipeline({"url": "file:///s"}, {"url": "s3://b"})[f"{S3A}b.connection.timeout"] == (
        "30000ms"
    )


def test_no_setting_of_all_buckets_holds_a_secret() -> None:
    """Spark may read other buckets: with its own access."""
    found = pipeline({"url": "s3://a/x", **KEYS}, {"url": "s3://b"})
    assert not [name for name, value in found.items() if S3A not in name and "canary" in value]


def test_what_is_handed_on_is_taken_once() -> None:
    settings = place_settings([Warehouse(url="s3://b", **KEYS)])
    environment = {"PATH": "/bin", **handed_on(settings)}
    assert taken(environment) == settings
    assert environment == {"PATH": "/bin"}, "nothing that the job starts inherits it"
    assert taken(environment) == {}


def test_it_is_taken_from_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTINGS_VARIABLE, '{"a": "b"}')
    assert taken() == {"a": "b"}
    assert SETTINGS_VARIABLE not in os.environ


def test_nothing_is_handed_on_without_settings() -> None:
    assert handed_on({}) == {}


@pytest.mark.parametrize("text", ["", "canary", '["canary"]', '{"a": {"b": "canary"}}', '{"a": 1}'])
def test_what_is_none_of_ours_is_refused_and_not_shown(text: str) -> None:
    environment = {SETTINGS_VARIABLE: text}
    with pytest.raises(Misconfigured, match=f"{SETTINGS_VARIABLE} does not hold") as caught:
        taken(environment)
    assert "unset" in str(caught.value.hint)
    assert "canary" not in "".join(traceback.format_exception(caught.value))
    assert environment == {}


def test_it_fits_into_one_variable() -> None:
    """Linux ends one at 128 KiB."""
    places = [Warehouse(url=f"s3://{'b' * 60}{number}", **KEYS) for number in range(2)]
    [text] = handed_on(hadoop.place_settings(places)).values()
    assert len(text) < 8_000
    assert json.loads(text)
