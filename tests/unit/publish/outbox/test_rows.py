"""An outbox table's rows as events: what each has, and what stops the publisher."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.outbox import OUTBOX, headers_of, insert, outbox_schema
from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.fixtures.publishing import BEGINNING, feed_of
from tideline.contract.errors import Misconfigured
from tideline.contract.publishing import ChainPosition
from tideline.settings import PublishSettings
from tideline_publish.events import ChangeEvent

ORDERS = "public.orders"


def history_of(root: Path, **columns: str) -> History:
    history = History(root)
    history.commit(Shaped(outbox_schema(**columns)))
    return history


def events_of(
    history: History,
    position: ChainPosition = BEGINNING,
    publisher: Mapping[str, Any] | None = None,
    **outbox: Any,
) -> list[ChangeEvent]:
    chosen = {"table": OUTBOX, **outbox}
    feed = feed_of(history, position, outbox=chosen, **(publisher or {}))
    return [event for batch in feed.batches() for event in batch.events]


def test_an_insert_is_an_event_by_its_own_columns(tmp_path: Path) -> None:
    history = history_of(tmp_path)
    at = datetime(2026, 11, 28, 16, 23, 44, 120000, tzinfo=UTC)
    row = insert("e-1")
    history.commit(Row(row.table, row.op, row.values, at=at))
    (event,) = events_of(history)
    assert (event.route, event.key, event.value) == (
        "outbox.event.order", b"7", b'{"total": 9.50}',
    )  # fmt: skip
    assert event.headers == (
        ("id", b"e-1"),
        ("type", b"OrderPlaced"),
        ("time", b"2026-11-28T16:23:44.120000Z"),
    )
    assert (event.seq, event.op, event.table) == (2, "c", OUTBOX)


def test_insert_and_delete_in_one_transaction_is_one_event(tmp_path: Path) -> None:
    history = history_of(tmp_path)
    history.commit(insert("1"), Row(OUTBOX, "d", {"id": "1"}), insert("2"))
    history.commit(Row(OUTBOX, "d", {"id": "2"}))
    assert [headers_of(one)["id"] for one in events_of(history)] == [b"1", b"2"]


def test_columns_may_have_other_names_and_types_and_others_are_headers(tmp_path: Path) -> None:
    columns = {"no": "int64", "kind": "string", "root": "int32", "what": "string"}
    columns |= {"body": "binary", "happened": "timestamp", "tenant": "string", "price": "int32"}
    history = History(tmp_path)
    history.commit(Shaped(schema_of(OUTBOX, columns, ["no"])))
    at = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    values = {"no": 5, "kind": "a.b/ü", "root": 3, "what": "Paid", "body": b"\xff\x00"}
    values |= {"happened": at, "tenant": None, "price": -2}
    history.commit(Row(OUTBOX, "c", values))
    (event,) = events_of(
        history,
        id="no",
        aggregate_type="kind",
        aggregate_id="root",
        type="what",
        payload="body",
        time="happened",
        topic="{pipeline}.{type}",
    )
    assert event.route == "shop.a.b_x2f__xfc_"
    assert (event.key, event.value) == (b"3", b"\xff\x00")
    assert headers_of(event) == {
        "id": b"5",
        "type": b"Paid",
        "time": b"2026-01-02T03:04:05.000006Z",
        "price": b"-2",
    }


def test_null_payload_is_a_tombstone_and_an_empty_one_is_not(tmp_path: Path) -> None:
    history = history_of(tmp_path)
    history.commit(insert("1", payload=None), insert("2", payload=""), insert("3", payload="null"))
    assert [event.value for event in events_of(history)] == [None, b"", b"null"]


def test_the_outbox_is_apart_from_the_publishers_other_choices(tmp_path: Path) -> None:
    history = history_of(tmp_path, tenant="string", note="string")
    history.commit(Shaped(schema_of(ORDERS, {"id": "int32"}, ["id"])))
    history.commit(
        insert("1", tenant="t", note="n"),
        Row(ORDERS, "c", {"id": 1}),
        Row(ORDERS, "d", {"id": 1}),
    )
    chosen = {
        "tables": (ORDERS,),
        "operations": ("d",),
        "columns": {OUTBOX: ("tenant",)},
    }
    first, second = events_of(history, publisher=chosen)
    assert (first.route, second.route) == ("outbox.event.order", "")
    assert headers_of(first).keys() == {"id", "type", "time", "tenant"}
    assert (second.op, second.table, second.headers) == ("d", ORDERS, ())


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (insert("1", op="u"), "change 3 updates a row of the outbox public.outbox"),
        (Emptied(OUTBOX), "change 3 truncates the outbox public.outbox"),
        (insert("1", op="r"), "change 3 is a row of the outbox public.outbox that a dump read"),
    ],
)
def test_other_changes_are_named_errors(tmp_path: Path, bad: Any, words: str) -> None:
    history = history_of(tmp_path)
    history.commit(insert("0"), bad, insert("2"))
    with pytest.raises(Misconfigured, match=words) as error:
        events_of(history)
    assert error.value.hint is not None
    assert 'outbox.others = "ignore"' in error.value.hint or "outbox.dumped" in error.value.hint
    ignoring = events_of(history, others="ignore", dumped="ignore")
    assert [headers_of(one)["id"] for one in ignoring] == [b"0", b"2"]
    behind = ChainPosition("one", 1, 3)
    assert [headers_of(one)["id"] for one in events_of(history, behind)] == [b"2"]


def test_dumped_rows_are_events_where_the_settings_say_so(tmp_path: Path) -> None:
    history = history_of(tmp_path)
    # A row that a dump read again for an update that had not all columns is no insert.
    partial = Row(OUTBOX, "r", {"id": "2"}, unchanged=("payload",))
    history.commit(insert("1", op="r"), partial)
    found = events_of(history, dumped="publish")
    assert [(one.op, headers_of(one)["id"]) for one in found] == [("r", b"1")]


@pytest.mark.parametrize("column", ["id", "aggregatetype", "aggregateid", "type"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_row_without_what_routes_it_is_a_named_error(
    tmp_path: Path, column: str, value: str | None
) -> None:
    history = history_of(tmp_path)
    row = insert("secret-1")
    history.commit(Row(OUTBOX, "c", {**row.values, column: value}))
    with pytest.raises(Misconfigured, match=f"change 2 .* no event: {column} NULL or") as error:
        events_of(history)
    assert "secret" not in str(error.value) and "9.50" not in str(error.value)
    assert "outbox.on_invalid" in str(error.value)


def test_a_type_that_makes_no_topic_is_a_named_error(tmp_path: Path) -> None:
    history = history_of(tmp_path)
    history.commit(insert("1", aggregatetype="x" * 240))
    with pytest.raises(Misconfigured, match="aggregatetype makes no topic's name"):
        events_of(history)
    history.commit(insert("2", aggregatetype=".."))
    with pytest.raises(Misconfigured, match="aggregatetype makes no topic's name"):
        events_of(history, ChainPosition("one", 2, 2), topic="{type}")


@pytest.mark.parametrize(
    ("columns", "outbox", "words"),
    [
        ({}, {"payload": "body"}, "the outbox public.outbox has no column body, its payload"),
        ({}, {"time": "at"}, "has no column at, its time"),
        ({"id": "float64"}, {}, "column id .* its id, is of the type float64: a text or an int"),
        ({"payload": "int32"}, {}, "column payload .* of the type int32: text, JSON or bytes"),
        ({"at": "string"}, {"time": "at"}, "column at .* of the type string: a timestamp"),
        ({"time": "string"}, {}, "time would be a second header"),
        ({"tl_seq": "string"}, {}, "tl_seq would be a second header"),
    ],
)
def test_a_table_that_is_no_outbox_is_a_named_error(
    tmp_path: Path, columns: dict[str, str], outbox: dict[str, Any], words: str
) -> None:
    history = history_of(tmp_path, **columns)
    values: dict[str, Any] = {"id": 1.0} if "id" in columns else {}
    values |= {"payload": 1} if "payload" in columns else {}
    history.commit(Row(OUTBOX, "c", {**insert("1").values, **values}))
    with pytest.raises(Misconfigured, match=words) as error:
        events_of(history, **outbox)
    assert error.value.hint is not None and len(error.value.hint) > 20


def test_a_header_that_does_not_fit_its_type_is_the_sources_text(tmp_path: Path) -> None:
    history = history_of(tmp_path, price="decimal(9,2)")
    row = insert("1")
    history.commit(Row(OUTBOX, "c", row.values, overflow={"price": "NaN"}))
    assert headers_of(events_of(history)[0])["price"] == b"NaN"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"table": "outbox"}, "not a pattern"),
        ({"table": OUTBOX, "type": "id"}, "must name another column"),
        ({"table": OUTBOX, "topic": "a b"}, "String should match"),
        ({"on_invalid": "dead_letter"}, "set dead_letter_folder"),
        ({"on_invalid": "dead_letter", "dead_letter_folder": "x"}, "set dead_letter_folder"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PublishSettings.model_validate({"output": "null", "outbox": settings})


def test_an_envelope_is_no_cloudevent() -> None:
    values: dict[str, Any] = {"format": "cloudevents", "outbox": {"table": OUTBOX}}
    with pytest.raises(ValueError, match="in an envelope that is no CloudEvent"):
        PublishSettings.model_validate({"output": "files", "files": {"folder": "/tmp/x"}, **values})
    PublishSettings.model_validate({"output": "redis", **values})
