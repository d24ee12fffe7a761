"""The settings of Spark by which jobs reach a pipeline's store and warehouse."""

from __future__ import annotations

from tideline.contract.target_url import BIGQUERY, ICEBERG
from tideline.settings import Settings
from tideline.warehouse.bigquery.client import BigQueryPlace
from tideline.warehouse.bigquery.names import PLACE_SETTING
from tideline.warehouse.hadoop import s3_settings
from tideline.warehouse.iceberg.catalog import iceberg_settings


def access_settings(settings: Settings) -> dict[str, str]:
    """Return the settings of Spark for a pipeline's places in S3 and for the catalog of its Iceberg
    tables; {} for neither. They can hold secrets.

    Raises Misconfigured for a secret that cannot be read.
    """
    found = s3_settings(settings)
    if ICEBERG in settings.formats_held:  # Only then are there its jars.
        found |= iceberg_settings(settings.warehouse_storage)
    if BIGQUERY in settings.formats_held:
        found[PLACE_SETTING] = BigQueryPlace.of(settings.warehouse_storage).text()
    return found
