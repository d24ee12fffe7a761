"""What a Spark cluster shows and writes, in which no secret may be."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import urlopen

from devtools.services.spark_cluster import SparkCluster

_ANSWER_S = 600.0


def logs(cluster: SparkCluster) -> Iterator[str]:
    """What master, workers and executors have written, but for the files that hold the secret."""
    folder = cluster.master.secret_file.parent
    for path in (*folder.glob("*.log"), *folder.glob("*-work/*/*/std*")):
        yield path.read_text(errors="replace")


def pages(cluster: SparkCluster) -> Iterator[str]:
    """What the master and the workers show to everybody: their pages, and those of applications
    that run."""
    state = cluster.master.state()
    apps = [f"{cluster.master.page}/app/?appId={one['id']}" for one in state["activeapps"]]
    workers = [one["webuiaddress"] for one in state["workers"]]
    master = cluster.master.page
    for url in (master, f"{master}/json/", f"{master}/environment/", *apps, *workers):
        with urlopen(url, timeout=_ANSWER_S) as answer:
            yield answer.read().decode()
