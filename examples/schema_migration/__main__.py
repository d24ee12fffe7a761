"""Moves customers to another shape, while they are written."""

from __future__ import annotations

import json
import threading
from typing import Any, cast

import psycopg2
import redis

from devtools.services.valkey import ValkeyServer
from examples.stage import ExampleStage, rows, stage

STREAM = "customers"
OLD = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, address text)",
    "INSERT INTO customers SELECT n, 'First' || n || ' Last' || n, 'Street ' || n"
    " FROM generate_series(1, 2000) AS n",
)
NEW = (
    "CREATE SCHEMA crm",
    "CREATE TABLE crm.people (id int PRIMARY KEY, first_name text, last_name text)",
    "CREATE TABLE crm.addresses (person_id int PRIMARY KEY, line text NOT NULL)",
    "CREATE TABLE crm.reached (entry text NOT NULL)",
    "INSERT INTO crm.reached VALUES ('0-0')",
)
TRAFFIC = (
    "INSERT INTO customers VALUES ({new}, 'Ada Lovelace', NULL)",
    "UPDATE customers SET name = 'Grace Hopper', address = 'Pier {n}' WHERE id = {n}",
    "UPDATE customers SET id = -id WHERE id = {n} + 100",
    "DELETE FROM customers WHERE id = {n} + 1000",
)


class Migrator:
    """Writes the new tables from the stream, behind the entry that they have reached."""

    def __init__(self, dsn: str, valkey: redis.Redis) -> None:
        self._connection = psycopg2.connect(dsn)
        self._valkey = valkey
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute("SELECT entry FROM crm.reached")
            ((self._behind,),) = cursor.fetchall()

    def catch_up(self) -> int:
        """Apply what has come; return how many events there were."""
        found = cast(Any, self._valkey.xrange(STREAM, min=f"({self._behind}", count=500))
        if found:
            with self._connection, self._connection.cursor() as cursor:
                for _, fields in found:
                    self._apply(cursor, json.loads(fields[b"value"]))
                self._behind = found[-1][0].decode()
                cursor.execute("UPDATE crm.reached SET entry = %s", (self._behind,))
        return len(found)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _apply(self, cursor: Any, event: Any) -> None:
        key = (event["key"]["id"],)
        cursor.execute("DELETE FROM crm.addresses WHERE person_id = %s", key)
        cursor.execute("DELETE FROM crm.people WHERE id = %s", key)
        if event["op"] == "d":
            return
        row = event["row"]
        first, _, last = row["name"].partition(" ")
        cursor.execute("INSERT INTO crm.people VALUES (%s, %s, %s)", (*key, first, last))
        if row["address"] is not None:
            cursor.execute("INSERT INTO crm.addresses VALUES (%s, %s)", (*key, row["address"]))


def migrate(shop: ExampleStage, valkey: ValkeyServer) -> None:
    """Move the customers, with a migrator that is started twice."""
    shop.run(*OLD, *NEW)
    url = valkey.url()
    shop.publish(
        {"output": "redis", "tables": ["public.*"], "redis": {"url": url, "stream": STREAM}}
    )
    moved_over = threading.Event()
    application = threading.Thread(target=write, args=(shop, moved_over))
    application.start()
    with redis.Redis.from_url(url) as client:
        first = Migrator(shop.dsn, client)
        shop.wait_for("the first rows have come", lambda: first.catch_up() > 0)
        first.close()
        second = Migrator(shop.dsn, client)
        shop.wait_for(
            "half of them are there", lambda: second.catch_up() >= 0 and count(shop) > 1000
        )
        moved_over.set()
        application.join()
        shop.wait_for("both are equal", lambda: second.catch_up() == 0 and is_equal(shop))
        second.close()
    print(f"{count(shop)} customers have moved; both shapes hold the same")


def write(shop: ExampleStage, until: threading.Event) -> None:
    """Change customers as the application does, until it moves over."""
    number = 0
    while not until.wait(0.01) and number < 90:
        number += 1
        shop.run(*(one.format(n=number, new=5000 + number) for one in TRAFFIC))


def count(shop: ExampleStage) -> int:
    return int(rows(shop.dsn, "SELECT count(*) FROM crm.people")[0][0])


def is_equal(shop: ExampleStage) -> bool:
    """Return whether the new tables, in the old shape, are the old one."""
    old = rows(shop.dsn, "SELECT id, name, address FROM customers ORDER BY id")
    new = rows(
        shop.dsn,
        "SELECT id, first_name || ' ' || last_name, line FROM crm.people"
        " LEFT JOIN crm.addresses ON person_id = id ORDER BY id",
    )
    return old == new


if __name__ == "__main__":
    with stage() as shop, ValkeyServer(shop.folder / "valkey") as valkey:
        migrate(shop, valkey)
