"""A stand-in for the capture worker: answers requests from the queue, captures nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

import redis

from tests.fixtures.ends import Ends
from tideline.contract.request import (
    Answer,
    Command,
    DumpRequest,
    RequestState,
    TableProgress,
    encode_answer,
    parse_command,
    parse_request,
)
from tideline.control import COMMAND_FIELD, REQUEST_FIELD, answer_key, stream_key
from tideline.settings import Settings

Dump = Callable[[DumpRequest], Answer]

ENDED_AT = 100_001
"""The manifest that ends commands: so far behind a chain that no search for its tail meets it."""


def done(request: DumpRequest) -> Answer:
    """What a worker says that dumped three rows of each table."""
    tables = tuple(
        TableProgress(table, RequestState.DONE, chunks=1, chunks_estimate=1, rows=3)
        for table in request.tables
    )
    return Answer(request.request_id, RequestState.DONE, manifest_number=7, tables=tables)


class StubWorker:
    """Answers each new request id with what ``dump`` returns, repeated ids with the same again.

    ``seen`` lists the messages as they came, repetitions included; ``requests`` the first of each
    id. While ``delayed`` is set, requests are read and counted, but not answered. ``commands`` are
    those that came; each is answered at once, as done, or with ``refusal``.
    """

    def __init__(self, settings: Settings, dump: Dump = done) -> None:
        self.settings = settings
        self._dump = dump
        self._redis = redis.Redis.from_url(settings.control.url.get_secret_value())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stub-worker", daemon=True)
        self._answers: dict[str, Answer] = {}
        self._ends = Ends(settings)
        self.delayed = threading.Event()
        self.seen: list[str] = []
        self.requests: dict[str, DumpRequest] = {}
        self.commands: list[Command] = []
        self.refusal: str | None = None

    def replace_dump(self, dump: Dump) -> None:
        self._dump = dump

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(10)
        self._redis.close()

    def _run(self) -> None:
        stream = stream_key(self.settings.pipeline)
        waiting: list[DumpRequest] = []
        while not self._stop.is_set():
            # Deleted once read, so that a flushed stream, whose ids start again, loses nothing.
            found = cast("list[Any]", self._redis.xrange(stream, count=10))
            for entry, fields in found:
                self._redis.xdel(stream, entry)
                raw = fields.get(COMMAND_FIELD.encode())
                if raw is not None:
                    self._obey(parse_command(raw))
                    continue
                request = parse_request(fields[REQUEST_FIELD.encode()])
                self.seen.append(request.request_id)
                self.requests.setdefault(request.request_id, request)
                waiting.append(request)
            if waiting and not self.delayed.is_set():
                for request in waiting:
                    self._answer(request)
                waiting.clear()
            self._stop.wait(0.02)

    def _answer(self, request: DumpRequest) -> None:
        known = request.request_id
        if known not in self._answers:
            self._answers[known] = self._dump(request)
        self.say(self._answers[known])

    def _obey(self, command: Command) -> None:
        self.commands.append(command)
        state = RequestState.DONE if self.refusal is None else RequestState.REFUSED
        self.say(Answer(command.command_id, state, manifest_number=ENDED_AT, error=self.refusal))

    def say(self, answer: Answer) -> None:
        """Answer as a worker does, once it is in a manifest."""
        self.forge(self._ends.record(answer) if answer.state.final else answer)

    def forge(self, answer: Answer) -> None:
        """Write an answer into the queue and nothing anywhere else."""
        key = answer_key(self.settings.pipeline, answer.request_id)
        self._redis.set(key, encode_answer(answer), ex=600)
