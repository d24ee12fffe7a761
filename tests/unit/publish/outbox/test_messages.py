"""Logical messages as events, and what becomes of one that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.outbox import OUTBOX, headers_of, insert, outbox_schema
from tests.fixtures.parts import History, Logged, Shaped
from tests.fixtures.publishing import feed_of
from tideline.contract.errors import Misconfigured
from tideline.settings import make_settings
from tideline_publish.events import ChangeEvent

FIELDS = {"id": "e-1", "aggregatetype": "order", "aggregateid": 7, "type": "OrderPlaced"}
BAD = (
    b"",
    b"not JSON",
    b"[1]",
    b'{"id": "1"',
    b'\xff{"id": "1"}',
    b'{"id": "\xff", "aggregatetype": "a", "aggregateid": "b", "type": "c"}',
    b'{"id": "\\ud800", "aggregatetype": "a", "aggregateid": "b", "type": "c"}',
    b'{"id": {"a": 1}, "aggregatetype": "a", "aggregateid": "b", "type": "c"}',
    b'{"id": null, "aggregatetype": "a", "aggregateid": "b", "type": "c"}',
    b'{"id": "1", "aggregatetype": "a", "aggregateid": "b", "type": "c", "tl_seq": 1}',
    b"[" * 100_000,
    None,
)


def message(prefix: str = "outbox", **fields: Any) -> Logged:
    return Logged(prefix, json.dumps({**FIELDS, **fields}).encode())


def events_of(history: History, **outbox: Any) -> list[ChangeEvent]:
    feed = feed_of(history, outbox={"messages": ("outbox",), **outbox})
    return [event for batch in feed.batches() for event in batch.events]


def test_a_message_is_an_event_by_its_fields(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(message(payload={"total": 9.5}, tenant="t", empty=None))
    (event,) = events_of(history)
    assert (event.route, event.key, event.value) == (
        "outbox.event.order", b"7", b'{"total": 9.5}',
    )  # fmt: skip
    assert headers_of(event) == {
        "id": b"e-1",
        "type": b"OrderPlaced",
        "time": b"2024-01-01T00:00:01.000000Z",
        "tenant": b"t",
    }


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b'{"a" : 1.50,\n"b":[ ]}', b'{"a" : 1.50,\n"b":[ ]}'),
        (b'"text \\u00fc"', "text ü".encode()),
        (b"1.50", b"1.50"),
        (b'""', b""),
        (b"null", None),
    ],
)
def test_the_payload_is_the_json_as_written_or_the_text_of_a_string(
    tmp_path: Path, payload: bytes, value: bytes | None
) -> None:
    history = History(tmp_path)
    content = json.dumps(FIELDS).encode()[:-1] + b', "payload": ' + payload + b"}"
    history.commit(Logged("outbox", content))
    assert events_of(history)[0].value == value


def test_messages_and_rows_are_in_the_order_of_their_commits(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(outbox_schema()))
    history.commit(message(id="1"), insert("2"), message(id="3"), message("other", id="x"))
    history.commit(insert("4"), message(id="5"))
    found = events_of(history, table=OUTBOX)
    assert [headers_of(one)["id"] for one in found] == [b"1", b"2", b"3", b"4", b"5"]
    assert [one.seq for one in found] == sorted(one.seq for one in found)


def test_messages_are_no_tables_events(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(message())
    assert not [event for batch in feed_of(history).batches() for event in batch.events]


@pytest.mark.parametrize("content", BAD)
def test_one_that_is_no_event_is_a_named_error(tmp_path: Path, content: bytes | None) -> None:
    history = History(tmp_path)
    history.commit(message(), Logged("outbox", content))
    with pytest.raises(Misconfigured, match=r"change 2 of the outbox _tl_messages.outbox is no"):
        events_of(history)


def test_a_publisher_reads_only_what_is_captured() -> None:
    values: dict[str, Any] = {
        "pipeline": "shop",
        "source": {"url": "postgresql://a@b/c", "messages": ["outbox"]},
        "store": {"url": "file:///x"},
        "warehouse": {"url": "file:///y"},
        "publish": {"events": {"output": "null", "outbox": {"messages": ["outbox", "other"]}}},
    }
    with pytest.raises(Misconfigured, match=r"outbox\.messages has other, which is not captured"):
        make_settings(values)
    values["source"]["messages"].append("other")
    make_settings(values)
    values["source"]["messages"] = ["tideline"]
    with pytest.raises(Misconfigured, match="is that of our own messages"):
        make_settings(values)
    values["source"] = {"url": "mysql://a@b/", "messages": ["outbox"]}
    with pytest.raises(Misconfigured, match="belongs to PostgreSQL only"):
        make_settings(values)
