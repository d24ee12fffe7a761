"""The control queue's thread: claims requests for the core, sends its answers.

Durability does not depend on Redis. During an outage this thread keeps the newest answers and
continues. If an acknowledgement is lost, its entry comes again, and the core joins it to what it
began.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tideline.contract.errors import Unavailable
from tideline.contract.request import Answer
from tideline.control import WorkerStatus
from tideline.programs.points import OnPoint, pass_by
from tideline.system import Queue, System
from tideline_capture.core.events import Arrival
from tideline_capture.queue import MESSAGES_MAX, RequestQueue

_POLL_S = 0.1

log = structlog.get_logger("tideline.control")


class ControlThread:
    """The control thread; ``arrivals`` holds what it claimed.

    Only an active worker claims; a passive one publishes. ``owns`` says whether the chain is surely
    ours. A worker that was suspended must not claim what it cannot serve, nor overwrite an answer
    of the worker that took over: then only its status is sent. ``failure`` is the error that ended
    the thread, if not `stop`.
    """

    def __init__(
        self, requests: RequestQueue, system: System, *, on_point: OnPoint = pass_by
    ) -> None:
        self.arrivals: Queue[Arrival] = system.queue()
        self.claiming = False
        self.owns: Callable[[], bool] = lambda: True
        self.failure: BaseException | None = None
        self._queue = requests
        self._on_point = on_point
        self._acknowledged: list[str] = []
        self._answers: dict[str, Answer] = {}
        self._status: WorkerStatus | None = None
        self._lock = system.lock()
        self._stopping = system.event()
        self._thread = system.thread(self._run, name="control")
        self._away = False

    def start(self) -> None:
        self._thread.start()

    def acknowledge(self, ids: tuple[str, ...]) -> None:
        with self._lock:
            self._acknowledged.extend(ids)

    def answer(self, answer: Answer) -> None:
        with self._lock:
            self._answers[answer.request_id] = answer

    def publish(self, status: WorkerStatus) -> None:
        with self._lock:
            self._status = status

    def stop(self, writer: str) -> None:
        """Send what is left, once, and end."""
        self._stopping.set()
        self._thread.join()
        self._try(self._send)
        self._try(lambda: self._withdraw(writer))
        self._queue.close()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_POLL_S):
                self._try(self._send)
                # While they are not taken, unacknowledged entries would come again every
                # ``claim_idle_s``.
                if self.claiming and self.owns() and self.arrivals.qsize() < MESSAGES_MAX:
                    self._try(self._claim)
        except BaseException as error:
            self.failure = error
            raise

    def _withdraw(self, writer: str) -> bool:
        self._queue.withdraw(writer)
        return True

    def _claim(self) -> bool:
        for arrived in self._queue.claim():
            self._on_point("request-claimed")
            self.arrivals.put(arrived)
        return True

    def _send(self) -> bool:
        acknowledged: list[str] = []
        answers: dict[str, Answer] = {}
        with self._lock:
            if self.owns():
                acknowledged, self._acknowledged = self._acknowledged, []
                answers, self._answers = self._answers, {}
            status, self._status = self._status, None
        try:
            if acknowledged:
                self._queue.acknowledge(acknowledged)
            for answer in answers.values():
                self._queue.answer(answer)
            if status is not None:
                self._queue.publish(status)
        except Unavailable:
            with self._lock:
                self._answers = {**answers, **self._answers}
            raise
        return bool(acknowledged or answers or status)

    def _try(self, action: Callable[[], bool]) -> None:
        """Run ``action``, which returns whether it used the queue; report an outage once."""
        try:
            if action() and self._away:
                self._away = False
                log.info("the control queue is back")
        except Unavailable as error:
            if not self._away:
                self._away = True
                log.warning("the control queue is unavailable", reason=str(error))
