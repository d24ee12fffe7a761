"""By whom Glue is asked: as S3 is, by a key, a profile that the settings name, or what the
environment has besides profiles."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from devtools.services.http_service import HttpService, QuietHandler
from tests.fixtures.aws_identities import INSTANCE, TOKEN, WEB, WEB_TOKEN, AwsIdentities
from tideline.aws_session import aws_session
from tideline.catalog.glue import GlueCatalog
from tideline.settings import make_settings

_SIGNED = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/glue/")
KEYS = {"access_key_id": "AKIASETTINGS", "secret_access_key": "canary"}
VARIABLES = {"AWS_ACCESS_KEY_ID": "AKIAVARIABLE", "AWS_SECRET_ACCESS_KEY": "canary"}


class Glue(HttpService):
    """Has no databases. ``seen`` has each request's access key, region and token."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.seen: list[tuple[str, str, str | None]] = []


class _Handler(QuietHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        found = _SIGNED.search(self.headers.get("authorization", ""))
        assert found is not None
        token = self.headers.get("x-amz-security-token")
        self.server.service.seen.append((found[1], found[2], token))
        body = b'{"DatabaseList": []}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsIdentities]:
    """A machine with a role, and with profiles that nobody has named in the settings: ``default``
    and the one of ``AWS_PROFILE``."""
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text(
        "".join(
            f"[{name}]\naws_access_key_id = AKIA{name.upper()}\naws_secret_access_key = canary\n"
            for name in ("default", "theirs", "ours")
        )
    )
    (tmp_path / "config").write_text("[default]\nregion = us-west-2\n[profile theirs]\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "theirs")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    with AwsIdentities() as made:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", made.endpoint)
        aws_session.cache_clear()
        yield made
    aws_session.cache_clear()


def asked(warehouse: Mapping[str, Any]) -> tuple[str, str, str | None]:
    """The access key, the region and the token of a request to Glue."""
    with Glue() as server:
        catalog = {"kind": "glue", "url": server.endpoint}
        settings = make_settings(
            {
                "pipeline": "shop",
                "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
                "store": {"url": "file:///store"},
                "warehouse": {"url": "s3://lake/tables", "catalog": catalog, **warehouse},
            }
        )
        GlueCatalog(settings).check()
        (seen,) = server.seen
    return seen


def variables(monkeypatch: pytest.MonkeyPatch, folder: Path, aws: AwsIdentities) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


def web_identity(monkeypatch: pytest.MonkeyPatch, folder: Path, aws: AwsIdentities) -> None:
    (folder / "token").write_text(WEB_TOKEN)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/tideline")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(folder / "token"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws.endpoint)


def nothing(monkeypatch: pytest.MonkeyPatch, folder: Path, aws: AwsIdentities) -> None:
    """The role of the instance is there in any case."""


@pytest.mark.parametrize(
    ("given", "warehouse", "seen"),
    [
        (variables, {}, ("AKIAVARIABLE", "eu-north-1", None)),
        (web_identity, {}, (WEB, "eu-north-1", TOKEN)),
        (nothing, {}, (INSTANCE, "eu-north-1", TOKEN)),
        (nothing, {"region": "eu-central-1"}, (INSTANCE, "eu-central-1", TOKEN)),
        (variables, {"profile": "ours", "region": "eu-1"}, ("AKIAOURS", "eu-1", None)),
        (variables, {**KEYS, "region": "eu-1"}, ("AKIASETTINGS", "eu-1", None)),
    ],
    ids=["variables", "web identity", "role", "role and region", "profile", "key"],
)
def test_glue_is_asked_as_the_warehouse_is(
    aws: AwsIdentities,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: Callable[[pytest.MonkeyPatch, Path, AwsIdentities], None],
    warehouse: Mapping[str, Any],
    seen: tuple[str, str, str | None],
) -> None:
    given(monkeypatch, tmp_path, aws)
    assert asked(warehouse) == seen


def test_a_web_identity_has_the_region_of_the_settings(
    aws: AwsIdentities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys are asked for before Glue is."""
    web_identity(monkeypatch, tmp_path, aws)
    monkeypatch.delenv("AWS_REGION")
    assert asked({"region": "eu-central-1"}) == (WEB, "eu-central-1", TOKEN)


def test_a_profile_that_is_not_there_and_nobody_named_is_no_matter(
    aws: AwsIdentities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "gone")
    assert asked(KEYS)[0] == "AKIASETTINGS"
