"""The cache of files that were fetched or made once for this machine; fetches them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tideline.contract.errors import CorruptData, Misconfigured, Unavailable

CACHE_VARIABLE = "TIDELINE_CACHE"
FETCH_TIMEOUT_S = 900
ORIGIN = "origin"
"""The name of a file in a folder that was made for another path; it holds that path."""


def cache_location() -> Path:
    """Return ``$TIDELINE_CACHE``, else ``~/.cache/tideline``, whether it exists or not."""
    given = os.environ.get(CACHE_VARIABLE)
    return (Path(given) if given else Path.home() / ".cache" / "tideline").absolute()


def cache_folder() -> Path:
    """Return the cache, made when it is missing."""
    folder = cache_location()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(
            f"the cache folder cannot be made: {error.strerror}, {folder}",
            hint=f"set {CACHE_VARIABLE} to a folder that can be written",
        ) from None
    return folder


def sweep(place: Path) -> None:
    """Remove folders whose wish is gone: a killed run could not do that itself. Several processes
    may do this at the same time."""
    for origin in place.glob(f"*/{ORIGIN}"):
        with suppress(FileNotFoundError):
            if not Path(origin.read_text()).exists():
                shutil.rmtree(origin.parent, ignore_errors=True)


def rename_into_place(partial: Path, target: Path) -> None:
    """Rename a finished folder to ``target``; one that another process finished first stays."""
    try:
        partial.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def fetch(
    what: str, command: Sequence[str], work: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Run a program that fetches ``what``, in the folder ``work`` and with ``environment`` on top
    of this process's; Unavailable, with the end of its output, when it fails, or takes too long."""
    try:
        subprocess.run(
            list(command),
            cwd=work,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=FETCH_TIMEOUT_S,
        )
    except subprocess.SubprocessError as error:
        output = (getattr(error, "stdout", "") or "") + (getattr(error, "stderr", "") or "")
        raise Unavailable(
            f"{what} could not be fetched with {Path(command[0]).name}: "
            f"{(output or str(error)).strip()[-400:]}"
        ) from error


def check_sha256(path: Path, expected: str, *, hint: str) -> None:
    """Raise CorruptData, with ``hint``, unless the file's SHA-256 is ``expected`` (64 hex digits).

    A file of a registry or the cache is accepted only if it is the one that was reviewed when this
    version was written.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise CorruptData(
            f"{path.name} is not the file that this version was made with: its sha256 is {found} "
            f"and not {expected}, {path}",
            hint=hint,
        )
