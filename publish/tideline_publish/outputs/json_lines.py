"""Files of JSON lines, each with a sequence, that are cut back to a position."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tideline.contract.errors import CorruptData


class _Line(msgspec.Struct):
    """The sequence in a line: a number, or a text in CloudEvents."""

    seq: int | None = None
    sequence: str = ""


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


def _seq_of(line: bytes, path: Path) -> int:
    try:
        found = _LINE.decode(line)
        return int(found.sequence) if found.seq is None else found.seq
    except (msgspec.MsgspecError, ValueError):
        raise CorruptData(
            f"{path} has a line that is no event", hint="move the file out of the folder"
        ) from None
