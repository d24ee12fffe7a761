"""Settings of a Spark that is one process on this machine: for jobs, and for Airflow to start them.

What right values need is not here: every job sets that itself, wherever it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

LOCAL: Mapping[str, str] = {
    # The driver is all there is: nothing else may connect to it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}

SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=400m"
)
"""Java options for a session of a few merges: measured, 35 CPU seconds against 59 for the first
five. A session that stays is better off with the full compiler. With the first compiler alone Java
keeps 48 MB for compiled code, which merges of nine tables fill; Spark then dies. Java collects all
of its memory each time that its classes outgrow what it took them for: Spark's are 200 MB."""
