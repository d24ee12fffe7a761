"""Debezium's envelope of each kind of change, with and without schemas."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.fixtures.publishing import feed_of
from tideline.contract.errors import Misconfigured
from tideline.contract.manifest import Manifest
from tideline.contract.position import MysqlPosition, SourceIdentity
from tideline.contract.schema import Column, TableSchema
from tideline.settings.publish import DebeziumSettings
from tideline_publish.events import ChangeEvent
from tideline_publish.formats.debezium.format import DebeziumFormat

T = "public.t"
COLUMNS = {"id": "int32", "name": "string", "price": "decimal(10,2)"}
MISSING = "__debezium_unavailable_value"


@pytest.fixture
def history(tmp_path: Path) -> History:
    found = History(tmp_path)
    found.commit(Shaped(schema_of(T, COLUMNS, ["id"])))
    return found


def events_of(history: History, **debezium: Any) -> list[ChangeEvent]:
    batches = feed_of(history, format="debezium", debezium=debezium).batches()
    return [event for batch in batches for event in batch.events]


def read(raw: bytes | None) -> Any:
    return None if raw is None else json.loads(raw)


def values(history: History, **debezium: Any) -> list[Any]:
    return [read(event.value) for event in events_of(history, **debezium)]


def row(number: int, name: str | None, price: str | None) -> dict[str, Any]:
    return {"id": number, "name": name, "price": price}


def test_an_insert(history: History) -> None:
    at = datetime(2026, 11, 28, 10, 0, 0, 123456, tzinfo=UTC)
    history.commit(Row(T, "c", row(1, 'a"b', None) | {"price": Decimal("1.5")}, at=at))
    (event,) = events_of(history)
    us = int(at.timestamp()) * 1_000_000 + 123456
    assert read(event.key) == {"id": 1}
    assert read(event.value) == {
        "before": None,
        "after": row(1, 'a"b', "AJY="),
        "source": {
            "version": "tideline",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": us // 1_000,
            "snapshot": "false",
            "db": "shop",
            "sequence": '["2","2"]',
            "ts_us": us,
            "ts_ns": us * 1_000,
            "schema": "public",
            "table": "t",
            "txId": 7,
            "lsn": 0x1002,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        },
        "transaction": None,
        "op": "c",
        "ts_ms": us // 1_000,
        "ts_us": us,
        "ts_ns": us * 1_000,
    }


def test_a_dumped_row_is_one_of_an_incremental_snapshot(history: History) -> None:
    history.commit(Row(T, "r", row(1, "a", None)))
    (value,) = values(history)
    assert (value["op"], value["source"]["snapshot"]) == ("r", "incremental")
    assert value["source"]["txId"] is None


def test_a_delete_has_a_tombstone_behind_it(history: History) -> None:
    history.commit(Row(T, "d", {"id": 1}), Row(T, "c", row(1, "b", None)))
    delete, tombstone, insert = events_of(history)
    assert [(one.seq, one.part) for one in (delete, tombstone, insert)] == [(2, 0), (2, 1), (3, 0)]
    assert read(delete.value)["before"] == row(1, None, None)
    assert read(delete.value)["after"] is None
    assert read(tombstone.key) == {"id": 1}
    assert tombstone.value is None


def test_there_are_none_where_the_settings_want_none(history: History) -> None:
    history.commit(Row(T, "d", {"id": 1}))
    history.commit(Row(T, "u", row(2, "b", None), before={"id": 1}))
    found = events_of(history, tombstones=False)
    assert [read(one.value)["op"] for one in found] == ["d", "d", "c"]
    assert [one.part for one in found] == [0, 0, 1]


def test_an_update_of_the_key_is_a_delete_a_tombstone_and_an_insert(history: History) -> None:
    image = {"name": "old", "price": None}
    history.commit(Row(T, "u", row(2, "b", None), before={"id": 1}, image=image))
    delete, tombstone, insert = events_of(history)
    assert [one.part for one in (delete, tombstone, insert)] == [0, 1, 2]
    assert read(delete.value)["before"] == row(1, "old", None)
    assert (read(tombstone.key), tombstone.value) == ({"id": 1}, None)
    value = read(insert.value)
    assert (value["op"], value["before"], value["after"]) == ("c", None, row(2, "b", None))


def test_an_update_has_the_row_before_where_parts_have_it(history: History) -> None:
    history.commit(
        Row(T, "u", row(1, "new", None)),
        Row(T, "u", row(1, "new", None), image={"name": "old", "price": Decimal(3)}),
        Row(T, "d", {"id": 1}, image={"name": "new", "price": None}),
    )
    plain, imaged, deleted, _ = values(history)
    assert plain["before"] is None
    assert imaged["before"] == row(1, "old", "ASw=")
    assert deleted["before"] == row(1, "new", None)
    assert [one["op"] for one in (plain, imaged, deleted)] == ["u", "u", "d"]


def test_what_the_log_left_out_has_the_placeholder_and_is_named(history: History) -> None:
    history.commit(
        Row(T, "u", {"id": 1, "price": Decimal(2)}, unchanged=("name",)),
        Row(T, "u", {"id": 1, "name": "x"}, unchanged=("price",)),
        Row(T, "u", row(1, "x", None)),
    )
    text, number, whole = values(history)
    assert text["after"] == row(1, MISSING, "AMg=")
    assert json.loads(text["source"]["unchanged"]) == ["name"]
    assert number["after"] == row(1, "x", None)
    assert json.loads(number["source"]["unchanged"]) == ["price"]
    assert "unchanged" not in whole["source"]
    assert values(history, unavailable="gone")[0]["after"]["name"] == "gone"


def test_a_value_without_a_form_is_null_and_its_text_is_beside_it(history: History) -> None:
    history.commit(
        Row(T, "c", {"id": 1, "name": "n"}, overflow={"price": "NaN"}),
        Row(T, "d", {"id": 1}, image={"name": "n"}, image_overflow={"price": "NaN"}),
    )
    insert, delete, _ = values(history)
    assert insert["after"] == row(1, "n", None)
    assert json.loads(insert["source"]["overflow"]) == {"price": "NaN"}
    assert delete["before"] == row(1, "n", None)
    assert json.loads(delete["source"]["before_overflow"]) == {"price": "NaN"}
    assert "overflow" not in delete["source"]


def test_a_text_of_a_part_without_a_form_is_beside_it_too(tmp_path: Path) -> None:
    history = History(tmp_path)
    columns = (
        Column("id", "int32", "integer", nullable=False),
        Column("free", "string", "numeric"),
    )
    history.commit(Shaped(TableSchema(T, columns, ("id",))))
    history.commit(*(Row(T, "c", {"id": at, "free": text}) for at, text in enumerate(("1", "NaN"))))
    fine, odd = values(history)
    assert fine["after"]["free"] == {"scale": 0, "value": "AQ=="}
    assert odd["after"]["free"] is None
    assert json.loads(odd["source"]["overflow"]) == {"free": "NaN"}
    assert "overflow" not in fine["source"]


def test_a_key_without_a_form_is_an_error(tmp_path: Path) -> None:
    """As null it would be one key with others."""
    history = History(tmp_path)
    key = Column("id", "string", "numeric", nullable=False)
    history.commit(Shaped(TableSchema(T, (key,), ("id",))), Row(T, "c", {"id": "NaN"}))
    with pytest.raises(Misconfigured, match=r"a key of public\.t has a value .* in id") as raised:
        events_of(history)
    assert "NaN" not in str(raised.value)


def test_columns_are_in_the_tables_order_and_only_those_that_are_chosen(tmp_path: Path) -> None:
    history = History(tmp_path)
    columns = {"name": "string", "id": "int32", "price": "decimal(10,2)"}
    history.commit(Shaped(schema_of(T, columns, ["id"])))
    image = {"name": "old", "price": None}
    history.commit(Row(T, "u", row(1, "new", None), image=image))
    (value,) = values(history)
    assert list(value["before"]) == list(value["after"]) == list(columns)
    chosen = feed_of(history, format="debezium", columns={T: ["price"]}).batches()
    (event,) = [event for batch in chosen for event in batch.events]
    assert list(read(event.value)["before"]) == ["id", "price"]


def test_the_time_of_processing_is_when_the_segment_was_written(history: History) -> None:
    """An event that comes again is the same."""
    history.commit(Row(T, "c", row(1, "a", None)))
    manifest = written(history, written_at_us=1_795_885_200_123_456)
    value = encoded(history, manifest)
    times = {"ms": 1_795_885_200_123, "us": 1_795_885_200_123_456, "ns": 1_795_885_200_123_456_000}
    assert {f"ts_{unit}": value[f"ts_{unit}"] for unit in times} == {
        f"ts_{unit}": at for unit, at in times.items()
    }


def test_the_source_of_a_binlog(history: History) -> None:
    history.commit(Row(T, "c", row(1, "a", None)))
    manifest = written(
        history,
        identity=SourceIdentity("mariadb", "uid", 0, ""),
        position=MysqlPosition("binlog.000002", 345, "0-1-7"),
    )
    source = encoded(history, manifest)["source"]
    assert (source["connector"], source["db"], source["table"]) == ("mariadb", "public", "t")
    assert (source["file"], source["pos"], source["gtid"]) == ("binlog.000002", 345, None)
    assert (source["server_id"], source["row"]) == (0, 0)
    assert source.keys().isdisjoint({"schema", "lsn", "txId"})


def written(history: History, **changes: Any) -> Manifest:
    """The newest manifest, with ``changes``."""
    tail = history.chain.tail()
    assert tail is not None
    return msgspec.structs.replace(tail.manifest, **changes)


def encoded(history: History, manifest: Manifest) -> Any:
    """The value of the one row of ``manifest``."""
    (part,) = manifest.parts
    (rows,) = pq.read_table(history.part_path(part.key)).to_batches()
    schema = history.schemas[T]
    form = DebeziumFormat("shop", DebeziumSettings())
    return read(form.rows(manifest, schema, schema.column_names, rows).values[0])


def test_a_truncate(history: History) -> None:
    history.commit(Row(T, "c", {"id": 1}), Emptied(T), Row(T, "c", {"id": 2}))
    _, truncate, _ = events_of(history)
    value = read(truncate.value)
    assert truncate.key is None
    assert (value["op"], value["before"], value["after"]) == ("t", None, None)
    assert (value["source"]["table"], value["source"]["sequence"]) == ("t", '["3","3"]')


def test_schemas_are_around_the_same_payload(history: History) -> None:
    history.commit(
        Row(T, "c", {"id": 1, "name": "n"}),
        Row(T, "d", {"id": 1}),
        Emptied(T),
        Row(T, "u", {"id": 1}),
    )
    plain, whole = events_of(history), events_of(history, schemas=True)
    for one, other in zip(plain, whole, strict=True):
        for inner, outer in ((one.key, other.key), (one.value, other.value)):
            found = read(outer)
            assert read(inner) == (found if found is None else found["payload"])
    assert read(whole[0].key)["schema"] == {
        "type": "struct",
        "fields": [{"type": "int32", "optional": False, "field": "id"}],
        "optional": False,
        "name": "shop.public.t.Key",
    }
    schema = read(whole[0].value)["schema"]
    assert schema["name"] == "shop.public.t.Envelope"
    members = [one["field"] for one in schema["fields"]]
    assert members == list(read(plain[0].value))


def test_a_table_without_a_key_has_none_and_no_tombstones(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(schema_of(T, COLUMNS, [])), Row(T, "d", {"id": 1}))
    (event,) = events_of(history)
    assert event.key is None
    assert event.value is not None


def test_names_are_written_as_json_has_them(tmp_path: Path) -> None:
    history = History(tmp_path)
    table = '"a""b"."c\\d"'
    history.commit(Shaped(schema_of(table, {'k"1': "int32", "v\\": "string"}, ['k"1'])))
    history.commit(Row(table, "c", {'k"1': 1, "v\\": "x"}))
    (event,) = events_of(history, prefix="p", schemas=True)
    value = read(event.value)
    assert read(event.key)["payload"] == {'k"1': 1}
    assert value["payload"]["after"] == {'k"1': 1, "v\\": "x"}
    source = value["payload"]["source"]
    assert (source["name"], source["schema"], source["table"]) == ("p", 'a"b', "c\\d")
