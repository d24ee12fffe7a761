"""Where what was fetched or made once for this machine is kept."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

from tideline.contract.errors import CorruptData, Misconfigured

CACHE_VARIABLE = "TIDELINE_CACHE"
ORIGIN = "origin"
"""A file in a folder that was made for something else, with the path of that."""


def cache_place() -> Path:
    """``$TIDELINE_CACHE``, else ``~/.cache/tideline``, whether it is there or not."""
    given = os.environ.get(CACHE_VARIABLE)
    return (Path(given) if given else Path.home() / ".cache" / "tideline").absolute()


def cache_folder() -> Path:
    """The cache, made when it is missing."""
    folder = cache_place()
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


def check_sha256(path: Path, expected: str, *, hint: str) -> None:
    """Raise CorruptData, with ``hint``, unless the file's SHA-256 is ``expected`` (64 hex digits).

    What a registry or the cache gives is taken only if it is the file that was looked at when this
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
