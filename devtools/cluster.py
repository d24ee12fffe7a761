"""``python -m devtools cluster``: a standalone Spark cluster on loopback, for trying merges on one.

It stays up until Ctrl-C or SIGTERM. Its files, the secret among them, are in a folder, by default
``.run/cluster`` of the clone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from devtools.services.spark_cluster import SparkCluster
from devtools.standing import keep_up, toml_lines

FOLDER = Path(__file__).resolve().parents[1] / ".run" / "cluster"


def run(workers: int, cores: int, memory: str, port: int | None, folder: Path = FOLDER) -> None:
    """Run the cluster, and print the settings with which commands use it; see `keep_up`.

    Raises Misconfigured where ``port`` is taken.
    """

    def make() -> SparkCluster:
        return SparkCluster(folder, port=port, workers=workers, cores=cores, memory=memory)

    def lines(cluster: SparkCluster) -> Iterator[str]:
        yield f"cluster: {workers} workers with {cores} cores and {memory} each"
        yield f"cluster: the master's page, without a login: {cluster.master.page}"
        yield "cluster: in the section [merge] of tideline.toml, which init has made:\n"
        yield from toml_lines(cluster.settings)
        yield "shared_files = true    # where store and warehouse are folders of this machine"

    keep_up("cluster", folder, make, lines)
