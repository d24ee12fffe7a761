"""A Chromium for tests of what a browser shows: the machine's own, or Debian's."""

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
"""What it is started with beside ``--headless``: it is to talk to nobody but the server in test."""


def find_chromium() -> Path | None:
    found = shutil.which(PACKAGE)
    return None if found is None else Path(found)


def ensure_chromium() -> Path:
    """The program; root installs Debian's package where it is missing. Unavailable otherwise: its
    hundred libraries are more than what can be unpacked beside the system's.
    """
    found = find_chromium()
    if found is not None:
        return found
    install(PACKAGE)
    found = find_chromium()
    if found is None:
        raise Unavailable(f"the package {PACKAGE} has no program of that name")
    return found
