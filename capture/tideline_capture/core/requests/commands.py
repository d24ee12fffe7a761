"""Carries out commands on open requests.

A command changes the open state and is durable with the manifest that holds it; its answer claims
nothing before that. A command that comes twice has its effect once.
"""

from __future__ import annotations

from tideline.contract.answers import ERRORS_SHOWN
from tideline.contract.reasons import reason_of
from tideline.contract.request import Action, Answer, Command, RequestState
from tideline_capture.core.effects import Cancelled, Deciding, Effects
from tideline_capture.core.events import CommandArrived, RequestRefused
from tideline_capture.core.requests.intake import Intake
from tideline_capture.core.state import CoreState


class Commands:
    """Answers commands; ``intake`` records refused ones."""

    def __init__(self, state: CoreState, intake: Intake) -> None:
        self._state = state
        self._intake = intake

    def on_command(self, arrived: CommandArrived) -> Deciding[Answer | None]:
        """Carry the command out, or refuse it.

        An answer is returned when it need not wait for a manifest.
        """
        state, command = self._state, arrived.command
        if self._intake.has_refused(arrived.message_id):
            return None
        known = state.recent.get(command.command_id)
        error = self._refusal(command) if known is None else None
        if error is not None:
            hint = "`tideline status` shows the requests that are open"
            refused = RequestRefused(arrived.message_id, command.command_id, error)
            self._intake.refuse(refused, hint)
            return None
        state.acknowledge(arrived.message_id)
        if known is not None:
            return known if known.manifest_number is not None else None
        yield from self._do(command)
        state.finish(Answer(command.command_id, RequestState.DONE))
        state.end()
        return None

    def _refusal(self, command: Command) -> str | None:
        wanted = command.requests or ()
        unknown = [one for one in wanted if one not in self._state.requests]
        if unknown:
            return f"not open: {', '.join(unknown[:ERRORS_SHOWN])}"
        ours = [one for one in wanted if _is_indispensable(one)]
        if ours and command.action is Action.CANCEL:
            return f"rows may stay wrong without {', '.join(ours)}: pause it instead"
        return None

    def _do(self, command: Command) -> Effects:
        state = self._state
        if command.action is Action.TUNE:
            state.tune(command.requests, command.chunk_rows, command.delay_ms)
        elif command.action is Action.CANCEL:
            who = f" by {command.requested_by}" if command.requested_by else ""
            cancelled: list[tuple[str, tuple[str, ...]]] = []
            for request_id in command.requests or self._cancellable():
                verifies = state.requests.verifies(request_id)
                ended = state.fail_request(request_id, f"it was cancelled{who}")
                cancelled += [] if verifies else [(request_id, tuple(ended))]
            yield Cancelled(tuple(cancelled))
        else:
            state.pause(command.requests, paused=command.action is Action.PAUSE)

    def _cancellable(self) -> list[str]:
        ids = [item.request.request_id for item in self._state.requests.open]
        return [one for one in ids if not _is_indispensable(one)]


def _is_indispensable(request_id: str) -> bool:
    """Return whether rows would stay wrong without the request."""
    why = reason_of(request_id)
    return why is not None and why.indispensable
