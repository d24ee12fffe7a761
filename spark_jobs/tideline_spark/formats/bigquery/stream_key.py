"""The declared key of a streamed table, its life column, and whether its rows can be read as they
are now."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping

import msgspec

from tideline.contract.errors import CorruptData, Misconfigured
from tideline.warehouse.bigquery.log import CommitLog
from tideline.warehouse.bigquery.names import LIFE
from tideline_spark.formats.bigquery.access import BigQueryAccess

_PROPERTY = "tideline.streamed_key"


def new_life_column() -> str:
    """Return the name of a column for a streamed table that is made now, or replaced.

    The column has no values. Its name is that of one table alone, so that rows which a run still
    sends to the table before it, of the same name, are refused: they have a column that is not
    there.
    """
    return LIFE + secrets.token_hex(8)


def key_properties(key: Collection[str]) -> dict[str, str]:
    """Return the property by which a streamed table records its declared key."""
    return {_PROPERTY: msgspec.json.encode(list(key)).decode()}


def key_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the declared key of a streamed table. Raises CorruptData where it is not recorded."""
    try:
        return msgspec.json.decode(properties.get(_PROPERTY, ""), type=tuple[str, ...])
    except msgspec.MsgspecError:
        raise CorruptData(
            "a streamed BigQuery table does not record its key",
            hint=f"someone changed its property {_PROPERTY}: `tideline rebuild` it",
        ) from None


def check_fresh(access: BigQueryAccess, log: CommitLog) -> None:
    """Raise Misconfigured where a query of a streamed table may get rows as they were a while
    ago."""
    stale = getattr(log.table, "max_staleness", None) if log.streamed else None
    if stale and any(digit in "123456789" for digit in stale):
        name = access.name.sql
        raise Misconfigured(
            f"the rows of {access.name} are to be read, and max_staleness has BigQuery answer with"
            " former ones",
            hint=f"ALTER TABLE {name} SET OPTIONS (max_staleness = NULL), at least until this is"
            " done (docs/BIGQUERY.md#streamed-tables)",
        )
