"""``tideline pause``, ``resume``, ``cancel`` and ``tune``: commands to running dumps.

A command is sent and waited for until the worker has made it durable; one without an answer is sent
again under its id, which is idempotent.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing

from tideline.contract.errors import Misconfigured
from tideline.contract.request import (
    Action,
    Answer,
    Command,
    RequestState,
    check_command,
    parse_throttle,
)
from tideline.control import ControlClient
from tideline.control.client import RequestClient
from tideline.control.exchange import COMMAND_WAITS
from tideline.control.record import Record
from tideline.settings import Settings
from tideline_console.dump import EXIT_FAILED
from tideline_console.output import say
from tideline_console.requests import requester


def make_command(
    action: Action,
    requests: Sequence[str],
    *,
    every: bool = False,
    chunk_rows: str | None = None,
    delay_ms: str | None = None,
) -> Command:
    """Make the command of a command line; Misconfigured when its options do not fit."""
    if every == bool(requests):
        raise Misconfigured("name requests, or --all, one of the two")
    command = Command(
        command_id=f"cli-{uuid.uuid4().hex}",
        action=action,
        requests=None if every else tuple(requests),
        chunk_rows=parse_throttle("--chunk-rows", chunk_rows),
        delay_ms=parse_throttle("--delay-ms", delay_ms),
        requested_by=requester(),
    )
    check_command(command)
    return command


def run(settings: Settings, command: Command) -> int:
    """Send the command and wait until it is done; return the exit code: 1 when it was refused."""
    with closing(ControlClient(settings.control, settings.pipeline)) as control_client:
        answer = _answer(RequestClient(control_client, command, Record(settings)))
    if answer.state is RequestState.DONE:
        say(f"{command.action.value}: done, manifest {answer.manifest_number}")
        return 0
    say(f"tideline: the command was refused: {answer.error}", error=True)
    if answer.hint is not None:
        say(f"  hint: {answer.hint}", error=True)
    return EXIT_FAILED


def _answer(client: RequestClient) -> Answer:
    """Get the command's answer. Raises Unavailable, at once when it cannot be sent at all."""
    client.send()
    ended = client.follow(COMMAND_WAITS)
    if ended.final is not None:
        return ended.final
    raise ended.unanswered(COMMAND_WAITS.timeout_s)
