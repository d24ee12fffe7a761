"""The urls of targets: the scheme names the table format.

A Delta table has the url of its folder: ``s3://lake/shop/orders``. An Iceberg table has one of
catalog, namespace and table: ``iceberg://tideline/shop/orders``; where its files lie is the
catalog's matter. A BigQuery table has one of project, dataset and table:
``bigquery://my-project/shop/orders``.
"""

from __future__ import annotations

from typing import Literal, get_args

from tideline.contract.target_properties import DEFAULT_FORMAT

TableFormatName = Literal["delta", "iceberg", "bigquery"]
"""The table formats, by the names that settings and commands have for them."""
FORMAT_NAMES: tuple[str, ...] = get_args(TableFormatName)

ICEBERG = "iceberg"
"""The format's name, and the scheme of its tables' urls."""
CATALOG = "tideline"
"""The name of the catalog of Iceberg tables, in Spark's SQL and where it has one in itself."""
BIGQUERY = "bigquery"
"""… and of BigQuery's tables."""
_BY_SCHEME = {ICEBERG: ICEBERG, BIGQUERY: BIGQUERY}


def table_format_of(url: str) -> str:
    """Return the name of the table format of the target at ``url``."""
    return _BY_SCHEME.get(url.partition("://")[0], DEFAULT_FORMAT)


def vectors_wanted(url: str, held: bool, wanted: bool) -> bool | None:
    """Return whether the target at ``url`` is ``wanted`` with deletion vectors, where it has none,
    or the other way round; None where it is as wanted, or of a format that knows none."""
    return None if held == wanted or table_format_of(url) == BIGQUERY else wanted
