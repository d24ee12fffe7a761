"""The log of a publisher's positions in the store: append, read, find the newest.

Appending is a create-only PUT, as with the chain of manifests: of two workers that try a number,
one succeeds, and the other one learns that it is fenced. Entries are removed once `KEPT` newer ones
are there, so the newest is found by a listing, and from there by name.
"""

from __future__ import annotations

from tideline.contract import layout
from tideline.contract.errors import CorruptData, Fenced, Unavailable
from tideline.contract.publishing import PublisherEntry, decode_entry, stored_entry
from tideline.store.numbers import newest
from tideline.store.objects import ObjectStore

KEPT = 100


class PublisherLog:
    """The positions of one publisher of a pipeline. Every method raises like the store."""

    def __init__(self, store: ObjectStore, pipeline: str, publisher: str) -> None:
        self._store = store
        self._pipeline = pipeline
        self.publisher = publisher
        self._hint = 0

    def newest(self) -> PublisherEntry | None:
        """Read the newest entry, None for a publisher that never ran; CorruptData when it is not
        one."""
        known = self._hint > 0 and self._exists(self._hint)  # It may have been removed since.
        number = newest(self._exists, self._hint if known else self._listed())
        if number == 0:
            return None
        entry = self.read(number)
        if entry is None:  # Newer ones came meanwhile, and this one was removed.
            raise Unavailable(f"{self._key(number)} vanished while it was read")
        self._hint = number
        return entry

    def read(self, number: int) -> PublisherEntry | None:
        """Read an entry; None for one that is not there. Raises as `newest` does."""
        key = self._key(max(number, 1))
        raw = self._store.get(key)
        if raw is None:
            return None
        entry = decode_entry(raw, key)
        if (entry.publisher, entry.number) != (self.publisher, max(number, 1)):
            raise CorruptData(f"{key} holds entry {entry.number} of publisher {entry.publisher}")
        return entry

    def append(self, entry: PublisherEntry) -> None:
        """Write ``entry`` under its number; when this returns it is durable.

        Raises Fenced when another one stands there: the caller stops. After Unavailable it may be
        in the store or not: append the same one again.
        """
        raw, key = stored_entry(entry), self._key(entry.number)
        if not self._store.create(key, raw) and self._store.get(key) != raw:
            raise Fenced(
                f"position {entry.number} of publisher {entry.publisher} was already written by"
                f" another worker; this is {entry.writer}",
                hint="another worker publishes it, or an operator has moved it; this one must stop",
            )
        self._hint = entry.number
        if entry.number > KEPT:
            self._store.delete(self._key(entry.number - KEPT))

    def _listed(self) -> int:
        """Return the number of the newest entry that a listing shows; 0 for none."""
        found = 0
        for page in self._store.entries(layout.publisher_prefix(self._pipeline, self.publisher)):
            numbers = (layout.parse_publisher_key(entry.key) for entry in page)
            found = max(found, *(number for number in numbers if number is not None), 0)
        return found

    def _exists(self, number: int) -> bool:
        return self._store.exists(self._key(number))

    def _key(self, number: int) -> str:
        return layout.publisher_key(self._pipeline, self.publisher, number)
