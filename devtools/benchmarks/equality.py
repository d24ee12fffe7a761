"""Checks equality before a benchmark counts: fast but wrong results are not measured."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store


class NotEqual(Exception):
    """The captured rows differ from the source's."""


_POSTGRES_CLOCK = "(extract(epoch FROM max(updated_at)) * 1000000)::bigint"
MYSQL_CLOCK = "CAST(UNIX_TIMESTAMP(MAX(updated_at)) * 1000000 AS SIGNED)"


def assert_equal(
    cursor: Any, *, settings: Settings, changes: int, captured: int, clock: str = _POSTGRES_CLOCK
) -> None:
    """Check by counts and column sums that the newest row of each key is the source's row.

    ``clock`` is the source's SQL for the greatest ``updated_at`` in µs.
    """
    if captured != changes:
        raise NotEqual(f"{changes} changes were made, {captured} captured")
    totals = (
        "SELECT count(*), sum(id), sum(amount), sum(weight), sum(length(note)), sum(length(city)),"
        " sum(status), "
    )
    cursor.execute(f"{totals} {clock} FROM orders")
    source = tuple(_plain(value) for value in cursor.fetchone())
    found = tuple(_plain(value) for value in _totals(_newest(settings)))
    if source != found:
        raise NotEqual(f"the source says {source}, the parts {found}")


def _plain(value: object) -> str:
    """Write whole numbers without a point, because servers differ in the types of sums."""
    return format(Decimal(str(value)).normalize(), "f")


def _newest(settings: Settings) -> pa.Table:
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    root = Path(urlsplit(settings.store.url).path)
    last = tail.manifest.manifest_number if tail else 0
    parts = [part for entry in chain.entries(1, last) for part in entry.manifest.parts]
    columns = ["_tl_seq", "id", "amount", "weight", "note", "city", "status", "updated_at"]
    table = pa.concat_tables([pq.read_table(root / part.key, columns=columns) for part in parts])
    newest = table.group_by("id").aggregate([("_tl_seq", "max")])["_tl_seq_max"]
    return table.filter(pc.is_in(table["_tl_seq"], value_set=newest))


def _totals(table: pa.Table) -> tuple[object, ...]:
    weight = pc.sum(table["weight"]).as_py()
    return (
        table.num_rows,
        pc.sum(table["id"]).as_py(),
        pc.sum(table["amount"]).as_py(),
        weight,
        pc.sum(pc.utf8_length(table["note"])).as_py(),
        pc.sum(pc.utf8_length(table["city"])).as_py(),
        pc.sum(table["status"]).as_py(),
        pc.max(table["updated_at"].cast(pa.int64())).as_py(),
    )
