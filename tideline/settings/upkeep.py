"""What is promised of freshness, who is told of lineage, how warehouse tables are kept small."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from tideline.contract.maintenance import VACUUM_HOURS_MIN
from tideline.settings.addresses import split_url
from tideline.settings.base import Count, Effect, MiB, Seconds, Section


class Slo(Section):
    """The objective: so many of the changes are queryable so soon after their commit."""

    effect = Effect.LIVE

    percent: Annotated[float, Field(gt=0, le=99.999)] = 99.0
    """How many of the changes."""
    within_s: Seconds = 300.0
    """How soon they can be queried in the warehouse; a table of which they cannot is called
    late."""
    window_s: Annotated[float, Field(gt=0, le=2_678_400)] = 86_400.0
    """The stretch of time that it is looked at over."""
    runs_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Merge runs in the window that are read, the newest ones; `since` says how far they reach."""


class Openlineage(Section):
    """Who is sent OpenLineage events of merge runs; nobody without ``url``."""

    effect = Effect.COMMAND

    url: str | None = None
    """Of the receiver, as in ``http://marquez:5000``."""
    endpoint: str = "api/v1/lineage"
    """The path there."""
    namespace: Annotated[str, Field(min_length=1, max_length=255)] = "tideline"
    """Of the jobs; data sets are named by where they are."""
    api_key: SecretStr | None = None
    """Sent as a bearer token."""
    timeout_s: Seconds = 5.0
    """For one event. What is not delivered by then is counted, named and given up."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str | None) -> str | None:
        parts = split_url(url or "https://unset")
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("must be https://host:port, or http:// of a trusted network")
        return url


class Maintain(Section):
    """When files of warehouse tables are rewritten, and how long old ones are kept."""

    effect = Effect.COMMAND

    file_bytes: Annotated[int, Field(ge=1 * MiB, le=4096 * MiB)] = 128 * MiB
    """How large a file should be; one of less than half of it counts as small."""
    small_files_min: Count = 16
    """So many small files of a table (those alone in their partition not counted) are worth putting
    together; so many worn ones are worth writing anew."""
    deleted_percent: Annotated[float, Field(gt=0, le=100)] = 10.0
    """A file of whose rows more are marked as deleted (by a deletion vector) counts as worn; a
    table with one, and with so many deleted rows in all, is written anew without them."""
    bytes_max: Annotated[int, Field(ge=1 * MiB)] = 16 * 1024 * MiB
    """A table of which more would be rewritten is left to a run that names it."""
    vacuum_hours: Annotated[float, Field(ge=VACUUM_HOURS_MIN, le=876_000)] = 168.0
    """Files that left a table's newest version are removed after this: as long as the longest query
    and the oldest version that anybody goes back to. A day at least."""
    retries_max: Count = 8
    """Tries again of a rewrite that lost a race against a merge."""
