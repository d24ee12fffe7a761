"""Sends the rows of a merge to a streamed table: through its default stream, request after request.

A request that may have been lost is sent again: BigQuery applies a row once, by its number. A row
of a table that was replaced since has a column that the table of now lacks (`new_life_column`), so
that BigQuery refuses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from tideline.contract.errors import (
    InvariantBroken,
    Misconfigured,
    TidelineError,
    Unavailable,
)
from tideline.contract.pauses import growing_pause_s
from tideline.warehouse.bigquery.log import CommitLog
from tideline_spark.formats.bigquery.access import BigQueryAccess
from tideline_spark.formats.bigquery.jobs import TargetOvertaken
from tideline_spark.formats.bigquery.stream_connection import (
    StreamConnection,
    StreamRefusal,
    open_write_client,
)
from tideline_spark.formats.bigquery.stream_key import key_of
from tideline_spark.formats.bigquery.stream_rows import StreamedRows
from tideline_spark.formats.bigquery.version import columns_of
from tideline_spark.formats.state import RowCounts

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto

REQUEST_BYTES_MAX = 9_000_000
"""The rows of a request; BigQuery refuses requests of more than 10 MB."""
_LOOK_AGAIN_S = 30.0
"""The age of a look at the table's log after which the next request waits for another look."""
_TRIES_MAX = 4
_PAUSE_FIRST_S, _PAUSE_MAX_S = 1.0, 16.0


def send_rows(access: BigQueryAccess, log: CommitLog, rows: DataFrame) -> RowCounts:
    """Send ``rows``, as `StreamedTarget.stream` has them, to the table as it is in ``log``; return
    how many were to stay and to go, all of which BigQuery has then.

    Raises TargetOvertaken where another run has changed the table; Misconfigured for a row that is
    too large and for what BigQuery does not permit; Unavailable where it gives no answer.
    """
    life = log.life_column
    if life is None:
        raise Misconfigured(
            f"{access.name} lacks the column by which streamed rows find it",
            hint="someone else has dropped it there: `tideline rebuild` the table",
        )
    streamed = StreamedRows(columns_of(log), key_of(log.entry.properties), life)
    sender = RowSender(access, log, streamed.descriptor)
    counts = [0, 0]
    try:
        for message, gone in streamed.messages(streamed.selected(rows).toLocalIterator()):
            counts[gone] += 1
            sender.add(message)
        sender.flush()
    finally:
        sender.close()
    return RowCounts(updated=counts[False], deleted=counts[True])


class RowSender:
    """Collects rows to requests, and sends these. ``sleep`` waits between tries, in seconds;
    ``clock`` is the time of day, in seconds, which goes on while the machine is suspended."""

    def __init__(
        self,
        access: BigQueryAccess,
        log: CommitLog,
        descriptor: DescriptorProto,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._access, self._log, self._descriptor = access, log, descriptor
        self._sleep, self._clock = sleep, clock
        self._looked = clock()
        self._rows: list[bytes] = []
        self._bytes = 0
        self._client: Any = None
        self._connection: StreamConnection | None = None

    def add(self, row: bytes) -> None:
        """Add a row; send what there is before it where both would be too large together."""
        if len(row) > REQUEST_BYTES_MAX:
            raise Misconfigured(
                f"a row of {self._access.name} has {len(row)} bytes, and BigQuery's stream takes"
                f" {REQUEST_BYTES_MAX} at most",
                hint='give the table writes = "merge" and `tideline rebuild` it',
            )
        if self._bytes + len(row) > REQUEST_BYTES_MAX:
            self.flush()
        self._rows.append(row)
        self._bytes += len(row)

    def flush(self) -> None:
        """Send the rows that were added, and wait until BigQuery has them. Rows that it does not
        take are in no later request."""
        rows, self._rows, self._bytes = self._rows, [], 0
        for failures in range(_TRIES_MAX if rows else 0):
            self._look_again()
            refusal = self._sent(rows)
            if refusal is None:
                return
            self.close()
            if self._access.read().version != self._log.version:
                raise TargetOvertaken
            if not refusal.passes or failures + 1 == _TRIES_MAX:
                raise self._error(refusal)
            pause = growing_pause_s(failures, first_s=_PAUSE_FIRST_S, most_s=_PAUSE_MAX_S)
            self._sleep(pause)

    def close(self) -> None:
        """End the connection, if there is one, and the client."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._client is not None:
            self._client.transport.close()
            self._client = None

    def _sent(self, rows: list[bytes]) -> StreamRefusal | None:
        if self._client is None:
            self._client = open_write_client(self._access.place)
        if self._connection is None:
            self._connection = StreamConnection(self._client, self._access.name, self._descriptor)
        return self._connection.send(rows)

    def _look_again(self) -> None:
        """Raise TargetOvertaken where another run has committed since an older look: BigQuery
        remembers a deleted row's number for two days only."""
        if self._clock() - self._looked <= _LOOK_AGAIN_S:
            return
        if self._access.read().version != self._log.version:
            raise TargetOvertaken
        self._looked = self._clock()

    def _error(self, refusal: StreamRefusal) -> TidelineError:
        doing = f"to stream rows into {self._access.name}"
        if refusal.denied:
            return Misconfigured(
                f"BigQuery refused {doing}: {refusal.reason}",
                hint="give its principal the roles that docs/BIGQUERY.md lists, and enable the"
                " BigQuery Storage API",
            )
        if refusal.other_table:
            return Unavailable(
                f"BigQuery refused {doing}: {refusal.reason}",
                hint="its stream knows of a change of the columns some minutes later: the next"
                " merge tries again",
            )
        if refusal.passes:
            return Unavailable(
                f"BigQuery did not take rows, {doing}: {refusal.reason}",
                hint="wait, or ask Google for more of the quota",
            )
        return InvariantBroken(f"BigQuery refused {doing}: {refusal.reason}")
