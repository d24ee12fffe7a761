"""Who else may read the passwords, or write the settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, SecretStr

from tests.fixtures.settings import as_toml
from tideline.settings import load_settings, settings_model
from tideline_console import modes
from tideline_console.modes import check_modes

VALUES: dict[str, dict[str, Any]] = {
    "source": {"url": "postgresql://u@h/d"},
    "store": {"url": "memory://"},
    "warehouse": {"url": "file:///w"},
}
KEYS = {"access_key_id": "i", "secret_access_key_file": "/nowhere/secret"}

ICEBERG = {"catalog": "jdbc", "url": "postgresql://h/d"}
HOOK = {"url": "https://h/path"}
UNITY = {"kind": "unity", "url": "https://u", "name": "main"}


def found(folder: Path, file_mode: int, secret_mode: int = 0o600, **sections: Any) -> list[str]:
    """What is said of a settings file with ``sections``, whose secrets' files have that mode."""
    values = {name: {**VALUES.get(name, {}), **one} for name, one in {**VALUES, **sections}.items()}
    path = folder / "tideline.toml"
    path.write_text(as_toml({"pipeline": "p", **values}))
    path.chmod(file_mode)
    for file in folder.glob("*.secret"):
        file.chmod(secret_mode)
    findings = list(check_modes(load_settings(path), path))
    assert all(one.level == "warning" and "chmod" in str(one.fix) for one in findings)
    assert "canary" not in repr(findings)
    return [one.message.partition(",")[0] for one in findings]


@pytest.mark.parametrize(
    "secret",
    [
        {"source": {"password": "canary"}},
        {"source": {"url": "postgresql://u:canary@h/d"}},
        {"control": {"password": "canary"}},
        {"control": {"url": "redis://:canary@h/0"}},
        {"store": {"access_key_id": "i", "secret_access_key": "canary"}},
        {"store": {**KEYS, "session_token": "canary"}},
        {"warehouse": {"access_key_id": "i", "secret_access_key": "canary"}},
        {"warehouse": {**KEYS, "session_token": "canary"}},
        {"warehouse": {"catalog": {**UNITY, "token": "canary"}}},
        {"merge": {"authenticate_secret": "canary"}},
        {"openlineage": {"api_key": "canary"}},
        {"publish": {"e": {"output": "redis", "redis": {"password": "canary"}}}},
        {"publish": {"e": {"output": "redis", "redis": {"url": "redis://:canary@h/0"}}}},
        {"publish": {"e": {"output": "webhook", "webhook": {**HOOK, "secret": "canary"}}}},
        {
            "publish": {
                "e": {
                    "output": "kinesis",
                    "kinesis": {
                        "stream": "s",
                        "access_key_id": "i",
                        "secret_access_key": "canary",
                    },
                }
            }
        },
    ],
)
def test_settings_with_a_secret_in_them(tmp_path: Path, secret: dict[str, Any]) -> None:
    for mode in (0o644, 0o604):
        words = "everybody on this machine may read the settings file"
        assert found(tmp_path, mode, **secret) == [words]
    for mode in (0o600, 0o640):
        assert found(tmp_path, mode, **secret) == []


def test_settings_without_one(tmp_path: Path) -> None:
    """Everybody may read them, but a stranger could point them elsewhere."""
    assert found(tmp_path, 0o644) == []
    assert found(tmp_path, 0o646) == ["everybody on this machine may write the settings file"]


def test_files_of_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "source.password_file",
        "control.password_file",
        "store.secret_access_key_file",
        "warehouse.secret_access_key_file",
        "warehouse.catalog.token_file",
        "warehouse.iceberg.password_file",
        "merge.authenticate_secret_file",
    )
    identity = {"access_key_id": "i"}
    sections: dict[str, Any] = {
        "store": identity,
        "warehouse": {**identity, "catalog": UNITY, "iceberg": ICEBERG},
    }
    for name in names:
        *path, key = name.split(".")
        file = tmp_path / f"{'-'.join(path)}.secret"
        file.write_text("canary")
        inner = sections
        for section in path:
            inner[section] = dict(inner.get(section, {}))
            inner = inner[section]
        inner[key] = str(file)
    assert found(tmp_path, 0o644, 0o640, **sections) == []
    reported = [f"everybody on this machine may read {name}" for name in names]
    assert found(tmp_path, 0o644, 0o644, **sections) == reported
    monkeypatch.setattr(modes, "_MOUNTED", (str(tmp_path),))
    assert found(tmp_path, 0o644, 0o444, **sections) == [], "an engine's mount has a mode for all"


def test_files_of_publishers_secrets(tmp_path: Path) -> None:
    hook, keys = tmp_path / "hook.secret", tmp_path / "keys.secret"
    for file in (hook, keys):
        file.write_text("canary")
    kinesis = {"stream": "s", "access_key_id": "i", "secret_access_key_file": str(keys)}
    publish = {
        "a": {"output": "webhook", "webhook": {**HOOK, "secret_file": str(hook)}},
        "b": {"output": "kinesis", "kinesis": kinesis},
        "c": {"output": "redis", "redis": {"password_file": str(hook)}},
        "d": {
            "output": "opensearch",
            "opensearch": {"url": "https://h", "user": "u", "password_file": str(hook)},
        },
        "e": {
            "output": "opensearch",
            "opensearch": {"url": "https://h", "api_key_file": str(keys)},
        },
    }
    assert found(tmp_path, 0o644, 0o640, publish=publish) == []
    assert found(tmp_path, 0o644, 0o644, publish=publish) == [
        f"everybody on this machine may read publish.{name}"
        for name in (
            "a.webhook.secret_file",
            "b.kinesis.secret_access_key_file",
            "c.redis.password_file",
            "d.opensearch.password_file",
            "e.opensearch.api_key_file",
        )
    ]


def test_every_secret_is_known() -> None:
    """By the settings' own types; a url is told apart by the password in it."""

    def secrets(section: type[BaseModel], *path: str) -> Iterator[tuple[str, ...]]:
        for name, field in section.model_fields.items():
            kinds = [field.annotation, *get_args(field.annotation)]
            if SecretStr in kinds and name != "url":
                yield *path, name
            for kind in kinds:
                # Children of aggregates have children.
                if kind is not section and isinstance(kind, type) and issubclass(kind, BaseModel):
                    yield from secrets(kind, *path, name)

    of_publishers = {("publish", *one) for one in modes._OF_PUBLISHERS}
    assert set(secrets(settings_model())) == {*modes._SECRETS, *of_publishers}


def test_a_file_that_is_another_containers(tmp_path: Path) -> None:
    assert found(tmp_path, 0o644, source={"password_file": "/nowhere/secret"}) == []
