"""Where what was fetched or made once for this machine is kept."""

from __future__ import annotations

import os
from pathlib import Path

from tideline.contract.errors import Misconfigured

CACHE_VARIABLE = "TIDELINE_CACHE"


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


def rename_into_place(partial: Path, target: Path) -> None:
    """Rename a finished folder to ``target``; one that another process finished first stays."""
    try:
        partial.rename(target)
    except OSError:
        if not target.is_dir():
            raise
