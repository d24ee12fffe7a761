"""What readers of tables are told of a warehouse in S3, and whom they trust then."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures.certificates import make_authority
from tideline import authorities, aws_profile
from tideline.contract.errors import Misconfigured
from tideline.settings import Warehouse
from tideline.warehouse.access import storage_options, trust

KEYS: dict[str, Any] = {"access_key_id": "AKIA", "secret_access_key": "canary"}
LEAST = {"aws_virtual_hosted_style_request": "false", "aws_conditional_put": "etag"}
CREDENTIALS = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "canary"}


def of(**keys: Any) -> dict[str, str]:
    return dict(storage_options(Warehouse(url="s3://b/x", **keys)))


def test_access_of_the_environment_is_the_librarys_own() -> None:
    assert of() == LEAST


def test_keys(tmp_path: Path) -> None:
    assert of(**KEYS) == {**LEAST, **CREDENTIALS}
    file = tmp_path / "secret"
    file.write_text("canary\n")
    assert of(access_key_id="AKIA", secret_access_key_file=file) == {**LEAST, **CREDENTIALS}
    temporary = {**CREDENTIALS, "aws_session_token": "token"}
    assert of(**KEYS, session_token="token") == {**LEAST, **temporary}


def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"warehouse\.secret_access_key_file cannot be read"):
        of(access_key_id="AKIA", secret_access_key_file=tmp_path / "none")


@pytest.mark.parametrize("token", [None, "token"])
def test_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    file = tmp_path / "credentials"
    more = "" if token is None else f"aws_session_token = {token}\n"
    file.write_text(f"[p]\naws_access_key_id = AKIA\naws_secret_access_key = canary\n{more}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    aws_profile._credentials.cache_clear()
    temporary = {} if token is None else {"aws_session_token": token}
    assert of(profile="p") == {**LEAST, **CREDENTIALS, **temporary}
    aws_profile._credentials.cache_clear()


@pytest.mark.parametrize(
    ("endpoint", "plain"), [("http://127.0.0.1:9000", "true"), ("https://s3.example", "false")]
)
def test_an_endpoint(endpoint: str, plain: str) -> None:
    assert of(endpoint=endpoint) == {**LEAST, "aws_endpoint": endpoint, "aws_allow_http": plain}


def test_region_and_style() -> None:
    assert of(region="eu-1") == {**LEAST, "aws_region": "eu-1"}
    hosted = {**LEAST, "aws_virtual_hosted_style_request": "true"}
    assert of(path_style=False) == hosted
    assert of(path_style=False, endpoint="http://h:1") == {
        **hosted,
        "aws_endpoint": "http://b.h:1",
        "aws_allow_http": "true",
    }


@pytest.mark.parametrize("url", ["abfss://c@a.dfs.core.windows.net/w", "gs://b/w"])
def test_other_places_have_no_options(url: str) -> None:
    """And no secret of S3 reaches files."""
    assert storage_options(Warehouse(url=url)) == {}
    assert storage_options(Warehouse(url="file:///w", **KEYS)) == {}


# -- authorities ---------------------------------------------------------------------------------

VARIABLE = "SSL_CERT_FILE"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a machine's own authorities, with one in it; a cache beside it."""
    folder = tmp_path / "machine"
    folder.mkdir()
    file = make_authority(folder, "machine").file
    monkeypatch.setenv("TIDELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(authorities, "_BUNDLES", ("/nowhere", str(file)))
    paths = SimpleNamespace(cafile=None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    before = os.environ.pop(VARIABLE, None)
    yield file
    os.environ.pop(VARIABLE, None)
    if before is not None:
        os.environ[VARIABLE] = before


def trusted() -> set[str]:
    """The names of the authorities that a new connection of this process trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(os.environ[VARIABLE])
    found: list[Any] = context.get_ca_certs()
    return {dict(name[0] for name in one["subject"])["commonName"] for one in found}


def place(file: Path | None) -> Warehouse:
    return Warehouse(url="s3://b", ca_file=file)


def test_nothing_is_changed_without_an_authority(machine: Path) -> None:
    trust(place(None))
    assert VARIABLE not in os.environ


def test_the_machines_own_stay_trusted(machine: Path, tmp_path: Path) -> None:
    trust(place(make_authority(tmp_path, "ours").file))
    assert trusted() == {"machine", "ours"}


def test_those_of_the_environment_stay_trusted(machine: Path, tmp_path: Path) -> None:
    os.environ[VARIABLE] = str(make_authority(tmp_path, "given").file)
    trust(place(make_authority(tmp_path, "ours").file))
    assert trusted() == {"given", "ours"}


def test_each_place_is_trusted_and_added_once(machine: Path, tmp_path: Path) -> None:
    ours, other = (make_authority(tmp_path, name).file for name in ("ours", "other"))
    for file in (ours, other, ours, other):
        trust(place(file))
        last = os.environ[VARIABLE]
    assert trusted() == {"machine", "ours", "other"}
    assert Path(last).read_text().count("BEGIN CERTIFICATE") == 3
    trust(place(ours))
    assert os.environ[VARIABLE] == last
    assert len(list((tmp_path / "cache" / "authorities").iterdir())) == 2


def test_a_file_that_is_trusted_is_not_read_again(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table that is opened asks."""
    ours = place(make_authority(tmp_path, "ours").file)
    trust(ours)
    read = []
    monkeypatch.setattr(Warehouse, "authorities", lambda self: read.append(self))
    trust(ours)
    assert read == []
    del os.environ[VARIABLE]
    trust(ours)
    assert read == [ours], "this process goes by another file now"


def test_an_authority_that_was_renewed_is_trusted(machine: Path, tmp_path: Path) -> None:
    trust(place(make_authority(tmp_path, "ours").file))
    (tmp_path / "ours.pem").write_bytes(make_authority(tmp_path, "renewed").file.read_bytes())
    trust(place(tmp_path / "ours.pem"))
    assert trusted() == {"machine", "ours", "renewed"}


def test_an_authority_that_is_renewed_while_it_is_read_is_trusted(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = make_authority(tmp_path, "ours").file
    renewed = make_authority(tmp_path, "renewed").file.read_bytes()
    read = Warehouse.authorities

    def renewing(self: Warehouse) -> bytes | None:
        found = read(self)
        ours.write_bytes(renewed + b"\n")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Warehouse, "authorities", renewing)
        trust(place(ours))
    trust(place(ours))
    assert trusted() == {"machine", "ours", "renewed"}


def test_a_machine_without_any(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorities, "_BUNDLES", ())
    trust(place(make_authority(tmp_path, "ours").file))
    assert trusted() == {"ours"}


def test_a_folder_of_the_environment_goes_on_to_count(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the file, in which the machine's own are not: the folder was given instead of them."""
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "folder"))
    trust(place(make_authority(tmp_path, "ours").file))
    assert trusted() == {"ours"}


def test_a_file_that_is_none_is_named(machine: Path, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"warehouse\.ca_file cannot be read"):
        trust(place(tmp_path / "none.pem"))
    assert VARIABLE not in os.environ
