"""Brings orders into a lake, by a consumer that is started again in between."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import botocore.session
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from devtools.services.kinesis import REGION, KinesisServer
from examples.stage import ExampleStage, rows, stage

Event = Mapping[str, Any]
STREAM = "shop-events"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("seq", pa.int64()), ("op", pa.string()), ("row", pa.string())]
)


class LakeConsumer:
    """Reads the stream from its beginning, and adds to the lake what is not there."""

    def __init__(self, url: str, lake: Path) -> None:
        self._lake = lake
        self._kinesis = botocore.session.get_session().create_client(
            "kinesis",
            REGION,
            endpoint_url=url,
            aws_access_key_id="example",
            aws_secret_access_key="example",
        )
        self._last: dict[int, int] = {one["id"]: one["seq"] for one in newest(lake)}

    def catch_up(self) -> None:
        """Write files of what has come."""
        new = [event for event in self._events() if self._is_new(event)]
        new.sort(key=lambda one: str(one["at"])[:10])
        for day, events in groupby(new, key=lambda one: str(one["at"])[:10]):
            self._write(day, list(events))

    def _events(self) -> Iterator[Event]:
        """Yield the events of each shard in order."""
        for shard in self._kinesis.list_shards(StreamName=STREAM)["Shards"]:
            place = self._kinesis.get_shard_iterator(
                StreamName=STREAM, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while (page := self._kinesis.get_records(ShardIterator=place))["Records"]:
                yield from (json.loads(one["Data"]) for one in page["Records"])
                place = page["NextShardIterator"]

    def _is_new(self, event: Event) -> bool:
        key, seq = event["key"]["id"], event["seq"]
        if seq <= self._last.get(key, 0):
            return False
        self._last[key] = seq
        return True

    def _write(self, day: str, events: list[Event]) -> None:
        folder = self._lake / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(
            [
                {
                    "id": one["key"]["id"],
                    "seq": one["seq"],
                    "op": one["op"],
                    "row": json.dumps(one.get("row")),
                }
                for one in events
            ],
            SCHEMA,
        )
        first, last = min(table["seq"].to_pylist()), max(table["seq"].to_pylist())
        hidden = folder / f".{first}-{last}"
        pq.write_table(table, hidden)
        hidden.rename(folder / f"{first:020d}-{last:020d}.parquet")


def newest(lake: Path) -> list[dict[str, Any]]:
    """Return the newest event of each row in the lake."""
    if not lake.exists():
        return []
    held: pa.Table = ds.dataset(lake, format="parquet", schema=SCHEMA).to_table()
    by_row = {one["id"]: one for one in sorted(held.to_pylist(), key=lambda one: int(one["seq"]))}
    return list(by_row.values())


def orders_of(lake: Path) -> list[tuple[Any, ...]]:
    """Return the table that the lake leads to."""
    live = [json.loads(one["row"]) for one in newest(lake) if one["op"] != "d"]
    return sorted((int(one["id"]), str(one["status"])) for one in live)


def fill(shop: ExampleStage, kinesis: KinesisServer) -> None:
    """Change orders, and bring them into the lake."""
    kinesis.call("CreateStream", StreamName=STREAM, ShardCount=2)
    lake = shop.folder / "lake"
    shop.run("CREATE TABLE orders (id int PRIMARY KEY, status text)")
    place = {"stream": STREAM, "region": REGION, "endpoint": kinesis.url}
    keys = {"access_key_id": "example", "secret_access_key": "example"}
    shop.publish({"output": "kinesis", "kinesis": {**place, **keys}})
    for changes in (
        ("INSERT INTO orders SELECT n, 'new' FROM generate_series(1, 200) AS n",),
        (
            "UPDATE orders SET status = 'paid' WHERE id % 2 = 0",
            "DELETE FROM orders WHERE id % 5 = 0",
        ),
    ):
        shop.run(*changes)
        held = rows(shop.dsn, "SELECT id, status FROM orders ORDER BY id")
        consumer = LakeConsumer(kinesis.url, lake)  # One that has the lake alone to go by.

        def arrived(consumer: LakeConsumer = consumer, held: list[Any] = held) -> bool:
            consumer.catch_up()
            return orders_of(lake) == held

        shop.wait_for("the lake has the orders", arrived)
    count = ds.dataset(lake, format="parquet", schema=SCHEMA).count_rows()
    files = len(list(lake.rglob("*.parquet")))
    print(f"{count} events in {files} files lead to the {len(held)} orders of the source")


if __name__ == "__main__":
    with KinesisServer() as kinesis, stage() as shop:
        fill(shop, kinesis)
