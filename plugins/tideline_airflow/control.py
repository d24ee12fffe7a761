"""The operator that pauses, resumes, cancels or throttles running dumps."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from msgspec.structs import replace

from tideline.contract.errors import Misconfigured
from tideline.contract.request import (
    Action,
    Answer,
    Command,
    RequestState,
    check_command,
    parse_throttle,
)
from tideline.control.client import RequestClient
from tideline.control.exchange import COMMAND_WAITS
from tideline_airflow.compat import AirflowFailException
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.identity import identity_of
from tideline_airflow.log_lines import clear_errors
from tideline_airflow.progress import reasons
from tideline_airflow.renamed import look_up


class ControlOperator(BaseOperator):
    """Do ``action`` to ``requests`` (ids), or to ``every`` one, and wait until it is durable.

    ``chunk_rows`` and ``delay_ms`` are for ``tune``: a number or ``"default"``. What is None is
    taken from the run's params of the same name (``every`` from ``all``). Returns ``{"command_id",
    "manifest_number"}``. A command that is refused fails the task for good; one without an answer
    within ``timeout_s`` may be tried again and is the same command.
    """

    template_fields = ("config",)

    def __init__(
        self,
        *,
        action: str | None = None,
        requests: list[str] | None = None,
        every: bool | None = None,
        chunk_rows: int | str | None = None,
        delay_ms: int | str | None = None,
        config: str | None = None,
        timeout_s: float | None = COMMAND_WAITS.timeout_s,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.action = action
        self.requests = requests
        self.every = every
        self.chunk_rows = chunk_rows
        self.delay_ms = delay_ms
        self.config = config
        self.timeout_s = timeout_s

    @clear_errors
    def execute(self, context: Any) -> dict[str, Any]:
        command = self._command(context)
        whose = "all requests" if command.requests is None else ", ".join(command.requests)
        self.log.info("%s: %s", command.action.value, whose)
        answer = self._answer(command)
        if answer.state is not RequestState.DONE:
            raise AirflowFailException(
                f"the worker says {answer.state.value}: {reasons(answer) or 'without a reason'}"
            )
        self.log.info("done, manifest %s", answer.manifest_number)
        return {"command_id": command.command_id, "manifest_number": answer.manifest_number}

    def _command(self, context: Any) -> Command:
        given = {**_NOTHING, **context.get("params", {})}
        named = given["requests"] if self.requests is None else self.requests
        requests = [line.strip() for line in named or () if line.strip()]
        every = given["all"] if self.every is None else self.every
        if bool(requests) == bool(every):
            raise AirflowFailException("give ids in `requests`, or choose `all`: one of the two")
        identity = identity_of(context)
        rows = given["chunk_rows"] if self.chunk_rows is None else self.chunk_rows
        delay = given["delay_ms"] if self.delay_ms is None else self.delay_ms
        try:
            command = Command(
                command_id=identity.name,
                action=Action(self.action or given["action"]),
                requests=None if every else tuple(requests),
                chunk_rows=parse_throttle("chunk_rows", rows),
                delay_ms=parse_throttle("delay_ms", delay),
                requested_by=f"airflow {identity.dag_id}",
            )
            check_command(command)
        except Misconfigured as error:
            raise AirflowFailException(f"{error}; correct it and trigger again") from None
        except ValueError:
            raise AirflowFailException("action must be pause, resume, cancel or tune") from None
        return command

    def _answer(self, command: Command) -> Answer:
        """Send the command until it is answered: the same one again changes nothing."""
        hook = TidelineHook(self.config)
        waits = replace(COMMAND_WAITS, timeout_s=self.timeout_s)
        with closing(hook.control_client()) as control_client:
            ended = RequestClient(control_client, command, hook.record()).follow(waits, sent=False)
        if ended.final is not None:
            return ended.final
        raise ended.unanswered(self.timeout_s)


_NOTHING = dict.fromkeys(("action", "requests", "all", "chunk_rows", "delay_ms"))

if not TYPE_CHECKING:  # Type checkers would take it for a module with every name.

    def __getattr__(name: str) -> type[Any]:
        return look_up(__name__, name, {"SteerOperator": ControlOperator})
