"""A Chromium for browser tests: the machine's own, or Debian's."""

from __future__ import annotations

import shutil
from pathlib import Path

from devtools.services.debian import install
from tideline.contract.errors import Unavailable

PACKAGE = "chromium"
FLAGS = (
    "--no-sandbox",  # the kernel's may be missing, and root's Chromium refuses to start with it
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Its options in addition to ``--headless``: it must contact only the server in test."""


def find_chromium() -> Path | None:
    found = shutil.which(PACKAGE)
    return None if found is None else Path(found)


def ensure_chromium() -> Path:
    """Return the program; root installs Debian's package where it is missing. Raises Unavailable
    otherwise: its hundred libraries cannot be unpacked next to the system's.
    """
    found = find_chromium()
    if found is not None:
        return found
    install(PACKAGE)
    found = find_chromium()
    if found is None:
        raise Unavailable(f"the package {PACKAGE} has no program of that name")
    return found
