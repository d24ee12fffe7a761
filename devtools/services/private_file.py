"""Files that only their owner reads: on a command line every user could read what they hold."""

from __future__ import annotations

from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write ``text`` to the file at ``path``, which is private before it holds any of it."""
    path.touch(mode=0o600)
    path.write_text(text)
