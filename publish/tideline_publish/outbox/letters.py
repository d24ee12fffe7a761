"""The rows and messages of an outbox that are no events, as lines of a file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import structlog

from tideline.settings.outbox import OutboxSettings
from tideline.system import System
from tideline_publish.events import ChangeEvent
from tideline_publish.outbox.event import PutAside
from tideline_publish.outputs.dead_letters import DeadLetters

log = structlog.get_logger("tideline.publisher")


class OutboxLetters:
    """The dead letters of a publisher's outbox, if it has any; ``pause`` is that of
    `OutputContext`."""

    def __init__(
        self,
        settings: OutboxSettings,
        name: str,
        pause: Callable[[float], bool],
        system: System,
    ) -> None:
        self._settings = settings
        self._name = name
        self._pause = pause
        self._system = system
        self._file: DeadLetters | None = None

    @property
    def count(self) -> int:
        """The rows and messages in the file, while it is open."""
        return 0 if self._file is None else self._file.count

    def open(self, after_seq: int) -> PutAside | None:
        """Open the file, and remove what is behind ``after_seq``. Return what takes invalid events;
        None: they are errors. Raises Misconfigured for a folder that cannot be written."""
        if self._settings.on_invalid != "dead_letter":
            return None
        folder, setting = self._settings.dead_letter_folder, "outbox.dead_letter_folder"
        assert folder is not None
        self._file = DeadLetters(folder, self._name, after_seq, setting=setting)
        return self._add

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _add(self, event: ChangeEvent, reason: str) -> None:
        assert self._file is not None
        self._pause(0)  # One that comes back after a takeover must not write.
        self._file.add(event, 0, self._system.wall_us(), reason)
        log.warning(
            "a row or message of the outbox is no event; it is in the dead letters",
            reason=reason,
            table=event.table,
            seq=event.seq,
            file=str(self._file.path),
            dead_letters=self._file.count,
        )
