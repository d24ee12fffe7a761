"""The settings of the freshness objective, of OpenLineage, and of maintenance."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from tideline.contract.maintenance import VACUUM_HOURS_MIN
from tideline.settings.addresses import check_host, split_url
from tideline.settings.base import Count, Effect, MiB, Seconds, Section


class Slo(Section):
    """The objective: so many of the changes are queryable so soon after their commit."""

    effect = Effect.LIVE

    percent: Annotated[float, Field(gt=0, le=99.999)] = 99.0
    """The percentage of the changes that are to be queryable in time."""
    within_s: Seconds = 300.0
    """The time within which they are to be queryable in the warehouse; a table of which they are
    not is called late."""
    window_s: Annotated[float, Field(gt=0, le=2_678_400)] = 86_400.0
    """The period over which it is measured."""
    runs_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Maximum merge runs in the window that are read, the newest ones; `since` says how far they
    reach."""


class Openlineage(Section):
    """The receiver of OpenLineage events of merge runs; none without ``url``."""

    effect = Effect.COMMAND

    url: str | None = None
    """The url of the receiver, as in ``http://marquez:5000``."""
    endpoint: str = "api/v1/lineage"
    """The path at the receiver."""
    namespace: Annotated[str, Field(min_length=1, max_length=255)] = "tideline"
    """The namespace of the jobs; data sets are named by where they are."""
    api_key: SecretStr | None = None
    """The API key, sent as a bearer token."""
    timeout_s: Seconds = 5.0
    """The time limit of one event. An event that is not delivered by then is counted, named and
    given up."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str | None) -> str | None:
        if not url:
            return None  # an empty variable of the environment
        parts = split_url(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("must be https://host:port, or http:// of a trusted network")
        check_host(parts)
        return url

    @field_validator("api_key")
    @classmethod
    def _no_empty_key(cls, key: SecretStr | None) -> SecretStr | None:
        return key if key is not None and key.get_secret_value().strip() else None


class Maintain(Section):
    """The conditions for rewriting files of warehouse tables, and the retention of old ones."""

    effect = Effect.COMMAND

    file_bytes: Annotated[int, Field(ge=1 * MiB, le=4096 * MiB)] = 128 * MiB
    """The desired size of a file; one of less than half of it counts as small."""
    small_files_min: Count = 16
    """So many small files of a table (those alone in their partition not counted) are worth putting
    together; so many fragmented ones are worth rewriting."""
    deleted_percent: Annotated[float, Field(gt=0, le=100)] = 10.0
    """A file of whose rows more are marked as deleted (by a deletion vector) counts as fragmented;
    a table with one, and with so many deleted rows in all, is rewritten without them."""
    bytes_max: Annotated[int, Field(ge=1 * MiB)] = 16 * 1024 * MiB
    """A table of which more would be rewritten is left to a run that names it."""
    vacuum_hours: Annotated[float, Field(ge=VACUUM_HOURS_MIN, le=876_000)] = 168.0
    """Files that left a table's newest version are removed after this: as long as the longest query
    and the oldest version that anyone goes back to. A day at least."""
    retries_max: Count = 8
    """Retries of a rewrite that lost a race against a merge."""
