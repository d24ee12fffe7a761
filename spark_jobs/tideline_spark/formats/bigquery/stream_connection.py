"""A connection to a table's default stream of the Storage Write API, and what its answers mean.

https://cloud.google.com/bigquery/docs/write-api-streaming
"""

from __future__ import annotations

from collections.abc import Iterable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from tideline.contract.errors import Misconfigured
from tideline.warehouse.bigquery.client import BigQueryPlace, credentials_of
from tideline.warehouse.bigquery.names import TableName

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto

_CONNECTION_S = 300.0
"""The age at which a connection ends, and so the longest wait for an answer."""
_CANCELLED, _UNKNOWN, _INVALID, _DEADLINE, _NOT_FOUND, _DENIED = 1, 2, 3, 4, 5, 7
_EXHAUSTED, _ABORTED, _INTERNAL, _UNAVAILABLE, _UNAUTHENTICATED = 8, 10, 13, 14, 16
_PASSING = frozenset(
    {_CANCELLED, _UNKNOWN, _DEADLINE, _EXHAUSTED, _ABORTED, _INTERNAL, _UNAVAILABLE}
)
"""Codes of gRPC for which the same request may be taken at another time."""
_EXTRA_FIELDS, _TABLE_NOT_FOUND, _STREAM_NOT_FOUND = 7, 1, 4
"""Codes of BigQuery's own."""


class StreamRefusal(NamedTuple):
    """A reason for which rows were not taken, or may not have been.

    ``reason``: without a row's value. ``passes``: they may be taken at another time;
    ``other_table``: BigQuery knows another table by the name, now or still; ``denied``: the
    principal may not write.
    """

    reason: str
    passes: bool = False
    other_table: bool = False
    denied: bool = False


def check_write_client() -> None:
    """Raise Misconfigured without Google's library."""
    try:
        # heavy: only pipelines with streamed tables need it
        import google.cloud.bigquery_storage_v1  # noqa: F401
    except ImportError:
        raise Misconfigured(
            "google-cloud-bigquery-storage is not installed here, which streamed tables need",
            hint="pip install 'tideline-cdc[bigquery]'",
        ) from None


def open_write_client(place: BigQueryPlace) -> Any:
    """Return a client of the Storage Write API. Raises Misconfigured without Google's library, and
    where its address is not known."""
    check_write_client()
    # heavy: as above
    import grpc
    from google.api_core.client_options import ClientOptions
    from google.cloud.bigquery_storage_v1 import BigQueryWriteClient
    from google.cloud.bigquery_storage_v1.services.big_query_write.transports import (
        BigQueryWriteGrpcTransport,
    )

    make: Any = BigQueryWriteClient
    address = place.write_endpoint
    if address is None and (place.endpoint or "").startswith("http://"):
        raise Misconfigured(
            "warehouse.bigquery.endpoint is an emulator's, and streamed rows would go to Google",
            hint="set warehouse.bigquery.write_endpoint to the emulator's, too",
        )
    if address is not None and address.startswith("http://"):
        channel = grpc.insecure_channel(address.removeprefix("http://"))
        return make(transport=BigQueryWriteGrpcTransport(channel=channel))
    options = None
    if address is not None:
        options = ClientOptions(api_endpoint=address.removeprefix("https://"))
    return make(credentials=credentials_of(place), client_options=options)


class StreamConnection:
    """One connection to the default stream of the table ``name``. One request is under way at a
    time."""

    def __init__(self, client: Any, name: TableName, descriptor: DescriptorProto) -> None:
        project, dataset, table = name
        path = f"projects/{project}/datasets/{dataset}/tables/{table}"
        self._client, self._stream = client, f"{path}/streams/_default"
        self._descriptor = descriptor
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._answers: Any = None

    def send(self, rows: list[bytes]) -> StreamRefusal | None:
        """Send ``rows``, of the descriptor's messages; return None once BigQuery has them, or why
        it may not."""
        # heavy: only pipelines with streamed tables need it
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError

        self._requests.put(self._request(rows))
        try:
            if self._answers is None:
                self._answers = self._opened()
            answer = next(self._answers)
        except StopIteration:
            return StreamRefusal("the connection has ended", passes=True)
        except GoogleAPICallError as error:
            return refusal_of(error)
        except GoogleAuthError as error:
            return StreamRefusal(type(error).__name__, denied=True)
        return _refusal_in(answer)

    def close(self) -> None:
        """End the connection."""
        self._requests.put(None)
        cancel = getattr(self._answers, "cancel", None)
        if cancel is not None:
            cancel()

    def _opened(self) -> Any:
        return self._client.append_rows(
            iter(self._requests.get, None),
            retry=None,  # It would begin again with what is left of the requests.
            timeout=_CONNECTION_S,
            metadata=(("x-goog-request-params", f"write_stream={self._stream}"),),
        )

    def _request(self, rows: list[bytes]) -> Any:
        # heavy: as above
        from google.cloud.bigquery_storage_v1 import types

        request = types.AppendRowsRequest(trace_id="tideline")
        data = types.AppendRowsRequest.ProtoData(rows=types.ProtoRows(serialized_rows=rows))
        if self._answers is None:  # The first one says what all are.
            request.write_stream = self._stream
            data.writer_schema = types.ProtoSchema(proto_descriptor=self._descriptor)
        request.proto_rows = data
        return request


def refusal_of(error: Any) -> StreamRefusal:
    """Return what a failure of Google's library means; its text can hold a row's value."""
    status = getattr(error, "grpc_status_code", None)
    code = _UNKNOWN if status is None else int(status.value[0])
    return _refusal(code, _own_codes(error.details))


def _refusal_in(answer: Any) -> StreamRefusal | None:
    if answer.row_errors:
        names = sorted({one.code.name for one in answer.row_errors})
        return StreamRefusal(f"{len(answer.row_errors)} rows, {', '.join(names)}")
    if not answer.error.code:
        return None
    return _refusal(int(answer.error.code), _own_codes(answer.error.details))


def _own_codes(details: Iterable[Any]) -> list[int]:
    """Return BigQuery's own codes in the details of a failure."""
    # heavy: as above
    from google.cloud.bigquery_storage_v1 import types

    found = []
    for detail in details:
        if getattr(detail, "type_url", "").endswith("bigquery.storage.v1.StorageError"):
            found.append(int(types.StorageError.deserialize(detail.value).code))
    return found


def _refusal(code: int, own: list[int]) -> StreamRefusal:
    # heavy: as above
    import grpc
    from google.cloud.bigquery_storage_v1 import types

    names = [one.name for one in grpc.StatusCode if one.value[0] == code] or [str(code)]
    names += [types.StorageError.StorageErrorCode(one).name for one in own]
    other = bool({_EXTRA_FIELDS, _TABLE_NOT_FOUND, _STREAM_NOT_FOUND} & {*own})
    other = other or code == _NOT_FOUND
    denied = code in (_DENIED, _UNAUTHENTICATED)
    return StreamRefusal(": ".join(names), other or code in _PASSING, other, denied)
