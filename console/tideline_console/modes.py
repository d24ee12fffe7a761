"""Who else on this machine may read the passwords, or write the settings: the files' modes."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tideline.settings import Settings
from tideline_capture.sources.finding import Finding, warning

_MOUNTED = ("/run/secrets/", "/var/run/secrets/")
"""Where an engine puts secrets, readable for all: the container is their border."""
_SECRETS = (("source", "password"), ("control", "password"), ("store", "secret_access_key"))
_URLS = (("source", "url"), ("control", "url"))


def check_modes(settings: Settings, path: Path) -> Iterator[Finding]:
    """A warning for each file of a secret, the settings at ``path`` among them if they hold one,
    that everybody on this machine may read; and for each that everybody may write."""
    files = {
        "source.password_file": settings.source.password_file,
        "control.password_file": settings.control.password_file,
        "store.secret_access_key_file": settings.store.secret_access_key_file,
    }
    for name, file in files.items():
        if file is not None:
            yield from _check(name, file, secret=True)
    yield from _check("the settings file", path, secret=_holds_secret(path))


def _check(name: str, file: Path, *, secret: bool) -> Iterator[Finding]:
    if str(file.absolute()).startswith(_MOUNTED):
        return
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:  # Who needs it says so.
        return
    may = "write" if mode & stat.S_IWOTH else "read" if secret and mode & stat.S_IROTH else None
    if may is not None:
        text = f"everybody on this machine may {may} {name}, {file} (mode {mode:04o})"
        yield warning("modes", text, f"chmod {'o-rwx' if secret else 'o-w'} {file}")


def _holds_secret(path: Path) -> bool:
    """Whether a password stands in the file itself, not in the environment."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    if any(_at(values, *key) for key in (*_SECRETS, ("openlineage", "api_key"))):
        return True
    return any(urlsplit(str(_at(values, *key) or "")).password for key in _URLS)


def _at(values: Mapping[str, Any], section: str, key: str) -> Any:
    found = values.get(section)
    return found.get(key) if isinstance(found, Mapping) else None
