"""The order service: it changes an order, and has an event for it, in one transaction."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg2

TABLES = """
CREATE TABLE orders (number int PRIMARY KEY, status text NOT NULL);
CREATE TABLE outbox (
    id uuid PRIMARY KEY,
    aggregatetype text NOT NULL,
    aggregateid text NOT NULL,
    type text NOT NULL,
    payload jsonb
);
"""


class OrderService:
    """The service, with its database at ``url``."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg2.connect(url)

    def make_tables(self) -> None:
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(TABLES)

    def place(self, number: int) -> None:
        """Place an order."""
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s, 'placed')", (number,))
            self._announce(cursor, number, "OrderPlaced")

    def pay(self, number: int, *, card_is_good: bool = True) -> bool:
        """Pay an order; return whether it is paid. With a bad card all of it is rolled back."""
        with self._connection.cursor() as cursor:
            cursor.execute("UPDATE orders SET status = 'paid' WHERE number = %s", (number,))
            self._announce(cursor, number, "OrderPaid")
        if card_is_good:
            self._connection.commit()
        else:
            self._connection.rollback()
        return card_is_good

    def _announce(self, cursor: Any, number: int, what: str) -> None:
        event_id = str(uuid.uuid4())
        cursor.execute(
            "INSERT INTO outbox VALUES (%s, 'order', %s, %s, %s)",
            (event_id, str(number), what, json.dumps({"order": number})),
        )
        # The log has it: the table stays empty.
        cursor.execute("DELETE FROM outbox WHERE id = %s", (event_id,))

    def close(self) -> None:
        self._connection.close()
