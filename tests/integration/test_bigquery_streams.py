# ruff: noqa: S608  statements are made of names and literals of ours
"""Rows in a table's stream, without Spark: each key has the row of its highest number, whatever
becomes of requests and answers; rows of a table that was replaced are refused. And the stand-in is
as strict as Google's documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.api_core.exceptions import (
    GoogleAPICallError,
    InvalidArgument,
    NotFound,
    Unauthenticated,
)
from google.cloud.bigquery_storage_v1 import types as api
from google.protobuf import any_pb2
from pyspark.sql import types

from devtools.bigquery.streams import StreamFault, StreamService
from tests.fixtures.bigquery import Dataset
from tideline.contract.errors import InvariantBroken, Misconfigured, TidelineError, Unavailable
from tideline.contract.table_layout import TableLayout
from tideline.warehouse.bigquery.client import BigQueryPlace
from tideline.warehouse.bigquery.log import CommitLog
from tideline.warehouse.bigquery.names import PLACE_SETTING
from tideline_spark.formats.bigquery import streaming
from tideline_spark.formats.bigquery.access import BigQueryAccess, after
from tideline_spark.formats.bigquery.jobs import TargetOvertaken
from tideline_spark.formats.bigquery.layout import making
from tideline_spark.formats.bigquery.stream_connection import open_write_client, refusal_of
from tideline_spark.formats.bigquery.stream_key import check_fresh, key_of, key_properties
from tideline_spark.formats.bigquery.stream_rows import StreamedRows
from tideline_spark.formats.bigquery.streaming import RowSender
from tideline_spark.formats.bigquery.types import bigquery_type
from tideline_spark.formats.bigquery.version import columns_json, columns_of
from tideline_spark.schemas import STRING_LIST, STRING_MAP

LONG, TEXT = types.LongType(), types.StringType()
Change = tuple[int, str | None, str]
"""A key, its text (None: the row is to go), and the change's number."""


class _Session:
    """As much of a session of Spark as is needed."""

    def __init__(self, place: BigQueryPlace) -> None:
        self.conf = {PLACE_SETTING: place.text()}


@dataclass
class Table:
    """A streamed table in the test's dataset."""

    dataset: Dataset
    service: StreamService
    columns: types.StructType = field(
        default_factory=lambda: types.StructType().add("id", LONG).add("text", TEXT)
    )
    pauses: list[float] = field(default_factory=list)

    def access(self) -> BigQueryAccess:
        """By a run of its own, which does not pause."""
        place = BigQueryPlace(
            "tideline",
            "US",
            endpoint=self.dataset.front.endpoint,
            write_endpoint=self.service.endpoint,
        )
        session: Any = _Session(place)
        made = BigQueryAccess(session, f"bigquery://tideline/{self.dataset.name}/t")
        made.jobs._sleep = lambda pause_s: None
        return made

    def make(self, rows: str = "SELECT 0 AS id, 'made' AS text") -> CommitLog:
        """Make it, or replace it, with what a query returns."""
        access = self.access()
        log = access.make_log()
        properties = {**TableLayout(streamed=True).properties(), **key_properties(["id"])}
        entry = after(
            log, None, "CREATE", changes_data=True,
            columns=columns_json(self.columns), properties=properties,
        )  # fmt: skip
        sql = making(access, self.columns, " CLUSTER BY id", rows, ["id"])
        return access.declare(log, sql, entry, "to make it")

    def sender(self, log: CommitLog, **more: Any) -> RowSender:
        return RowSender(self.access(), log, self.messages(log).descriptor,
                         sleep=self.pauses.append, **more)  # fmt: skip

    def messages(self, log: CommitLog) -> StreamedRows:
        life = log.life_column
        assert life is not None
        return StreamedRows(columns_of(log), key_of(log.entry.properties), life)

    def encoded(self, log: CommitLog, *changes: Change) -> Iterator[bytes]:
        rows: Any = ((key, text, text is None, number) for key, text, number in changes)
        for message, _ in self.messages(log).messages(rows):
            yield message

    def send(self, *changes: Change, log: CommitLog | None = None) -> None:
        """Send changes to the table, as a run that has read it as ``log``."""
        log = log or self.access().read()
        sender = self.sender(log)
        try:
            for message in self.encoded(log, *changes):
                sender.add(message)
            sender.flush()
        finally:
            sender.close()

    def content(self) -> dict[int, str]:
        """Return the texts by key, which no two rows have."""
        rows: Any = self.dataset.rows(f"SELECT id, text FROM `{self.dataset.name}`.t")
        found: dict[int, str] = dict(rows)
        assert len(found) == len(rows)
        return found


@pytest.fixture
def table(dataset: Dataset, streams: StreamService) -> Table:
    made = Table(dataset, streams)
    made.make()
    return made


def test_rows_come_and_go(table: Table) -> None:
    table.send((0, None, "0/5/0"), (1, "one", "0/6/0"), (2, "two", "0/7/0"))
    assert table.content() == {1: "one", 2: "two"}


def test_the_highest_number_of_a_key_counts_whenever_it_comes(table: Table) -> None:
    table.send((1, "new", "0/000000000000000F/0"), (2, None, "0/10/0"), (3, "new", "1/1/0"))
    table.send((1, "old", "0/000000000000000E/0"), (2, "old", "0/F/1"), (3, "old", "0/FF/0"))
    assert table.content() == {0: "made", 1: "new", 3: "new"}
    table.send((1, "newer", "0/10/0"), (2, "again", "0/11/0"), (3, "newer", "1/1/1"))
    assert table.content() == {0: "made", 1: "newer", 2: "again", 3: "newer"}


@pytest.mark.parametrize(
    "fault",
    [
        StreamFault.REQUEST_LOST,
        StreamFault.ANSWER_LOST,
        StreamFault.ABORTED,
        StreamFault.QUOTA,
        StreamFault.FORMER_COLUMNS,
    ],
)
def test_what_may_not_have_been_taken_is_sent_again(
    table: Table, streams: StreamService, fault: StreamFault
) -> None:
    streams.fail_next(fault, fault)
    table.send((1, "one", "0/6/0"), (0, None, "0/7/0"))
    assert (table.content(), streams.unmet, table.pauses) == ({1: "one"}, [], [1.0, 2.0])
    table.send((1, "two", "0/8/0"))
    assert table.content() == {1: "two"}


@pytest.mark.parametrize(
    ("faults", "kind", "says"),
    [
        ([StreamFault.QUOTA] * 4, Unavailable, "RESOURCE_EXHAUSTED"),
        ([StreamFault.FORMER_COLUMNS] * 4, Unavailable, "SCHEMA_MISMATCH_EXTRA_FIELDS"),
        ([StreamFault.REQUEST_LOST] * 4, Unavailable, "UNAVAILABLE"),
        ([StreamFault.DENIED], Misconfigured, "PERMISSION_DENIED"),
        ([StreamFault.ROW_REFUSED], InvariantBroken, "FIELDS_ERROR"),
    ],
)
def test_what_does_not_pass_ends_with_an_error_that_has_no_value(
    table: Table, streams: StreamService, faults: Any, kind: type[TidelineError], says: str
) -> None:
    streams.fail_next(*faults)
    with pytest.raises(kind, match=says) as caught:
        table.send((1, "secret-of-a-row", "0/6/0"))
    assert "secret" not in f"{caught.value} {caught.value.hint}"
    assert (table.content(), streams.unmet) == ({0: "made"}, [])


def test_a_failure_of_the_connection_has_the_services_own_code_and_no_text() -> None:
    detail = any_pb2.Any(
        type_url="type.googleapis.com/google.cloud.bigquery.storage.v1.StorageError",
        value=api.StorageError.serialize(api.StorageError(code=7, error_message="secret")),
    )
    invalid: Any = InvalidArgument
    missing: Any = NotFound
    unknown: Any = Unauthenticated
    found = refusal_of(invalid("secret-of-a-row", details=[detail, object()]))
    reason = "INVALID_ARGUMENT: SCHEMA_MISMATCH_EXTRA_FIELDS"
    assert found == (reason, True, True, False)
    assert refusal_of(missing("secret")) == ("NOT_FOUND", True, True, False)
    assert refusal_of(unknown("secret")) == ("UNAUTHENTICATED", False, False, True)
    assert refusal_of(invalid("secret")) == ("INVALID_ARGUMENT", False, False, False)


def test_rows_of_a_table_that_was_replaced_are_refused(table: Table) -> None:
    """They would be newer than rows of the new table, which came without numbers."""
    former = table.access().read()
    table.make("SELECT 0 AS id, 'made again' AS text")
    with pytest.raises(TargetOvertaken):
        table.send((0, "zombie", "0/FF/0"), (7, "zombie", "0/FF/0"), log=former)
    assert table.content() == {0: "made again"}


def test_a_run_that_was_suspended_looks_again_before_it_sends(table: Table) -> None:
    access, now = table.access(), [1_000.0]
    log = access.read()
    late = table.sender(log, clock=lambda: now[0])
    (row,) = table.encoded(log, (1, "late", "0/1/0"))
    late.add(row)
    access.commit(log, [], after(log, None, "STREAM", numbers={"app": 1}), "to record rows")
    now[0] += 3 * 86_400
    with pytest.raises(TargetOvertaken):
        late.flush()
    assert table.content() == {0: "made"}


def test_rows_are_divided_over_requests(
    table: Table, streams: StreamService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "REQUEST_BYTES_MAX", 100)
    table.send(*((key, f"text {key}", f"0/{key:X}/0") for key in range(1, 12)))
    assert table.content() == {0: "made", **{key: f"text {key}" for key in range(1, 12)}}
    sizes = [sum(map(len, one.proto_rows.rows.serialized_rows)) for one in streams.requests]
    assert len(sizes) > 2 and max(sizes) <= 100


def test_a_row_that_no_request_holds(table: Table, streams: StreamService) -> None:
    with pytest.raises(Misconfigured, match="has 9000") as caught:
        table.send((1, "x" * 9_000_000, "0/6/0"))
    assert 'writes = "merge"' in str(caught.value.hint)
    assert not streams.requests


def test_the_rows_of_a_request_that_failed_are_not_sent_with_the_next_one(
    table: Table, streams: StreamService
) -> None:
    """The next run sends its own."""
    log = table.access().read()
    streams.fail_next(*[StreamFault.QUOTA] * 4)
    sender = table.sender(log)
    sender.add(*table.encoded(log, (1, "one", "0/6/0")))
    with pytest.raises(Unavailable):
        sender.flush()
    sender.flush()
    assert table.content() == {0: "made"}


def test_values_of_every_type_and_odd_names(dataset: Dataset, streams: StreamService) -> None:
    kinds = {
        "id": LONG, "c d": TEXT, "ü": types.BinaryType(), "select": types.BooleanType(),
        "e-f": types.DoubleType(), "day": types.DateType(), "at": types.TimestampType(),
        "local": types.TimestampNTZType(), "amount": types.DecimalType(20, 9),
        "texts": STRING_MAP, "names": STRING_LIST, "nothing": TEXT,
    }  # fmt: skip
    schema = types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])
    made = Table(dataset, streams, schema)
    empty = ", ".join(f"CAST(NULL AS {bigquery_type(kind)}) AS `{name}`"
                      for name, kind in kinds.items())  # fmt: skip
    log = made.make(f"SELECT {empty} FROM (SELECT 1) WHERE FALSE")
    values = (
        1, "x'y\\z\n", b"\x00\xff", True, -0.5, -1, 1_700_000_000_000_001,
        "2024-02-29 23:59:59.000001", Decimal("0E-9"), {"a": "b", "c": None}, ["p", "q"], None,
    )  # fmt: skip
    sender = made.sender(log)
    rows: Any = [(*values, False, "0/1/0")]
    sender.add(*(message for message, _ in made.messages(log).messages(iter(rows))))
    sender.flush()
    sender.close()
    listed = ", ".join(f"`{name}`" for name in kinds)
    (found,) = dataset.rows(f"SELECT {listed} FROM `{dataset.name}`.t")
    assert found[:6] == (1, "x'y\\z\n", b"\x00\xff", True, -0.5, date(1969, 12, 31))
    assert found[6].timestamp() == 1_700_000_000.000001  # type: ignore[attr-defined]
    assert found[7:9] == (datetime(2024, 2, 29, 23, 59, 59, 1), Decimal(0))
    assert found[9:] == (
        [{"key": "a", "value": "b"}, {"key": "c", "value": None}],
        ["p", "q"],
        None,
    )


def test_the_log_knows_no_change_by_others_from_what_a_stream_brings(table: Table) -> None:
    """BigQuery brings rows in, and so changes the table, when it likes to."""
    table.send((1, "one", "0/6/0"))
    log = table.access().read()
    assert (log.version, log.streamed, log.changed_since) == (0, True, False)
    table.dataset.rows("ALTER TABLE `{d}`.t ADD COLUMN theirs INT64")
    assert table.access().read().changed_since


def test_dml_is_refused_once_rows_have_come(table: Table) -> None:
    table.send((1, "one", "0/6/0"))
    with pytest.raises(GoogleAPICallError, match="active CDC"):
        table.dataset.rows("DELETE FROM `{d}`.t WHERE TRUE")


def test_an_emulator_for_jobs_alone_gets_no_rows(table: Table) -> None:
    """They would go to Google."""
    place = BigQueryPlace("tideline", "US", endpoint=table.dataset.front.endpoint)
    with pytest.raises(Misconfigured, match="would go to Google"):
        open_write_client(place)


@pytest.mark.parametrize(
    ("text", "fresh"), [(None, True), ("0-0 0 0:0:0", True), ("0-0 0 0:10:0", False)]
)
def test_stale_rows_are_not_read(table: Table, text: str | None, fresh: bool) -> None:
    access = table.access()
    log = access.read()
    assert log.table is not None
    log.table.max_staleness = text
    if fresh:
        check_fresh(access, log)
        return
    with pytest.raises(Misconfigured, match="max_staleness") as caught:
        check_fresh(access, log)
    assert "ALTER TABLE" in str(caught.value.hint)


# -- the stand-in


def _plain(request: Any) -> None:
    """Nothing is wrong with it."""


def _stream(request: Any) -> None:
    request.write_stream = request.write_stream.replace("_default", "other")


def _no_schema(request: Any) -> None:
    request.proto_rows.writer_schema = None


def _no_change_type(request: Any) -> None:
    fields = request.proto_rows.writer_schema.proto_descriptor.field
    del fields[[one.name for one in fields].index("_CHANGE_TYPE")]


def _more_columns(request: Any) -> None:
    descriptor = request.proto_rows.writer_schema.proto_descriptor
    descriptor.field.add(name="more", number=99, label=1, type=9)


def _other_type(request: Any) -> None:
    request.proto_rows.writer_schema.proto_descriptor.field[0].type = 9


def _arrow(request: Any) -> None:
    request.arrow_rows = api.AppendRowsRequest.ArrowData()


def _other_table(request: Any) -> None:
    request.write_stream = request.write_stream.replace("/tables/t/", "/tables/other/")


@pytest.mark.parametrize(
    ("change", "row", "says"),
    [
        (_plain, (1, "one", "0/1/0"), ""),
        (_stream, (1, "one", "0/1/0"), "no default stream"),
        (_no_schema, (1, "one", "0/1/0"), "no schema"),
        (_no_change_type, (1, "one", "0/1/0"), "no _CHANGE_TYPE"),
        (_more_columns, (1, "one", "0/1/0"), "no column more"),
        (_other_type, (1, "one", "0/1/0"), "not of type"),
        (_arrow, (1, "one", "0/1/0"), "not rows"),
        (_other_table, (1, "one", "0/1/0"), "no such table"),
        (_plain, (1, "one", ""), "no _CHANGE_SEQUENCE_NUMBER"),
        (_plain, (1, "one", "0/1/0/0/0"), "no _CHANGE_SEQUENCE_NUMBER"),
        (_plain, (1, "one", "0/12345678901234567"), "no _CHANGE_SEQUENCE_NUMBER"),
        (_plain, (1, "one", "0/g"), "no _CHANGE_SEQUENCE_NUMBER"),
        (_plain, (None, "one", "0/1/0"), "column of the key"),
    ],
)
def test_what_the_stand_in_takes(
    table: Table, change: Callable[[Any], None], row: Any, says: str
) -> None:
    log = table.access().read()
    path = f"projects/tideline/datasets/{table.dataset.name}/tables/t/streams/_default"
    data = api.AppendRowsRequest.ProtoData(
        writer_schema=api.ProtoSchema(proto_descriptor=table.messages(log).descriptor),
        rows=api.ProtoRows(serialized_rows=list(table.encoded(log, row))),
    )
    request = api.AppendRowsRequest(write_stream=path, proto_rows=data)
    change(request)
    client = open_write_client(table.access().place)
    (answer,) = client.append_rows(iter([request]), retry=None)
    client.transport.close()
    texts = [answer.error.message, *(one.message for one in answer.row_errors)]
    assert bool(answer.error.code) is bool(says)
    assert says in " ".join(texts)
    assert table.content() == ({0: "made"} if says else {0: "made", 1: "one"})


def test_the_stand_in_takes_no_rows_for_a_table_without_a_declared_key(
    dataset: Dataset, streams: StreamService
) -> None:
    made = Table(dataset, streams)
    dataset.rows("CREATE TABLE `{d}`.t (id INT64, text STRING, _tl_stream_1 INT64)")
    log = made.access().make_log()
    messages = StreamedRows(made.columns, ["id"], "_tl_stream_1")
    sender = RowSender(made.access(), log, messages.descriptor, sleep=made.pauses.append)
    rows: Any = [(1, "one", False, "0/1/0")]
    sender.add(*(message for message, _ in messages.messages(iter(rows))))
    with pytest.raises(InvariantBroken, match="INVALID_ARGUMENT"):
        sender.flush()
    sender.close()
