"""The events that cannot be delivered, as lines of a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from tideline.contract.errors import Misconfigured, Unavailable
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.folders import sync_folder
from tideline_publish.outputs.json_lines import cut_lines


class _DeadLetter(msgspec.Struct, omit_defaults=True):
    seq: int
    part: int
    table: str
    op: str
    status: int
    refused_at_us: int
    event: msgspec.Raw
    reason: str = ""


class DeadLetters:
    """The file of one publisher. ``count``: the events in it; ``setting``: that of its folder."""

    def __init__(self, folder: Path, name: str, after_seq: int, *, setting: str) -> None:
        """Open it, and remove what lies behind ``after_seq``: these events are sent again. Raises
        Misconfigured for a folder, of that ``setting``, that cannot be written."""
        self.path = folder / f"{name}.jsonl"
        self.count = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                self.count = cut_lines(self.path, after_seq)
            self._file = self._opened()
        except OSError as error:
            raise Misconfigured(
                f"the dead letters {self.path} cannot be written: {error.strerror}",
                hint=f"make the folder writable for this user, or change {setting}",
            ) from None

    def add(self, event: ChangeEvent, status: int, refused_at_us: int, reason: str = "") -> None:
        """Add an event that an endpoint refused with ``status``, or 0 for a ``reason``; it is
        durable then. Raises Unavailable for a disk that does not take it."""
        value = msgspec.Raw(event.value or b"null")
        letter = _DeadLetter(
            event.seq, event.part, event.table, event.op, status, refused_at_us, value, reason
        )
        try:
            self._file.write(msgspec.json.encode(letter) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise Unavailable(
                f"the dead letters {self.path} cannot be written: {error.strerror}",
                hint="look at the disk: it may be full",
            ) from None
        self.count += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _opened(self) -> BinaryIO:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        sync_folder(self.path.parent)
        return os.fdopen(descriptor, "ab")
