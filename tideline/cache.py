"""Where what was fetched or made once for this machine is kept."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "TIDELINE_CACHE"


def cache_place() -> Path:
    """``$TIDELINE_CACHE``, else ``~/.cache/tideline``, whether it is there or not."""
    given = os.environ.get(CACHE_VARIABLE)
    return (Path(given) if given else Path.home() / ".cache" / "tideline").absolute()
