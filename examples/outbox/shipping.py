"""The shipping service: it ships what is paid, once, whatever is delivered how often.

``python -m examples.outbox.shipping DATABASE``, with the url of Redis in ``REDIS_URL``, runs until
it is ended. With ``--dies-after N`` it is killed when it has worked on the Nth event, before it
acknowledges that.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import redis

from tideline.consumer import make_seen_table, seen

STREAM = "outbox.event.order"
GROUP = "shipping"
STEPS = """
CREATE TABLE IF NOT EXISTS steps (number integer PRIMARY KEY, parcel text, what text)
"""


def work(database: sqlite3.Connection, fields: Mapping[str, str]) -> None:
    """Do what an event asks for, unless it was done: in one transaction with the note of it."""
    with database:
        if seen(database, fields["header:id"]):
            return
        step = (fields["key"], fields["header:type"])
        database.execute("INSERT INTO steps (parcel, what) VALUES (?, ?)", step)
        if fields["header:type"] == "OrderPaid":
            shipped = (fields["key"], "shipped")
            database.execute("INSERT INTO steps (parcel, what) VALUES (?, ?)", shipped)


def events(client: redis.Redis) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield entries for ever: first those that were delivered before and not acknowledged."""
    start = "0"
    while True:
        found: Any = client.xreadgroup(GROUP, "one", {STREAM: start}, count=10, block=500)
        entries = [entry for _, some in found for entry in some]
        if not entries:
            start = ">"
        yield from entries


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("database")
    parser.add_argument("--dies-after", type=int, default=0)
    given = parser.parse_args()
    with (
        closing(sqlite3.connect(given.database)) as database,
        redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True) as client,
    ):
        with database:
            make_seen_table(database)
            database.execute(STEPS)
        try:
            client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):  # The group is there from before.
                raise
        for number, (entry_id, fields) in enumerate(events(client), 1):
            work(database, fields)
            if number == given.dies_after:
                os.kill(os.getpid(), signal.SIGKILL)
            client.xack(STREAM, GROUP, entry_id)


if __name__ == "__main__":
    main()
