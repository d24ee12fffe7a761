"""Options and authorities of a warehouse: what the readers of tables need besides its url."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tideline.authorities import FILE_VARIABLE, authorities_file
from tideline.aws_profile import AwsProfile, Keys
from tideline.cache import cache_folder
from tideline.settings.object_storage import ObjectStorage

_TRUSTED: set[tuple[Path, int, int, str | None]] = set()
"""The `_state` of each CA file that is trusted, with the file that this process goes by: a table is
opened often, and bundles are large."""


def storage_options(place: ObjectStorage) -> Mapping[str, str]:
    """Return the options of `deltalake` (and of other readers on Rust's ``object_store``) for
    ``place``; {} for one that is not in S3.

    Raises what `AwsProfile.keys` raises.
    """
    if not place.in_s3:
        return {}
    options = {
        "aws_virtual_hosted_style_request": str(not place.path_style).lower(),
        # Its commits are then create-only, as ours are.
        "aws_conditional_put": "etag",
    }
    if (endpoint := place.bucket_endpoint) is not None:
        options["aws_endpoint"] = endpoint
        options["aws_allow_http"] = str(endpoint.startswith("http://")).lower()
    if place.region is not None:
        options["aws_region"] = place.region
    return options | _keys(place)


def trust(place: ObjectStorage) -> None:
    """Have this process's readers trust the authorities of ``place`` besides those that it trusts
    already: their library takes all of them from one file, which the environment names.

    Raises Misconfigured for a CA file that cannot be read.
    """
    if place.ca_file is None:
        return
    state = _state(place.ca_file)  # Before it is read: it may be renewed meanwhile.
    if (*state, os.environ.get(FILE_VARIABLE)) in _TRUSTED:
        return
    wanted = place.authorities()
    if wanted is None:
        return
    wanted, trusted = wanted.strip(), _trusted()
    if wanted not in trusted:
        # Whatever else this process connects to goes by the same file.
        os.environ[FILE_VARIABLE] = str(_kept(trusted + wanted + b"\n"))
    _TRUSTED.add((*state, os.environ.get(FILE_VARIABLE)))


def _state(file: Path) -> tuple[Path, int, int]:
    """Return what tells one CA file from its renewal."""
    try:
        found = file.stat()
    except OSError:  # Reading it says why.
        return file, -1, -1
    return file, found.st_mtime_ns, found.st_size


def _trusted() -> bytes:
    """Return the authorities that this process trusts so far, as PEM."""
    file = authorities_file()
    try:
        return b"" if file is None else file.read_bytes().rstrip() + b"\n"
    except OSError:  # Nothing in it is trusted, then.
        return b""


def _kept(authorities: bytes) -> Path:
    """Return a file of the cache with ``authorities``."""
    folder = cache_folder() / "authorities"
    folder.mkdir(exist_ok=True)
    path = folder / f"{hashlib.sha256(authorities).hexdigest()[:16]}.pem"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(authorities)
        Path(file.name).rename(path)
    return path


def access_keys(place: ObjectStorage) -> Keys | None:
    """Return the keys of ``place``, from its settings or its profile; None: the environment's.

    Raises what `AwsProfile.keys` raises.
    """
    return place.keys() if place.profile is None else AwsProfile(place.profile).keys()


def _keys(place: ObjectStorage) -> dict[str, str]:
    keys = access_keys(place)
    if keys is None:
        return {}
    found = {
        "aws_access_key_id": keys.access_key_id,
        "aws_secret_access_key": keys.secret_access_key,
    }
    token = keys.session_token
    return found if token is None else {**found, "aws_session_token": token}
