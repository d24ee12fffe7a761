"""Folders on disk, for outputs that write files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tideline.contract.errors import Unavailable


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Convert what a disk raises."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"the folder {folder} cannot be written: {error.strerror}",
            hint="look at the disk: it may be full",
        ) from None


def sync_folder(folder: Path) -> None:
    """Make a new file in ``folder`` outlive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
