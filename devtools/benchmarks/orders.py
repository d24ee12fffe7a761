"""The table and the workloads of all measurements."""

from __future__ import annotations

from typing import Any

COLUMNS = (
    "id bigint primary key",
    "customer_id int not null",
    "status smallint not null",
    "flags bigint not null",
    "amount numeric(12,2) not null",
    "weight double precision not null",
    "sku varchar(32) not null",
    "note varchar(64)",
    "city varchar(32)",
    "active boolean not null",
    "created_at timestamp(6) not null",
    "updated_at timestamptz(3) not null",
)

ROW = """
  SELECT g, g % 50000, g % 7, g * 31 % 4294967296, (g % 1000000) / 100.0, g * 0.5,
    'SKU-' || (g % 9999), CASE WHEN g % 3 = 0 THEN NULL ELSE 'note of order ' || g END,
    CASE WHEN g % 5 = 0 THEN NULL ELSE 'city ' || (g % 400) END, g % 2 = 0,
    timestamp '2026-01-01' + g * interval '1 second',
    timestamptz '2026-01-01Z' + g * interval '1 ms'
"""


def create(cursor: Any, name: str = "orders") -> None:
    cursor.execute(f"CREATE TABLE {name} ({', '.join(COLUMNS)})")


def fill(cursor: Any, rows: int, name: str = "orders") -> None:
    """Insert ``rows`` rows in one statement."""
    cursor.execute(f"INSERT INTO {name} {ROW} FROM generate_series(1, {rows:d}) g")


def insert_in_bulk(cursor: Any, rows: int) -> None:
    """Make W1, ``rows`` inserts in transactions of 1,000 (in autocommit)."""
    for first in range(1, rows + 1, 1000):
        last = min(first + 999, rows)
        cursor.execute(f"INSERT INTO orders {ROW} FROM generate_series({first:d}, {last:d}) g")


def update_one_by_one(cursor: Any, rows: int, changes: int) -> None:
    """Make W2, ``changes`` single-row updates, each a transaction, all made inside the server."""
    cursor.execute(
        """
        CREATE OR REPLACE PROCEDURE one_by_one(total int, changes int) LANGUAGE plpgsql AS $$
        BEGIN
          FOR i IN 1 .. changes LOOP
            UPDATE orders SET amount = amount + 1, updated_at = updated_at + interval '1 ms'
            WHERE id = (i::bigint * 7919) % total + 1;
            COMMIT;
          END LOOP;
        END $$
        """
    )
    cursor.execute(f"CALL one_by_one({rows:d}, {changes:d})")
