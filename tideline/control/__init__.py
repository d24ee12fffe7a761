"""The client side of the control queue: requests go into a stream, answers come out of keys.

::

    tideline:{pipeline}:requests              stream; field ``request`` holds the request's JSON,
                                              or ``command`` that of a command
    tideline:{pipeline}:answer:{request_id}   the newest answer, JSON, expires
    tideline:{pipeline}:workers               sorted set: writer → when it was last heard, µs
    tideline:{pipeline}:worker:{writer}       a worker's status, JSON, expires

Redis is a queue, not a record. All of it may be lost at any moment: a client that gets no answer
repeats the request under the same id and joins the one that exists, because the chain holds it. The
worker's side is `tideline_capture.queue`. How a client waits is decided by `exchange` and carried
out by `client`; `record` reads from the chain what Redis has lost.
"""

from tideline.control.queue import (
    CLIENT_TIMEOUT_S,
    COMMAND_FIELD,
    GROUP,
    REQUEST_FIELD,
    WORDS_S,
    WORKER_TTL_S,
    ControlClient,
    Heard,
    WorkerStatus,
    answer_key,
    stream_key,
    worker_key,
    workers_key,
)

__all__ = [
    "CLIENT_TIMEOUT_S",
    "COMMAND_FIELD",
    "GROUP",
    "REQUEST_FIELD",
    "WORDS_S",
    "WORKER_TTL_S",
    "ControlClient",
    "Heard",
    "WorkerStatus",
    "answer_key",
    "stream_key",
    "worker_key",
    "workers_key",
]
