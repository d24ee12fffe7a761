"""Settings that change while the worker runs.

The file is checked every few seconds. When a setting that sessions use has changed, the session
ends at a transaction's end, and the next one begins with it from what is durable: nothing is
captured twice, and nothing is missed. A file with mistakes changes nothing; a change that needs a
restart is only named. `tideline.settings.effects` says which settings are which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from tideline.contract.errors import Misconfigured
from tideline.settings import Settings
from tideline.settings.effects import followed, waiting

LOOK_S = 2.0
_OF_A_SESSION = ("source", "capture", "tables")
"""The sections that a session begins with."""

log = structlog.get_logger("tideline.settings")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The settings' file: ``modified`` returns when it was last changed (None: there is none),
    ``load`` reads it."""

    modified: Callable[[], float | None]
    load: Callable[[], Settings]


class LiveSettings:
    """The settings in force (``current``), and the changed keys that need a restart
    (``restart_for``).

    Without a ``file`` they never change.
    """

    def __init__(
        self,
        settings: Settings,
        file: SettingsFile | None = None,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.current = settings
        self.restart_for: tuple[str, ...] = ()
        self._file = file
        self._clock = clock
        # Not checked yet: it may have changed since ``settings`` were read.
        self._seen: float | None = None
        self._checked_at = clock()

    def changed(self) -> bool:
        """Return whether ``current`` has changed for sessions since the last call.

        Checks the file every `LOOK_S` at most.
        """
        if self._file is None or self._clock() - self._checked_at < LOOK_S:
            return False
        self._checked_at = self._clock()
        modified = self._file.modified()
        if modified is None or modified == self._seen:
            return False
        self._seen = modified
        try:
            read = self._file.load()
        except Misconfigured as error:
            log.warning("the settings file has mistakes: nothing of it is used", reason=str(error))
            return False
        self._name(waiting(self.current, read))
        before, self.current = self.current, followed(self.current, read)
        return any(getattr(before, one) != getattr(self.current, one) for one in _OF_A_SESSION)

    def _name(self, keys: tuple[str, ...]) -> None:
        if keys == self.restart_for:
            return
        self.restart_for = keys
        if keys:
            log.warning(
                "settings have changed that count after a restart only: restart the worker",
                keys=list(keys),
            )
        else:
            log.info("no changed setting needs a restart any more")
