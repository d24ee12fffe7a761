"""``tideline garbage``: removes from the store what is no longer needed, and reports what stays."""

from __future__ import annotations

from datetime import UTC, datetime

from tideline.planner.consumers import Consumer, known_consumers, warehouse_key
from tideline.planner.garbage import Fate, Garbage
from tideline.settings import Settings
from tideline.store.objects import open_store
from tideline_console.output import say
from tideline_console.tables import print_table


def run(settings: Settings, *, dry_run: bool) -> None:
    """Collect garbage, or with ``dry_run`` only look for it, and print the result."""
    store = open_store(settings.store)
    found = Garbage(settings, store).collect(datetime.now(UTC), dry_run=dry_run)
    consumers = known_consumers(settings, store)
    print_table(
        ("parts, roll-ups, records", "objects", "bytes"),
        (
            (fate.value, found.objects[fate], found.bytes[fate])
            for fate in Fate
            if found.objects[fate]
        ),
    )
    if not consumers:
        say("no one has planned a merge yet: all is kept")
    for consumer in consumers:
        other = "" if consumer.key == warehouse_key(settings) else _how_to_remove(consumer)
        say(f"{consumer.name} must have applied what is removed{other}")
    if dry_run:
        say("nothing was removed: this was a dry run")


def _how_to_remove(consumer: Consumer) -> str:
    """Return what to do about a consumer that is not the settings' warehouse, if it is gone."""
    return f"; if it is gone for good, remove the object {consumer.key} of the store"
