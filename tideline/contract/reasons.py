"""The reasons for snapshots that Tideline itself requests. The ids of such requests begin with one.

Only this module makes and parses these ids, which stand in chains that were written long ago.
"""

from __future__ import annotations

from enum import StrEnum


class SnapshotReason(StrEnum):
    """A reason; its value is the part of a request's id before its first colon."""

    INITIAL = "initial"
    """The first dump of a table."""
    RESTART = "anew"
    """It restarts a target that cannot take a schema."""
    FOLLOW_UP = "follow-up"
    """It makes up for changes that the log does not report."""
    DOUBT = "unproven"
    """It reads a table again whose rows may have changed without events."""
    REREAD = "reread"
    """Single rows are read again."""
    PENDING = "pending"
    """A merge left rows for which values are missing; it asks through the queue, like a user."""

    @property
    def by_worker(self) -> bool:
        """Return whether only the worker makes such requests: no other id may begin like that."""
        return self is not SnapshotReason.PENDING

    @property
    def indispensable(self) -> bool:
        """Return whether rows would stay wrong without the request."""
        return self in (self.REREAD, self.FOLLOW_UP, self.DOUBT)


def reason_of(request_id: str) -> SnapshotReason | None:
    """Return the reason that an id states; None for a request that a user made."""
    return _BY_PREFIX.get(request_id[: request_id.find(":") + 1])


def own_id(reason: SnapshotReason, *parts: object) -> str:
    """Make the id of a request for ``reason``; ``parts`` distinguish it from others."""
    return ":".join([reason.value, *map(str, parts)])


_BY_PREFIX = {f"{reason.value}:": reason for reason in SnapshotReason}
