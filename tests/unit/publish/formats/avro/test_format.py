"""Events in Avro, read by another implementation, against the same events in JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.fixtures.publishing import BEGINNING, NAME, config_of, published
from tests.support.avro_reader import AvroReader, Ids, event_as_json
from tideline.contract.schema import Column, TableSchema
from tideline.settings import PublishSettings, load_settings
from tideline_publish import control
from tideline_publish.events import ChangeEvent
from tideline_publish.feed import ChainFeed
from tideline_publish.formats.avro.format import AvroFormat, record_subject
from tideline_publish.outbox.encoding import Outbox
from tideline_publish.selection import Selection

T = "public.t"
COLUMNS = {
    "id": "int64",
    "tiny": "int8",
    "single": "float32",
    "double": "float64",
    "flag": "boolean",
    "price": "decimal(12,2)",
    "wide": "decimal(38,10)",
    "note": "string",
    "raw": "binary",
    "day": "date",
    "moment": "timestamp",
    "local": "timestamp_ntz",
}
FULL = {
    "id": 2**62,
    "tiny": -128,
    "single": 0.1,
    "double": -1e300,
    "flag": True,
    "price": Decimal("-1.50"),
    "wide": Decimal("-9999999999999999999999999999.9999999999"),
    "note": 'ä"\n',
    "raw": b"\x00\xff",
    "day": date(1, 1, 1),
    "moment": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    "local": datetime(1582, 10, 4, 1, 2, 3),
}
DIFFERENT = {**dict.fromkeys(COLUMNS), "id": -1, "price": Decimal("127.99")}


@pytest.fixture
def ids() -> Ids:
    return Ids()


@pytest.fixture
def history(tmp_path: Path) -> History:
    found = History(tmp_path)
    found.commit(Shaped(schema_of(T, COLUMNS, ["id"])))
    return found


def events_of(history: History, ids: Ids, **settings: Any) -> list[ChangeEvent]:
    chosen = PublishSettings(output="null", **settings)
    form = AvroFormat(history.settings.pipeline, ids, record_subject)
    outbox = Outbox(history.settings.pipeline, chosen)
    selection = Selection(chosen)
    feed = ChainFeed(history.store, history.chain, form, selection, BEGINNING, outbox)
    return [event for batch in feed.batches() for event in batch.events]


def check(history: History, ids: Ids, **settings: Any) -> list[ChangeEvent]:
    """The events in Avro are those in JSON."""
    found, reader = events_of(history, ids, **settings), AvroReader(ids.schemas)
    wanted = published(history, **settings)
    assert [(one.seq, one.part) for one in found] == [one.order for one in wanted]
    for event, other in zip(found, wanted, strict=True):
        assert event.value is not None
        assert event_as_json(reader, event.value) == other.value
        assert (None if event.key is None else reader.as_json(event.key)) == other.key
    return found


def test_rows_of_every_type(history: History, ids: Ids) -> None:
    history.commit(*(Row(T, op, one) for op in "cu" for one in (FULL, DIFFERENT)))
    assert len(check(history, ids)) == 4


def test_deletes_moves_and_truncates(history: History, ids: Ids) -> None:
    history.commit(
        Row(T, "d", {"id": 1}),
        Row(T, "u", {**FULL, "id": 2}, before={"id": 1}),
        Emptied(T),
        Row(T, "r", FULL),
    )
    assert [one.op for one in check(history, ids)] == ["d", "d", "u", "t", "r"]


def test_what_is_not_known_or_does_not_fit_is_named(history: History, ids: Ids) -> None:
    history.commit(
        Row(T, "u", {**FULL, "note": None, "raw": None}, unchanged=("note", "raw")),
        Row(T, "c", {**DIFFERENT, "price": None}, overflow={"day": "infinity", "price": "NaN"}),
        Row(T, "c", FULL),
    )
    first, second, _ = check(history, ids)
    reader = AvroReader(ids.schemas)
    assert reader.read(first.value or b"")["unchanged"] == ["note", "raw"]
    assert reader.read(second.value or b"")["overflow"] == {"day": "infinity", "price": "NaN"}


def test_rows_before(history: History, ids: Ids) -> None:
    before = {name: one for name, one in FULL.items() if name != "id"}
    history.commit(
        Row(T, "u", DIFFERENT, image=before),
        Row(T, "c", FULL),
        Row(T, "d", {"id": 1}, image={**before, "day": None}, image_overflow={"day": "infinity"}),
        Row(T, "u", DIFFERENT, image=before, before={"id": 7}),
    )
    check(history, ids)


def test_chosen_columns(history: History, ids: Ids) -> None:
    history.commit(Row(T, "c", FULL))
    check(history, ids, columns={T: ("note",)})


def test_a_table_without_a_key_and_with_odd_names(tmp_path: Path, ids: Ids) -> None:
    table, history = 'public."Order Items"', History(tmp_path)
    names = {"2nd price": "decimal(4,1)", "größe": "string", "_x20_": "int32"}
    history.commit(Shaped(schema_of(table, names, [])))
    history.commit(Row(table, "c", {"2nd price": Decimal("1.5"), "größe": "L", "_x20_": 3}))
    (event,) = check(history, ids)
    assert event.key is None
    assert ids.subjects == ["shop.public.Order_x20_Items.Event"]
    assert ids.schemas[1]["tideline.name"] == table


def test_types_in_schemas(tmp_path: Path, ids: Ids) -> None:
    history = History(tmp_path)
    uid = Column("uid", "string", "uuid", nullable=False)
    history.commit(Shaped(TableSchema(T, (uid, Column("n", "int32", "integer")), ("uid",))))
    history.commit(Row(T, "c", {"uid": "2c1b6a3e-6f5b-4f4e-9d59-6f6c2f5f1c11", "n": 1}))
    check(history, ids)
    key = next(one for one in ids.schemas.values() if one["name"] == "Key")
    assert key["fields"] == [{"name": "uid", "type": {"type": "string", "logicalType": "uuid"}}]


def test_a_changed_schema_has_an_id_of_its_own(history: History, ids: Ids) -> None:
    history.commit(Row(T, "c", FULL), Row(T, "c", DIFFERENT))
    history.commit(Shaped(schema_of(T, {**COLUMNS, "more": "string"}, ["id"])))
    history.commit(Row(T, "c", {**FULL, "more": "m"}))
    check(history, ids)
    assert ids.subjects == [f"shop.public.t.{one}" for one in ("Event", "Key", "Event", "Key")]
    assert len(ids.schemas) == 3, "the key is the same"


def test_a_look_ahead_asks_no_registry(history: History) -> None:
    history.commit(Row(T, "c", FULL))
    config = config_of(
        history,
        output="kafka",
        format="avro",
        avro={"registry": "http://127.0.0.1:9"},
        kafka={"servers": ["127.0.0.1:9"], "security_protocol": "plaintext"},
    )
    assert control.preview(load_settings(config), NAME).events == {(T, "c"): 1}
