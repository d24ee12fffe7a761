"""Files of JSON lines, each with a sequence, that are cut back to a position."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tideline.contract.errors import CorruptData


class _Line(msgspec.Struct):
    seq: int


_LINE = msgspec.json.Decoder(_Line)


def cut_lines(path: Path, seq: int) -> int:
    """Remove the lines of the file with sequences above ``seq``, and one that has no end. Return
    how many are left. Raises OSError; CorruptData for a line that is none of ours."""
    kept = lines = 0
    with path.open("r+b") as file:
        for line in file:
            if not line.endswith(b"\n") or _seq_of(line, path) > seq:
                break
            kept += len(line)
            lines += 1
        file.truncate(kept)
        os.fsync(file.fileno())
    return lines


def sync_folder(folder: Path) -> None:
    """Make a new file in ``folder`` outlive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _seq_of(line: bytes, path: Path) -> int:
    try:
        return _LINE.decode(line).seq
    except msgspec.MsgspecError:
        raise CorruptData(
            f"{path} has a line that is no event", hint="move the file out of the folder"
        ) from None
