"""A stand-in for BigQuery's Storage Write API: rows that change others, in tables' default streams.

It follows Google's documentation of change data capture: the highest number of a key counts, of
equal ones what comes last, also of keys that were deleted. What is not documented, or not of use
here, is refused. Rows are in the emulator's table before the answer.

https://cloud.google.com/bigquery/docs/change-data-capture
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any, Self

import grpc
from google.cloud.bigquery_storage_v1 import types
from google.protobuf import any_pb2
from google.rpc import status_pb2

from devtools.bigquery.front import BigQueryFront
from devtools.bigquery.stream_messages import Messages, RowError, StreamError
from devtools.bigquery.streamed_rows import put_rows

_METHOD = "/google.cloud.bigquery.storage.v1.BigQueryWrite/AppendRows"
_REQUEST_MAX = 10 * 1024 * 1024


class StreamFault(Enum):
    """A way for one request to go wrong."""

    REQUEST_LOST = "the connection ends before its rows were taken"
    ANSWER_LOST = "… after they were taken"
    ABORTED = "the request is aborted, with nothing taken"
    QUOTA = "there is no more of a quota"
    DENIED = "the principal lacks a permission"
    FORMER_COLUMNS = "the stream does not know of the table's columns yet"
    ROW_REFUSED = "a row is refused, with its value in the text"


class StreamService:
    """The service, on loopback while it is entered, for the tables behind ``front``."""

    def __init__(self, front: BigQueryFront) -> None:
        self._front = front
        self._faults: deque[StreamFault | None] = deque()
        self.requests: list[types.AppendRowsRequest] = []
        self.on_taken: Callable[[], None] = lambda: None
        """Called when the rows of a request are in the table, before its answer."""
        self._server = grpc.server(
            ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", -1)]
        )
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def fail_next(self, *faults: StreamFault | None) -> None:
        """Have the next requests meet ``faults``, one each, in this order; None: this one meets
        none."""
        self._faults.extend(faults)

    @property
    def unmet(self) -> list[StreamFault]:
        """The faults that no request has met yet."""
        return [one for one in self._faults if one is not None]

    def answers(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Answer the requests of one connection."""
        messages: Messages | None = None
        for request in requests:
            self.requests.append(request)
            fault = self._faults.popleft() if self._faults else None
            if fault is StreamFault.REQUEST_LOST:
                context.abort(grpc.StatusCode.UNAVAILABLE, "as a test asks for it")
            if fault is StreamFault.ABORTED:
                context.abort(grpc.StatusCode.ABORTED, "as a test asks for it")
            if fault is StreamFault.DENIED:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, "as a test asks for it")
            try:
                _refuse(fault)
                messages = self._messages(request, messages)
                self._take(messages, request)
            except RowError as error:
                yield _row_errors(error)
                continue
            except StreamError as error:
                yield _failure(error)
                return
            self.on_taken()
            if fault is StreamFault.ANSWER_LOST:
                context.abort(grpc.StatusCode.UNAVAILABLE, "as a test asks for it")
            yield types.AppendRowsResponse(
                append_result=types.AppendRowsResponse.AppendResult(),
                write_stream=request.write_stream,
            )

    def _messages(self, request: Any, known: Messages | None) -> Messages:
        if types.AppendRowsRequest.pb(request).ByteSize() > _REQUEST_MAX:
            raise StreamError(grpc.StatusCode.INVALID_ARGUMENT, "the request is too large")
        if "proto_rows" not in request or "offset" in request:
            raise StreamError(grpc.StatusCode.INVALID_ARGUMENT, "not rows of a default stream")
        if "writer_schema" in request.proto_rows:
            return Messages(request)
        if known is None:
            raise StreamError(grpc.StatusCode.INVALID_ARGUMENT, "the first request has no schema")
        return known

    def _take(self, messages: Messages, request: Any) -> None:
        front, (project, dataset, table) = self._front, messages.table
        with front.turn:
            fields = front.fields(project, dataset, table)
            if fields is None:
                code = types.StorageError.StorageErrorCode.TABLE_NOT_FOUND
                raise StreamError(grpc.StatusCode.NOT_FOUND, "there is no such table", int(code))
            key = front.jobs.primary_keys.get((dataset, table), ())
            rows = messages.rows(request.proto_rows.rows.serialized_rows, fields, key)
            put_rows(front, messages.table, fields, key, rows)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, service: StreamService) -> None:
        self._service = service

    def service(self, details: Any) -> Any:
        if details.method != _METHOD:
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._service.answers,
            request_deserializer=types.AppendRowsRequest.deserialize,
            response_serializer=types.AppendRowsResponse.serialize,
        )


def _refuse(fault: StreamFault | None) -> None:
    if fault is StreamFault.QUOTA:
        raise StreamError(grpc.StatusCode.RESOURCE_EXHAUSTED, "as a test asks for it")
    if fault is StreamFault.FORMER_COLUMNS:
        code = types.StorageError.StorageErrorCode.SCHEMA_MISMATCH_EXTRA_FIELDS
        raise StreamError(grpc.StatusCode.INVALID_ARGUMENT, "as a test asks for it", int(code))
    if fault is StreamFault.ROW_REFUSED:
        raise RowError([(0, "secret-of-a-row")])


def _failure(error: StreamError) -> Any:
    status = status_pb2.Status(code=error.status.value[0], message=str(error))
    if error.code:
        detail = any_pb2.Any()
        detail.type_url = "type.googleapis.com/google.cloud.bigquery.storage.v1.StorageError"
        detail.value = types.StorageError.serialize(types.StorageError(code=error.code))
        status.details.append(detail)
    return types.AppendRowsResponse(error=status)


def _row_errors(error: RowError) -> Any:
    found = [
        types.RowError(index=at, code=types.RowError.RowErrorCode.FIELDS_ERROR, message=message)
        for at, message in error.rows
    ]
    status = status_pb2.Status(code=3, message="rows are refused")
    return types.AppendRowsResponse(error=status, row_errors=found)
