"""``tideline pause``, ``resume``, ``cancel`` and ``tune``: dumps that run are told what to do.

A command is sent and waited for until the worker has made it durable; one without an answer is sent
again under its id, which changes nothing that was done. Where Redis went away meanwhile, the chain
tells.
"""

from __future__ import annotations

import time as clock
import uuid
from collections.abc import Sequence
from typing import Literal

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.request import (
    Action,
    Answer,
    Command,
    RequestState,
    check_command,
)
from tideline.control import Asker
from tideline.settings import Settings
from tideline_console.dump import EXIT_FAILED, POLL_INTERVAL_S, REPEAT_AFTER_S, asked_by
from tideline_console.output import say
from tideline_console.recorded import Record

WAIT_S = 60.0


def make_command(
    action: Action,
    requests: Sequence[str],
    *,
    every: bool = False,
    chunk_rows: str | None = None,
    delay_ms: str | None = None,
) -> Command:
    """The command that the command line asks for; Misconfigured when its options do not fit."""
    if every == bool(requests):
        raise Misconfigured("name requests, or --all, one of the two")
    command = Command(
        command_id=f"cli-{uuid.uuid4().hex}",
        action=action,
        requests=None if every else tuple(requests),
        chunk_rows=_pace("--chunk-rows", chunk_rows),
        delay_ms=_pace("--delay-ms", delay_ms),
        requested_by=asked_by(),
    )
    check_command(command)
    return command


def run(settings: Settings, command: Command) -> int:
    """Send the command and wait until it is done; the exit code: 1 when it was refused."""
    asker = Asker(settings.control, settings.pipeline)
    answer = _answer(asker, Record(settings), command)
    if answer.state is RequestState.DONE:
        say(f"{command.action.value}: done, manifest {answer.manifest_number}")
        return 0
    say(f"tideline: the command was refused: {answer.error}", error=True)
    if answer.hint is not None:
        say(f"  hint: {answer.hint}", error=True)
    return EXIT_FAILED


def _answer(asker: Asker, record: Record, command: Command) -> Answer:
    """The command's answer, or what the chain has of it while Redis is away. Raises Unavailable at
    once when the command cannot be sent at all."""
    end = clock.monotonic() + WAIT_S
    asker.command(command)
    repeat_at = clock.monotonic() + REPEAT_AFTER_S
    while clock.monotonic() < end:
        clock.sleep(POLL_INTERVAL_S)
        try:
            answer = record.confirmed(asker.answer(command.command_id))
            if answer is None and clock.monotonic() >= repeat_at:
                asker.command(command)
                repeat_at = clock.monotonic() + REPEAT_AFTER_S
        except Unavailable:
            answer = record.answer(command.command_id)
        if answer is not None:
            return answer
    raise Unavailable(
        f"no worker answered within {WAIT_S:g} s; the command waits for one",
        hint="`tideline status` shows whether one runs",
    )


def _pace(option: str, text: str | None) -> int | Literal["default"] | None:
    if text is None:
        return None
    if text == "default":
        return "default"
    if not text.isdecimal():
        raise Misconfigured(f"{option} must be a number, or default")
    return int(text)
