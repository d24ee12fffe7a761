"""Logs the changes of accounts, by an application and by hand, and plays the log again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from examples.stage import ExampleStage, rows, stage

Event = Mapping[str, Any]
MADE = (
    "CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance numeric(12, 2),"
    " changed_by text)",
    "ALTER TABLE accounts REPLICA IDENTITY FULL",
)
CHANGES = (
    "INSERT INTO accounts VALUES (1, 'Ada', 100, 'app'), (2, 'Bob', 50, 'app')",
    "UPDATE accounts SET balance = balance - 30, changed_by = 'app' WHERE id = 1",
    "UPDATE accounts SET balance = balance + 30, changed_by = 'app' WHERE id = 2",
    "UPDATE accounts SET owner = 'Robert', changed_by = 'support' WHERE id = 2",
    "UPDATE accounts SET balance = 1000000, changed_by = 'by hand' WHERE id = 2",
    "DELETE FROM accounts WHERE id = 1",
)


def events(folder: Path) -> Iterator[Event]:
    """Yield the events that are there, in order. The last line may not be whole yet."""
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line)


def shown(event: Event) -> str:
    """Return an event as a line of the log."""
    before, row = event.get("before", {}), event.get("row", {})
    changed = [
        f"{name}: {before.get(name)} -> {row.get(name)}"
        for name in {**before, **row}
        if before.get(name) != row.get(name)
    ]
    who = (row or before).get("changed_by", "?")
    words = {"c": "made", "u": "changed", "d": "deleted", "r": "was there"}
    what = f"{event['table']} {event['key']} {words[event['op']]}"
    return f"{event['at']} tx {event['tx']} {who}: {what} ({', '.join(changed)})"


def played(log: Iterator[Event]) -> list[tuple[Any, ...]]:
    """Return the table that the log leads to."""
    table: dict[int, Event] = {}
    for event in log:
        key = event["key"]["id"]
        if event["op"] == "d":
            del table[key]
        else:
            table[key] = event["row"]
    return sorted(tuple(map(str, row.values())) for row in table.values())


def follow(shop: ExampleStage) -> None:
    """Change the accounts, and log it."""
    folder = shop.folder / "activity"
    shop.run(*MADE)
    shop.publish({"output": "files", "files": {"folder": str(folder)}}, before_image="full")
    shop.run(*CHANGES)
    query = "SELECT id::text, owner, balance::text, changed_by FROM accounts ORDER BY id"
    held = rows(shop.dsn, query)
    shop.wait_for("the log leads to the table", lambda: played(events(folder)) == held)
    for event in events(folder):
        print(shown(event))
    print(f"played from its beginning, the log gives the table: {held}")


if __name__ == "__main__":
    with stage() as shop:
        follow(shop)
