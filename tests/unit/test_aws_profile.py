"""Credentials of profiles: what botocore finds, and errors of ours that show none of it."""

from __future__ import annotations

import builtins
import sys
import traceback
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tideline import aws_profile
from tideline.aws_profile import AwsProfile
from tideline.contract.errors import Misconfigured, Unavailable


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in place of ~/.aws; other sources of credentials must not be asked."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-of-the-environment")
    aws_profile._credentials.cache_clear()
    yield tmp_path
    aws_profile._credentials.cache_clear()


@pytest.mark.parametrize("token", [None, "token"])
def test_keys_of_a_profile(home: Path, token: str | None) -> None:
    more = "" if token is None else f"aws_session_token = {token}\n"
    (home / "credentials").write_text(
        "[default]\naws_access_key_id = no\naws_secret_access_key = no\n"
        f"[mine]\naws_access_key_id = AKIA\naws_secret_access_key = canary\n{more}"
    )
    before = datetime.now(UTC)
    found = AwsProfile("mine").keys()
    assert (found.access_key_id, found.secret_access_key) == ("AKIA", "canary")
    assert found.session_token == token
    assert found.until is not None
    assert timedelta(0) < found.until - before <= timedelta(minutes=6)


def process(home: Path, *lines: str) -> None:
    """A profile ``mine`` whose credentials a program prints."""
    program = home / "program"
    program.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    program.chmod(0o755)
    (home / "config").write_text(f"[profile mine]\ncredential_process = {program}\n")


def test_credentials_that_end_are_asked_for_again(home: Path) -> None:
    """The library does so 15 minutes before their end."""
    count = home / "count"
    process(
        home,
        f'echo x >> "{count}"; n=$(wc -l < "{count}")',
        'end=$(date -u -d "+5 minutes" +%Y-%m-%dT%H:%M:%SZ)',
        'echo "{\\"Version\\": 1, \\"AccessKeyId\\": \\"A$n\\", \\"SecretAccessKey\\": \\"s\\",'
        ' \\"SessionToken\\": \\"t$n\\", \\"Expiration\\": \\"$end\\"}"',
    )
    profile = AwsProfile("mine")
    first, second = profile.keys(), profile.keys()
    assert first.access_key_id < second.access_key_id
    assert second.session_token == second.access_key_id.replace("A", "t")


def test_one_profile_is_looked_up_once(home: Path) -> None:
    """Each table of a warehouse is opened with it, and a role is a request each time."""
    count = home / "count"
    process(
        home,
        f'echo x >> "{count}"',
        'echo "{\\"Version\\": 1, \\"AccessKeyId\\": \\"A\\", \\"SecretAccessKey\\": \\"s\\"}"',
    )
    for _ in range(3):
        assert AwsProfile("mine").keys().session_token is None
    assert count.read_text() == "x\n"


def test_a_profile_that_is_not_there(home: Path) -> None:
    with pytest.raises(Misconfigured, match="AWS profile mine cannot be used: Profile") as caught:
        AwsProfile("mine")
    assert "~/.aws" in str(caught.value.hint)


def test_files_that_are_none_of_the_librarys(home: Path) -> None:
    (home / "config").write_text("[profile mine\ncanary")
    with pytest.raises(Misconfigured, match="mine cannot be used: ConfigParse") as caught:
        AwsProfile("mine")
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_a_profile_without_credentials_takes_none_of_the_environment(home: Path) -> None:
    (home / "config").write_text("[profile mine]\nregion = eu-1\n")
    with pytest.raises(Misconfigured, match="mine has no credentials"):
        AwsProfile("mine")


def test_a_program_that_fails_is_named_without_its_words(home: Path) -> None:
    process(home, "echo canary >&2", "exit 1")
    with pytest.raises(Misconfigured, match="mine cannot be used: CredentialRetrieval") as caught:
        AwsProfile("mine").keys()
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_whoever_gives_none_any_more_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import CredentialRetrievalError

    class Gone:
        def get_frozen_credentials(self) -> None:
            raise CredentialRetrievalError(provider=uuid.uuid4().hex, error_msg="canary")

    monkeypatch.setattr(aws_profile, "_credentials", lambda _: Gone())
    with pytest.raises(Unavailable, match="mine gave no credentials: CredentialRetr") as caught:
        AwsProfile("mine").keys()
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_the_library_is_wanted_for_profiles_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *given: Any, **more: Any) -> Any:
        if name.startswith("botocore"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *given, **more)

    for name in [one for one in sys.modules if one.startswith("botocore")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Misconfigured, match="botocore, which is not installed") as caught:
        AwsProfile(uuid.uuid4().hex)
    assert "tideline-cdc[aws]" in str(caught.value.hint)


def test_secrets_are_in_no_repr(home: Path) -> None:
    (home / "credentials").write_text(
        "[mine]\naws_access_key_id = AKIA\naws_secret_access_key = canary\n"
        "aws_session_token = canary\n"
    )
    profile = AwsProfile("mine")
    assert "canary" not in f"{profile!r}{profile.keys()!r}"
