"""``python -m devtools bigquery``: BigQuery's API on loopback, for a trial without a project.

It is what tests have: an emulator, and a front before it that is strict where the emulator is
lenient. It stays up until Ctrl-C or SIGTERM, and its tables are gone then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from devtools.bigquery.service import BigQueryService
from devtools.standing import keep_up, toml_lines

FOLDER = Path(__file__).resolve().parents[2] / ".run" / "bigquery"


def run(port: int, folder: Path = FOLDER) -> None:
    """Run it, and print the settings with which commands use it; see `keep_up`.

    Raises Misconfigured where ``port`` is taken, and Unavailable where the emulator cannot be had.
    """

    def lines(service: BigQueryService) -> Iterator[str]:
        yield f"bigquery: {service.endpoint}; an emulator, whose tables are gone when it ends"
        yield "bigquery: in tideline.toml, in the section [warehouse] that init has made:\n"
        settings = {
            "format": "bigquery",
            "bigquery.project": "trial-project",
            "bigquery.endpoint": service.endpoint,
        }
        yield from toml_lines(settings)

    keep_up("bigquery", folder, lambda: BigQueryService(folder, port), lines)
