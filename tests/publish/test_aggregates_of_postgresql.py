"""Documents of a real PostgreSQL under traffic, with kills of worker and publisher.

What they must be is joined here: from the rows of the chain's parts at each position, and at the
end by the database itself.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.fixtures.capture import IDLE_S, Pipeline, PipelineFactory, WorkerProcess
from tests.fixtures.services import Database
from tideline.store.objects import open_store

CUSTOMERS, ORDERS, ITEMS = "public.customers", "public.orders", "public.items"
KEYS = {CUSTOMERS: "id", ORDERS: "id", ITEMS: "id"}
AGGREGATE = {
    "root": CUSTOMERS,
    "children": {
        "orders": {
            "table": ORDERS,
            "keys": {"customer_id": "id"},
            "children": {"items": {"table": ITEMS, "keys": {"order_id": "id"}}},
        }
    },
}
SETUP = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text)",
    "CREATE TABLE orders (id int PRIMARY KEY, customer_id int, note text)",
    "CREATE TABLE items (id int PRIMARY KEY, order_id int, note text)",
    # Values that the log leaves out where they do not change.
    "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL",
    "INSERT INTO customers SELECT g, 'n' || g FROM generate_series(1, 60) g",
    "INSERT INTO orders"
    " SELECT g, 1 + g % 60, repeat('x' || g, 1500) FROM generate_series(1, 300) g",
    "INSERT INTO items SELECT g, 1 + g % 300, 'i' || g FROM generate_series(1, 900) g",
)
JOIN = """
    SELECT c.id, json_build_object('id', c.id, 'name', c.name, 'orders', coalesce((
        SELECT json_agg(json_build_object('id', o.id, 'customer_id', o.customer_id, 'note', o.note,
            'items', coalesce((SELECT json_agg(json_build_object('id', i.id, 'order_id', i.order_id,
                'note', i.note) ORDER BY i.id) FROM items i WHERE i.order_id = o.id), '[]'::json))
            ORDER BY o.id)
        FROM orders o WHERE o.customer_id = c.id), '[]'::json)) FROM customers c
"""
TRANSACTIONS, PER_S, KILLS = 2_400, 200, 6


class Traffic(threading.Thread):
    """Transactions at a rate, each of some statements on all three tables: at least so many, and
    until it is ``enough``."""

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__(daemon=True)
        self._database, self._random = database, random.Random(seed)
        self.done = 0
        self.enough = threading.Event()
        self.seconds = 0.0

    def run(self) -> None:
        begun = time.monotonic()
        connection = self._database.connect()
        connection.autocommit = False
        with connection.cursor() as cursor:
            for number in itertools.count():
                if number >= TRANSACTIONS and self.enough.is_set():
                    break
                for _ in range(self._random.randrange(1, 4)):
                    cursor.execute(*self._statement())
                if self._random.random() < 0.05:
                    connection.rollback()
                else:
                    connection.commit()
                self.done = number + 1
                time.sleep(max(0.0, begun + number / PER_S - time.monotonic()))
        connection.close()
        self.seconds = time.monotonic() - begun

    def _statement(self) -> tuple[str, tuple[object, ...]]:
        draw = self._random
        customer, order, item = (draw.randrange(1, last) for last in (70, 330, 990))
        kinds: list[tuple[str, tuple[object, ...]]] = [
            ("UPDATE customers SET name = %s WHERE id = %s", (str(draw.random()), customer)),
            ("INSERT INTO customers VALUES (%s, 'new') ON CONFLICT DO NOTHING", (customer,)),
            ("DELETE FROM customers WHERE id = %s", (customer,)),
            # Children move between parents.
            ("UPDATE orders SET customer_id = %s WHERE id = %s", (customer, order)),
            ("UPDATE orders SET customer_id = %s WHERE id = %s", (customer, order)),
            ("INSERT INTO orders VALUES (%s, %s, 'n') ON CONFLICT DO NOTHING", (order, customer)),
            ("DELETE FROM orders WHERE id = %s", (order,)),
            ("UPDATE items SET order_id = %s WHERE id = %s", (order, item)),
            ("UPDATE items SET order_id = %s WHERE id = %s", (order, item)),
            ("UPDATE items SET id = id + %s WHERE id = %s", (1_000 * (self.done + 1), item)),
            ("INSERT INTO items VALUES (%s, %s, 'n') ON CONFLICT DO NOTHING", (item, order)),
            ("DELETE FROM items WHERE id = %s", (item,)),
        ]
        return draw.choice(kinds)


def changes(pipeline: Pipeline[Database]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All rows of the chain's parts, in their order, and a mark ``ends`` behind a whole dump."""
    store = open_store(pipeline.settings.store)
    for manifest in pipeline.manifests():
        rows = [
            (part.table, row)
            for part in manifest.parts
            if part.table in KEYS
            for row in pq.read_table(io.BytesIO(store.get(part.key) or b"")).to_pylist()
        ]
        yield from sorted(rows, key=lambda one: one[1]["_tl_seq"])
        for end in manifest.deletes_before:
            yield "ends", {"table": end.table, "seq": end.seq, "_tl_seq": manifest.last_seq}


class Model:
    """The rows of the chain up to a sequence, and the documents then."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, dict[str, Any]]] = {table: {} for table in KEYS}

    def apply(self, table: str, row: Mapping[str, Any]) -> None:
        if table == "ends":
            old = self.rows[row["table"]]
            self.rows[row["table"]] = {k: v for k, v in old.items() if v["_tl_seq"] > row["seq"]}
            return
        rows, key = self.rows[table], row["id"]
        before = rows.pop(row.get("_tl_before_id") or key, {}) if row["_tl_op"] != "d" else {}
        if row["_tl_op"] == "d":
            rows.pop(key, None)
            return
        left_out = row.get("_tl_unchanged") or ()
        # Before a row's dump, the log may lack values: the dump's row has them, and not the others.
        known = {name: value for name, value in row.items() if name not in left_out}
        rows[key] = {**before, **known}

    def document(self, key: int) -> dict[str, Any] | None:
        root = self.rows[CUSTOMERS].get(key)
        if root is None:
            return None
        orders = [
            {
                **_shown(order, "id", "customer_id", "note"),
                "items": [
                    _shown(item, "id", "order_id", "note")
                    for _, item in sorted(self.rows[ITEMS].items())
                    if item["order_id"] == number
                ],
            }
            for number, order in sorted(self.rows[ORDERS].items())
            if order["customer_id"] == key
        ]
        return {**_shown(root, "id", "name"), "orders": orders}


def _shown(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def check_each(pipeline: Pipeline[Database], events: list[dict[str, Any]]) -> None:
    """Each document is the join at its sequence."""
    model, left, number = Model(), list(changes(pipeline)), 0
    for event in events:
        while number < len(left) and left[number][1]["_tl_seq"] <= event["seq"]:
            model.apply(*left[number])
            number += 1
        assert event.get("row") == model.document(event["key"]["id"]), event["seq"]


def test_documents_under_traffic_and_kills(
    database: Database, pipeline_of: PipelineFactory, tmp_path: Path
) -> None:
    database.run(*SETUP)
    folder = tmp_path / "documents"
    pipeline: Pipeline[Database] = pipeline_of(
        database,
        capture={"chunk_rows": 50},
        aggregates={"customer": AGGREGATE},
        publish={
            "documents": {
                "output": "files",
                "files": {"folder": str(folder), "file_bytes_max": 500_000},
                "aggregates": ["customer"],
                "state_interval_s": 0.5,
                "takeover_after_s": 1.0,
                "heartbeat_s": 0.2,
            }
        },
    )
    traffic = Traffic(database, 7)
    captures, publisher = pipeline.start(), _publisher(pipeline, tmp_path)
    publisher.wait_point("after-state")
    traffic.start()
    for at in range(KILLS):
        # Each is killed once it has published something, most with some of it not yet logged.
        publisher.wait_point("after-write", 2 + 3 * at)
        publisher.kill()
        if at % 3 == 1:
            captures.kill()
            captures = pipeline.start()
        publisher = _publisher(pipeline, tmp_path)
    traffic.enough.set()
    traffic.join()
    pipeline.finish(captures)
    publisher.terminate()
    last = _publisher(pipeline, tmp_path, until_idle_s=IDLE_S)
    assert last.wait() == 0, last.output()
    paths = sorted(folder.glob("*.jsonl"))
    events = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    orders = [(event["seq"], event["key"]["id"]) for event in events]
    assert len(set(orders)) == len(orders)
    check_each(pipeline, events)
    assert len({event["seq"] for event in events}) > KILLS
    latest = {event["key"]["id"]: event.get("row") for event in events}
    connection = database.connect()
    with connection.cursor() as cursor:
        cursor.execute(JOIN)
        wanted = dict(cursor.fetchall())
    connection.close()
    assert {key: row for key, row in latest.items() if row is not None} == wanted
    print(f"{traffic.done} transactions in {traffic.seconds:.1f} s, {len(events)} documents")


def _publisher(
    pipeline: Pipeline[Database], folder: Path, until_idle_s: float | None = None
) -> WorkerProcess:
    return WorkerProcess(
        pipeline.config, folder, until_idle_s=until_idle_s, deadly={}, publisher="documents"
    )
