"""Debezium's own transform on our events, in the real Kafka Connect: they are what it takes them
for, and each value comes out as the type of its schema."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from devtools.services.debezium import POSTGRES, DebeziumServer
from devtools.services.kafka import KafkaServer
from tests.fixtures.capture import poll
from tests.fixtures.parts import Row, Shaped, schema_of
from tests.publish.outputs import KafkaCase
from tests.publish.rig import Rig

TABLE = "public.orders"
LINES = [
    'Struct{id=1,note=a"b,price=1.50,__deleted=false,__op=c}',
    "Struct{id=1,note=new,price=2.00,__deleted=false,__op=u}",
    "Struct{id=1,__deleted=true,__op=d}",
    'Struct{id=2,note=n,__deleted=false,__op=c,__overflow={"price":"NaN"}}',
    "Struct{id=2,__deleted=true,__op=d}",
    "Struct{id=3,note=moved,__deleted=false,__op=c}",
]


def settings_of(prefix: str, file: Path) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": f"{prefix}.public.orders",
        "file": str(file),
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
        "transforms.unwrap.add.fields": "op,source.overflow:overflow",
    }


@pytest.mark.long
def test_the_newest_state_is_extracted(kafka: KafkaServer, tmp_path: Path) -> None:
    output = KafkaCase(kafka, transactions=True)
    rig = Rig(tmp_path, output, format="debezium", debezium={"schemas": True}, tables=(TABLE,))
    columns = {"id": "int32", "note": "string", "price": "decimal(10,2)"}
    rig.history.commit(Shaped(schema_of(TABLE, columns, ["id"])))
    rig.history.commit(*changes())
    rig.publish()
    file = tmp_path / "state"
    settings = settings_of(output.prefix, file)
    with DebeziumServer(tmp_path / "connect", POSTGRES, kafka.address, settings):
        poll("all of it is there", lambda: len(lines(file)) >= len(LINES), pause_s=0.2)
    assert sorted(lines(file)) == sorted(LINES)


def changes() -> list[Row]:
    return [
        Row(TABLE, "c", {"id": 1, "note": 'a"b', "price": Decimal("1.5")}),
        Row(TABLE, "u", {"id": 1, "note": "new", "price": Decimal(2)}),
        Row(TABLE, "d", {"id": 1}),
        Row(TABLE, "c", {"id": 2, "note": "n"}, overflow={"price": "NaN"}),
        Row(TABLE, "u", {"id": 3, "note": "moved"}, before={"id": 2}),
    ]


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
