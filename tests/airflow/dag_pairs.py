"""Any two of the DAGs at once: what each is triggered with, and what is to be true afterwards."""

from __future__ import annotations

import random
import time
from itertools import combinations_with_replacement
from typing import Any

from tests.airflow.whole_line import WholeLine

TRIGGERED: dict[str, dict[str, Any]] = {
    "merge": {},
    "repair": {"tables": ["public.orders", "public.items"]},
    "backfill": {"tables": ["public.orders"], "column": "placed_at"},
    "verify": {"tables": ["public.orders", "public.people"]},
    "rebuild": {"table": "public.orders"},
    "maintain": {},
    "aggregate": {},
    "control": {"action": "tune", "all": True, "delay_ms": "0"},
}
"""What each DAG is triggered with; all of them are about the same table."""
PAIRS = list(combinations_with_replacement(TRIGGERED, 2))
APART_S = 5.0


def both_end_well(line: WholeLine, first: str, second: str) -> None:
    """Trigger both DAGs, up to `APART_S` apart, while the source changes: both runs succeed, and
    what is in the warehouse then is what is in the source."""
    drawn = random.Random(f"{first} {second}")
    change(line, drawn)
    runs = [(first, trigger(line, first, drawn))]
    time.sleep(drawn.uniform(0.0, APART_S))
    change(line, drawn)
    runs.append((second, trigger(line, second, drawn)))
    for name, run_id in runs:
        line.succeeds(f"tideline_{name}", run_id)
    line.expect_equal()


def change(line: WholeLine, drawn: random.Random) -> None:
    """Some changes of each table."""
    low = drawn.randrange(1, 300)
    line.run(
        "UPDATE orders SET note = note || '!' WHERE id BETWEEN %(low)s AND %(low)s + 20",
        "DELETE FROM items WHERE order_id = %(low)s",
        "INSERT INTO items VALUES (%(low)s, 1, 'again', '2026-03-02')",
        "UPDATE people SET age = age + 1 WHERE age BETWEEN %(low)s AND %(low)s + 5",
        low=low,
    )


def trigger(line: WholeLine, name: str, drawn: random.Random) -> str:
    """Trigger the DAG of that name; the run's id."""
    if name != "backfill":
        return line.api.trigger(f"tideline_{name}", TRIGGERED[name])
    # As one run of a backfill is: its data interval is the logical date's day.
    day = f"2026-03-{drawn.randrange(1, 28):02}T00:00:00.{drawn.randrange(10**6):06}+00:00"
    return line.api.trigger(f"tideline_{name}", TRIGGERED[name], logical_date=day)
