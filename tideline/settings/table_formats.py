"""The names of table formats, as settings have them."""

from __future__ import annotations

from typing import Literal

TableFormatName = Literal["delta", "iceberg", "bigquery"]
