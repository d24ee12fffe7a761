"""Commands: what is done to requests that are open, while they run.

A command changes the open state and is durable with the manifest that holds it; its answer tells of
nothing before that. The same command may come twice: what it did stays done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tideline.contract.request import Action, Answer, Command, RequestState
from tideline_capture.core.events import CommandArrived, RequestRefused
from tideline_capture.core.requests import ERRORS_SHOWN, FOLLOW_UP, REREAD, UNPROVEN

if TYPE_CHECKING:
    from tideline_capture.core.worker import Worker

_OURS = (REREAD, f"{FOLLOW_UP}:", f"{UNPROVEN}:")
"""Begin the ids of requests without which rows would stay wrong."""


class Commands:
    """The command side of the core. ``core`` is the worker it is part of."""

    def __init__(self, core: Worker) -> None:
        self._core = core

    def on_command(self, arrived: CommandArrived) -> Answer | None:
        """Do it, or refuse it; an answer is returned when it need not wait for a manifest."""
        core, command = self._core, arrived.command
        if core.intake.has_refused(arrived.message_id):
            return None
        known = core.requests.ended(command.command_id)
        error = self._refusal(command) if known is None else None
        if error is not None:
            hint = "`tideline status` shows the requests that are open"
            refused = RequestRefused(arrived.message_id, command.command_id, error)
            core.intake.refuse(refused, hint)
            return None
        core.draft.messages.append(arrived.message_id)
        if known is not None:
            return known if known.manifest_number is not None else None
        self._do(command)
        answer = Answer(command.command_id, RequestState.DONE)
        core.requests.remember(answer)
        core.draft.finished.append(answer)
        core.end_requests()
        core.draft.urgent = core.draft.state_changed = True
        return None

    def _refusal(self, command: Command) -> str | None:
        wanted = command.requests or ()
        unknown = [one for one in wanted if one not in self._core.requests]
        if unknown:
            return f"not open: {', '.join(unknown[:ERRORS_SHOWN])}"
        ours = [one for one in wanted if one.startswith(_OURS)]
        if ours and command.action is Action.CANCEL:
            return f"rows may stay wrong without {', '.join(ours)}: pause it instead"
        return None

    def _do(self, command: Command) -> None:
        requests = self._core.requests
        if command.action is Action.TUNE:
            requests.tune(command.requests, command.chunk_rows, command.delay_ms)
        elif command.action is Action.CANCEL:
            who = f" by {command.requested_by}" if command.requested_by else ""
            tables: list[str] = []
            for request_id in command.requests or self._cancellable():
                verifies = requests.verifies(request_id)
                ended = requests.fail(request_id, f"it was cancelled{who}")
                self._core.blocks.cancelled(request_id, ended)
                tables += [] if verifies else ended
            self._core.conditions.cancelled(dict.fromkeys(tables))
        else:
            requests.pause(command.requests, paused=command.action is Action.PAUSE)

    def _cancellable(self) -> list[str]:
        ids = [item.request.request_id for item in self._core.requests.open]
        return [one for one in ids if not one.startswith(_OURS)]
