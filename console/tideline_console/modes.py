"""Checks the file modes of secrets and settings: other users must not read or write them."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tideline.settings import PublishSettings, Settings
from tideline_capture.sources.finding import Finding, warning

_MOUNTED = ("/run/secrets/", "/var/run/secrets/")
"""The folder of a container engine's secrets, readable for all: the container protects them."""
_SECRETS = (
    ("source", "password"),
    ("control", "password"),
    ("store", "secret_access_key"),
    ("store", "session_token"),
    ("warehouse", "secret_access_key"),
    ("warehouse", "session_token"),
    ("warehouse", "catalog", "token"),
    ("warehouse", "iceberg", "password"),
    ("merge", "authenticate_secret"),
    ("openlineage", "api_key"),
)
_OF_PUBLISHERS = (
    ("avro", "password"),
    ("kafka", "password"),
    ("kinesis", "secret_access_key"),
    ("kinesis", "session_token"),
    ("opensearch", "password"),
    ("opensearch", "api_key"),
    ("redis", "password"),
    ("webhook", "secret"),
)
_URLS = (("source", "url"), ("control", "url"))


def check_modes(settings: Settings, path: Path) -> Iterator[Finding]:
    """Yield a warning for each file that every user of this machine may write or, if it holds a
    secret, read: the secrets' files and the settings at ``path``."""
    files = {
        "source.password_file": settings.source.password_file,
        "control.password_file": settings.control.password_file,
        "store.secret_access_key_file": settings.store.secret_access_key_file,
        "warehouse.secret_access_key_file": settings.warehouse.secret_access_key_file,
        "warehouse.catalog.token_file": settings.warehouse.catalog.token_file,
        "warehouse.iceberg.password_file": settings.warehouse.iceberg.password_file,
        "warehouse.bigquery.credentials_file": settings.warehouse.bigquery.credentials_file,
        "merge.authenticate_secret_file": settings.merge.authenticate_secret_file,
    }
    for name, publisher in settings.publish.items():
        files |= {f"publish.{name}.{key}": file for key, file in _files_of(publisher).items()}
    for name, file in files.items():
        if file is not None:
            yield from _check(name, file, secret=True)
    yield from _check("the settings file", path, secret=_holds_secret(path))


def _files_of(publisher: PublishSettings) -> Mapping[str, Path | None]:
    return {
        "avro.password_file": publisher.avro.password_file,
        "kafka.password_file": publisher.kafka.password_file,
        "kinesis.secret_access_key_file": publisher.kinesis.secret_access_key_file,
        "opensearch.password_file": publisher.opensearch.password_file,
        "opensearch.api_key_file": publisher.opensearch.api_key_file,
        "redis.password_file": publisher.redis.password_file,
        "webhook.secret_file": publisher.webhook.secret_file,
    }


def _check(name: str, file: Path, *, secret: bool) -> Iterator[Finding]:
    if str(file.absolute()).startswith(_MOUNTED):
        return
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:  # Its reader reports this.
        return
    may = "write" if mode & stat.S_IWOTH else "read" if secret and mode & stat.S_IROTH else None
    if may is not None:
        text = f"everybody on this machine may {may} {name}, {file} (mode {mode:04o})"
        yield warning("modes", text, f"chmod {'o-rwx' if secret else 'o-w'} {file}")


def _holds_secret(path: Path) -> bool:
    """Return whether a password is in the file itself, not in the environment."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    publishers = [("publish", name) for name in _at(values, "publish") or ()]
    keys = [*_SECRETS, *((*at, *key) for at in publishers for key in _OF_PUBLISHERS)]
    if any(_at(values, *key) for key in keys):
        return True
    urls = [*_URLS, *((*at, "redis", "url") for at in publishers)]
    return any(urlsplit(str(_at(values, *key) or "")).password for key in urls)


def _at(values: Mapping[str, Any], *keys: str) -> Any:
    found: Any = values
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
