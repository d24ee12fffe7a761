"""The shop: customers order, orders change hands, customers leave."""

from __future__ import annotations

import random
from typing import Any

import psycopg2

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders (number int PRIMARY KEY, customer_id int NOT NULL);
CREATE TABLE items (order_number int, line int, product text, PRIMARY KEY (order_number, line));
INSERT INTO customers SELECT g, 'customer ' || g FROM generate_series(1, 40) g;
"""
DOCUMENTS = """
SELECT c.id, json_build_object('id', c.id, 'name', c.name, 'orders', coalesce((
    SELECT json_agg(json_build_object(
        'number', o.number, 'customer_id', o.customer_id, 'items', coalesce((
            SELECT json_agg(json_build_object('line', i.line, 'product', i.product) ORDER BY i.line)
            FROM items i WHERE i.order_number = o.number), '[]'::json)) ORDER BY o.number)
    FROM orders o WHERE o.customer_id = c.id), '[]'::json))
FROM customers c
"""
PRODUCTS = ("pen", "paper", "ink", "desk")


class Shop:
    """The application, with its database at ``url``."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg2.connect(url)
        self._random = random.Random(1)
        self._orders = 0
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(TABLES)

    def do_business(self, transactions: int) -> None:
        """Commit so many transactions."""
        for _ in range(transactions):
            with self._connection, self._connection.cursor() as cursor:
                self._step(cursor)

    def documents(self) -> dict[str, Any]:
        """Join the tables, by the customer's id."""
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(DOCUMENTS)
            return {str(number): document for number, document in cursor.fetchall()}

    def close(self) -> None:
        self._connection.close()

    def _step(self, cursor: Any) -> None:
        customer, kind = self._random.randrange(1, 41), self._random.random()
        if kind < 0.6:
            self._orders += 1
            cursor.execute("INSERT INTO orders VALUES (%s, %s)", (self._orders, customer))
            for line in range(1, self._random.randrange(2, 5)):
                values = (self._orders, line, self._random.choice(PRODUCTS))
                cursor.execute("INSERT INTO items VALUES (%s, %s, %s)", values)
            return
        number = self._random.randrange(1, self._orders + 2)
        if kind < 0.8:  # The order is another customer's from now on.
            cursor.execute(
                "UPDATE orders SET customer_id = %s WHERE number = %s", (customer, number)
            )
        elif kind < 0.97:
            cursor.execute("DELETE FROM items WHERE order_number = %s", (number,))
            cursor.execute("DELETE FROM orders WHERE number = %s", (number,))
        else:
            cursor.execute("DELETE FROM customers WHERE id = %s", (customer,))
