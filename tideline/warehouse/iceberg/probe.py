"""Proves that the catalog of Iceberg tables can be used, and names what is wrong with it."""

from __future__ import annotations

import uuid

from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.settings import Warehouse
from tideline.settings.addresses import split_url
from tideline.settings.iceberg import IcebergSettings
from tideline.warehouse.iceberg.client import open_catalog

_REFUSED = ("password authentication failed", "no password supplied")
_NO_RIGHT = "42501"
"""A database's code of a privilege that a user lacks."""


def probe_catalog(place: Warehouse) -> str:
    """Make a namespace, begin a table in it and remove both; return the catalog's address.

    The table is begun and not committed: a REST catalog judges it, in a database only the namespace
    is written. A database that has no catalog yet gets its two tables, as with the first merge.
    Raises Misconfigured without a client, for credentials that are refused and for missing
    permissions, Unavailable where the catalog does not answer as one. Neither has a secret in it.
    """
    try:
        catalog = open_catalog(place)
        # heavy: only pipelines with Iceberg tables need it
        from pyiceberg.schema import Schema
        from pyiceberg.types import LongType, NestedField

        name = "__".join(filter(None, [place.iceberg.namespace, f"probe_{uuid.uuid4().hex}"]))
        catalog.create_namespace(name)
        try:
            column = NestedField(1, "id", LongType(), required=False)
            catalog.create_table_transaction((name, "probe"), Schema(column))
        finally:
            catalog.drop_namespace(name)
    except TidelineError:
        raise
    except Exception as error:  # noqa: BLE001  clients raise what their libraries raise
        raise _explained(error, place.iceberg) from None
    return _where(place.iceberg)


def _where(settings: IcebergSettings) -> str:
    if settings.file is not None:
        return str(settings.file)
    return split_url(settings.url or "").netloc or str(settings.catalog)


def _explained(error: Exception, settings: IcebergSettings) -> TidelineError:
    """Return the error of ours for a client's. No text of the client's is shown: it may hold a
    secret."""
    where = f"the catalog of Iceberg tables at {_where(settings)}"
    if _is_refused(error):
        return Misconfigured(
            f"{where} refuses the credentials",
            hint="correct warehouse.iceberg.user and its password (docs/ICEBERG.md, Catalogs)",
        )
    if _lacks_rights(error):
        return Misconfigured(
            f"{where} does not permit this client to make namespaces and tables",
            hint="permit it to create and to drop both; in a database, grant CREATE on its schema"
            " or have the owner make the catalog's tables, and grant SELECT, INSERT, UPDATE, DELETE"
            " on them",
        )
    return Unavailable(
        f"{where} does not answer as one: {type(error).__name__}",
        hint="check that it runs, and warehouse.iceberg.url and warehouse.iceberg.warehouse",
    )


def _is_refused(error: Exception) -> bool:
    # heavy: as above
    from pyiceberg.exceptions import OAuthError, UnauthorizedError

    if isinstance(error, (OAuthError, UnauthorizedError)):
        return True
    text = str(getattr(error, "orig", ""))
    return any(one in text for one in _REFUSED)


def _lacks_rights(error: Exception) -> bool:
    # heavy: as above
    from pyiceberg.exceptions import ForbiddenError

    code = getattr(getattr(error, "orig", None), "pgcode", None)
    return isinstance(error, ForbiddenError) or code == _NO_RIGHT
