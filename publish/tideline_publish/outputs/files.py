"""Events as lines of files in a folder.

A file is named by the sequence that its first event has, ``{seq:020d}.jsonl``, so names sort as
events do. A line is an event's value, or where that does not show key and sequence, an object of
``seq``, ``key`` and ``value``. What is in a folder behind the logged position is cut off when the
output is opened: each event is there once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO

from tideline.contract.errors import Misconfigured
from tideline.contract.publishing import ChainPosition
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OrderScope, OutputContext
from tideline_publish.outputs.envelope import in_envelopes
from tideline_publish.outputs.folders import disk_errors, sync_folder
from tideline_publish.outputs.json_lines import cut_lines

_SUFFIX = ".jsonl"


class FilesOutput:
    """See `Output`."""

    def __init__(self, context: OutputContext) -> None:
        settings = context.settings.files
        assert settings.folder is not None
        self.order = OrderScope.ALL
        self.record_bytes_max: int | None = None
        self.keeps_position = False
        self.whole_only = False
        self.gathers_s = 0.0
        self.dead_letters = 0
        self._context = context
        self._line = _keyed if context.settings.format == "debezium" else _plain
        self._folder = settings.folder
        self._bytes_max = settings.file_bytes_max
        self._file: FileIO | None = None

    def open(self, logged: ChainPosition) -> ChainPosition:
        """See `Output`."""
        self.close()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._cut(logged.seq)
        except OSError as error:
            raise Misconfigured(
                f"the folder {self._folder} cannot be written: {error.strerror}",
                hint="make it writable for this user, or change files.folder",
            ) from None
        return logged

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""
        if not events:
            return
        self._context.pause(0)  # One that comes back after a takeover must not write.
        with disk_errors(self._folder):
            file = self._file or self._begun(events[0].seq)
            lines = (_plain(one) if one.route else self._line(one) for one in in_envelopes(events))
            _write_all(file, b"\n".join(lines) + b"\n")

    def settle(self, position: ChainPosition) -> None:
        """See `Output`."""
        if self._file is None:
            return
        self._context.pause(0)
        with disk_errors(self._folder):
            os.fsync(self._file.fileno())
            if self._file.tell() >= self._bytes_max:
                self.close()

    def close(self) -> None:
        """See `Output`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begun(self, seq: int) -> FileIO:
        # Without a buffer: closing would write what another worker has written since.
        self._file = (self._folder / f"{seq:020d}{_SUFFIX}").open("ab", buffering=0)
        sync_folder(self._folder)
        return self._file

    def _cut(self, seq: int) -> None:
        """Remove all events with sequences above ``seq``."""
        for path in sorted(self._folder.glob(f"*{_SUFFIX}"), reverse=True):
            if int(path.stem) <= seq:
                cut_lines(path, seq)
                return
            path.unlink()


def _write_all(file: FileIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _plain(event: ChangeEvent) -> bytes:
    assert event.value is not None
    return event.value


def _keyed(event: ChangeEvent) -> bytes:
    key, value = event.key or b"null", event.value or b"null"
    return b'{"seq":%d,"key":%b,"value":%b}' % (event.seq, key, value)
