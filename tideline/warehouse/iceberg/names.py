"""The names of Iceberg tables in their catalog, and of what Spark's session says of it."""

from __future__ import annotations

from tideline.contract.errors import InvariantBroken
from tideline.contract.target_url import CATALOG

CATALOG_SETTING = f"spark.sql.catalog.{CATALOG}"
"""The setting of Spark with the class of the catalog; those below it are the catalog's own."""
MARKER_SETTING = "spark.tideline.iceberg"
"""The setting of Spark, of ours, that sessions for Iceberg tables have."""
VERSION_SETTING = "spark.tideline.iceberg.format-version"
"""The setting of Spark, of ours, with the version of Iceberg's format that new tables have."""
VERSIONS_SETTING = "spark.tideline.iceberg.versions-max"
"""The setting of Spark, of ours, with the number of snapshots above which merges drop some."""

Identifier = tuple[str, str]
"""A namespace of one level, and a table."""


def identifier_of(url: str) -> Identifier:
    """Return the name in the catalog of the table at ``url``.

    Names stay as they are but for characters that a path cannot have, which are ``~`` and their
    code (`layout.encode_name`). The folders of a table that is deeper (a rebuild's) make one
    namespace, as some catalogs have no other.
    """
    _, _, path = url.partition("://")
    _, *folders, table = path.split("/")
    if not folders:
        raise InvariantBroken(f"{url} is not the url of a table")
    return "__".join(map(_level, folders)), _level(table)


def _level(segment: str) -> str:
    """Return a segment of a url without characters that catalogs give a meaning."""
    return segment.replace("%", "~").replace(".", "~2E")
