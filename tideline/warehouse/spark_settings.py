"""The settings of Spark by which jobs reach a pipeline's store and warehouse."""

from __future__ import annotations

from tideline.settings import Settings
from tideline.warehouse.hadoop import s3_settings
from tideline.warehouse.iceberg.catalog import iceberg_settings


def access_settings(settings: Settings) -> dict[str, str]:
    """Return the settings of Spark for a pipeline's places in S3 and for the catalog of its Iceberg
    tables; {} for neither. They can hold secrets.

    Raises Misconfigured for a secret that cannot be read, or for Iceberg tables without a catalog.
    """
    if "iceberg" in settings.formats:
        settings.warehouse.iceberg.need_catalog()
    return {**s3_settings(settings), **iceberg_settings(settings.warehouse_storage)}
